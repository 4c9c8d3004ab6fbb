//! Sections C and F of the security bar: what the program can write to, run and find, and what of
//! it comes out.

use super::findings::{SETTINGS, all, broken, decide, differs, holds, others, some, summary};
use super::{Area, Control, Finding, Mark};
use crate::doctor::facts::{SandboxFacts, Temporary};
use crate::execution::environment::place;
use crate::sandbox::policy::SUPERVISOR_DIRECTORY;

const REPORT: &str = "This is the supervisor's work, not the host's: report it";

/// What the kernel says to those who may not write.
const REFUSED: &[&str] = &["EACCES", "ENOENT", "EPERM", "EROFS", "ETXTBSY"];

const SHARED_MEMORY: &str = "/dev/shm";

/// Rows 25 to 34 and 56 to 58.
pub const TABLE: &[Control<SandboxFacts>] = &[
    Control {
        number: "25",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "read-only root",
        expected: "mounted so, and EROFS",
        remedy: SETTINGS,
        judge: root,
    },
    Control {
        number: "26",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "/tmp: sized, nothing runs from it",
        expected: "ENOSPC in bytes and files, EACCES",
        remedy: SETTINGS,
        judge: |facts| {
            let size = facts.sizes.temporary;
            temporary(facts, place::TEMPORARY, size.bytes, Some(size.inodes))
        },
    },
    Control {
        number: "27",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "workspace: sized, the program's alone",
        expected: "0700, own, ENOSPC, EACCES",
        remedy: SETTINGS,
        judge: workspace,
    },
    Control {
        number: "28",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "data set read-only",
        expected: "every change refused, the same afterwards",
        remedy: SETTINGS,
        judge: dataset,
    },
    Control {
        number: "29",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "data set is the one that was checked",
        expected: "same device and inode inside",
        remedy: "The engine sees another file system than this daemon: run both on one host",
        judge: |facts| match (facts.dataset_is_the_checked_one, facts.has_own_kernel()) {
            (true, _) => holds("the same"),
            (false, true) => differs("its own kernel numbers files itself"),
            (false, false) => broken("another directory"),
        },
    },
    Control {
        number: "30",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "nothing else is mounted",
        expected: "the listed mounts alone",
        remedy: SETTINGS,
        judge: mounts,
    },
    Control {
        number: "31",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "image by digest",
        expected: "the engine says the id that was asked for",
        remedy: SETTINGS,
        judge: |facts| {
            let applied = &facts.applied.image;
            let short: String = applied.chars().take(19).collect();
            decide(
                applied == &facts.image && applied.starts_with("sha256:"),
                short,
            )
        },
    },
    Control {
        number: "32",
        mark: Mark::Strong,
        area: Area::Files,
        title: "image without set-id files",
        expected: "none",
        remedy: "Build the image with `chmod a-s` on them; images/python does so",
        judge: |facts| {
            let found = &facts.seen.files.set_id_files;
            if found.is_empty() {
                holds("none")
            } else {
                broken(some(found))
            }
        },
    },
    Control {
        number: "33",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "/dev/shm: sized, nothing runs from it",
        expected: "ENOSPC, EACCES",
        remedy: SETTINGS,
        judge: |facts| temporary(facts, SHARED_MEMORY, facts.sizes.shared_memory_bytes, None),
    },
    Control {
        number: "34",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "nothing written reaches the host's disk",
        expected: "whatever is writable is in memory",
        remedy: SETTINGS,
        judge: disk,
    },
    Control {
        number: "56",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "collected when nothing runs any more",
        expected: "no survivor",
        remedy: REPORT,
        judge: |facts| match &facts.collected {
            None => broken("nothing was collected"),
            Some(collected) => decide(
                collected.survivors == 0,
                format!("{} survivors", collected.survivors),
            ),
        },
    },
    Control {
        number: "57",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "regular files alone come out",
        expected: "link and socket are left out and listed",
        remedy: REPORT,
        judge: kinds,
    },
    Control {
        number: "58",
        mark: Mark::Mandatory,
        area: Area::Files,
        title: "results are bounded",
        expected: "what is too large is left out and listed",
        remedy: REPORT,
        judge: |facts| {
            let Some(collected) = &facts.collected else {
                return broken("nothing was collected");
            };
            let left_out = collected.skipped.get("out/large").map(String::as_str);
            decide(
                left_out == Some("TotalBytes") && collected.bytes <= collected.cap_bytes,
                format!(
                    "{} of {} bytes, the large one: {}",
                    collected.bytes,
                    collected.cap_bytes,
                    left_out.unwrap_or("not left out")
                ),
            )
        },
    },
];

fn root(facts: &SandboxFacts) -> Finding {
    let files = &facts.seen.files;
    let written = others(&files.root, |_, answer| REFUSED.contains(&answer));
    let own_kernel = facts.has_own_kernel();
    // Not being root is enough to be refused: EROFS tells that nobody could.
    let answer = files.root.get("/x").map_or("not tried", String::as_str);
    let mut here = files.mounts.iter().filter(|mount| mount.target == "/");
    let mounted = here.next_back().is_some_and(|mount| mount.has("ro"));
    let conditions = [
        (written.is_empty(), some(&written)),
        (own_kernel || answer == "EROFS", format!("/x: {answer}")),
        (mounted, "/ is not mounted read-only".to_owned()),
        (!files.root.is_empty(), "nothing was tried".to_owned()),
    ];
    all(&conditions, summary(&files.root))
}

/// A sized tmpfs from which nothing runs.
fn temporary(facts: &SandboxFacts, place: &str, bytes: u64, inodes: Option<u64>) -> Finding {
    let files = &facts.seen.files;
    let Some(seen) = files.temporary.get(place) else {
        return broken(format!("{place} was not looked at"));
    };
    let Temporary {
        bytes: size,
        inodes: places,
        fill,
        files: made,
        execute,
    } = seen;
    let own_kernel = facts.has_own_kernel();
    let inodes_hold = inodes.is_none_or(|most| *places <= most && made.0 == "ENOSPC");
    let mut mounted = files.mounts.iter().filter(|mount| mount.target == place);
    let closed = mounted.next_back().is_some_and(|mount| {
        ["noexec", "nosuid", "nodev"]
            .iter()
            .all(|flag| mount.has(flag))
    });
    let conditions = [
        (*size <= bytes, format!("{size} bytes instead of {bytes}")),
        (fill.0 == "ENOSPC", format!("filling it: {}", fill.0)),
        (
            own_kernel || inodes_hold,
            format!("{places} inodes, making files: {}", made.0),
        ),
        (execute == "EACCES", format!("running a file: {execute}")),
        (
            own_kernel || closed,
            "noexec, nosuid or nodev is missing".to_owned(),
        ),
    ];
    all(&conditions, format!("{} MiB, noexec", size >> 20))
}

fn workspace(facts: &SandboxFacts) -> Finding {
    let seen = &facts.seen.files.workspace;
    if seen.mode != "0o700" || !seen.owned || seen.write != "ok" {
        return broken(format!(
            "mode {}, own: {}, writing: {}",
            seen.mode, seen.owned, seen.write
        ));
    }
    let size = facts.sizes.workspace;
    temporary(facts, place::WORKSPACE, size.bytes, Some(size.inodes))
}

fn dataset(facts: &SandboxFacts) -> Finding {
    let tried = &facts.seen.files.dataset;
    // That it can be read shows that what was refused was refused for a reason.
    let read = tried.get("read").map_or("not tried", String::as_str);
    let done = others(tried, |name, answer| answer != "ok" || name == "read");
    let conditions = [
        (read == "ok", format!("reading it: {read}")),
        (done.is_empty(), some(&done)),
        (
            facts.dataset_unchanged,
            "it is not the same afterwards".to_owned(),
        ),
    ];
    all(&conditions, summary(tried))
}

/// Where something may be mounted: by us, and by the engine.
const MOUNTED: [&str; 14] = [
    "/",
    "/data",
    "/dev",
    "/dev/mqueue",
    "/dev/pts",
    SHARED_MEMORY,
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    SUPERVISOR_DIRECTORY,
    "/proc",
    "/sys",
    place::TEMPORARY,
    place::WORKSPACE,
];

fn mounts(facts: &SandboxFacts) -> Finding {
    let files = &facts.seen.files;
    let foreign: Vec<&str> = files
        .mounts
        .iter()
        .filter(|mount| {
            let target = mount.target.as_str();
            let below_kernel = target.starts_with("/proc/") || target.starts_with("/sys/");
            // Masks and control groups: nothing from a disk.
            let is_known = below_kernel && IN_MEMORY.contains(&mount.kind.as_str());
            !MOUNTED.contains(&target) && !is_known
        })
        .map(|mount| mount.target.as_str())
        .collect();
    let conditions = [
        (!files.mounts.is_empty(), "no mount is told".to_owned()),
        (foreign.is_empty(), some(&foreign)),
    ];
    all(
        &conditions,
        format!("{} mounts, all known", files.mounts.len()),
    )
}

/// File systems that are no disk.
const IN_MEMORY: [&str; 7] = [
    "cgroup", "cgroup2", "devpts", "mqueue", "proc", "sysfs", "tmpfs",
];

fn disk(facts: &SandboxFacts) -> Finding {
    let mounts = facts.seen.files.mounts.iter();
    let on_disk: Vec<&str> = mounts
        .filter(|mount| mount.has("rw") && !IN_MEMORY.contains(&mount.kind.as_str()))
        .map(|mount| mount.target.as_str())
        // Whether the data set can be written to is row 28.
        .filter(|target| *target != place::DATASET)
        .collect();
    let conditions = [(on_disk.is_empty(), some(&on_disk))];
    all(&conditions, "nothing on disk is writable")
}

fn kinds(facts: &SandboxFacts) -> Finding {
    let Some(collected) = &facts.collected else {
        return broken("nothing was collected");
    };
    let reason = |path: &str| {
        let found = collected.skipped.get(path).map(String::as_str);
        found.unwrap_or("not left out").to_owned()
    };
    let (link, socket) = (reason("out/link"), reason("out/socket"));
    let regular = collected.files.iter().any(|path| path == "out/regular");
    let came_out = |path: &str| collected.files.iter().any(|file| file == path);
    let conditions = [
        (regular, "not even the regular file came out".to_owned()),
        (
            link == "SymbolicLink" && !came_out("out/link"),
            format!("a link: {link}"),
        ),
        (
            // A profile may keep the socket from being made in the first place.
            !came_out("out/socket") && (socket == "SpecialFile" || socket == "not left out"),
            format!("a socket: {socket}"),
        ),
    ];
    all(&conditions, format!("link: {link}, socket: {socket}"))
}
