//! The negative control of row 49: sandboxes in a network that has a metadata service.
//!
//! The network is that of a container without any other: it gives its own loopback interface the address
//! that clouds use. Nothing of it reaches this host's network, nor the metadata service of a host that
//! has one.

use bollard::models::{ContainerCreateBody, HostConfig};
use serde_json::{Value, json};

use super::attempted;
use super::negative::mistake;
use crate::command_line::Bench;
use crate::support::direct::Direct;
use crate::support::proxy::Proxy;

/// What has to fail: row 49, and what else keeps programs from it.
pub(super) const BREAKS: &[&str] = &["18", "48", "49"];

/// Gives the loopback interface another address (`SIOCSIFADDR`), and listens.
const SERVICE: &str = "import fcntl, socket, struct, time\n\
    end = socket.socket()\n\
    address = socket.inet_aton('169.254.169.254')\n\
    fcntl.ioctl(end, 0x8916, struct.pack('16sH2s4s8x', b'lo:1', socket.AF_INET, b'', address))\n\
    end.bind(('169.254.169.254', 80))\n\
    end.listen()\n\
    print('ready', flush=True)\n\
    time.sleep(600)\n";

/// The image that sandboxes are made of.
fn image(bench: &Bench) -> String {
    let list = bench.call(&["image", "list"]).stdout;
    let line = list.lines().find(|line| line.ends_with("(default)"));
    let name = line.and_then(|line| line.split_whitespace().next());
    name.unwrap_or_else(|| panic!("no image: {list}"))
        .to_owned()
}

/// Makes a sandbox a part of that network, and lets it make sockets for it.
fn join(body: &mut Value, network: &str) {
    body["HostConfig"]["NetworkMode"] = network.into();
    body["NetworkDisabled"] = false.into();
    // It has the name of the container whose network it is.
    body.as_object_mut().unwrap().remove("Hostname");
    let profile = &mut body["HostConfig"]["SecurityOpt"][1];
    let text = profile.as_str().unwrap().strip_prefix("seccomp=");
    let mut wider: Value = serde_json::from_str(text.unwrap()).unwrap();
    let rule = json!({ "names": ["socket"], "action": "SCMP_ACT_ALLOW" });
    wider["syscalls"].as_array_mut().unwrap().push(rule);
    *profile = format!("seccomp={wider}").into();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_service_that_can_be_reached_is_noticed_and_named() {
    let bench = Bench::new();
    let settings = ContainerCreateBody {
        image: Some(image(&bench)),
        hostname: Some("sandbox".to_owned()),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            cap_add: Some(vec!["NET_ADMIN".to_owned()]),
            ..Default::default()
        }),
        ..Default::default()
    };
    let service = Direct::start(&settings, SERVICE).await;
    let said = service.output(|said| said.contains("ready")).await;
    assert!(said.contains("ready"), "{said}");
    let network = format!("container:{}", service.name());
    let proxy = Proxy::start();
    proxy.weaken(move |body| join(body, &network));
    let seen = attempted(&bench, "runc", Some(&proxy.socket())).await;
    assert_eq!(mistake(seen, "a metadata service", BREAKS, &[]), None);
}
