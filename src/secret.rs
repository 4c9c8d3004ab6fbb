//! Text that must not be shown by accident.

use std::fmt;

use zeroize::Zeroizing;

/// A secret text. Whatever prints it prints `***`; its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself, for the one place that has to have it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_nowhere_but_where_it_is_asked_for() {
        let secret = Secret::new("fh_secret".to_owned());
        assert_eq!(format!("{secret} {secret:?} {:#?}", Some(&secret)), {
            "*** *** Some(\n    ***,\n)"
        });
        assert_eq!(secret.expose(), "fh_secret");
    }
}
