//! There is no network, and that is said at once.

use serde_json::json;

use crate::support::Daemon;

#[tokio::test(flavor = "multi_thread")]
async fn br_30_no_address_is_open_and_each_attempt_fails_at_once() {
    let daemon = Daemon::start().await;
    let address = daemon.address().strip_prefix("http://").unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let code = r#"
import socket, time
t = [("169.254.169.254", 80), ("169.254.170.2", 80), ("host.docker.internal", 8080), ("172.17.0.1", 2375), ("10.96.0.1", 443),
     ("kubernetes.default.svc", 443), ("127.0.0.1", 8080), ("1.1.1.1", 53), ("fe80::1%eth0", 80), ("example.com", 443),
     ("2852039166", 80), ("0xa9fea9fe", 80), ("::ffff:169.254.169.254", 80), ("fd00:ec2::254", 80), ("metadata.google.internal", 80),
     ("::1", 80), ("172.17.0.1", 2376), ("localhost", 22), ("HOST", PORT)]
for h, p in t:
    a = time.time()
    try:
        socket.create_connection((h, p), timeout=20); r = "OPEN"
    except OSError as e:
        r = "failed"
    print(h, p, r, "late" if time.time() - a > 5 else "soon", flush=True)
try:
    import urllib.request; urllib.request.urlopen("http://example.com/x.csv")
except Exception as e:
    print("urlopen", type(e).__name__)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_UNIX, kind)
    for name in ("/var/run/docker.sock", "/run/docker.sock", "\0/containerd-shim/x", "\0/tmp/.X11-unix/X0", "/run/systemd/notify"):
        try: s.connect(name); print("OPEN", name)
        except OSError: pass
"#;
    let code = code.replace("HOST", host).replace("PORT", port);
    let result = daemon
        .result(json!({"code": code, "options": {"timeout_seconds": 30}}))
        .await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(lines.len(), 20);
    for line in &lines[..19] {
        assert!(line.ends_with("failed soon"), "{line}");
    }
    assert_eq!(lines[19], "urlopen URLError");
    assert!(result["duration_seconds"].as_f64().unwrap() < 20.0);
}
