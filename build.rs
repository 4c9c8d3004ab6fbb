//! Builds the supervisor as a static program, for `include_bytes!` in `sandbox::docker::supervisor`.
//!
//! It is built by a cargo of its own, with its own target directory, because it needs other code
//! generation flags than the daemon: it must run in any image, whatever libc that has.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const PACKAGE: &str = "fumehood-supervisor";

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo talks to build scripts by environment"
)]
fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name} is not set for the build script: {error}"))
}

fn build() -> Result<(), String> {
    for path in ["crates/protocol", "crates/supervisor", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out = PathBuf::from(variable("OUT_DIR")?);
    let architecture = variable("CARGO_CFG_TARGET_ARCH")?;
    // Naming the target keeps the flags away from build scripts and procedural macros, which
    // cannot be static.
    let target = format!("{architecture}-unknown-linux-gnu");
    let target_dir = out.join("supervisor-target");
    let status = Command::new(variable("CARGO")?)
        .args([
            "build",
            "--locked",
            "--release",
            "--package",
            PACKAGE,
            "--bin",
            PACKAGE,
        ])
        .args(["--target", &target, "--target-dir"])
        .arg(&target_dir)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C relocation-model=static -C panic=abort",
        )
        .current_dir(variable("CARGO_MANIFEST_DIR")?)
        .status()
        .map_err(|error| format!("cargo could not be started for the supervisor: {error}"))?;
    if !status.success() {
        return Err(format!(
            "the supervisor did not build ({status}); its errors are above"
        ));
    }
    let built = target_dir.join(&target).join("release").join(PACKAGE);
    copy(&built, &out.join("supervisor"))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(drop).map_err(|error| {
        format!(
            "the built supervisor at {} cannot be copied: {error}",
            from.display()
        )
    })
}
