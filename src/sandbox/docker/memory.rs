//! Whether a container ended because of a kill for memory. The engine's own flag says only that there was
//! one at any time, which a program can have survived; when it was, the engine's events say.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::ContainerState;
use bollard::query_parameters::EventsOptions;
use futures_util::TryStreamExt as _;
use jiff::Timestamp;

use super::calls::Manner;
use super::client::{Call, Client};
use crate::clock;
use crate::telemetry::log_chain;

/// What goes on for so long after a kill for memory has survived it.
const SURVIVED_AFTER: Duration = Duration::from_secs(2);

/// Events that are looked at. A program can have its processes killed again and again; the engine itself
/// remembers 256 of all that happens.
const MOST_EVENTS: usize = 1000;

/// Whether a container of this name, in which nothing runs any more, ended with a kill for memory. Where
/// the engine has forgotten when there was one, it is taken to be why.
pub(super) async fn ended_it(docker: &Client, name: &str, state: &ContainerState) -> bool {
    if state.oom_killed != Some(true) {
        return false;
    }
    let time = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    let (Some(started), Some(finished)) = (time(&state.started_at), time(&state.finished_at))
    else {
        return true;
    };
    if state.running == Some(true) {
        return true;
    }
    let options = EventsOptions {
        since: Some(seconds(started)),
        until: Some(seconds(clock::now())),
        filters: Some(HashMap::from([
            ("container".to_owned(), vec![name.to_owned()]),
            ("event".to_owned(), vec!["oom".to_owned()]),
        ])),
    };
    let asked = docker.repeated(Call::Events, Manner::Polite, || {
        let events = docker.docker().events(Some(options.clone()));
        async move {
            let mut last = None;
            let mut events = std::pin::pin!(events);
            for _ in 0..MOST_EVENTS {
                let Some(event) = events.try_next().await? else {
                    break;
                };
                last = event.time_nano.or(last);
            }
            Ok(last)
        }
    });
    match asked.await {
        Ok(last) => {
            let last = last.and_then(|time| Timestamp::from_nanosecond(time.into()).ok());
            is_the_end(last, finished)
        }
        Err(error) => {
            log_chain(
                "the engine cannot tell when something was killed for memory",
                &error,
            );
            true
        }
    }
}

fn is_the_end(last_kill: Option<Timestamp>, finished: Timestamp) -> bool {
    let went_on = |kill| Duration::try_from(finished.duration_since(kill)).unwrap_or_default();
    last_kill.is_none_or(|kill| went_on(kill) < SURVIVED_AFTER)
}

/// As the engine's interface has it.
fn seconds(time: Timestamp) -> String {
    format!("{}.{:09}", time.as_second(), time.subsec_nanosecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_the_end_of_what_does_not_go_on_for_long_after_it() {
        let at = |milliseconds| Timestamp::from_millisecond(milliseconds).unwrap();
        let finished = at(1_700_000_010_000);
        for (kill, is_why) in [
            (None, true),
            (Some(at(1_700_000_009_500)), true),
            // Two clocks.
            (Some(at(1_700_000_010_020)), true),
            (Some(at(1_700_000_007_000)), false),
        ] {
            assert_eq!(is_the_end(kill, finished), is_why, "{kill:?}");
        }
    }

    #[test]
    fn times_are_told_to_the_engine_to_the_nanosecond() {
        let time = Timestamp::new(1_700_000_000, 5_000).unwrap();
        assert_eq!(seconds(time), "1700000000.000005000");
    }
}
