//! Which paths of the host a program may come across, and their removal from what it shows.
//!
//! Looks at the host's mounts once, when the daemon starts: a list of mounts inside a sandbox names
//! directories as they are called on their own file system, not as the host calls them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fumehood_protocol::message::Stream;

use crate::execution::redaction::{Place, RedactedStream, Redaction};
use crate::execution::result::ExecutionResult;
use crate::runs::events::RunEvent;
use crate::runs::service::Observer;

/// Where container engines keep layers and volumes unless they are told otherwise; a list of mounts
/// shows it.
const ENGINES: [&str; 2] = ["/var/lib/docker", "/var/lib/containerd"];

/// The host's paths.
#[derive(Debug, Clone, Default)]
pub struct HostPaths {
    known: Vec<HostPath>,
}

#[derive(Debug, Clone)]
struct HostPath {
    path: PathBuf,
    /// What it is called on its file system.
    on_device: PathBuf,
    place: Place,
}

impl HostPaths {
    /// Looks these directories up; one that is not there cannot be seen by anybody. None of them
    /// means that nothing is to be taken out.
    #[must_use]
    pub fn look_up(directories: Vec<(PathBuf, Place)>) -> Self {
        if directories.is_empty() {
            return Self::default();
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let engines = ENGINES.map(|path| (PathBuf::from(path), Place::Engine));
        let known = directories.into_iter().chain(engines);
        let known = known.filter_map(|(path, place)| {
            let path = path.canonicalize().ok()?;
            let on_device = on_device(&mounts, &path);
            Some(HostPath {
                path,
                on_device,
                place,
            })
        });
        Self {
            known: known.collect(),
        }
    }

    /// What is to be taken out of what a program with this data set shows.
    pub(super) fn redaction(&self, dataset: Option<&Path>) -> Redaction {
        if self.known.is_empty() {
            return Redaction::default();
        }
        let known = self.known.iter().flat_map(|known| {
            let below = dataset.and_then(|dataset| dataset.strip_prefix(&known.path).ok());
            let dataset = below.map(|below| (known.on_device.join(below), Place::Dataset));
            let of_dataset = dataset.filter(|_| known.place == Place::DataRoot);
            [
                (known.path.clone(), known.place),
                (known.on_device.clone(), known.place),
            ]
            .into_iter()
            .chain(of_dataset)
        });
        let dataset = dataset.map(|path| (path.to_owned(), Place::Dataset));
        Redaction::new(dataset.into_iter().chain(known))
    }
}

/// What a directory is called on its file system, by a list of mounts as in `mountinfo` of proc(5).
fn on_device(mounts: &str, path: &Path) -> PathBuf {
    let covering = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let below = path.strip_prefix(&point).ok()?;
        Some((point.components().count(), root.join(below)))
    });
    // The deepest one, and of those the last: it lies on top. A root of "/" and no rest join to "/".
    covering
        .max_by_key(|(depth, _)| *depth)
        .map_or_else(|| path.to_owned(), |(_, path)| path)
}

/// A path of `mountinfo`, in which white space and backslashes are octal numbers.
fn unescaped(field: &str) -> PathBuf {
    let spaces = field.replace("\\040", " ").replace("\\011", "\t");
    PathBuf::from(spaces.replace("\\012", "\n").replace("\\134", "\\"))
}

/// Takes paths out of everything that a result says in words.
pub(super) fn redact(result: &mut ExecutionResult, redaction: &Redaction) {
    let cause = &mut result.cause;
    let texts = [&mut result.stdout, &mut result.stderr, &mut cause.message];
    let optional = [
        &mut result.stdout_tail,
        &mut result.stderr_tail,
        &mut result.error_info,
    ];
    let lists = cause.evidence.iter_mut().chain(&mut result.warnings);
    let all = texts
        .into_iter()
        .chain(optional.into_iter().flatten())
        .chain(lists);
    for text in all {
        *text = redaction.text(std::mem::take(text));
    }
}

/// Passes on what happens, with the paths taken out of a program's output.
#[derive(Debug)]
pub(super) struct Redacting<'a> {
    observer: &'a dyn Observer,
    streams: Mutex<Streams>,
}

#[derive(Debug)]
struct Streams {
    stdout: RedactedStream,
    stderr: RedactedStream,
}

impl<'a> Redacting<'a> {
    pub(super) fn new(observer: &'a dyn Observer, redaction: &Redaction) -> Self {
        Self {
            observer,
            streams: Mutex::new(Streams {
                stdout: redaction.stream(),
                stderr: redaction.stream(),
            }),
        }
    }

    /// Passes on what still waited for more.
    pub(super) fn finish(&self) {
        let mut streams = self.streams();
        let rest = [
            (Stream::Stdout, streams.stdout.finish()),
            (Stream::Stderr, streams.stderr.finish()),
        ];
        drop(streams);
        for (stream, bytes) in rest {
            self.pass_on(stream, bytes);
        }
    }

    fn pass_on(&self, stream: Stream, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.observer.observe(RunEvent::Output { stream, bytes });
        }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Redacting<'_> {
    fn observe(&self, event: RunEvent) {
        let RunEvent::Output { stream, bytes } = event else {
            return self.observer.observe(event);
        };
        let mut streams = self.streams();
        let shown = match stream {
            Stream::Stdout => streams.stdout.push(&bytes),
            Stream::Stderr => streams.stderr.push(&bytes),
        };
        drop(streams);
        self.pass_on(stream, shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
30 22 254:2 / /srv rw,relatime - ext4 /dev/vdb rw
31 22 254:2 /old /srv rw,relatime - ext4 /dev/vdb rw
40 30 254:3 /exports/a\\040b /srv/lab rw - nfs server:/exports rw";

    #[test]
    fn a_directory_is_called_by_what_lies_on_top_at_the_deepest_point() {
        let of = |path: &str| on_device(MOUNTS, Path::new(path));
        assert_eq!(of("/srv/lab/set"), Path::new("/exports/a b/set"));
        assert_eq!(of("/srv/laboratory"), Path::new("/old/laboratory"));
        assert_eq!(of("/home/x"), Path::new("/home/x"));
        assert_eq!(on_device("", Path::new("/srv")), Path::new("/srv"));
    }

    #[test]
    fn a_data_set_is_found_by_its_name_on_the_host_and_on_its_file_system() {
        let paths = HostPaths {
            known: vec![HostPath {
                path: "/srv/lab".into(),
                on_device: "/exports/lab".into(),
                place: Place::DataRoot,
            }],
        };
        let redaction = paths.redaction(Some(Path::new("/srv/lab/set")));
        let text = "/srv/lab/set/x /exports/lab/set/x /exports/lab/other";
        assert_eq!(
            redaction.text(text.to_owned()),
            "<dataset>/x <dataset>/x <data>/other"
        );
    }
}
