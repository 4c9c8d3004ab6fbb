//! What a warm run asks of the engine: nothing.

use serde_json::json;

use super::{start, until_full};
use crate::support::proxy::{Fault, Proxy};
use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_run_needs_no_answer_of_the_engine() {
    let proxy = Proxy::start();
    let daemon = Daemon::start_with(Settings {
        toml: "[pool]\nsize = 1\npreload = []".to_owned(),
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    until_full(&daemon, 1).await;
    for method in ["GET", "HEAD", "POST", "DELETE"] {
        proxy.fault(method, "/", Fault::Hang);
    }
    let code = "import os; print(os.listdir('/data')); open('out/result', 'w').write('x')";
    let body = json!({"code": code, "dataset_path": "data/set"});
    let result = daemon.result(body).await;
    assert_eq!(result["stdout"], "[]\n", "{result:#}");
    assert_eq!(result["output_files"], json!(["result"]));
    assert_eq!(start(&result), "warm");
    proxy.behave();
    until_full(&daemon, 1).await;
}
