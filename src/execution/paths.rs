//! Names of files inside a workspace: relative, normal, and never outside (contract section 2.3).

use super::spec::{SCRIPT_NAME, SETUP_NAME};

/// The longest accepted name, in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// The longest accepted component, in bytes: what file systems accept.
const MAX_COMPONENT_BYTES: usize = 255;

/// A name that would leave the workspace or replace one of its own files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Insecure file path detected: Invalid path {name} escapes workspace.")]
pub struct InsecurePath {
    name: String,
}

/// Checks and normalises the name of an input file: `./a//b` becomes `a/b`.
///
/// # Errors
///
/// [`InsecurePath`] if the name is empty, absolute, `.`, holds a NUL, is too long for a file
/// system, resolves outside the workspace or to one of the files that are the daemon's.
pub fn input_file_path(name: &str) -> Result<String, InsecurePath> {
    let refuse = || InsecurePath {
        name: name.chars().take(200).collect(),
    };
    if name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || name.starts_with('/')
        || name.contains('\0')
    {
        return Err(refuse());
    }
    let mut components: Vec<&str> = Vec::new();
    for component in name.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                components.pop().ok_or_else(refuse)?;
            }
            _ if component.len() > MAX_COMPONENT_BYTES => return Err(refuse()),
            _ => components.push(component),
        }
    }
    let path = components.join("/");
    let own = [SCRIPT_NAME, SETUP_NAME].contains(&components.first().copied().unwrap_or_default());
    if path.is_empty() || own || path == super::spec::OUTPUT_DIRECTORY {
        return Err(refuse());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_kept_and_normalised() {
        for (name, path) in [
            ("a.csv", "a.csv"),
            ("data/a.csv", "data/a.csv"),
            ("./a//b", "a/b"),
            ("x/../a", "a"),
            ("out/seed.txt", "out/seed.txt"),
            ("..a", "..a"),
            ("lib/script.py", "lib/script.py"),
        ] {
            assert_eq!(input_file_path(name).as_deref(), Ok(path));
        }
    }

    #[test]
    fn names_that_leave_the_workspace_or_replace_its_files_are_refused() {
        let long = "x".repeat(300);
        for name in [
            "",
            ".",
            "..",
            "/",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a\0b",
            "script.py",
            "./script.py",
            "x/../setup.sh",
            "script.py/x",
            "out",
            long.as_str(),
        ] {
            let error = input_file_path(name).unwrap_err();
            assert!(
                error.to_string().ends_with("escapes workspace."),
                "{name:?}"
            );
        }
        let text = "Insecure file path detected: Invalid path ../x escapes workspace.";
        assert_eq!(input_file_path("../x").unwrap_err().to_string(), text);
    }
}
