//! Signals, clients that go away, and a daemon that runs out of descriptors (security.md 3.4, F17, F18
//! and F21).

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use serde_json::json;
use tokio::task::JoinSet;

use crate::bench::stand::{SOON, Stand};
use crate::bench::starts::nonce;
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::watch::{Flight, limited};

#[tokio::test(flavor = "multi_thread")]
async fn f17_a_daemon_that_is_asked_to_stop_leaves_what_runs_to_the_next_one() {
    let mut stand = Stand::new().await;
    let code = "import time\nprint('armed', flush=True)\n\
                for n in range(6):\n    print(n, flush=True)\n    time.sleep(1)\n";
    let flight = Flight::start_until(&stand.daemon, limited(code, 60.0), "armed").await;
    let container = stand.engine.only_container().await;
    let waiting = stand
        .daemon
        .submit(json!({ "code": "print('turn')" }))
        .await;
    stand.daemon.stop();
    let left = stand.engine.containers().await;
    assert!(
        left.contains(&container),
        "it was not left to run: {left:?}"
    );
    stand.daemon.launch();
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert_eq!(run["result"]["stdout"], "armed\n0\n1\n2\n3\n4\n5\n");
    assert_eq!(stand.daemon.ended(&waiting).await["status"], "SUCCESS");
    stand.engine.is_empty(SOON).await;
}

/// What the daemon logs when it is out of descriptors.
const REFUSES: &str = "no connection can be accepted";

/// And what when a run is over.
const ENDED: &str = "A run has ended";

fn connect(stand: &Stand) -> TcpStream {
    let address = stand.daemon.address().trim_start_matches("http://");
    TcpStream::connect(address).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn f18_a_client_that_goes_away_loses_nothing_and_holds_nothing() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    // Gone while it waits for the end of what was accepted.
    let nonce = nonce();
    let code = format!("import time\nprint('{nonce}', flush=True)\ntime.sleep(2)\nprint('over')");
    let body = json!({ "code": code }).to_string();
    let mut client = connect(&stand);
    let head = format!(
        "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Prefer: wait=60\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all((head + &body).as_bytes()).unwrap();
    until(PATIENCE, async || stand.starts.of(&nonce), |n| *n == 1).await;
    drop(client);
    let newest = stand.runs().await.remove(0);
    let run = stand.daemon.ended(newest["run_id"].as_str().unwrap()).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");

    // Readers that ask for everything and read nothing.
    let code = "import sys, time\nprint('armed', flush=True)\n\
                for _ in range(40):\n    sys.stdout.write('x' * (1 << 16))\n    time.sleep(0.05)\n";
    let flight = Flight::start_until(&stand.daemon, limited(code, 60.0), "armed").await;
    let before = stand.daemon.resident_bytes();
    let request = format!(
        "GET /runs/{}/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        flight.id
    );
    let mut readers = Vec::new();
    for _ in 0..50 {
        let mut reader = connect(&stand);
        reader.write_all(request.as_bytes()).unwrap();
        readers.push(reader);
    }
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let more = stand.daemon.resident_bytes().saturating_sub(before);
    assert!(more < 48 << 20, "{more} bytes for readers that do not read");
    drop(readers);
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f21_a_crowd_of_idle_connections_and_few_descriptors_cost_no_run() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    let limits = ["--nofile=160:160", "--pid", &stand.daemon.pid().to_string()];
    let limited_now = Command::new("prlimit").args(limits).status().unwrap();
    assert!(limited_now.success());
    let code = "import time\nprint('armed', flush=True)\ntime.sleep(3)\nprint('over')\n";
    let flight = Flight::start_until(&stand.daemon, limited(code, 30.0), "armed").await;
    // All at once: those that the kernel has no place for go on trying. Who got in stays.
    let address = stand.daemon.address().trim_start_matches("http://");
    let mut crowd = JoinSet::new();
    for _ in 0..600 {
        crowd.spawn(tokio::net::TcpStream::connect(address.to_owned()));
    }
    let logged = async |what| stand.daemon.log().matches(what).count();
    until(PATIENCE, async || logged(REFUSES).await, |n| *n > 0).await;
    // The run ends all the same. It cannot be asked for: there is no descriptor for the client.
    until(PATIENCE, async || logged(ENDED).await, |n| *n == 2).await;
    drop(crowd);
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["result"]["stdout"], "armed\nover\n", "{run:#}");
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    stand.assert_heals().await;
}
