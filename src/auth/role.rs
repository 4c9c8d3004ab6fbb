//! What a token allows.

use serde::{Deserialize, Serialize};

/// A role; each can do all that those before it can.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks at the runs of its tenant.
    Read,
    /// Submits runs and cancels them, too.
    Submit,
    /// Looks at the settings of the daemon, too.
    Admin,
}

impl Role {
    /// The role as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Admin => "admin",
        }
    }

    /// Whether it is enough where `needed` is needed.
    #[must_use]
    pub fn is_enough_for(self, needed: Self) -> bool {
        self >= needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_can_do_what_those_before_it_can() {
        let roles = [Role::Read, Role::Submit, Role::Admin];
        for (place, role) in roles.iter().enumerate() {
            for (other, needed) in roles.iter().enumerate() {
                assert_eq!(role.is_enough_for(*needed), place >= other);
            }
        }
        assert_eq!(serde_json::to_string(&Role::Submit).unwrap(), r#""submit""#);
    }
}
