//! System calls about files, always relative to an open directory and never through a link.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use fumehood_protocol::message::Filesystem;

use super::check;

/// Stands for the working directory in calls relative to a directory.
pub(crate) fn working_directory() -> BorrowedFd<'static> {
    // SAFETY: `AT_FDCWD` is no descriptor that could be closed, and is not -1.
    unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) }
}

/// Opens `name` in `directory`; the last component is not followed if it is a link.
pub(crate) fn open_at(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: libc::c_int,
    mode: libc::mode_t,
) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: `name` is null-terminated and outlives the call.
    let fd = check(unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags, mode) })?;
    // SAFETY: the kernel has just opened it for us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a directory.
pub(crate) fn make_directory_at(
    directory: BorrowedFd<'_>,
    name: &CStr,
    mode: libc::mode_t,
) -> io::Result<()> {
    // SAFETY: `name` is null-terminated and outlives the call.
    check(unsafe { libc::mkdirat(directory.as_raw_fd(), name.as_ptr(), mode) }).map(drop)
}

/// Sets the permission bits of a directory entry that is known to be no link.
pub(crate) fn change_mode_at(
    directory: BorrowedFd<'_>,
    name: &CStr,
    mode: libc::mode_t,
) -> io::Result<()> {
    // SAFETY: `name` is null-terminated and outlives the call.
    check(unsafe { libc::fchmodat(directory.as_raw_fd(), name.as_ptr(), mode, 0) }).map(drop)
}

/// Sets the permission bits of an open file.
pub(crate) fn change_mode(file: BorrowedFd<'_>, mode: libc::mode_t) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::fchmod(file.as_raw_fd(), mode) }).map(drop)
}

/// What kind of thing a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Directory,
    SymbolicLink,
    Special,
}

/// What is needed of `struct stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) kind: Kind,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    /// Permission bits only.
    pub(crate) mode: libc::mode_t,
    pub(crate) modified_seconds: i64,
    pub(crate) modified_nanoseconds: u32,
}

impl Status {
    fn new(raw: &libc::stat) -> Self {
        let kind = match raw.st_mode & libc::S_IFMT {
            libc::S_IFREG => Kind::Regular,
            libc::S_IFDIR => Kind::Directory,
            libc::S_IFLNK => Kind::SymbolicLink,
            _ => Kind::Special,
        };
        Self {
            kind,
            device: raw.st_dev,
            inode: raw.st_ino,
            size: u64::try_from(raw.st_size).unwrap_or(0),
            mode: raw.st_mode & 0o7777,
            modified_seconds: raw.st_mtime,
            modified_nanoseconds: u32::try_from(raw.st_mtime_nsec).unwrap_or(0),
        }
    }
}

/// Status of a directory entry; of the link itself if it is one.
pub(crate) fn status_at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Status> {
    let mut raw = MaybeUninit::<libc::stat>::uninit();
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: `name` is null-terminated, and `raw` is filled if the call succeeds.
    check(unsafe {
        libc::fstatat(
            directory.as_raw_fd(),
            name.as_ptr(),
            raw.as_mut_ptr(),
            flags,
        )
    })?;
    // SAFETY: filled above.
    Ok(Status::new(&unsafe { raw.assume_init() }))
}

/// Status of an open file.
pub(crate) fn status(file: BorrowedFd<'_>) -> io::Result<Status> {
    let mut raw = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `raw` is filled if the call succeeds.
    check(unsafe { libc::fstat(file.as_raw_fd(), raw.as_mut_ptr()) })?;
    // SAFETY: filled above.
    Ok(Status::new(&unsafe { raw.assume_init() }))
}

/// Whether our user may list and search the directory.
pub(crate) fn may_list(path: &CStr) -> bool {
    // SAFETY: `path` is null-terminated and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::X_OK) == 0 }
}

/// Sizes of a file system and whether it is mounted read-only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mounted {
    pub(crate) sizes: Filesystem,
    pub(crate) read_only: bool,
}

/// `statvfs` of a path.
pub(crate) fn filesystem(path: &CStr) -> io::Result<Mounted> {
    let mut raw = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is null-terminated, and `raw` is filled if the call succeeds.
    check(unsafe { libc::statvfs(path.as_ptr(), raw.as_mut_ptr()) })?;
    // SAFETY: filled above.
    Ok(mounted(&unsafe { raw.assume_init() }))
}

/// `statvfs` of an open file.
pub(crate) fn filesystem_of(file: BorrowedFd<'_>) -> io::Result<Mounted> {
    let mut raw = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `raw` is filled if the call succeeds.
    check(unsafe { libc::fstatvfs(file.as_raw_fd(), raw.as_mut_ptr()) })?;
    // SAFETY: filled above.
    Ok(mounted(&unsafe { raw.assume_init() }))
}

fn mounted(raw: &libc::statvfs) -> Mounted {
    let sizes = Filesystem {
        total_bytes: raw.f_blocks.saturating_mul(raw.f_frsize),
        free_bytes: raw.f_bavail.saturating_mul(raw.f_frsize),
        total_inodes: raw.f_files,
        free_inodes: raw.f_favail,
    };
    Mounted {
        sizes,
        read_only: raw.f_flag & libc::ST_RDONLY != 0,
    }
}

/// Reads the next names of an open directory, as the raw records of `getdents64`; gives how many
/// bytes were filled, 0 at the end.
pub(crate) fn read_directory(directory: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
    let count = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            directory.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
