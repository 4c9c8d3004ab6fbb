//! `GET /runs`: newest first, in pages.

use serde_json::{Value, json};

use super::{blocker, cancel, keys, one_at_a_time};
use crate::support::Daemon;

fn ids(page: &Value) -> Vec<String> {
    let runs = page["runs"].as_array().unwrap();
    let id = |run: &Value| run["run_id"].as_str().unwrap().to_owned();
    runs.iter().map(id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_newest_first_in_pages_that_new_runs_do_not_shift() {
    let daemon = one_at_a_time().await;
    let (status, empty) = daemon.get("/runs").await;
    assert_eq!(
        (status, empty),
        (200, json!({ "runs": [], "next_cursor": null }))
    );
    let mut made = vec![blocker(&daemon).await];
    for _ in 0..6 {
        made.push(daemon.submit(json!({ "code": super::QUICK })).await);
    }
    let newest_first: Vec<_> = made.iter().rev().cloned().collect();

    let mut seen = Vec::new();
    let mut path = "/runs?limit=3".to_owned();
    let mut late = None;
    loop {
        let (status, page) = daemon.get(&path).await;
        assert_eq!((status, keys(&page)), (200, vec!["runs", "next_cursor"]));
        assert!(ids(&page).len() <= 3);
        seen.extend(ids(&page));
        if late.is_none() {
            late = Some(daemon.submit(json!({ "code": super::QUICK })).await);
        }
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/runs?limit=3&cursor={cursor}");
    }
    assert_eq!(seen, newest_first);

    let late = late.unwrap();
    let (_, queued) = daemon.get("/runs?status=QUEUED").await;
    let mut expected = vec![late.clone()];
    expected.extend_from_slice(&newest_first[..6]);
    assert_eq!(ids(&queued), expected);
    let (_, running) = daemon.get("/runs?status=RUNNING").await;
    assert_eq!(ids(&running), made[..1]);
    let (_, page) = daemon.get("/runs?status=SUCCESS").await;
    assert_eq!(page, json!({ "runs": [], "next_cursor": null }));

    for id in made[1..].iter().chain([&late]) {
        assert_eq!(cancel(&daemon, id).await.0, 200);
    }
    let (_, page) = daemon.get("/runs?status=CANCELLED&limit=100").await;
    assert_eq!(ids(&page).len(), 7);
    let alone = daemon.get(&format!("/runs/{late}")).await.1;
    assert_eq!(page["runs"][0], alone, "the list shows what the run shows");
    assert_eq!(cancel(&daemon, &made[0]).await.0, 200);
    daemon.ended(&made[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_that_make_no_sense_are_422_by_name() {
    let daemon = Daemon::start().await;
    for (query, name) in [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=101", "limit"),
        ("limit=many", "limit"),
        ("limit=", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("cursor=x", "cursor"),
        ("cursor=", "cursor"),
        ("cursor=%00%ff", "cursor"),
        ("cursor=../../etc/passwd", "cursor"),
        ("status=done", "status"),
        ("status=queued", "status"),
        ("status=QUEUED'--", "status"),
    ] {
        let (status, answer) = daemon.get(&format!("/runs?{query}")).await;
        assert_eq!(status, 422, "{query}: {answer}");
        let place = json!(["query", name]);
        assert_eq!(answer["detail"][0]["loc"], place, "{query}: {answer}");
    }
    let (status, _) = daemon.get("/runs?unknown=1&limit=100&limit=2").await;
    assert_eq!(status, 200);
}
