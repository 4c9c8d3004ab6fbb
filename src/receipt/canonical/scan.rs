//! Whether a text is canonical, from its bytes alone. Needs the memory of the keys around one place,
//! however long the text is.

use super::MAX_SAFE_INTEGER;

/// Deeper than any document of this program.
const MAX_DEPTH: usize = 64;

/// Why a text is not canonical.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// It is no JSON, or JSON in another spelling.
    Spelling,
    /// It is nested more than 64 deep.
    Depth,
}

/// Whether a text is JSON in its one spelling.
///
/// # Errors
///
/// The first [`Flaw`].
pub fn check(text: &str) -> Result<(), Flaw> {
    let mut scan = Scan {
        rest: text,
        is_too_deep: false,
    };
    match scan.value(0) {
        Some(()) if scan.rest.is_empty() => Ok(()),
        _ if scan.is_too_deep => Err(Flaw::Depth),
        Some(()) | None => Err(Flaw::Spelling),
    }
}

/// What is left of the text. A step that is `None` has met what is not canonical.
struct Scan<'t> {
    rest: &'t str,
    is_too_deep: bool,
}

impl Scan<'_> {
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.rest.as_bytes().first()? {
            b'{' | b'[' if depth == MAX_DEPTH => {
                self.is_too_deep = true;
                None
            }
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => self.string(|_| {}),
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => self.integer(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.word("{")?;
        if self.word("}").is_some() {
            return Some(());
        }
        let mut before: Option<String> = None;
        loop {
            let mut key = String::new();
            self.string(|character| key.push(character))?;
            if before.is_some_and(|before| before.encode_utf16().ge(key.encode_utf16())) {
                return None;
            }
            before = Some(key);
            self.word(":")?;
            self.value(depth)?;
            if self.word(",").is_none() {
                return self.word("}");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.word("[")?;
        if self.word("]").is_some() {
            return Some(());
        }
        loop {
            self.value(depth)?;
            if self.word(",").is_none() {
                return self.word("]");
            }
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn integer(&mut self) -> Option<()> {
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        let length = self.rest.bytes().take_while(is_part).count();
        let (digits, rest) = self.rest.split_at(length);
        let integer: i64 = digits.parse().ok()?;
        if integer.abs() > MAX_SAFE_INTEGER || integer.to_string() != digits {
            return None;
        }
        self.rest = rest;
        Some(())
    }

    /// A string; `found` gets its characters.
    fn string(&mut self, mut found: impl FnMut(char)) -> Option<()> {
        self.word("\"")?;
        let mut characters = self.rest.chars();
        loop {
            match characters.next()? {
                '"' => break,
                '\\' => {
                    self.rest = characters.as_str();
                    found(self.escaped()?);
                    characters = self.rest.chars();
                }
                control if control < ' ' => return None,
                other => found(other),
            }
        }
        self.rest = characters.as_str();
        Some(())
    }

    /// What is after the backslash: the shortest escape of a character that has to have one.
    fn escaped(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let character = match characters.next()? {
            short @ ('"' | '\\') => short,
            'b' => '\u{8}',
            't' => '\t',
            'n' => '\n',
            'f' => '\u{c}',
            'r' => '\r',
            'u' => {
                let (digits, rest) = self.rest.get(1..)?.split_at_checked(4)?;
                let code = u32::from_str_radix(digits, 16).ok()?;
                let is_shortest = code < 0x20 && !matches!(code, 0x8..=0xa | 0xc | 0xd);
                if !is_shortest || format!("{code:04x}") != digits {
                    return None;
                }
                self.rest = rest;
                return char::from_u32(code);
            }
            _ => return None,
        };
        self.rest = characters.as_str();
        Some(character)
    }
}
