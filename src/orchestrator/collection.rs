//! Artifacts from the stream to the disk: messages are received here and stored by a blocking
//! thread behind a bounded channel, so that a slow disk slows the supervisor and nothing else.

use std::time::Duration;

use fumehood_protocol::message::{CollectAnew, CollectLimits};
use fumehood_protocol::{FromSupervisor, ToSupervisor};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::handoff::{Keeper, SoFar};
use super::trouble::Trouble;
use crate::artifacts::collect::{CollectError, Progress};
use crate::artifacts::path::{MAX_DEPTH, MAX_PATH_BYTES};
use crate::artifacts::{Collected, Collector};
use crate::execution::spec::{Limits, SCRIPT_NAME, SETUP_NAME};
use crate::fault_point::FaultPoint;
use crate::sandbox::session::Session;

/// The whole of collecting.
const COLLECT_BOUND: Duration = Duration::from_secs(300);

/// Silence in it.
const SILENCE_BOUND: Duration = Duration::from_secs(20);

/// Messages between the stream and the disk.
const CHANNEL_MESSAGES: usize = 8;

/// Directory entries looked at per allowed file: directories and skipped things count, too.
const ENTRIES_PER_FILE: u64 = 4;

/// Whether the artifacts are asked for for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Certainly,
    /// Daemons that died may have asked, and have taken some of them with them. This marks what is
    /// asked for now.
    NotCertainly(u64),
}

/// How the artifacts are asked for.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    pub(super) first: First,
    /// What the talk has brought; put away before anything more is acknowledged.
    pub(super) progress: SoFar,
    pub(super) keeper: &'a dyn Keeper,
}

/// Asks for the artifacts and stores them.
///
/// # Errors
///
/// Only for a failing task of the daemon: whatever the sandbox does, what is complete is kept.
pub(super) async fn collect(
    session: &mut Session,
    mut collector: Collector,
    limits: &Limits,
    asking: Asking<'_>,
) -> Result<(Collected, Option<String>), Trouble> {
    let (sender, mut receiver) = mpsc::channel::<FromSupervisor>(CHANNEL_MESSAGES);
    let store = spawn_blocking(move || {
        while let Some(message) = receiver.blocking_recv() {
            match collector.take(message) {
                Ok(Progress::More) => {}
                Ok(Progress::Complete) => return (collector.finish(true), None),
                Err(error) => return (collector.finish(false), Some(error)),
            }
        }
        (collector.finish(false), None)
    });
    let stopped = receive_all(session, limits, asking, &sender).await;
    drop(sender);
    let (collected, failed) = store.await?;
    let note = match (&failed, stopped) {
        (Some(error), _) => Some(incomplete(error)),
        (None, Some(reason)) => Some(reason),
        (None, None) => None,
    };
    Ok((collected, note))
}

fn incomplete(error: &CollectError) -> String {
    warn!(
        error = error as &dyn std::error::Error,
        "collecting artifacts stopped"
    );
    error.to_string()
}

/// Passes messages on until the list is complete; otherwise tells why it is not.
async fn receive_all(
    session: &mut Session,
    limits: &Limits,
    asking: Asking<'_>,
    sender: &mpsc::Sender<FromSupervisor>,
) -> Option<String> {
    let end = Instant::now() + COLLECT_BOUND;
    let limits = collect_limits(limits);
    let (request, begins) = match asking.first {
        First::Certainly => (ToSupervisor::Collect(limits), None),
        First::NotCertainly(mark) => {
            let anew = CollectAnew { limits, mark };
            let begins = FromSupervisor::Anew(mark);
            (ToSupervisor::CollectAnew(anew), Some(begins))
        }
    };
    let mut is_earlier = begins.is_some();
    let mut unkept = Some(asking.progress);
    if let Err(error) = session.send(&request).await {
        return Some(format!("the artifacts could not be asked for: {error}"));
    }
    loop {
        let patience = end.min(Instant::now() + SILENCE_BOUND);
        let message = match timeout_at(patience, session.receive()).await {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => return Some(format!("the artifacts are incomplete: {error}")),
            Err(_) => {
                return Some("the artifacts are incomplete: collecting took too long".to_owned());
            }
        };
        let is_last = !is_earlier && matches!(message, FromSupervisor::Done(_));
        if is_earlier {
            // Of a list that an earlier daemon asked for.
            is_earlier = begins.as_ref() != Some(&message);
        } else if sender.send(message).await.is_err() {
            // The storing side gave up and says why.
            return None;
        }
        FaultPoint::InCollect.reached();
        if is_last {
            return None;
        }
        if session.has_to_acknowledge()
            && let Some(mut progress) = unkept.take()
        {
            progress.received = session.received();
            asking.keeper.keep(progress).await;
        }
        if let Err(error) = session.acknowledge().await {
            return Some(format!("the artifacts are incomplete: {error}"));
        }
    }
}

fn collect_limits(limits: &Limits) -> CollectLimits {
    CollectLimits {
        total_bytes: limits.max_artifact_mb << 20,
        files: limits.max_artifact_files,
        entries: limits.max_artifact_files.saturating_mul(ENTRIES_PER_FILE),
        depth: MAX_DEPTH,
        path_bytes: MAX_PATH_BYTES,
        ignore: vec![SCRIPT_NAME.to_owned(), SETUP_NAME.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fumehood_protocol::encode;
    use fumehood_protocol::message::{Chunk, Done, Entry};
    use futures_util::{StreamExt as _, stream};

    use super::super::handoff::Unkept;
    use super::*;
    use crate::artifacts::OutputRoot;
    use crate::artifacts::collect::Caps;
    use crate::ids::ExecutionId;
    use crate::sandbox::engine::Channel;

    /// Of this daemon.
    const MARK: u64 = 7;

    /// Of one that died.
    const OTHER: u64 = 8;

    fn limits() -> Limits {
        crate::config::Execution::default().default_limits()
    }

    fn file(path: &str, bytes: &[u8]) -> [FromSupervisor; 3] {
        let entry = Entry {
            path: path.as_bytes().to_vec(),
            is_directory: false,
            size: bytes.len() as u64,
            executable: false,
            modified_seconds: 0,
            modified_nanoseconds: 0,
        };
        let bytes = bytes.to_vec();
        [
            FromSupervisor::Entry(entry),
            FromSupervisor::Chunk(Chunk { bytes }),
            FromSupervisor::EntryEnd,
        ]
    }

    fn done() -> FromSupervisor {
        FromSupervisor::Done(Done {
            files: 1,
            bytes: 1,
            skipped_unlisted: 0,
        })
    }

    fn session(messages: Vec<FromSupervisor>) -> Session {
        let frames = (1..)
            .zip(messages)
            .map(|(number, message)| Ok(Bytes::from(encode(number, &message).unwrap())));
        Session::new(Channel {
            reader: Box::pin(stream::iter(frames.collect::<Vec<_>>()).chain(stream::pending())),
            writer: Box::pin(tokio::io::sink()),
        })
    }

    async fn collected(first: First, messages: Vec<FromSupervisor>) -> (Collected, Option<String>) {
        let place = tempfile::tempdir().unwrap();
        let staging = OutputRoot::new(place.path()).stage(&ExecutionId::random());
        let caps = Caps {
            total_bytes: 1000,
            files: 10,
        };
        let collector = Collector::new(staging.unwrap(), caps, std::collections::BTreeMap::new());
        let asking = Asking {
            first,
            progress: SoFar::default(),
            keeper: &Unkept,
        };
        let (mut session, limits) = (session(messages), limits());
        let collecting = collect(&mut session, collector, &limits, asking);
        collecting.await.unwrap()
    }

    #[tokio::test]
    async fn a_list_that_an_earlier_daemon_asked_for_is_skipped() {
        let [entry, chunk, _] = file("out/half", b"ab");
        let mut messages = vec![entry, chunk, FromSupervisor::Anew(MARK)];
        messages.extend(file("out/whole", b"c"));
        messages.push(done());
        let (collected, note) = collected(First::NotCertainly(MARK), messages).await;
        assert_eq!(note, None);
        assert!(collected.complete);
        assert_eq!(collected.output_files, ["whole"]);
        assert_eq!(collected.skipped, []);
    }

    /// The end of the earlier list is not the end of this one, and a list that another daemon asked
    /// for anew is not this one either.
    #[tokio::test]
    async fn whole_lists_that_earlier_daemons_asked_for_are_skipped_too() {
        let mut messages = file("out/old", b"a").to_vec();
        messages.extend([done(), FromSupervisor::Anew(OTHER)]);
        messages.extend(file("out/older", b"a"));
        messages.push(FromSupervisor::Anew(MARK));
        messages.extend(file("out/new", b"b"));
        messages.push(done());
        let (collected, note) = collected(First::NotCertainly(MARK), messages).await;
        assert_eq!(note, None);
        assert_eq!(collected.output_files, ["new"]);
    }

    /// A supervisor that was asked for the first time has nothing to begin anew.
    #[tokio::test]
    async fn a_list_that_begins_anew_without_being_asked_to_is_refused() {
        let mut messages = vec![FromSupervisor::Anew(MARK)];
        messages.extend(file("out/new", b"b"));
        messages.push(done());
        let (collected, note) = collected(First::Certainly, messages).await;
        assert!(note.is_some());
        assert!(!collected.complete);
    }
}
