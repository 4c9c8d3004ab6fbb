//! What is put away is found as it was, and nothing that makes no sense is taken for something.

use super::*;
use crate::execution::result::SandboxStart;
use crate::receipt::testing::evidence;

pub(in crate::orchestrator) fn handoff() -> Handoff {
    let sandbox_use = SandboxUse {
        start: SandboxStart::Cold,
        dataset_mount: None,
    };
    let mut isolation = evidence().isolation.unwrap();
    isolation.found.protocol = fumehood_protocol::VERSION;
    let token = ResumeToken([7; ResumeToken::BYTES]);
    let notes = ["a note".to_owned()];
    Handoff::of_start(token, 50_000, &isolation, None, (sandbox_use, &notes))
}

fn progress(received: u64, text: &[u8]) -> SoFar {
    let mut head = Head::new(5);
    head.push(text);
    SoFar {
        received,
        stdout: Kept::of(&head),
        ..SoFar::default()
    }
}

#[tokio::test]
async fn what_was_put_away_is_found_as_it_was_and_forgotten_when_it_is_recorded() {
    let place = tempfile::tempdir().unwrap();
    let handoffs = Handoffs::open(place.path()).unwrap();
    let id = ExecutionId::random();
    assert_eq!(handoffs.find(&id).await.unwrap(), None);
    let keeper = handoffs.put(&id, handoff()).await.unwrap();
    let found = handoffs.find(&id).await.unwrap().unwrap();
    assert_eq!(found.progress, SoFar::default());
    keeper.keep(progress(9, b"\xff12345")).await;
    // One that comes late changes nothing.
    keeper.keep(progress(4, b"old")).await;
    let found = handoffs.find(&id).await.unwrap().unwrap();
    assert_eq!(found.progress, progress(9, b"\xff12345"));
    let head = found.progress.stdout.head(5);
    assert_eq!((head.kept(), head.total()), (&b"\xff1234"[..], 6));
    handoffs.forget(&id).await;
    assert_eq!(handoffs.find(&id).await.unwrap(), None);
}

#[tokio::test]
async fn executions_that_are_over_and_half_written_files_are_tidied_up() {
    let place = tempfile::tempdir().unwrap();
    let handoffs = Handoffs::open(place.path()).unwrap();
    let (kept, over) = (ExecutionId::random(), ExecutionId::random());
    for id in [&kept, &over] {
        handoffs.put(id, handoff()).await.unwrap();
    }
    let half = place.path().join(DIRECTORY).join(format!("{kept}.new"));
    fs::write(&half, "{").unwrap();
    handoffs.keep_only(std::slice::from_ref(&kept)).await;
    assert!(handoffs.find(&kept).await.unwrap().is_some());
    assert_eq!(handoffs.find(&over).await.unwrap(), None);
    assert!(!half.exists());
}

/// A supervisor of another version than this daemon's is not talked to.
#[tokio::test]
async fn a_sandbox_that_speaks_another_version_is_not_gone_on_with() {
    let place = tempfile::tempdir().unwrap();
    let handoffs = Handoffs::open(place.path()).unwrap();
    let id = ExecutionId::random();
    let mut older = handoff();
    older.isolation.found.protocol -= 1;
    handoffs.put(&id, older).await.unwrap();
    let error = handoffs.find(&id).await.unwrap_err();
    assert!(matches!(error, HandoffError::Version), "{error}");
}

#[tokio::test]
async fn what_cannot_be_understood_is_an_error_and_never_nothing() {
    let place = tempfile::tempdir().unwrap();
    let handoffs = Handoffs::open(place.path()).unwrap();
    let id = ExecutionId::random();
    for (text, is_version) in [("", false), ("{", false), ("{\"version\":2}", true)] {
        fs::write(place.path().join(DIRECTORY).join(id.as_str()), text).unwrap();
        let error = handoffs.find(&id).await.unwrap_err();
        assert_eq!(
            matches!(error, HandoffError::Version),
            is_version,
            "{error}"
        );
    }
}

/// It is not asked of a clock that can be set.
#[test]
fn what_a_program_has_left_is_reckoned_by_the_time_of_the_host() {
    let day = jiff::SignedDuration::from_hours(24);
    let mut handoff = handoff();
    handoff.started.up -= 60_000_000;
    for starting_at in [clock::now() - day, clock::now() + day] {
        handoff.starting_at = starting_at;
        let passed = handoff.passed();
        assert!((60..120).contains(&passed.as_secs()), "{passed:?}");
    }
    // Of another life of the host, or where the kernel tells nothing.
    handoff.started = HostTime::default();
    assert_eq!(handoff.passed(), Duration::ZERO);
    handoff.starting_at = clock::now() - day;
    assert!(handoff.passed().as_secs() >= 86_400);
}

/// With a state directory that was lost nobody knows which programs were started.
#[tokio::test]
async fn of_a_place_that_was_not_there_nothing_is_known() {
    let place = tempfile::tempdir().unwrap();
    let id = ExecutionId::random();
    let left = Handoffs::open(place.path()).unwrap().left(&id).await;
    assert!(matches!(left, Err(HandoffError::Gone)), "{left:?}");
    let left = Handoffs::open(place.path()).unwrap().left(&id).await;
    assert_eq!(left.unwrap(), None);
}
