//! Artifacts from the stream to the disk: messages are received here and stored by a blocking
//! thread behind a bounded channel, so that a slow disk slows the supervisor and nothing else.

use std::time::Duration;

use fumehood_protocol::message::CollectLimits;
use fumehood_protocol::{FromSupervisor, ToSupervisor};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::trouble::Trouble;
use crate::artifacts::collect::{CollectError, Progress};
use crate::artifacts::path::{MAX_DEPTH, MAX_PATH_BYTES};
use crate::artifacts::{Collected, Collector};
use crate::execution::spec::{Limits, SCRIPT_NAME, SETUP_NAME};
use crate::sandbox::session::Session;

/// The whole of collecting.
const COLLECT_BOUND: Duration = Duration::from_secs(300);

/// Silence in it.
const SILENCE_BOUND: Duration = Duration::from_secs(20);

/// Messages between the stream and the disk.
const CHANNEL_MESSAGES: usize = 8;

/// Directory entries looked at per allowed file: directories and skipped things count, too.
const ENTRIES_PER_FILE: u64 = 4;

/// Asks for the artifacts and stores them.
///
/// # Errors
///
/// Only for a failing task of the daemon: whatever the sandbox does, what is complete is kept.
pub(super) async fn collect(
    session: &mut Session,
    mut collector: Collector,
    limits: &Limits,
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
    let stopped = receive_all(session, limits, &sender).await;
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
    sender: &mpsc::Sender<FromSupervisor>,
) -> Option<String> {
    let end = Instant::now() + COLLECT_BOUND;
    if let Err(error) = session
        .send(&ToSupervisor::Collect(collect_limits(limits)))
        .await
    {
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
        let last = matches!(message, FromSupervisor::Done(_));
        if sender.send(message).await.is_err() {
            // The storing side gave up and says why.
            return None;
        }
        if last {
            return None;
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
