//! Many runs at once (bug cases BR-35, BR-36, BR-40): order, bounds, and nothing left over.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::daemon::client;
use crate::support::engine::{containers_of, volumes};
use crate::support::wait::until;
use crate::support::watch::{Flight, nothing_left};
use crate::support::{Daemon, Settings};

const AT_ONCE: usize = 8;
/// Containers of ended runs whose removal the daemon leaves to the engine's own time.
const REMOVALS: usize = 16;
const CLIENTS: usize = 4;
const RUNS_EACH: usize = 50;

async fn daemon_with(toml: &str) -> Daemon {
    Daemon::start_with(Settings {
        toml: format!("[app]\n{toml}"),
        ..Settings::default()
    })
    .await
}

/// Submits the runs of one client one after the other, so that their order is known.
async fn submit_all(daemon: &Daemon, number: usize) -> Vec<String> {
    let client = client(number);
    let mut ids = Vec::new();
    for run in 0..RUNS_EACH {
        let code = format!(
            "print('{number}-{run}')\nopen('out/predictions.csv', 'w').write('{number}-{run}')"
        );
        let answer = client
            .post(format!("{}/runs", daemon.address()))
            .json(&json!({ "code": code }))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        ids.push(answer["run_id"].as_str().unwrap().to_owned());
    }
    ids
}

/// The volumes that tests do not make by themselves.
async fn usual_volumes() -> BTreeSet<String> {
    let all = volumes().await.into_iter();
    let of_tests = ["fumehood-gone", "fumehood-supervisor-test-"];
    all.filter(|name| !of_tests.iter().any(|start| name.starts_with(start)))
        .collect()
}

/// Asks about a run again and again; gives how long each answer took, shortest first.
async fn answer_times(daemon: &Daemon, id: &str, done: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    while !done.load(Ordering::Relaxed) {
        let path = if times.len() % 10 == 0 {
            "/runs?limit=20".to_owned()
        } else {
            format!("/runs/{id}")
        };
        let asked = Instant::now();
        assert_eq!(daemon.get(&path).await.0, 200);
        times.push(asked.elapsed());
        tick.tick().await;
    }
    times.sort();
    times
}

/// Counts the containers again and again; gives the most there were.
async fn most_containers(instance: &str, done: &AtomicBool) -> usize {
    let most = AtomicUsize::new(0);
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    while !done.load(Ordering::Relaxed) {
        most.fetch_max(containers_of(instance).await.len(), Ordering::Relaxed);
        tick.tick().await;
    }
    most.load(Ordering::Relaxed)
}

/// Each of a client's runs ended well, with its own result, and started after the one before it.
async fn assert_own_results_in_order(daemon: &Daemon, number: usize, ids: &[String]) {
    let mut starts = Vec::new();
    for (run, id) in ids.iter().enumerate() {
        let (_, record) = daemon.get(&format!("/runs/{id}")).await;
        assert_eq!(record["status"], "SUCCESS", "{record}");
        let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
        let episode = &episodes["episodes"][0]["execution_result_summary"];
        assert_eq!(episode["stdout_excerpt"], format!("{number}-{run}\n"));
        let reference = record["prediction_artifact_reference"].as_str().unwrap();
        let written = std::fs::read_to_string(daemon.artifacts(reference)).unwrap();
        assert_eq!(written, format!("{number}-{run}"));
        let start: jiff::Timestamp = episodes["start_time"].as_str().unwrap().parse().unwrap();
        starts.push(start);
    }
    assert!(starts.is_sorted(), "client {number}: {starts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_runs_eight_at_a_time_end_in_order_and_leave_nothing() {
    let daemon = daemon_with(&format!("max_concurrent_runs = {AT_ONCE}")).await;
    join_all((0..2 * AT_ONCE).map(|_| daemon.execute("print('warm')"))).await;
    let (descriptors, before) = (daemon.descriptors(), usual_volumes().await);
    let start = Instant::now();
    let ids = join_all((0..CLIENTS).map(|number| submit_all(&daemon, number))).await;

    let done = AtomicBool::new(false);
    let (instance, last) = (daemon.instance(), ids[0].last().unwrap());
    let all_ended = async {
        for id in ids.iter().flatten() {
            daemon.ended(id).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let ((), most, times) = tokio::join!(
        all_ended,
        most_containers(&instance, &done),
        answer_times(&daemon, last, &done),
    );
    let took = start.elapsed();
    let (p99, slowest) = (times[times.len() * 99 / 100], times[times.len() - 1]);
    let measured = format!(
        "{took:?} in all, {most} containers at most, {} answers, p99 {p99:?}, slowest {slowest:?}",
        times.len()
    );
    assert!((2..=AT_ONCE + REMOVALS).contains(&most), "{measured}");
    assert!(p99 < Duration::from_millis(100), "{measured}");
    assert!(took < Duration::from_secs(110), "{measured}");
    for (number, ids) in ids.iter().enumerate() {
        assert_own_results_in_order(&daemon, number, ids).await;
    }

    nothing_left(&daemon, Duration::from_secs(10)).await;
    assert_eq!(usual_volumes().await, before);
    let published = std::fs::read_dir(daemon.path().join("outputs/models")).unwrap();
    assert_eq!(published.count(), 2 * AT_ONCE + CLIENTS * RUNS_EACH);
    until(
        Duration::from_secs(10),
        async || daemon.descriptors(),
        |count| *count <= descriptors + 4,
    )
    .await;
}

/// BR-35: what is too much is refused at once and told when to come back; the rest is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_beyond_the_queue_is_refused_with_a_time_to_retry_and_nothing_else() {
    let daemon = daemon_with("max_concurrent_runs = 1\nmax_queued_runs = 5").await;
    daemon.execute("print('warm')").await;
    let descriptors = daemon.descriptors();
    let body = json!({ "code": "import time; time.sleep(0.5)" });
    let (client, url) = (client(0), format!("{}/runs", daemon.address()));
    let post = || async {
        let answer = client.post(&url).json(&body).send().await.unwrap();
        let status = answer.status().as_u16();
        let retry = answer.headers().get("retry-after").cloned();
        (status, retry, answer.json::<Value>().await.unwrap())
    };
    let mut ids = HashSet::new();
    let mut refused = 0;
    for (status, retry, answer) in join_all((0..60).map(|_| post())).await {
        if status == 429 {
            let seconds: u32 = retry.unwrap().to_str().unwrap().parse().unwrap();
            assert!(seconds > 0);
            assert!(answer["detail"].is_string(), "{answer}");
            refused += 1;
        } else {
            assert_eq!(status, 200, "{answer}");
            assert!(ids.insert(answer["run_id"].as_str().unwrap().to_owned()));
        }
    }
    // One runs, five wait; one more for each that ended during the burst.
    assert!((6..=9).contains(&ids.len()), "{} accepted", ids.len());
    assert_eq!(ids.len() + refused, 60);
    for id in &ids {
        assert_eq!(daemon.ended(id).await["status"], "SUCCESS");
    }
    drop(client);
    // A full queue is no state that stays.
    assert_eq!(daemon.execute("print('again')").await["stdout"], "again\n");
    until(
        Duration::from_secs(10),
        async || daemon.descriptors(),
        |count| *count <= descriptors + 4,
    )
    .await;
}

/// BR-36.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_runs_at_once_see_nothing_of_each_other_nor_a_later_one_of_them() {
    let daemon = daemon_with("max_concurrent_runs = 20").await;
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    std::fs::write(daemon.data().join("set/train.csv"), "a\n1\n").unwrap();
    let code = r#"
import glob, os, time, uuid
me = "MARK-" + uuid.uuid4().hex
made = 0
for d in ("/tmp", "/dev/shm", "/var/tmp", "/data", ".", "out"):
    try:
        open(os.path.join(d, me), "w").write(me); made += 1
    except OSError: pass
print("there", flush=True)
while not os.path.exists("/data/go"): time.sleep(0.05)
places = ["/tmp", "/dev/shm", "/var/tmp", "/data", os.getcwd()]
seen = [p for r in places for p in glob.glob(r + "/**/MARK-*", recursive=True)]
for r in places:
    seen += glob.glob("/proc/[0-9]*/root" + r + "/MARK-*")
seen += glob.glob("/proc/[0-9]*/cwd/MARK-*")
others = sorted({p for p in seen if me not in p})
print(me, made, others, sum(x.isdigit() for x in os.listdir("/proc")), os.getuid())
"#;
    let body = json!({ "code": code, "dataset_path": "data/set" });
    let flights = (0..20).map(|_| Flight::start_until(&daemon, body.clone(), "there"));
    let flights = join_all(flights).await;
    std::fs::write(daemon.data().join("set/go"), "").unwrap();
    let runs = join_all(flights.iter().map(|flight| flight.end(&daemon))).await;
    let results: Vec<_> = runs.iter().map(|run| &run["result"]).collect();
    let (mut marks, mut uids) = (HashSet::new(), HashSet::new());
    for result in &results {
        assert_eq!(result["status"], "SUCCESS", "{result}");
        let text = result["stdout"].as_str().unwrap();
        let text = text.strip_prefix("there\n").unwrap().trim();
        let words: Vec<_> = text.split(' ').collect();
        let [mark, made, others, processes, uid] = words[..] else {
            panic!("{text}")
        };
        assert_eq!((made, others), ("4", "[]"), "{text}");
        assert!(processes.parse::<u32>().unwrap() <= 3, "{text}");
        assert!(marks.insert(mark.to_owned()));
        assert!(uids.insert(uid.to_owned()), "two had the uid {uid}");
        // Its own mark, from the top of the workspace and from `out`, and nobody else's.
        assert_eq!(result["output_files"], json!([mark]));
        let id = result["execution_id"].as_str().unwrap();
        let files = std::fs::read_dir(daemon.artifacts(id)).unwrap();
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names, [mark]);
    }
    let time = |result: &Value, key: &str| -> jiff::Timestamp {
        result[key].as_str().unwrap().parse().unwrap()
    };
    let last_start = results.iter().map(|r| time(r, "started_at")).max();
    let first_end = results.iter().map(|r| time(r, "finished_at")).min();
    assert!(last_start < first_end, "they were not all there at once");

    let later = daemon.result(body).await;
    let text = later["stdout"].as_str().unwrap();
    assert!(text.contains(" [] "), "{text}");
}

/// BR-40: a client that goes away leaves a whole run or none.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_while_they_submit_leave_whole_runs_or_none() {
    let daemon = daemon_with("max_concurrent_runs = 4").await;
    let body = json!({ "code": "print('whole')" }).to_string();
    let address = daemon.address().trim_start_matches("http://").to_owned();
    let head = format!(
        "POST /runs HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let request = format!("{head}{body}");
    let mut complete = 0;
    for round in 0..120 {
        // From the middle of the head to the last byte, which every fourth client sends.
        let sent = if round % 4 == 0 {
            complete += 1;
            request.len()
        } else {
            head.len() / 2 + round * (request.len() - 1 - head.len() / 2) / 120
        };
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&request.as_bytes()[..sent]).await.unwrap();
        drop(stream);
    }
    // Accepted after all of those: a later run in the same lane ends after the earlier ones.
    let last = Flight::start(&daemon, json!({ "code": "print('last')" })).await;
    last.end(&daemon).await;
    let (status, list) = daemon.get("/runs?limit=100").await;
    assert_eq!(status, 200, "{list}");
    let runs = list["runs"].as_array().unwrap();
    assert!((1..=complete + 1).contains(&runs.len()), "{list}");
    for run in runs {
        let ended = daemon.ended(run["run_id"].as_str().unwrap()).await;
        assert_eq!(ended["status"], "SUCCESS", "{ended}");
    }
    nothing_left(&daemon, Duration::from_secs(30)).await;
}

/// BR-40: half a body and then silence is cut off, and starts nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_in_the_middle_of_its_body_is_answered_and_starts_nothing() {
    let daemon = Daemon::start_with(Settings {
        toml: "[api]\nread_timeout_seconds = 1".to_owned(),
        ..Settings::default()
    })
    .await;
    let address = daemon.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /runs HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: 40\r\n\r\n{{\"code\": \"print"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer))
        .await
        .expect("the connection is closed")
        .unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(daemon.get("/runs").await.1["runs"], json!([]));

    // The same body twice, without a key, is two runs.
    let body = json!({ "code": "print('twice')" });
    let first = daemon.submit(body.clone()).await;
    let second = daemon.submit(body).await;
    assert_ne!(first, second);
    for id in [first, second] {
        assert_eq!(daemon.ended(&id).await["status"], "SUCCESS");
    }
}
