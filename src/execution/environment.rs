//! The program's whole environment (contract section 2.10): a list, not a filter.

use super::spec::SandboxLimits;

/// Where things are inside a sandbox.
pub mod place {
    /// The workspace: a tmpfs, the program's working directory.
    pub const WORKSPACE: &str = "/work";
    /// The data set, read-only.
    pub const DATASET: &str = "/data";
    /// Whose contents become artifacts.
    pub const OUTPUT: &str = "/work/out";
    /// Temporary files.
    pub const TEMPORARY: &str = "/tmp";
}

/// The environment of a program in a sandbox with `limits`, sorted by name.
///
/// Nothing of the daemon's environment or of the image's is in it. The thread counts follow the
/// CPU limit, because libraries count the host's cores (BR-46).
#[must_use]
pub fn environment(limits: &SandboxLimits) -> Vec<(String, String)> {
    let threads = thread_count(limits.nano_cpus);
    let fixed = [
        ("FUMEHOOD_DATASET", place::DATASET),
        ("FUMEHOOD_OUTPUT", place::OUTPUT),
        ("HOME", "/work/.home"),
        ("LANG", "C.UTF-8"),
        ("MKL_NUM_THREADS", &threads),
        ("MPLCONFIGDIR", "/work/.cache/matplotlib"),
        ("NUMBA_CACHE_DIR", "/work/.cache/numba"),
        ("NUMEXPR_NUM_THREADS", &threads),
        ("OMP_NUM_THREADS", &threads),
        ("OPENBLAS_NUM_THREADS", &threads),
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ),
        ("PYTHONUNBUFFERED", "1"),
        ("XDG_CACHE_HOME", "/work/.cache"),
    ];
    fixed
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Threads that make sense under a CPU limit: its whole part, at least one.
fn thread_count(nano_cpus: u64) -> String {
    (nano_cpus / 1_000_000_000).max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::thread_count;

    #[test]
    fn thread_counts_follow_the_cpu_limit() {
        for (tenths, threads) in [(5, "1"), (10, "1"), (19, "1"), (20, "2"), (160, "16")] {
            assert_eq!(thread_count(tenths * 100_000_000), threads);
        }
    }
}
