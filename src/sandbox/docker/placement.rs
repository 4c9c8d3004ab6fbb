//! Mounting a data set into a container that runs already, past the engine.
//!
//! Works where this daemon is root on the engine's host and the containers share its kernel. The
//! directory is cloned as a mount of its own, made read-only where nothing else can see it, and
//! only then moved into the container's mount namespace. It is named by a descriptor throughout,
//! so whatever happens to its path meanwhile, what was checked is what is mounted. Knows neither
//! runs nor protocols; what the sandbox then really sees is asked of its supervisor.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, mount_remount,
    move_mount, open_tree,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::execution::environment::place;

/// Runtimes whose containers are processes of the engine's own kernel.
const SHARING_THE_KERNEL: [&str; 3] = ["runc", "crun", "io.containerd.runc.v2"];

/// The mount namespace of one container. Holding it keeps it from being taken for another one's,
/// whatever becomes of the process that it was found through.
#[derive(Debug, Clone)]
pub(super) struct MountNamespace(Arc<OwnedFd>);

impl MountNamespace {
    /// The namespace of the container's first process. Blocks on `/proc`.
    ///
    /// # Errors
    ///
    /// If the process is not to be seen from here, or is not of this container.
    pub(super) fn of_container(pid: i64, container: &str) -> io::Result<Self> {
        let namespace = File::open(format!("/proc/{pid}/ns/mnt"))?;
        // After opening: a number that was given to another process meanwhile shows here.
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let own = fs::metadata("/proc/self/ns/mnt")?;
        let is_own = namespace.metadata()?.ino() == own.ino();
        if container.is_empty() || !groups.contains(container) || is_own {
            return Err(io::Error::other(
                "the container's first process is not to be seen from here",
            ));
        }
        Ok(Self(Arc::new(namespace.into())))
    }

    /// Mounts the directory at the place of the data set, read-only.
    ///
    /// # Errors
    ///
    /// What the kernel says; nothing is mounted then.
    pub(super) async fn place(&self, directory: OwnedFd) -> io::Result<()> {
        let namespace = self.clone();
        on_a_thread_of_its_own(move || {
            let detached = detached_read_only(directory)?;
            move_into_link_name_space(namespace.0.as_fd(), Some(LinkNameSpaceType::Mount))?;
            attach(&detached, place::DATASET)
        })
        .await
    }
}

/// Whether data sets can be placed in an engine's containers.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// Whether this process may mount, which it tries once.
    may_mount: OnceCell<bool>,
    /// Whether a container's processes turned out not to be seen from here.
    is_blind: AtomicBool,
}

impl Placement {
    /// As far as it can be told without a container of this runtime.
    pub(super) async fn is_possible(&self, runtime: &str) -> bool {
        let rehearse = || async { rehearsal().await.is_ok() };
        SHARING_THE_KERNEL.contains(&runtime)
            && !self.is_blind.load(Ordering::Relaxed)
            && *self.may_mount.get_or_init(rehearse).await
    }

    /// The namespace of a container that was started. A failure counts for all later ones: the
    /// engine has process numbers of its own, so it is on another host or in another container.
    ///
    /// # Errors
    ///
    /// As for [`MountNamespace::of_container`].
    pub(super) async fn namespace(
        &self,
        pid: i64,
        container: String,
    ) -> io::Result<MountNamespace> {
        let look = spawn_blocking(move || MountNamespace::of_container(pid, &container));
        let found = look.await.map_err(io::Error::other)?;
        if let Err(error) = &found
            && !self.is_blind.swap(true, Ordering::Relaxed)
        {
            warn!(%error, "data sets cannot be mounted into waiting sandboxes from here");
        }
        found
    }
}

async fn rehearsal() -> io::Result<()> {
    let root = File::open("/")?;
    on_a_thread_of_its_own(move || detached_read_only(root.into()).map(drop)).await
}

/// A clone of the directory's mount that belongs to no namespace and is read-only. Leaves the
/// calling thread in a mount namespace of its own.
fn detached_read_only(directory: OwnedFd) -> io::Result<OwnedFd> {
    let clone = clone_mount(&directory)?;
    // A mount's flags can be changed only where it is mounted. That must not be where anybody sees
    // it, nor may it spread from there.
    new_mount_namespace()?;
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    attach(&clone, "/")?;
    // The clone is a peer of what it was cloned from: what is mounted there later would appear here.
    let path = format!("/proc/self/fd/{}", clone.as_raw_fd());
    mount_change(&path, MountPropagationFlags::PRIVATE)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(&path, flags, "")?;
    clone_mount(&clone)
}

/// A detached clone of the mount at `directory`, without the mounts below it.
fn clone_mount(directory: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(directory, "", flags)?)
}

/// Mounts a detached mount at `target` of this thread's namespace.
fn attach(detached: &OwnedFd, target: &str) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(detached, "", CWD, target, flags)?)
}

#[expect(
    deprecated,
    reason = "deprecated because another flag, CLONE_FILES, is unsafe; this one is not"
)]
fn new_mount_namespace() -> io::Result<()> {
    Ok(rustix::thread::unshare(UnshareFlags::NEWNS)?)
}

/// Runs `work` on a thread that ends with it: the namespaces that it enters end with it, too. A
/// thread that hangs in a dead file system is left behind and holds up nobody.
async fn on_a_thread_of_its_own<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, answered) = oneshot::channel();
    let thread = thread::Builder::new().name("mount".to_owned());
    thread.spawn(move || drop(answer.send(work())))?;
    answered.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_no_container_has_no_namespace_to_mount_into() {
        let own = i64::from(std::process::id());
        for container in ["", "0123456789abcdef"] {
            assert!(MountNamespace::of_container(own, container).is_err());
        }
    }

    #[tokio::test]
    async fn data_sets_are_not_placed_where_another_kernel_runs() {
        let placement = Placement::default();
        assert!(!placement.is_possible("runsc").await);
        assert!(!placement.is_possible("kata-runtime").await);
    }

    /// What the kernel says of the mount that a descriptor is of, in the namespace it is mounted in.
    fn mount_line(descriptor: &OwnedFd) -> String {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()));
        let info = info.unwrap();
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:"))
            .unwrap();
        let id = id.trim();
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let line = mounts
            .lines()
            .find(|line| line.split(' ').next() == Some(id));
        line.unwrap_or_default().to_owned()
    }

    #[test]
    fn nothing_that_is_mounted_below_the_data_set_later_spreads_into_a_placed_mount() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let seen = thread::spawn(move || {
            // A host whose mounts are shared, as they are under systemd.
            new_mount_namespace().unwrap();
            mount_change(
                "/",
                MountPropagationFlags::SHARED | MountPropagationFlags::REC,
            )
            .unwrap();
            let opened = File::open(&path).unwrap();
            let detached = detached_read_only(opened.into()).unwrap();
            attach(&detached, path.to_str().unwrap()).unwrap();
            mount_line(&detached)
        });
        let seen = seen.join().unwrap();
        assert!(seen.contains("ro,nosuid,nodev"), "{seen}");
        assert!(
            !seen.contains("shared:") && !seen.contains("master:"),
            "{seen}"
        );
    }

    #[test]
    fn a_detached_mount_is_read_only_and_shows_nothing_to_this_namespace() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x"), "content").unwrap();
        let opened = File::open(directory.path()).unwrap();
        let before = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = thread::spawn(move || detached_read_only(opened.into()).unwrap());
        let mount = mount.join().unwrap();
        let inside = format!("/proc/self/fd/{}", mount.as_raw_fd());
        assert_eq!(
            fs::read_to_string(format!("{inside}/x")).unwrap(),
            "content"
        );
        let refused = fs::write(format!("{inside}/x"), "changed").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
        let after = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(before, after);
        fs::write(directory.path().join("x"), "changed").unwrap();
    }
}
