//! The key of the model: read once, and then in no environment any more.
//!
//! What the kernel shows as a process's environment (`/proc/<pid>/environ`) is what it was started with:
//! taking a variable out afterwards changes nothing there. A daemon that finds its key in a variable
//! therefore starts itself again, in the same process, without it, and with the key in a pipe.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use crate::config::secret_variable;
use crate::secret::Secret;

/// The flag that says where the key is.
pub(super) const FLAG: &str = "llm-key-stdin";

/// A longer key is none. A pipe takes as much without a reader.
const MAX_KEY_BYTES: u64 = 4096;

/// Why the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyError {
    #[error("the key of the model on standard input cannot be read")]
    Input(#[source] io::Error),
    #[error("the key of the model is longer than {MAX_KEY_BYTES} bytes or no text")]
    NoKey,
    #[error(
        "the key of the model could not be taken out of the environment; give it on standard input, with \
         --llm-key-stdin"
    )]
    Restart(#[source] io::Error),
}

/// The key, from standard input if it is there. If one is in the variable `name`, used or not, this process
/// is started anew and does not come back.
pub(super) fn take(name: &str, on_stdin: bool) -> Result<Option<Secret>, KeyError> {
    let given = if on_stdin {
        Some(read(io::stdin().lock())?)
    } else {
        None
    };
    let Some(found) = secret_variable(name) else {
        return Ok(given);
    };
    let key = given.unwrap_or(found);
    if key.expose().len() as u64 > MAX_KEY_BYTES {
        return Err(KeyError::NoKey);
    }
    Err(KeyError::Restart(restart(name, &key, on_stdin)))
}

fn read(input: impl io::Read) -> Result<Secret, KeyError> {
    let mut text = zeroize::Zeroizing::new(String::new());
    match input.take(MAX_KEY_BYTES + 1).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(KeyError::NoKey),
        Err(error) => return Err(KeyError::Input(error)),
    }
    let key = text.trim();
    if key.is_empty() || text.len() as u64 > MAX_KEY_BYTES {
        return Err(KeyError::NoKey);
    }
    Ok(Secret::new(key.to_owned()))
}

/// Does not return unless it fails.
fn restart(name: &str, key: &Secret, is_told: bool) -> io::Error {
    let prepared = || -> io::Result<Command> {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(key.expose().as_bytes())?;
        let mut arguments = std::env::args_os();
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(own) = arguments.next() {
            command.arg0(own);
        }
        command.args(arguments);
        if !is_told {
            command.arg(format!("--{FLAG}"));
        }
        command
            .env_remove(OsStr::new(name))
            .stdin(Stdio::from(reader));
        Ok(command)
    };
    match prepared() {
        Ok(mut command) => command.exec(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_line_of_text() {
        let key = |bytes: &[u8]| read(bytes).map(|key| key.expose().to_owned());
        assert_eq!(key(b"sk-x\n").unwrap(), "sk-x");
        for bad in [&b""[..], b" \n", b"\xff", &[b'x'; 5000]] {
            assert!(matches!(key(bad), Err(KeyError::NoKey)));
        }
    }
}
