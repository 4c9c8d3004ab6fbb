//! A daemon goes away and the next one goes on with what ran (security.md sections 3.3 and 3.4).

mod killed;

mod moments;

mod lost;

mod broken;

mod drained;

mod state;

use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::watch::limited;
use crate::support::{Daemon, Settings};

/// Prints a line every 50 ms for five seconds, and says at the end how many there were.
const LINES: &str = "import time\n\
    for number in range(100):\n    print(f'line {number}')\n    time.sleep(0.05)\n\
    open('out/count.txt', 'w').write('100')\n";

/// What that prints.
fn lines() -> String {
    (0..100).map(|number| format!("line {number}\n")).collect()
}

fn body() -> Value {
    limited(LINES, 60.0)
}

async fn daemon_with(toml: &str) -> Daemon {
    Daemon::start_with(Settings {
        toml: toml.to_owned(),
        ..Settings::default()
    })
    .await
}

/// A run that ended as if its daemon had been there all the time.
fn assert_untouched(run: &Value) {
    assert_eq!(run["status"], "SUCCESS", "{run}");
    let result = &run["result"];
    assert_eq!(result["stdout"], lines(), "{run}");
    assert_eq!(result["output_files"], json!(["count.txt"]), "{run}");
    assert_eq!(result["warnings"], json!([]), "{run}");
    let seconds = result["duration_seconds"].as_f64().unwrap();
    assert!((4.9..60.0).contains(&seconds), "{seconds}");
}

/// The id of the only execution that could be taken over.
async fn only_handoff(daemon: &Daemon) -> String {
    let ids = until(PATIENCE, async || daemon.handoffs(), |ids| ids.len() == 1).await;
    ids[0].clone()
}
