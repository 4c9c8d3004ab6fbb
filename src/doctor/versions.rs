//! Versions and the floors under them (row 66): pure comparison of numbers.
//!
//! A number tells nothing of what a distribution has fixed on its own; the card says so.

/// A version as numbers: a release is above its release candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
    /// The number of a release candidate; a release has the largest.
    candidate: u32,
}

impl Version {
    /// A release.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
            candidate: u32::MAX,
        }
    }

    /// A release candidate.
    #[must_use]
    pub const fn candidate(major: u32, minor: u32, patch: u32, candidate: u32) -> Self {
        Self {
            major,
            minor,
            patch,
            candidate,
        }
    }

    /// Reads `1.1.5+deb12u1`, `v1.4.0-rc.3`, `20.10.24+dfsg1` or `6.18.5-generic`; `None` if there
    /// are no two numbers at its beginning.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let end = text.find(|c: char| c != '.' && !c.is_ascii_digit());
        let (numbers, rest) = text.split_at(end.unwrap_or(text.len()));
        let mut parts = numbers.split('.').map(str::parse::<u32>);
        let major = parts.next()?.ok()?;
        let minor = parts.next()?.ok()?;
        let patch = parts.next().and_then(Result::ok).unwrap_or_default();
        let candidate = rest
            .trim_start_matches(['-', '~'])
            .strip_prefix("rc")
            .map(|rest| rest.trim_start_matches(['.', '-']))
            .and_then(|rest| {
                let end = rest.find(|c: char| !c.is_ascii_digit());
                rest[..end.unwrap_or(rest.len())].parse().ok()
            });
        Some(Self {
            major,
            minor,
            patch,
            candidate: candidate.unwrap_or(u32::MAX),
        })
    }

    fn line(self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Whether this is at or above the floor of its line. `floors` has the first good version of
    /// each line that was fixed, in order: a line without one is good only above all of them.
    #[must_use]
    pub fn meets(self, floors: &[Self]) -> bool {
        match floors.iter().find(|floor| floor.line() == self.line()) {
            Some(floor) => self >= *floor,
            None => floors.last().is_some_and(|last| self.line() > last.line()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        for (text, version) in [
            ("1.1.5+deb12u1", Version::new(1, 1, 5)),
            ("1.1.5+ds1", Version::new(1, 1, 5)),
            ("v1.4.0-rc.3", Version::candidate(1, 4, 0, 3)),
            ("1.4.0~rc2", Version::candidate(1, 4, 0, 2)),
            ("20.10.24+dfsg1", Version::new(20, 10, 24)),
            ("6.18.5", Version::new(6, 18, 5)),
            ("6.18.5-generic", Version::new(6, 18, 5)),
            ("29.5", Version::new(29, 5, 0)),
        ] {
            assert_eq!(Version::parse(text), Some(version), "{text}");
        }
        for text in ["", "dev", "1", ".5", "library-import"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_floor_holds_for_its_own_line_and_for_what_is_above_all_of_them() {
        let floors = [
            Version::new(1, 2, 8),
            Version::new(1, 3, 3),
            Version::candidate(1, 4, 0, 3),
        ];
        for (text, meets) in [
            ("1.1.99", false),
            ("1.2.7", false),
            ("1.2.8", true),
            ("1.3.2", false),
            ("1.3.10", true),
            ("1.4.0-rc.2", false),
            ("1.4.0-rc.3", true),
            ("1.4.0", true),
            ("1.5.0", true),
            ("2.0.0", true),
        ] {
            let version = Version::parse(text).unwrap();
            assert_eq!(version.meets(&floors), meets, "{text}");
        }
    }
}
