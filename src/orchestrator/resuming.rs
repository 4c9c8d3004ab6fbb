//! Attaching again to a supervisor whose stream broke: because the daemon that had it went away, or
//! because the engine did, which carries it.

use std::time::Duration;

use fumehood_protocol::ResumeToken;
use tokio::time::{Instant, sleep, timeout};

use crate::sandbox::session::{Gap, Session, SessionError};
use crate::sandbox::{EngineError, Sandbox};
use crate::telemetry::log_chain;

/// For a supervisor to answer one that attaches again.
const RESUME_BOUND: Duration = Duration::from_secs(15);

/// How often it is tried with a supervisor that does not answer.
const RESUME_ATTEMPTS: u32 = 3;

/// Pause before the engine or a supervisor is asked again.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Where a talk is gone on with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resume {
    /// Leads into the talk.
    pub(super) token: ResumeToken,
    /// The last message whose content is there; everything after it is asked for again.
    pub(super) received: u64,
    pub(super) gap: Gap,
}

impl Resume {
    /// Attaches to the supervisor of a sandbox and lets it repeat what is asked for again.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if nothing runs in the sandbox any more, if its supervisor does not answer in a
    /// few attempts, or if the engine cannot be asked until then.
    pub(super) async fn attach(
        self,
        sandbox: &mut dyn Sandbox,
        until: Instant,
    ) -> Result<Session, SessionError> {
        let mut attempt = 1;
        loop {
            // Asked each time: the engine opens the streams of one that stands still, too, and nobody
            // ever answers over them.
            let (error, was_asked) = match sandbox.is_running().await {
                Ok(true) => match timeout(RESUME_BOUND, self.go_on(sandbox)).await {
                    Ok(Ok(session)) => return Ok(session),
                    Ok(Err(error)) => (error, true),
                    Err(_elapsed) => (SessionError::Stuck, true),
                },
                Ok(false) => return Err(EngineError::Stopped.into()),
                Err(error @ EngineError::Vanished) => return Err(error.into()),
                // One that is being started or ended has other answers, too.
                Err(error) => (error.into(), false),
            };
            let is_engine_away =
                !was_asked || matches!(&error, SessionError::Engine(error) if error.is_absence());
            if is_engine_away && Instant::now() >= until
                || !is_engine_away && attempt == RESUME_ATTEMPTS
            {
                return Err(error);
            }
            log_chain("a supervisor does not answer yet", &error);
            attempt += u32::from(!is_engine_away);
            sleep(ASK_AGAIN).await;
        }
    }

    async fn go_on(self, sandbox: &mut dyn Sandbox) -> Result<Session, SessionError> {
        let channel = sandbox.attach().await?;
        Session::resume(channel, self.token, self.received, self.gap).await
    }
}

#[cfg(test)]
pub(super) mod tests;
