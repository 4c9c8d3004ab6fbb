//! Takes the host's paths out of what a program shows (security.md row 72 and section 6).
//!
//! A program finds the place of its data set on the host in `/proc/self/mountinfo`, and the kernel
//! offers no way to hide that. Whoever wants to smuggle it out can; this keeps it out of results,
//! events and the store where a traceback or a list of mounts would show it by accident.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is shown instead of a path of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The data set of the run.
    Dataset,
    /// A data root.
    DataRoot,
    /// The directory of the daemon's results.
    Outputs,
    /// The directory of the daemon's state.
    State,
    /// The container engine's directory.
    Engine,
}

impl Place {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Dataset => b"<dataset>",
            Self::DataRoot => b"<data>",
            Self::Outputs => b"<outputs>",
            Self::State => b"<state>",
            Self::Engine => b"<engine>",
        }
    }
}

/// The host's paths, and what is shown instead of each. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Redaction {
    /// The longest first, so that the most exact one is found.
    paths: Arc<Vec<(Vec<u8>, Place)>>,
}

impl Redaction {
    /// Redacts these paths and everything below them. Relative paths and single
    /// names are left out.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = (PathBuf, Place)>) -> Self {
        let mut paths: Vec<(Vec<u8>, Place)> = paths
            .into_iter()
            .filter(|(path, _)| says_something(path))
            .map(|(path, place)| (path.as_os_str().as_bytes().to_vec(), place))
            .collect();
        paths.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        paths.dedup_by(|(one, _), (other, _)| one == other);
        Self {
            paths: Arc::new(paths),
        }
    }

    /// The text with every path replaced.
    #[must_use]
    pub fn text(&self, text: String) -> String {
        match self.replaced(text.as_bytes(), true) {
            // Only whole paths were replaced, by text.
            Some((bytes, _)) => String::from_utf8_lossy(&bytes).into_owned(),
            None => text,
        }
    }

    /// A stream that is redacted piece by piece.
    #[must_use]
    pub fn stream(&self) -> RedactedStream {
        RedactedStream {
            redaction: self.clone(),
            held: Vec::new(),
        }
    }

    /// The bytes with every path replaced, and how many of them were dealt with: what may be the
    /// beginning of a path is left over unless this `is_all`. `None` if everything stays as it is.
    fn replaced(&self, bytes: &[u8], is_all: bool) -> Option<(Vec<u8>, usize)> {
        let mut replaced = None;
        let mut copied = 0;
        let mut next = 0;
        while let Some(slash) = find_slash(bytes, next) {
            match self.look(&bytes[slash..], is_all) {
                Look::Path(length, place) => {
                    let kept: &mut Vec<u8> = replaced.get_or_insert_default();
                    kept.extend_from_slice(&bytes[copied..slash]);
                    kept.extend_from_slice(place.name());
                    copied = slash + length;
                    next = copied;
                }
                Look::Other => next = slash + 1,
                Look::Unfinished => {
                    let kept = replaced.get_or_insert_default();
                    kept.extend_from_slice(&bytes[copied..slash]);
                    return Some((replaced.unwrap_or_default(), slash));
                }
            }
        }
        replaced.map(|mut kept| {
            kept.extend_from_slice(&bytes[copied..]);
            (kept, bytes.len())
        })
    }

    /// What begins here.
    fn look(&self, bytes: &[u8], is_all: bool) -> Look {
        for (path, place) in self.paths.iter() {
            match bytes.strip_prefix(path.as_slice()) {
                Some([]) if !is_all => return Look::Unfinished,
                Some(rest) if rest.first().is_none_or(|byte| ends_a_name(*byte)) => {
                    return Look::Path(path.len(), *place);
                }
                Some(_) => {}
                None if !is_all && path.starts_with(bytes) => return Look::Unfinished,
                None => {}
            }
        }
        Look::Other
    }
}

enum Look {
    /// A path of so many bytes.
    Path(usize, Place),
    /// What follows decides.
    Unfinished,
    Other,
}

/// Whether a path says something of the host. A single name, such as `/data`, is one that programs
/// know as well, and too often a part of something else.
fn says_something(path: &Path) -> bool {
    path.is_absolute() && path.components().count() > 2
}

fn find_slash(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.iter()
        .position(|&byte| byte == b'/')
        .map(|at| from + at)
}

/// Whether a directory's name is over before this byte: `/srv/data` is not in `/srv/database`.
fn ends_a_name(byte: u8) -> bool {
    !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || byte >= 0x80)
}

/// A stream on its way to a reader. What may be the beginning of a path waits for what follows: at
/// most the length of the longest path.
#[derive(Debug)]
pub struct RedactedStream {
    redaction: Redaction,
    held: Vec<u8>,
}

impl RedactedStream {
    /// Takes the next bytes; gives those that can be shown by now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        match self.redaction.replaced(&self.held, false) {
            Some((shown, dealt_with)) => {
                self.held.drain(..dealt_with);
                shown
            }
            None => std::mem::take(&mut self.held),
        }
    }

    /// The rest.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        match self.redaction.replaced(&held, true) {
            Some((shown, _)) => shown,
            None => held,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redaction() -> Redaction {
        Redaction::new([
            (PathBuf::from("/srv/lab"), Place::DataRoot),
            (PathBuf::from("/srv/lab/secret/set"), Place::Dataset),
            (PathBuf::from("/var/lib/fumehood"), Place::State),
        ])
    }

    fn text(of: &str) -> String {
        redaction().text(of.to_owned())
    }

    #[test]
    fn the_most_exact_path_is_replaced_and_what_is_below_it_stays() {
        assert_eq!(
            text("a /srv/lab/secret/set/x.csv, /srv/lab, /srv/lab/other"),
            "a <dataset>/x.csv, <data>, <data>/other"
        );
        assert_eq!(text("/var/lib/fumehood"), "<state>");
        assert_eq!(text("file:///srv/lab/x"), "file://<data>/x");
    }

    #[test]
    fn names_that_only_begin_alike_stay() {
        for same in [
            "/srv/laboratory",
            "/srv/lab-2/x",
            "/srv/lab.old",
            "/srv",
            "é/srv/labé",
        ] {
            assert_eq!(text(same), same);
        }
    }

    #[test]
    fn single_names_and_relative_paths_stay() {
        let paths = ["/data", "/", "relative/path", "/tmp"].map(|path| (path.into(), Place::State));
        let of = "/data/a.csv / relative/path /tmp/x";
        assert_eq!(Redaction::new(paths).text(of.to_owned()), of);
    }

    #[test]
    fn a_prompt_is_shown_at_once_and_a_path_in_pieces_is_found() {
        let mut stream = redaction().stream();
        assert_eq!(stream.push(b"1/2 /"), b"1/2 ");
        assert_eq!(stream.push(b"srv"), b"");
        assert_eq!(stream.push(b"/lab"), b"");
        assert_eq!(stream.push(b"/x"), b"<data>/x");
        assert_eq!(stream.push(b" /srv/lab"), b" ");
        assert_eq!(stream.finish(), b"<data>");
        assert_eq!(stream.finish(), b"");
    }

    proptest! {
        #[test]
        fn pieces_show_the_same_as_the_whole(
            words in prop::collection::vec(
                prop::sample::select(vec!["/srv/lab", "/secret/set", "/", "srv", "x", " ", "/var/lib/fumehood"]),
                0..12,
            ),
            size in 1_usize..9,
        ) {
            let whole = words.concat();
            let mut stream = redaction().stream();
            let mut shown: Vec<u8> = Vec::new();
            for piece in whole.as_bytes().chunks(size) {
                shown.extend(stream.push(piece));
            }
            shown.extend(stream.finish());
            prop_assert_eq!(String::from_utf8(shown).unwrap(), text(&whole));
            let again = text(&text(&whole));
            prop_assert_eq!(again, text(&whole));
        }
    }
}
