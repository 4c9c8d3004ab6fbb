//! What the host's own files say. Reads and judges nothing; what cannot be read stays unknown.
//!
//! Meant for the host of the engine. From elsewhere, such as from a container, less is to be seen,
//! and the card says so.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use super::facts::{HostFacts, SocketFacts};

/// Settings of the kernel that matter: row 67.
const SETTINGS: [&str; 6] = [
    "kernel.core_pattern",
    "kernel.dmesg_restrict",
    "kernel.io_uring_disabled",
    "kernel.kptr_restrict",
    "kernel.unprivileged_bpf_disabled",
    "user.max_user_namespaces",
];

/// Where an engine listens that is reachable by TCP: row 64.
const ENGINE_PORTS: [u16; 2] = [2375, 2376];

/// Nobody at home answers faster than this.
const CONNECT_BOUND: Duration = Duration::from_millis(200);

const ENGINE_CONFIG: &str = "/etc/docker/daemon.json";

/// Reads everything; blocks for less than a second. `engine` is the engine's address, and
/// `data_directory` where it says that its data is.
#[must_use]
pub fn look(engine: &str, data_directory: &str) -> HostFacts {
    let settings = SETTINGS.into_iter().map(|name| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        (name, read(&path))
    });
    let swap = read("/proc/meminfo").and_then(|text| field(&text, "SwapTotal")?.parse().ok());
    let status = read("/proc/self/status");
    let capabilities = status.and_then(|text| {
        let held = field(&text, "CapEff")?;
        u64::from_str_radix(&held, 16).ok()
    });
    HostFacts {
        name: read("/proc/sys/kernel/hostname").unwrap_or_default(),
        kernel: read("/proc/sys/kernel/osrelease"),
        swap_kib: swap,
        ksm: read("/sys/kernel/mm/ksm/run"),
        smt: read("/sys/devices/system/cpu/smt/active"),
        lsm: read("/sys/kernel/security/lsm").filter(|list| !list.is_empty()),
        settings: settings.collect::<BTreeMap<_, _>>(),
        socket: socket(engine),
        engine_addresses: listening(),
        capabilities,
        uid: rustix::process::geteuid().as_raw(),
        engine_config: engine_config(),
        data_is_apart: apart(data_directory),
    }
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// The first word after `name:` of a line.
fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next().map(str::to_owned)
}

fn socket(engine: &str) -> Option<SocketFacts> {
    let path = engine.strip_prefix("unix://").unwrap_or(engine);
    let metadata = fs::metadata(path).ok()?;
    Some(SocketFacts {
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

fn listening() -> Vec<String> {
    let addresses = ENGINE_PORTS.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    addresses
        .into_iter()
        .filter(|address| TcpStream::connect_timeout(address, CONNECT_BOUND).is_ok())
        .map(|address| address.to_string())
        .collect()
}

/// An engine without a configuration file has the defaults.
fn engine_config() -> Option<serde_json::Value> {
    match fs::read_to_string(ENGINE_CONFIG) {
        Ok(text) => serde_json::from_str(&text).ok(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Some(serde_json::Value::Object(serde_json::Map::new()))
        }
        Err(_) => None,
    }
}

fn apart(data_directory: &str) -> Option<bool> {
    let own = fs::metadata(data_directory).ok()?;
    let root = fs::metadata("/").ok()?;
    Some(own.dev() != root.dev())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "SwapTotalX: 1 kB\nSwapTotal:   42 kB\nCapEff:\t0000000000000001\n";
        assert_eq!(field(text, "SwapTotal").as_deref(), Some("42"));
        assert_eq!(field(text, "CapEff").as_deref(), Some("0000000000000001"));
        assert_eq!(field(text, "Swap"), None);
    }

    #[test]
    fn what_this_host_tells_is_read_and_what_is_not_there_stays_unknown() {
        let host = look("unix:///nowhere/engine.sock", "/nowhere");
        assert!(host.kernel.is_some_and(|release| release.contains('.')));
        assert!(host.swap_kib.is_some() && host.capabilities.is_some());
        assert_eq!((host.socket, host.data_is_apart), (None, None));
        assert_eq!(host.settings.len(), SETTINGS.len());
    }
}
