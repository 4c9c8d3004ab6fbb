//! Owns the facts of the `Ready` message: what the engine has really made of this sandbox.
//! Reads only; it judges nothing, except that a fact which cannot be read is never reported as
//! the harmless value.

use std::ffi::CStr;
use std::{fs, io};

use fumehood_protocol::message::{DatasetMount, Ready};

use crate::error::Fatal;
use crate::settings::Settings;
use crate::sys::files::{self, Kind, Mounted};
use crate::workspace::Workspace;

/// Reads all facts. Must run before any foreign program.
pub(crate) fn facts(settings: &Settings, workspace: &Workspace) -> Result<Ready, Fatal> {
    let status = fs::read_to_string("/proc/self/status").map_err(Fatal::io("/proc/self/status"))?;
    let status = Status::parse(&status)?;
    let devices = fs::read_to_string("/proc/net/dev").map_err(Fatal::io("/proc/net/dev"))?;
    Ok(Ready {
        protocol: fumehood_protocol::VERSION,
        uid: status.uid,
        gid: status.gid,
        groups: status.groups,
        capabilities: status.capabilities,
        no_new_privileges: status.no_new_privileges,
        seccomp: status.seccomp,
        root_read_only: is_read_only(
            c"/",
            &files::filesystem(c"/").map_err(Fatal::io("statvfs(/)"))?,
        ),
        network_interfaces: interfaces(&devices),
        dataset: dataset(&settings.dataset)?,
        workspace: workspace
            .filesystem()
            .map_err(Fatal::io("statvfs of the workspace"))?,
    })
}

/// Whether a filter of calls is in force for this process, and with it for all that it starts.
pub(crate) fn is_filtered() -> io::Result<bool> {
    /// Of `/proc/self/status`: there is one.
    const FILTER: u8 = 2;
    let text = fs::read_to_string("/proc/self/status")?;
    let mode = field(&text, "Seccomp").and_then(|mode| mode.parse().ok());
    Ok(mode == Some(FILTER))
}

/// The value of a line `name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// What `/proc/self/status` says about our privileges.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    capabilities: u64,
    no_new_privileges: Option<bool>,
    seccomp: Option<u8>,
}

impl Status {
    fn parse(text: &str) -> Result<Self, Fatal> {
        let field = |name: &str| field(text, name);
        let numbers = |name: &'static str| -> Result<Vec<u32>, Fatal> {
            field(name)
                .and_then(|value| value.split_whitespace().map(|id| id.parse().ok()).collect())
                .ok_or_else(|| Fatal::Refused(format!("/proc/self/status tells no {name}")))
        };
        // Real, effective and saved; the fourth is the file system's, which follows the effective.
        let one = |name: &'static str| match numbers(name)?[..] {
            [real, effective, saved, _] if real == effective && real == saved => Ok(real),
            ref ids => Err(Fatal::Refused(format!("{name} is not one but {ids:?}"))),
        };
        let gid = one("Gid")?;
        let mut groups = numbers("Groups")?;
        groups.retain(|&group| group != gid);
        let mut capabilities = 0;
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let value = match (name, field(name)) {
                // gVisor does not tell the ambient set, which never has more than the permitted one.
                ("CapAmb", None) => "0",
                (_, told) => told.unwrap_or_default(),
            };
            capabilities |= u64::from_str_radix(value, 16)
                .map_err(|_| Fatal::Refused(format!("/proc/self/status tells no {name}")))?;
        }
        Ok(Self {
            uid: one("Uid")?,
            gid,
            groups,
            capabilities,
            no_new_privileges: field("NoNewPrivs").map(|value| value == "1"),
            seccomp: field("Seccomp").and_then(|value| value.parse().ok()),
        })
    }
}

/// The names in `/proc/net/dev`: two lines of heading, then `name: counters` each.
fn interfaces(text: &str) -> Vec<String> {
    text.lines()
        .skip(2)
        .filter_map(|line| Some(line.rsplit_once(':')?.0.trim().to_owned()))
        .collect()
}

/// Whether nobody can write to a mount. gVisor's `statvfs` never says so, its list of mounts does; a
/// list that cannot be read says nothing.
fn is_read_only(path: &CStr, mounted: &Mounted) -> bool {
    let listed = || fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounted.read_only || is_listed_read_only(&listed(), path)
}

/// Whether the last mount at this path, which hides those before it, has the option `ro`.
fn is_listed_read_only(mounts: &str, path: &CStr) -> bool {
    let mut here = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let is_here = fields.next()?.as_bytes() == path.to_bytes();
        is_here.then(|| fields.next())?
    });
    let options = here.next_back().unwrap_or_default();
    options.split(',').any(|option| option == "ro")
}

/// What is mounted at the place of the data set now, if it exists.
pub(crate) fn dataset(path: &CStr) -> Result<Option<DatasetMount>, Fatal> {
    let here = files::working_directory();
    let status = match files::status_at(here, path) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Fatal::Io("stat of the data set", error)),
    };
    let listing = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NONBLOCK;
    let readable = status.kind == Kind::Directory
        && files::may_list(path)
        && files::open_at(here, path, listing, 0).is_ok();
    let mounted = files::filesystem(path).map_err(Fatal::io("statvfs of the data set"))?;
    Ok(Some(DatasetMount {
        device: status.device,
        inode: status.inode,
        read_only: is_read_only(path, &mounted),
        readable,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\nGroups:\t6 7 \n\
        CapInh:\t0000000000000001\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000400\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n\
        Seccomp_filters:\t1\n";

    #[test]
    fn privileges_are_read_from_the_status_file() {
        let expected = Status {
            uid: 5,
            gid: 6,
            groups: vec![7],
            capabilities: 0x401,
            no_new_privileges: Some(true),
            seccomp: Some(2),
        };
        assert_eq!(Status::parse(STATUS).unwrap(), expected);
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_not_taken_for_a_safe_one() {
        let silent = STATUS.replace("NoNewPrivs:\t1\nSeccomp:\t2\n", "");
        let status = Status::parse(&silent).unwrap();
        assert_eq!((status.no_new_privileges, status.seccomp), (None, None));
        assert!(Status::parse(&STATUS.replace("CapBnd", "CapXyz")).is_err());
    }

    #[test]
    fn gvisor_tells_no_ambient_set_and_every_other_one_has_to_be_told() {
        let silent = STATUS.replace("CapAmb:\t0000000000000000\n", "");
        assert_eq!(Status::parse(&silent).unwrap().capabilities, 0x401);
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd"] {
            assert!(Status::parse(&silent.replace(name, "CapXyz")).is_err());
        }
        let garbled = STATUS.replace("CapAmb:\t0000000000000000", "CapAmb:\t?");
        assert!(Status::parse(&garbled).is_err());
    }

    #[test]
    fn differing_user_ids_are_refused() {
        let mixed = STATUS.replace("Uid:\t5\t5\t5\t5", "Uid:\t5\t5\t0\t5");
        assert!(matches!(Status::parse(&mixed), Err(Fatal::Refused(_))));
    }

    #[test]
    fn the_last_mount_at_a_path_tells_whether_it_can_be_written_to() {
        let mounts = "8 8 0:8 / / ro  - 9p none ro\n11 8 0:10 / /proc rw - proc none rw\n\
            12 8 0:11 / /data ro,noexec - 9p none ro\n13 8 0:12 / /data/x rw - tmpfs none rw\n";
        for (path, is_read_only) in [
            (c"/", true),
            (c"/data", true),
            (c"/proc", false),
            (c"/data/x", false),
            (c"/nowhere", false),
        ] {
            assert_eq!(is_listed_read_only(mounts, path), is_read_only, "{path:?}");
        }
        let hidden = format!("{mounts}14 8 0:13 / /data rw - ext4 none ro\n");
        assert!(!is_listed_read_only(&hidden, c"/data"));
        assert!(!is_listed_read_only("", c"/"));
    }

    #[test]
    fn interfaces_are_read_below_the_heading() {
        let text = "Inter-| Receive\n face |bytes\n    lo: 0 0\n eth0:12 0\n";
        assert_eq!(interfaces(text), ["lo", "eth0"]);
    }
}
