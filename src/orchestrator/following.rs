//! A program that runs is followed to its end, also over a stream that breaks while the daemon lives: an
//! engine that is killed or replaced takes its streams with it and, where it lets containers run on
//! (live-restore), nothing else (security.md rows F2 and F3).
//!
//! What the supervisor has sent and nobody has heard it sends again, so that nothing is lost by that. Its
//! time limit goes on all the while: once it is over, nobody is waited for, and what became of the
//! program is not known.

use std::time::Duration;

use fumehood_protocol::ResumeToken;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::collection::First;
use super::conversation::{self, Conversation, TalkEnd};
use super::course::Course;
use super::ending::progress;
use super::executor::{Executor, Talk};
use super::handoff::{Keeper, SoFar};
use super::resuming::Resume;
use super::stopping;
use crate::artifacts::Staging;
use crate::execution::result::ExecutionResult;
use crate::execution::spec::ExecutionSpec;
use crate::receipt::Evidence;
use crate::sandbox::Sandbox;
use crate::sandbox::session::{Gap, Session, SessionError};
use crate::telemetry::log_chain;

/// How often the stream may break while a program runs. More is no engine that was started again.
const MAX_BREAKS: u32 = 100;

/// Pause before a stream that broke is attached to again: what broke it may still be going on.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A program that runs, and what there is to know of it for its end.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) sandbox: Box<dyn Sandbox>,
    pub(super) session: Session,
    /// Leads back into the talk.
    pub(super) token: ResumeToken,
    /// `None` where there was no room for one yet.
    pub(super) staging: Option<Staging>,
    pub(super) keeper: Box<dyn Keeper>,
    pub(super) first: First,
    pub(super) notes: Vec<String>,
}

impl Executor {
    /// Follows a program that was started.
    pub(super) async fn follow(
        &self,
        spec: &ExecutionSpec,
        mut followed: Followed,
        mut course: Course,
        talk: Talk<'_>,
        evidence: &Evidence,
    ) -> ExecutionResult {
        let late_from = course.late_from(Instant::now());
        let mut breaks = Breaks::default();
        let conversation = loop {
            let mut conversation = followed.talk(course, talk).await;
            if !conversation.is_broken_off() || breaks.count == MAX_BREAKS {
                break conversation;
            }
            let broken = Instant::now();
            let again = followed.attach_again(&conversation, late_from, talk.cancel);
            let again = again.await;
            let away = broken.elapsed();
            conversation.wall += away;
            match again {
                Again::Attached(session) => {
                    followed.session = *session;
                    breaks.count += 1;
                    breaks.away += away;
                    course = Course::regained(&spec.limits, conversation);
                }
                Again::Late => {
                    // No time limit of the program's: an engine that goes away may take it along.
                    conversation.end = TalkEnd::Lost(SessionError::Away);
                    break conversation;
                }
                Again::Cancelled => {
                    conversation.end = TalkEnd::LateOnCancel;
                    break conversation;
                }
                Again::Lost => break conversation,
            }
        };
        followed.notes.extend(breaks.note());
        self.end(spec, followed, conversation, evidence).await
    }
}

/// What came of a stream that broke.
enum Again {
    Attached(Box<Session>),
    /// The program's time was over before it was there again.
    Late,
    /// The program was to end before.
    Cancelled,
    Lost,
}

impl Followed {
    /// One talk, to its end or until the stream breaks.
    async fn talk(&mut self, course: Course, talk: Talk<'_>) -> Conversation {
        let Talk { cancel, observer } = talk;
        let unthrottling = stopping::unthrottle(self.sandbox.as_ref(), course.left, cancel);
        let keeper = self.keeper.as_ref();
        let talking = conversation::follow(&mut self.session, course, cancel, observer, keeper);
        tokio::select! {
            conversation = talking => conversation,
            never = unthrottling => match never {},
        }
    }

    /// Attaches again after a talk that broke off.
    async fn attach_again(
        &mut self,
        talk: &Conversation,
        late_from: Instant,
        cancel: &CancellationToken,
    ) -> Again {
        if let TalkEnd::Lost(error) = &talk.end {
            log_chain(
                "the stream to a supervisor broke: it is attached to again",
                error,
            );
        }
        let resume = Resume {
            token: self.token,
            received: self.session.received(),
            gap: Gap::None,
        };
        let attaching = async {
            sleep(FIRST_PAUSE).await;
            // To go on after a message is to acknowledge it, so the next daemon has to have it.
            let progress = SoFar {
                received: resume.received,
                ..progress(talk)
            };
            self.keeper.keep(progress).await;
            resume.attach(self.sandbox.as_mut(), late_from).await
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Again::Cancelled,
            () = sleep_until(late_from) => Again::Late,
            attached = attaching => match attached {
                Ok(session) => Again::Attached(Box::new(session)),
                Err(error) => {
                    log_chain("a supervisor could not be attached to again", &error);
                    Again::Lost
                }
            },
        }
    }
}

/// What there is to tell of a stream that broke and was there again.
#[derive(Debug, Default)]
struct Breaks {
    count: u32,
    away: Duration,
}

impl Breaks {
    fn note(&self) -> Option<String> {
        let times = match self.count {
            0 => return None,
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        Some(format!(
            "The container engine's stream to the sandbox broke {times} while the program ran and was \
             away for {:.1} s in all; the program ran on, and nothing of it was lost.",
            self.away.as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests;
