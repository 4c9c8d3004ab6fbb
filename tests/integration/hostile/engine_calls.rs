//! Which calls of the engine a sandbox with a program never meets: those whose holes led from a
//! container to its host (security.md sections 0 and 7).

use serde_json::json;

use crate::support::proxy::{Fault, Proxy};
use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_s_archive_calls_are_never_used_on_a_sandbox() {
    let proxy = Proxy::start();
    let daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    // The first run may fill the supervisor's volume, in a container that is never started.
    daemon.execute("print('first')").await;
    let calls = [
        ("GET", "/archive"),
        ("HEAD", "/archive"),
        ("PUT", "/archive"),
        ("POST", "/exec"),
        ("POST", "/copy"),
        ("GET", "/export"),
        ("POST", "/commit"),
        ("POST", "/build"),
    ];
    let calls = calls.map(|(method, part)| (method, part, proxy.fault(method, part, Fault::Pass)));
    let creations = proxy.fault("POST", "/containers/create", Fault::Pass);
    let code = "
import os
os.makedirs('out/models')
for name in ('out/models/m.bin', 'out/summary.json', 'top.csv'):
    open(name, 'w').write('{}')
";
    let body = json!({ "code": code, "input_files": { "given.csv": "a\n1\n" } });
    for _ in 0..2 {
        let result = daemon.result(body.clone()).await;
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        assert_eq!(result["artifacts"].as_array().unwrap().len(), 3);
    }
    assert_ne!(creations.count(), 0, "the count counts");
    for (method, part, hits) in calls {
        assert_eq!(hits.count(), 0, "{method} {part}");
    }
}
