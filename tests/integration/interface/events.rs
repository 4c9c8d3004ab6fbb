//! `GET /runs/{id}/events`: server-sent events, live and resumable.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{QUICK, blocker, cancel, one_at_a_time};
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

/// One event as it came over the line.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: Option<String>,
    name: String,
    data: Value,
}

impl Event {
    /// Its number in this life of the daemon.
    fn number(&self) -> Option<u64> {
        let (_, number) = self.id.as_ref()?.split_once('-').unwrap();
        Some(number.parse().unwrap())
    }
}

/// An open stream of events.
struct Stream {
    response: Response,
    buffer: Vec<u8>,
}

impl Stream {
    async fn open(daemon: &Daemon, run: &str, last: Option<&str>) -> Self {
        let mut request = daemon.request(Method::GET, &format!("/runs/{run}/events"));
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        Self {
            response,
            buffer: Vec::new(),
        }
    }

    /// The next event; `None` when the daemon closed the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\n\n") {
                let frame: Vec<u8> = self.buffer.drain(..end + 2).collect();
                let frame = String::from_utf8(frame).expect("events are UTF-8");
                if let Some(event) = parsed(&frame) {
                    return Some(event);
                }
                continue;
            }
            let chunk = timeout(PATIENCE, self.response.chunk()).await;
            let Some(chunk) = chunk.expect("the stream is silent").unwrap() else {
                assert_eq!(self.buffer, b"", "the stream ended within an event");
                return None;
            };
            self.buffer.extend_from_slice(&chunk);
        }
    }

    async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

fn parsed(frame: &str) -> Option<Event> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
    Some(Event {
        id: field("id: ").map(str::to_owned),
        name: field("event: ")?.to_owned(),
        data: serde_json::from_str(field("data: ").unwrap()).unwrap(),
    })
}

/// Everything that a stream of the program wrote.
fn written(events: &[Event], stream: &str) -> String {
    let output = events.iter().filter(|event| event.name == "output");
    output
        .filter(|event| event.data["stream"] == stream)
        .map(|event| event.data["text"].as_str().unwrap())
        .collect()
}

/// Follows a run until its program has printed `text`.
pub(super) async fn until_printed(daemon: &Daemon, run: &str, text: &str) {
    let mut stream = Stream::open(daemon, run, None).await;
    let mut seen = Vec::new();
    while !written(&seen, "stdout").contains(text) {
        let event = stream.next().await;
        seen.push(event.unwrap_or_else(|| panic!("{text} was not printed: {seen:?}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_followed_from_the_queue_to_its_end_in_order() {
    let daemon = one_at_a_time().await;
    let first = blocker(&daemon).await;
    let code = "import os, sys\n\
        for b in 'Grüße 🚀\\n'.encode(): os.write(1, bytes([b]))\n\
        os.write(2, b'a\\r\\n\\ndata: x\\n\\nid: 9\\x00\\xff')\n";
    let id = daemon.submit(json!({ "code": code })).await;
    let stream = Stream::open(&daemon, &id, None).await;
    assert_eq!(cancel(&daemon, &first).await.0, 200);
    let events = stream.rest().await;

    let numbers: Vec<u64> = events.iter().filter_map(Event::number).collect();
    let counted: Vec<_> = (1..=numbers.len() as u64).collect();
    assert_eq!(numbers, counted, "{events:?}");
    let statuses: Vec<_> = events
        .iter()
        .filter(|event| event.name == "status")
        .map(|event| event.data["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["QUEUED", "RUNNING", "SUCCESS"]);
    assert_eq!(written(&events, "stdout"), "Grüße 🚀\n");
    let stderr = "a\r\n\ndata: x\n\nid: 9\0\u{fffd}";
    assert_eq!(written(&events, "stderr"), stderr);
    let place = |name: &str| events.iter().position(|event| event.name == name);
    let (started, ended) = (place("execution_started"), place("execution_ended"));
    assert!(started < place("output") && place("output") < ended);
    let (started, ended) = (&events[started.unwrap()], &events[ended.unwrap()]);
    assert_eq!(started.data["execution_id"], ended.data["execution_id"]);
    assert_eq!(ended.data["status"], "SUCCESS");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_seen_while_the_program_runs() {
    let daemon = Daemon::start().await;
    let set = daemon.data().join("set");
    std::fs::create_dir(&set).unwrap();
    let code = "import os, time\n\
        print('waiting', end='')\n\
        while not os.path.exists('/data/go'): time.sleep(0.05)\n\
        print('gone')\n";
    let body = json!({ "dataset_path": "data/set", "code": code });
    let id = daemon.submit(body).await;
    until_printed(&daemon, &id, "waiting").await;
    // That reader went away; the program neither notices nor ends.
    assert_eq!(
        daemon.get(&format!("/runs/{id}")).await.1["status"],
        "RUNNING"
    );
    std::fs::write(set.join("go"), "").unwrap();
    let events = Stream::open(&daemon, &id, None).await.rest().await;
    assert_eq!(written(&events, "stdout"), "waitinggone\n");
    assert_eq!(daemon.ended(&id).await["status"], "SUCCESS");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_after_the_last_event_it_had() {
    let mut daemon = Daemon::start().await;
    let run = daemon
        .run(json!({ "code": "print('a'); print('b')" }))
        .await;
    let id = run["run_id"].as_str().unwrap().to_owned();
    let all = Stream::open(&daemon, &id, None).await.rest().await;
    assert!(all.len() >= 5, "{all:?}");
    for (index, event) in all.iter().enumerate() {
        let last = event.id.clone().unwrap();
        let rest = Stream::open(&daemon, &id, Some(&last)).await.rest().await;
        assert_eq!(rest, all[index + 1..], "after {last}");
    }
    let (life, _) = all[0].id.as_ref().unwrap().split_once('-').unwrap();
    let first = format!("{life}-0");
    for none in ["", &first] {
        let rest = Stream::open(&daemon, &id, Some(none)).await.rest().await;
        assert_eq!(rest, all, "{none:?}");
    }
    // No id of this daemon: the reader is told that it may have missed something, and gets all there is.
    let ahead = format!("{life}-1000");
    for odd in [
        "3",
        "x",
        "-1",
        "00000000-2",
        "99999999999999999999999",
        &ahead,
    ] {
        let rest = Stream::open(&daemon, &id, Some(odd)).await.rest().await;
        assert_eq!(rest[0].name, "gap", "{odd:?}: {rest:?}");
        assert_eq!(rest[1..], all, "{odd:?}");
    }

    daemon.stop();
    daemon.launch();
    let last = all[2].id.as_deref();
    for last in [None, last] {
        let rest = Stream::open(&daemon, &id, last).await.rest().await;
        let end = rest.last().unwrap();
        assert_eq!(
            (end.name.as_str(), &end.data),
            ("status", &json!({ "status": "SUCCESS" }))
        );
    }
}

/// A reader of the earlier daemon is told that what comes is not what comes after what it had.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_comes_back_to_the_next_daemon_is_told_so_and_gets_all_output() {
    let mut daemon = Daemon::start().await;
    let set = daemon.data().join("set");
    std::fs::create_dir(&set).unwrap();
    let code = "import os, time\n\
        for number in range(9): print(number)\n\
        while not os.path.exists('/data/go'): time.sleep(0.05)\n\
        print('over')\n";
    let body = json!({ "dataset_path": "data/set", "code": code });
    let id = daemon.submit(body).await;
    let mut stream = Stream::open(&daemon, &id, None).await;
    let mut seen = Vec::new();
    while !written(&seen, "stdout").contains('8') {
        seen.push(stream.next().await.unwrap());
    }
    let last = seen.last().unwrap().id.clone().unwrap();
    daemon.kill();
    daemon.launch();
    let stream = Stream::open(&daemon, &id, Some(&last)).await;
    std::fs::write(set.join("go"), "").unwrap();
    let rest = stream.rest().await;
    assert_eq!(rest[0].name, "gap", "{rest:?}");
    let whole: String = (0..9).map(|number| format!("{number}\n")).collect();
    assert_eq!(written(&rest, "stdout"), format!("{whole}over\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_read_nothing_hold_up_neither_runs_nor_answers() {
    let daemon = Daemon::start().await;
    let code = "import sys\nfor _ in range(3000): sys.stdout.write('z' * 1024)\n";
    let id = daemon.submit(json!({ "code": code })).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(Stream::open(&daemon, &id, None).await);
    }
    assert_eq!(daemon.ended(&id).await["status"], "SUCCESS");
    assert_eq!(daemon.execute(QUICK).await["status"], "SUCCESS");
    let events = idle.remove(0).rest().await;
    assert_eq!(events.last().unwrap().data, json!({ "status": "SUCCESS" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_leave_room_for_everything_else() {
    let toml = "[api]\nmax_connections = 6".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    let id = blocker(&daemon).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(Stream::open(&daemon, &id, None).await);
    }
    let one_more = daemon.request(Method::GET, &format!("/runs/{id}/events"));
    let refused = super::sent(one_more).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(daemon.get("/health").await.0, 200);
    // A reader that goes away makes room.
    drop(streams.pop());
    let again = || async {
        let request = daemon.request(Method::GET, &format!("/runs/{id}/events"));
        request.send().await.unwrap().status().as_u16()
    };
    until(PATIENCE, again, |status| *status == 200).await;
    assert_eq!(cancel(&daemon, &id).await.0, 200);
    daemon.ended(&id).await;
}
