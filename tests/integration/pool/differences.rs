//! A program cannot tell that its interpreter has waited: the supervisor's own tests compare all of
//! these programs, here some are run by the daemon, with the libraries that are preloaded by default.

use serde_json::{Value, json};

use super::{start, until_full};
use crate::support::data::repository;
use crate::support::{Daemon, Settings};

const PROGRAMS: [&str; 11] = [
    "arguments",
    "at_exit",
    "classes_in_main",
    "descriptors",
    "environment",
    "exit_text",
    "finalised",
    "left_in_libraries",
    "pool_spawn",
    "typed_and_open",
    "uncaught_exception",
];

/// What a program shows, without addresses: the kernel places every process elsewhere.
fn shown(result: &Value) -> String {
    let shown = ["status", "return_code", "stdout", "stderr", "output_files"];
    let shown: Value = shown.iter().map(|&key| result[key].clone()).collect();
    without_addresses(&shown.to_string())
}

/// A number of twelve digits or more is an address: most begin with `7f`, not all.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        let is_address = part.len() - rest.len() >= 12;
        kept + "0x" + if is_address { rest } else { part }
    })
}

#[test]
fn an_address_is_no_difference_wherever_it_lies() {
    let near = without_addresses("<lambda> at 0x7f1200112240>: 0x5");
    let far = without_addresses("<lambda> at 0x7efd77e62ca0>: 0x5");
    assert_eq!(near, far);
    assert_ne!(far, without_addresses("<lambda> at 0x7efd77e62ca0>: 0x6"));
}

/// What the libraries show after they have been used before the program: warnings come as if for
/// the first time, settings are their own, and no thread was left.
const LIBRARIES: &str = r#"
import io, os, warnings
import numpy as np, pandas as pd, sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.tree import DecisionTreeClassifier
features, target = np.arange(40.0).reshape(20, 2) % 7 * 1000, np.arange(20) % 2
print(LogisticRegression(max_iter=1).fit(features, target).coef_)
print(f1_score([0, 0, 1], [0, 0, 0], average="macro"))
print(DecisionTreeClassifier(random_state=3).fit(features, target).predict(features))
frame = pd.read_csv(io.StringIO("a,b\n1,x\n2,y\n"))
frame[frame.a > 1]["a"] = 3
print(frame, frame.describe(), pd.get_option("display.max_rows"), np.geterr(), np.get_printoptions())
print(sklearn.get_config(), [str(each) for each in warnings.filters])
print([line for line in open("/proc/self/status") if line.startswith("Threads")], os.listdir("/tmp"))
np.random.seed(7)
print(np.random.rand(3), np.random.default_rng(7).random(3))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn programs_show_the_same_cold_and_preloaded() {
    let settings = Settings {
        toml: "[pool]\nsize = 1\n[app]\nmax_concurrent_runs = 1".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let programs = repository().join("crates/supervisor/tests/programs");
    let read = |name: &str| std::fs::read_to_string(programs.join(name).with_extension("py"));
    let programs = PROGRAMS.map(|name| (name, read(name).unwrap()));
    for (name, code) in [("libraries", LIBRARIES.to_owned())]
        .into_iter()
        .chain(programs)
    {
        let plain = json!({"code": code, "options": {"preload": false}});
        let plain = daemon.result(plain).await;
        assert_ne!(start(&plain), "preloaded");
        let preloaded = until_preloaded(&daemon, &code).await;
        assert_eq!(shown(&plain), shown(&preloaded), "{name}");
    }
}

/// Runs a program in a preloaded interpreter, once one waits again.
async fn until_preloaded(daemon: &Daemon, code: &str) -> Value {
    until_full(daemon, 1).await;
    loop {
        // The one that waits may be of the other template; then this run teaches the pool.
        let result = daemon.execute(code).await;
        if start(&result) == "preloaded" {
            return result;
        }
        until_full(daemon, 1).await;
    }
}
