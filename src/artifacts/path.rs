//! The name of an artifact: relative, printable, and the same in the listing and on the disk.

use std::fmt::Write as _;

/// The longest component that file systems take, in bytes.
const MAX_COMPONENT_BYTES: usize = 255;

/// The longest path, in bytes.
pub const MAX_PATH_BYTES: u32 = 1024;

/// The deepest directory below the artifact directory.
pub const MAX_DEPTH: u32 = 32;

/// A path relative to the artifact directory, one checked name per component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactPath {
    components: Vec<String>,
}

/// Why bytes are no name for an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Absolute, empty, or with an empty, `.` or `..` component, or a NUL.
    #[error("the name would leave the artifact directory")]
    Escapes,
    /// Too long once it is made printable, or too deep.
    #[error("the name is too long or too deep")]
    TooLong,
}

impl ArtifactPath {
    /// Checks a path of the workspace's file system. Bytes that are no UTF-8, control characters
    /// and characters that reorder text are written as `%` and two hexadecimal digits each, so
    /// that a listing shows one line per file and no name in disguise (security.md row 59).
    ///
    /// # Errors
    ///
    /// [`BadName`]; the file is to be skipped.
    pub fn from_bytes(path: &[u8]) -> Result<Self, BadName> {
        if path.is_empty() || path.contains(&0) {
            return Err(BadName::Escapes);
        }
        let components: Vec<String> = path
            .split(|&byte| byte == b'/')
            .map(component)
            .collect::<Result<_, _>>()?;
        let length: usize = components.iter().map(|name| name.len() + 1).sum();
        if length > MAX_PATH_BYTES as usize || components.len() > MAX_DEPTH as usize + 1 {
            return Err(BadName::TooLong);
        }
        Ok(Self { components })
    }

    /// The directories on the way, outermost first.
    #[must_use]
    pub fn parents(&self) -> &[String] {
        self.components
            .split_last()
            .map_or(&[], |(_, parents)| parents)
    }

    /// The last component.
    #[must_use]
    pub fn name(&self) -> &str {
        self.components.last().map_or("", String::as_str)
    }

    /// All components, outermost first.
    #[must_use]
    pub fn components(&self) -> &[String] {
        &self.components
    }
}

impl std::fmt::Display for ArtifactPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.components.join("/"))
    }
}

fn component(bytes: &[u8]) -> Result<String, BadName> {
    if matches!(bytes, b"" | b"." | b"..") {
        return Err(BadName::Escapes);
    }
    let name = printable(bytes);
    if name.len() > MAX_COMPONENT_BYTES {
        Err(BadName::TooLong)
    } else {
        Ok(name)
    }
}

/// Text for people from bytes of any kind, such as the name of a skipped file.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_plain(character) {
                text.push(character);
            } else {
                escape(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

/// Whether a character can stand in a line of text without changing what surrounds it.
fn is_plain(character: char) -> bool {
    let reorders = matches!(character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks_lines = matches!(character, '\u{2028}' | '\u{2029}');
    !character.is_control() && !reorders && !breaks_lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(path: &[u8]) -> Result<String, BadName> {
        ArtifactPath::from_bytes(path).map(|path| path.to_string())
    }

    #[test]
    fn ordinary_and_odd_but_harmless_names_are_kept() {
        for name in [
            "a.csv",
            "models/m.pkl",
            "né.csv",
            "ne\u{301}.csv",
            "-rf",
            "CON",
            "a:b|c?.txt",
            "%2e%2e%2fx",
            "..\\..\\x",
            " lead and trail ",
            "q\"q.html",
            ".hidden",
            "...",
        ] {
            assert_eq!(shown(name.as_bytes()).as_deref(), Ok(name));
        }
    }

    #[test]
    fn what_a_listing_cannot_show_is_escaped() {
        assert_eq!(shown(b"\xff\xfe.bin").as_deref(), Ok("%FF%FE.bin"));
        assert_eq!(shown(b"a\nb\rc.txt").as_deref(), Ok("a%0Ab%0Dc.txt"));
        assert_eq!(
            shown("\u{202e}gpj.exe".as_bytes()).as_deref(),
            Ok("%E2%80%AEgpj.exe")
        );
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in [
            &b""[..],
            b"/etc/passwd",
            b"../x",
            b"a/../x",
            b"a//b",
            b"./a",
            b".",
            b"a\0b",
        ] {
            assert_eq!(shown(name), Err(BadName::Escapes));
        }
        assert_eq!(shown(&[b'n'; 256]), Err(BadName::TooLong));
        assert_eq!(shown(&[0xff; 100]), Err(BadName::TooLong));
        assert_eq!(
            shown("d/".repeat(40).trim_end_matches('/').as_bytes()),
            Err(BadName::TooLong)
        );
    }

    proptest! {
        #[test]
        fn no_accepted_name_leaves_the_directory_or_breaks_a_line(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            if let Ok(path) = ArtifactPath::from_bytes(&bytes) {
                let text = path.to_string();
                prop_assert!(!text.starts_with('/') && !text.chars().any(char::is_control));
                for name in path.components() {
                    prop_assert!(!name.contains('/') && ![".", "..", ""].contains(&name.as_str()));
                }
            }
        }
    }
}
