//! The end of a sandbox: its supervisor's last turns, the kill, the removal, and what is said of
//! those that the engine does not carry out.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::execution::cause::Stop;
use crate::sandbox::session::Session;
use crate::sandbox::{EngineError, Sandbox};
use crate::telemetry::log_chain;

/// What a supervisor needs for the end of a program if it gets its turns.
const UNTHROTTLE_AFTER: Duration = Duration::from_millis(100);

/// For a supervisor to take the last word.
const LEAVE_BOUND: Duration = Duration::from_secs(1);

/// Of a sandbox in which nothing runs any more.
const CLEAN_UP_IS_PENDING: &str =
    "Clean-up is pending: the container engine did not remove the sandbox at once.";

/// Gives the supervisor of a program that is to end, at the latest when nothing is `left` of its
/// time, a turn, if it has not ended it at once.
pub(super) async fn unthrottle(
    sandbox: &dyn Sandbox,
    left: Duration,
    cancel: &CancellationToken,
) -> Infallible {
    drop(timeout(left, cancel.cancelled()).await);
    sleep(UNTHROTTLE_AFTER).await;
    if let Err(error) = sandbox.unthrottle().await {
        log_chain("a sandbox keeps its share of the CPU to its end", &error);
    }
    pending().await
}

/// Ends everything in a sandbox, and tells what is known of that. One whose end is not confirmed is
/// nobody's any more: nobody waits for it. Then there is a note.
pub(super) async fn kill(
    sandbox: Box<dyn Sandbox>,
    notes: &mut Vec<String>,
) -> (Option<Box<dyn Sandbox>>, Stop) {
    let Err(error) = sandbox.kill().await else {
        return (Some(sandbox), Stop::Confirmed);
    };
    log_chain("the end of a sandbox was not confirmed", &error);
    sandbox.quarantine();
    notes.push(
        "Clean-up is pending: the container engine did not confirm the end of the sandbox, which \
         is set aside until it does."
            .to_owned(),
    );
    let stop = if matches!(error, EngineError::NotEnded(_)) {
        Stop::Failed
    } else {
        Stop::Unanswered
    };
    (None, stop)
}

/// Destroys a sandbox; a note if that has to be done later.
pub(super) async fn destroy(sandbox: Box<dyn Sandbox>) -> Option<String> {
    removal_note(sandbox.destroy().await)
}

/// A note if the engine removes sandboxes more slowly than they are made, so that the removal of this
/// one, which comes after its result, will have to be waited for.
pub(super) fn pending_note(sandbox: &dyn Sandbox) -> Option<String> {
    sandbox
        .removal_waits()
        .then(|| CLEAN_UP_IS_PENDING.to_owned())
}

/// Has a sandbox removed in which nothing runs any more: its supervisor leaves when it hears that
/// everything has arrived, and the rest is for the engine to do in its own time.
pub(super) async fn retire(sandbox: Box<dyn Sandbox>, mut session: Session) {
    match timeout(LEAVE_BOUND, session.acknowledge_all()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log_chain("a supervisor could not be told to leave", &error),
        Err(_) => warn!("a supervisor does not listen any more"),
    }
    removal_note(sandbox.retire().await);
}

fn removal_note(removed: Result<(), EngineError>) -> Option<String> {
    match removed {
        Ok(()) => None,
        Err(error) => {
            log_chain("a sandbox could not be removed at once; it will be", &error);
            Some(CLEAN_UP_IS_PENDING.to_owned())
        }
    }
}
