//! Deadlines, retries and circuits of calls whose answers are made up; the clock stands still but
//! for what is waited for.

use std::future::{pending, ready};

use bollard::errors::Error;
use tempfile::NamedTempFile;

use super::*;
use crate::sandbox::health::CallState;

/// A client that never connects, and the file that it takes for a socket.
fn client(bounds: CallBounds) -> (Client, NamedTempFile) {
    let socket = NamedTempFile::new().unwrap();
    let path = socket.path().to_str().unwrap();
    let docker = Docker::connect_with_unix(path, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION);
    let client = Client {
        docker: docker.unwrap(),
        calls: Arc::new(Calls::new(bounds)),
    };
    (client, socket)
}

fn lost() -> Error {
    Error::IOError {
        err: ErrorKind::ConnectionReset.into(),
    }
}

fn nobody() -> Error {
    Error::SocketNotFoundError("engine.sock".to_owned())
}

fn refused(status_code: u16) -> Error {
    Error::DockerResponseServerError {
        status_code,
        message: "no".to_owned(),
    }
}

/// A call that fails each time; gives how often it was tried, and its last error.
async fn failing(
    client: &Client,
    call: Call,
    manner: Manner,
    error: impl Fn() -> Error,
) -> (u32, EngineError) {
    let mut attempts = 0;
    let answer = client.repeated(call, manner, || {
        attempts += 1;
        ready(Err::<(), _>(error()))
    });
    let error = answer.await.unwrap_err();
    (attempts, error)
}

fn state(client: &Client, kind: CallKind) -> CallState {
    client.calls.health()[kind as usize].state
}

#[tokio::test(start_paused = true)]
async fn what_is_safe_is_tried_again_where_the_connection_broke_and_nothing_else_is() {
    let times = CallBounds::default().retries + 1;
    for call in [
        Call::Ping,
        Call::Inspect,
        Call::InspectImage,
        Call::Create,
        Call::Start,
        Call::Kill,
        Call::Remove,
    ] {
        let (client, _socket) = client(CallBounds::default());
        assert_eq!(failing(&client, call, Manner::Polite, lost).await.0, times);
    }
    for call in [Call::Attach, Call::CopySupervisor] {
        let (client, _socket) = client(CallBounds::default());
        assert_eq!(failing(&client, call, Manner::Polite, lost).await.0, 1);
    }
    for (call, status, times) in [
        (Call::Inspect, 500, times),
        (Call::Inspect, 404, 1),
        (Call::Create, 500, 1),
        (Call::Create, 409, 1),
        (Call::Start, 500, 1),
        (Call::Remove, 500, 1),
    ] {
        let (client, _socket) = client(CallBounds::default());
        let (attempts, error) = failing(&client, call, Manner::Polite, || refused(status)).await;
        assert_eq!(attempts, times, "{call:?} {status}");
        assert!(is_answer(&error), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_at_its_deadline_and_is_not_tried_again() {
    let (client, _socket) = client(CallBounds::default());
    let start = Instant::now();
    let mut attempts = 0;
    let asked = client.repeated(Call::Create, Manner::Polite, || {
        attempts += 1;
        pending::<Result<(), _>>()
    });
    let error = asked.await.unwrap_err();
    let bound = CallBounds::default().create;
    assert!((bound..bound + Duration::from_millis(10)).contains(&start.elapsed()));
    assert_eq!(attempts, 1);
    assert!(
        matches!(error, EngineError::TimedOut { seconds: 30, .. }),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn all_attempts_of_a_call_share_its_deadline() {
    let bounds = CallBounds {
        ask: Duration::from_secs(1),
        retries: 100,
        ..CallBounds::default()
    };
    let (client, _socket) = client(bounds);
    let start = Instant::now();
    let (attempts, _) = failing(&client, Call::Inspect, Manner::Polite, lost).await;
    assert!(attempts > 2, "{attempts}");
    assert!(start.elapsed() <= bounds.ask, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn of_several_failures_the_one_that_leaves_most_open_is_told() {
    let (client, _socket) = client(CallBounds::default());
    let mut errors = vec![nobody(), nobody(), lost()];
    let asked = client.repeated(Call::Create, Manner::Polite, || {
        ready(Err::<(), _>(errors.pop().unwrap()))
    });
    let error = asked.await.unwrap_err();
    assert!(leaves_open(&error), "{error:?}");
    let (_, error) = failing(&client, Call::Create, Manner::Polite, nobody).await;
    assert!(!leaves_open(&error), "{error:?}");
}

#[test]
fn pauses_grow_and_half_of_each_is_left_to_chance() {
    for attempt in 1..8 {
        let most = FIRST_PAUSE * 2_u32.pow(attempt - 1);
        for _ in 0..100 {
            assert!((most / 2..=most).contains(&pause_before(attempt)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_fails_rests_alone_and_is_tried_again_after_its_pause() {
    let bounds = CallBounds {
        retries: 0,
        ..CallBounds::default()
    };
    let (client, _socket) = client(bounds);
    for _ in 0..bounds.failures {
        assert_eq!(state(&client, CallKind::Create), CallState::Well);
        failing(&client, Call::Create, Manner::Polite, lost).await;
    }
    let (attempts, error) = failing(&client, Call::Create, Manner::Polite, lost).await;
    assert_eq!(attempts, 0, "the engine is left alone");
    assert!(error.is_absence());
    assert!(error.to_string().contains("create a sandbox"), "{error}");
    for kind in CallKind::ALL {
        let is_well = state(&client, kind) == CallState::Well;
        assert_eq!(is_well, kind != CallKind::Create, "{kind:?}");
    }
    sleep(bounds.pause).await;
    assert_eq!(state(&client, CallKind::Create), CallState::Probing);
    // An error that the engine itself gives is an answer.
    let (attempts, _) = failing(&client, Call::Create, Manner::Polite, || refused(500)).await;
    assert_eq!(attempts, 1);
    let health = client.calls.health();
    let health = &health[CallKind::Create as usize];
    assert_eq!((health.state, health.since), (CallState::Well, None));
    assert_eq!((health.opened, health.failed), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_tried_whatever_happened_to_the_others() {
    let (client, _socket) = client(CallBounds::default());
    failing(&client, Call::Kill, Manner::Insistent, nobody).await;
    assert_eq!(state(&client, CallKind::Kill), CallState::Resting);
    let polite = failing(&client, Call::Kill, Manner::Polite, nobody).await;
    assert_eq!(polite.0, 0);
    let insistent = failing(&client, Call::Kill, Manner::Insistent, nobody).await;
    assert!(insistent.0 > 0);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_was_away_and_is_back_begins_anew() {
    let (client, _socket) = client(CallBounds::default());
    for call in [Call::Ping, Call::Inspect, Call::Create, Call::Remove] {
        failing(&client, call, Manner::Polite, nobody).await;
        assert_eq!(state(&client, call.kind()), CallState::Resting);
    }
    let mut changes = client.calls.changes();
    let ping = client.repeated(Call::Ping, Manner::Insistent, || ready(Ok(())));
    ping.await.unwrap();
    assert!(changes.has_changed().unwrap(), "whoever waits is told");
    changes.mark_unchanged();
    for health in client.calls.health() {
        assert_eq!(health.state, CallState::Well, "{health:?}");
        assert_eq!(health.reason, None);
    }
}

/// Whoever finds out first need not be the one that asks whether anybody is there.
#[tokio::test(start_paused = true)]
async fn a_kind_that_found_nobody_there_begins_anew_as_soon_as_somebody_is() {
    let (client, _socket) = client(CallBounds::default());
    let ping = async || {
        let ping = client.repeated(Call::Ping, Manner::Insistent, || ready(Ok(())));
        ping.await.unwrap();
    };
    failing(&client, Call::Inspect, Manner::Polite, nobody).await;
    for _ in 0..CallBounds::default().failures {
        failing(&client, Call::Create, Manner::Polite, lost).await;
    }
    for kind in [CallKind::Ask, CallKind::Create] {
        assert_eq!(state(&client, kind), CallState::Resting, "{kind:?}");
    }
    ping().await;
    assert_eq!(state(&client, CallKind::Ask), CallState::Well);
    // This one hangs, which is no matter of the whole engine.
    assert_eq!(state(&client, CallKind::Create), CallState::Resting);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_waits_for_any_more_says_nothing_of_the_engine() {
    let (client, _socket) = client(CallBounds::default());
    for _ in 0..10 {
        let hanging = client.once(Call::Inspect, pending::<Result<(), Error>>());
        let given_up = timeout(Duration::from_secs(1), hanging).await;
        assert!(given_up.is_err());
    }
    assert_eq!(state(&client, CallKind::Ask), CallState::Well);
}
