//! Who a daemon is to the engine: the id in the labels and names of everything that it makes there, kept in
//! its state directory. What carries the id is its own to remove, so there is one daemon with it.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use super::AppError;
use crate::durable::{make_directory, sync_directory};
use crate::ids::InstanceId;

/// Reads the identity that is kept in the file `owner` of a state directory, or makes one if there is none.
///
/// # Errors
///
/// [`AppError::Identity`] if the file holds anything else: what it held may still run.
pub(super) fn read_or_make(state_dir: &Path, owner: &str) -> Result<InstanceId, AppError> {
    let path = state_dir.join(owner);
    let unusable = |source| AppError::State {
        path: state_dir.to_owned(),
        source,
    };
    make_directory(state_dir, 0o700).map_err(unusable)?;
    match std::fs::read(&path) {
        Ok(bytes) => {
            // Editors end a line.
            let text = String::from_utf8_lossy(&bytes);
            InstanceId::parse(text.trim_ascii_end()).ok_or(AppError::Identity { path })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make(state_dir, &path).map_err(unusable)
        }
        Err(error) => Err(unusable(error)),
    }
}

fn make(state_dir: &Path, path: &Path) -> io::Result<InstanceId> {
    let made = InstanceId::random();
    let mut file = tempfile::NamedTempFile::new_in(state_dir)?;
    io::Write::write_all(&mut file, made.as_str().as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // Before anything carries it: what is made on the engine has to be known as ours for ever.
    sync_directory(state_dir)?;
    Ok(made)
}

/// Shows that this process is the daemon with an identity, as long as it lives: a state directory can be
/// copied, and its lock with it. Known on this host, or in this container.
#[derive(Debug)]
pub(super) struct Claim(
    /// Never listened to: a name of the kernel's, which is free again when this is closed.
    #[expect(dead_code, reason = "held, not read")]
    UnixListener,
);

/// Claims an identity.
///
/// # Errors
///
/// [`AppError::IdentityInUse`] if another daemon has it.
pub(super) fn claim(instance: &InstanceId) -> Result<Claim, AppError> {
    let name = format!("fumehood-{instance}");
    let listening =
        SocketAddr::from_abstract_name(name).and_then(|name| UnixListener::bind_addr(&name));
    listening
        .map(Claim)
        .map_err(|source| AppError::IdentityInUse {
            instance: instance.clone(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_stays_whatever_editor_it_was_written_with() {
        let place = tempfile::tempdir().unwrap();
        let read = || read_or_make(place.path(), "instance");
        let made = read().unwrap();
        assert_eq!(read().unwrap(), made);
        let file = place.path().join("instance");
        std::fs::write(&file, format!("{made}\n")).unwrap();
        assert_eq!(read().unwrap(), made);
    }

    #[test]
    fn a_file_that_holds_no_identity_is_refused_and_stays_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("instance");
        for text in [
            "",
            "abcdefghijk",
            "abcdefghijkl mnopqrstuvwx",
            "\u{feff}abcdefghijkl",
        ] {
            std::fs::write(&file, text).unwrap();
            let read = read_or_make(place.path(), "instance");
            assert!(matches!(read, Err(AppError::Identity { .. })), "{text:?}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn an_identity_is_claimed_once_at_a_time() {
        let id = InstanceId::random();
        let first = claim(&id).unwrap();
        assert!(matches!(claim(&id), Err(AppError::IdentityInUse { .. })));
        claim(&InstanceId::random()).unwrap();
        drop(first);
        claim(&id).unwrap();
    }
}
