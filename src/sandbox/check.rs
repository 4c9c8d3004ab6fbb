//! The last check before a program starts: does the sandbox look from the inside as it was asked
//! for from the outside? A pure comparison (invariant 6, security.md section 1).

use fumehood_protocol::VERSION;
use fumehood_protocol::message::{self, Ready};

use super::policy;
use super::template::{DatasetMount, Template};
use crate::execution::isolation::{Found, FoundDataset};
use crate::execution::{DatasetPin, runtime};

/// Why a sandbox is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The data set is another directory than the one that was checked.
    #[error("the data set changed while the run was prepared")]
    DatasetChanged,
    /// The data set is missing.
    #[error("the data set is not mounted")]
    DatasetMissing,
    /// The data set cannot be read by the program.
    #[error(
        "the data set cannot be read by the sandbox's user (uid {uid}): give others read access, \
         for example with `chmod -R o+rX` on it"
    )]
    DatasetUnreadable {
        /// The sandbox's uid.
        uid: u32,
    },
    /// Protections are missing.
    #[error("the sandbox does not have the protections it was created with ({0})")]
    Weakened(String),
    /// The supervisor speaks another protocol.
    #[error(
        "the supervisor speaks protocol {found}, this daemon {}: remove its volume",
        VERSION
    )]
    Protocol {
        /// What it speaks.
        found: u16,
    },
}

/// Compares what the supervisor found with what the template and the uid ask for.
///
/// # Errors
///
/// [`Refusal`]: the sandbox is to be destroyed and nothing started in it.
pub fn check(ready: &Ready, template: &Template, uid: u32) -> Result<(), Refusal> {
    if ready.protocol != VERSION {
        return Err(Refusal::Protocol {
            found: ready.protocol,
        });
    }
    check_protections(ready, template, uid)?;
    match &template.dataset {
        DatasetMount::None | DatasetMount::Place => Ok(()),
        DatasetMount::Created(pin) => check_dataset(ready.dataset, pin, template, uid),
    }
}

fn check_protections(ready: &Ready, template: &Template, uid: u32) -> Result<(), Refusal> {
    let gvisor = is_gvisor(template);
    let sizes = policy::sizes(&template.limits);
    let workspace = &ready.workspace;
    let protections = [
        ("uid", ready.uid == uid && ready.gid == uid),
        ("groups", ready.groups.is_empty()),
        ("capabilities", ready.capabilities == 0),
        (
            "no-new-privileges",
            ready.no_new_privileges.map_or(gvisor, |on| on),
        ),
        // gVisor filters the program's calls in its own kernel and shows no filter.
        ("seccomp", gvisor || ready.seccomp == Some(2)),
        ("read-only root", ready.root_read_only),
        (
            "no network",
            ready.network_interfaces.iter().all(|name| name == "lo"),
        ),
        (
            "workspace size",
            is_bounded(workspace.total_bytes, sizes.workspace.bytes),
        ),
        (
            "workspace inodes",
            gvisor || is_bounded(workspace.total_inodes, sizes.workspace.inodes),
        ),
    ];
    let missing: Vec<&str> = protections
        .into_iter()
        .filter(|(_, holds)| !holds)
        .map(|(name, _)| name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Weakened(missing.join(", ")))
    }
}

/// A file system without a bound tells 0.
fn is_bounded(size: u64, most: u64) -> bool {
    (1..=most).contains(&size)
}

/// gVisor has a kernel of its own and tells some things otherwise.
fn is_gvisor(template: &Template) -> bool {
    runtime::has_own_kernel(template.runtime.as_deref())
}

/// Compares what the supervisor found at the place of the data set with the one that was admitted.
///
/// # Errors
///
/// [`Refusal`], as for [`check`].
pub fn check_dataset(
    found: Option<message::DatasetMount>,
    pin: &DatasetPin,
    template: &Template,
    uid: u32,
) -> Result<(), Refusal> {
    let mounted = found.ok_or(Refusal::DatasetMissing)?;
    // gVisor numbers files itself; there the check before creation has to do. What is mounted later
    // never is under it, and an empty directory must not pass for the data set.
    let numbers_count = !is_gvisor(template) || template.dataset == DatasetMount::Place;
    if numbers_count && (mounted.device, mounted.inode) != (pin.device, pin.inode) {
        return Err(Refusal::DatasetChanged);
    }
    if !mounted.read_only {
        return Err(Refusal::Weakened("read-only data set".to_owned()));
    }
    if mounted.readable {
        Ok(())
    } else {
        Err(Refusal::DatasetUnreadable { uid })
    }
}

/// What the supervisor found, for the record.
#[must_use]
pub fn found(ready: &Ready) -> Found {
    let Ready {
        protocol,
        uid,
        gid,
        groups,
        capabilities,
        no_new_privileges,
        seccomp,
        root_read_only,
        network_interfaces,
        dataset,
        workspace,
    } = ready;
    Found {
        protocol: *protocol,
        uid: *uid,
        gid: *gid,
        supplementary_groups: groups.clone(),
        capabilities: format!("{capabilities:016x}"),
        no_new_privileges: *no_new_privileges,
        seccomp_mode: *seccomp,
        root_read_only: *root_read_only,
        network_interfaces: network_interfaces.clone(),
        dataset: found_dataset(*dataset),
        workspace_bytes: workspace.total_bytes,
        workspace_inodes: workspace.total_inodes,
    }
}

/// What the supervisor found at the place of the data set, for the record.
#[must_use]
pub fn found_dataset(mounted: Option<message::DatasetMount>) -> Option<FoundDataset> {
    mounted.map(|mounted| FoundDataset {
        read_only: mounted.read_only,
        readable: mounted.readable,
    })
}

#[cfg(test)]
mod tests {
    use fumehood_protocol::message::Filesystem;

    use super::*;
    use crate::config::Execution;
    use crate::sandbox::template::Image;

    const UID: u32 = 50_003;

    type Change = fn(&mut Ready);

    fn template() -> Template {
        Template {
            image: Image {
                reference: "x".to_owned(),
                id: "sha256:0".to_owned(),
                environment_names: Vec::new(),
            },
            runtime: None,
            dataset: DatasetMount::Created(DatasetPin {
                path: "/srv/data".into(),
                device: 1,
                inode: 2,
            }),
            limits: Execution::default().default_limits().of_sandbox(),
            interpreter: false,
        }
    }

    fn ready() -> Ready {
        Ready {
            protocol: VERSION,
            uid: 50_003,
            gid: 50_003,
            groups: Vec::new(),
            capabilities: 0,
            no_new_privileges: Some(true),
            seccomp: Some(2),
            root_read_only: true,
            network_interfaces: vec!["lo".to_owned()],
            dataset: Some(message::DatasetMount {
                device: 1,
                inode: 2,
                read_only: true,
                readable: true,
            }),
            workspace: Filesystem {
                total_bytes: 1 << 30,
                free_bytes: 1 << 30,
                total_inodes: 65_536,
                free_inodes: 65_535,
            },
        }
    }

    #[test]
    fn a_sandbox_as_asked_for_is_accepted() {
        assert_eq!(check(&ready(), &template(), UID), Ok(()));
    }

    #[test]
    fn each_missing_protection_refuses_the_sandbox() {
        let weaken: [(&str, Change); 12] = [
            ("uid", |ready| ready.uid = 0),
            ("groups", |ready| ready.groups = vec![0]),
            ("capabilities", |ready| ready.capabilities = 1),
            ("no-new-privileges", |ready| {
                ready.no_new_privileges = Some(false)
            }),
            ("no-new-privileges", |ready| ready.no_new_privileges = None),
            ("seccomp", |ready| ready.seccomp = Some(0)),
            ("read-only root", |ready| ready.root_read_only = false),
            ("no network", |ready| {
                ready.network_interfaces.push("eth0".to_owned())
            }),
            ("workspace size", |ready| {
                ready.workspace.total_bytes = 1 << 40
            }),
            ("workspace size", |ready| ready.workspace.total_bytes = 0),
            ("workspace inodes", |ready| ready.workspace.total_inodes = 0),
            ("workspace inodes", |ready| {
                ready.workspace.total_inodes = 1 << 40
            }),
        ];
        for (name, weaken) in weaken {
            let mut ready = ready();
            weaken(&mut ready);
            let refusal = check(&ready, &template(), UID).unwrap_err();
            assert_eq!(refusal, Refusal::Weakened(name.to_owned()));
        }
    }

    #[test]
    fn what_was_found_is_recorded_as_it_is() {
        let good = found(&ready());
        assert_eq!((good.uid, good.gid), (UID, UID));
        assert_eq!(good.capabilities, "0000000000000000");
        let dataset = FoundDataset {
            read_only: true,
            readable: true,
        };
        assert_eq!(good.dataset, Some(dataset));
        let mut weak = ready();
        weak.capabilities = 0x20;
        weak.no_new_privileges = None;
        weak.dataset = None;
        let weak = found(&weak);
        assert_eq!(weak.capabilities, "0000000000000020");
        assert_eq!((weak.no_new_privileges, weak.dataset), (None, None));
    }

    #[test]
    fn another_or_unreadable_or_writable_data_set_refuses_the_sandbox() {
        let mut found = ready();
        found.dataset = Some(message::DatasetMount {
            device: 1,
            inode: 9,
            read_only: true,
            readable: true,
        });
        assert_eq!(
            check(&found, &template(), UID),
            Err(Refusal::DatasetChanged)
        );
        found.dataset = Some(message::DatasetMount {
            device: 1,
            inode: 2,
            read_only: true,
            readable: false,
        });
        assert_eq!(
            check(&found, &template(), UID),
            Err(Refusal::DatasetUnreadable { uid: 50_003 })
        );
        found.dataset = Some(message::DatasetMount {
            device: 1,
            inode: 2,
            read_only: false,
            readable: true,
        });
        assert!(matches!(
            check(&found, &template(), UID),
            Err(Refusal::Weakened(_))
        ));
        found.dataset = None;
        assert_eq!(
            check(&found, &template(), UID),
            Err(Refusal::DatasetMissing)
        );
    }
}
