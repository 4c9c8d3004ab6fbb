//! Section E of the security bar: whom the program can reach and what it is told; and what of the
//! engine it could find (row 64), and the planted canary (section 4).

use super::findings::{SETTINGS, all, broken, decide, differs, holds, others, some, summary};
use super::identity::DEVICES_OF_OWN_KERNEL;
use super::{Area, Control, Finding, Mark};
use crate::doctor::facts::{NamesOrError, SandboxFacts};
use crate::execution::environment::place;
use crate::sandbox::policy::HOST_NAME;

/// The longest that being refused may take: a packet that is dropped would take seconds.
const AT_ONCE_MILLISECONDS: u64 = 2000;

/// Rows 48 to 55, 64, 77 and the canary.
pub const TABLE: &[Control<SandboxFacts>] = &[
    Control {
        number: "48",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "no network",
        expected: "refused at once, no interface but lo",
        remedy: SETTINGS,
        judge: no_network,
    },
    Control {
        number: "49",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "no metadata service",
        expected: "unreachable in every spelling",
        remedy: SETTINGS,
        judge: metadata,
    },
    Control {
        number: "50",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "no names, no resolver told",
        expected: "look-ups fail, resolv.conf is empty",
        remedy: SETTINGS,
        judge: |facts| {
            let network = &facts.seen.network;
            let found = others(&network.names, |_, answer| answer != "ok");
            let conditions = [
                (!network.names.is_empty(), "nothing was tried".to_owned()),
                (found.is_empty(), some(&found)),
                (
                    network.resolver.is_empty(),
                    format!("told: {}", some(&network.resolver)),
                ),
            ];
            all(&conditions, summary(&network.names))
        },
    },
    Control {
        number: "51",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "nothing published",
        expected: "the engine says no port, link or host",
        remedy: SETTINGS,
        judge: |facts| {
            let count = facts.applied.published;
            decide(count == 0, format!("{count}"))
        },
    },
    Control {
        number: "52",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "no cluster identity",
        expected: "no token, no variable of Kubernetes",
        remedy: "The image or the engine adds it: use another image",
        judge: |facts| {
            let found = &facts.seen.network.cluster;
            decide(
                found.is_empty(),
                if found.is_empty() {
                    "none".to_owned()
                } else {
                    some(found)
                },
            )
        },
    },
    Control {
        number: "53",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "environment is a list",
        expected: "exactly the listed variables",
        remedy: SETTINGS,
        judge: environment,
    },
    Control {
        number: "54",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "neutral host name",
        expected: "sandbox, and not the host's anywhere",
        remedy: SETTINGS,
        judge: |facts| {
            let identity = &facts.seen.identity;
            let mut words = identity.hosts.split_whitespace();
            let conditions = [
                (identity.host_name == HOST_NAME, identity.host_name.clone()),
                (
                    facts.host_name.is_empty() || words.all(|word| word != facts.host_name),
                    "/etc/hosts has the host's name".to_owned(),
                ),
            ];
            all(&conditions, identity.host_name.clone())
        },
    },
    Control {
        number: "55",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "code by the stream, nothing inherited",
        expected: "three descriptors, started in /work",
        remedy: "Upgrade runc: 1.1.12 closes a descriptor that it left open (CVE-2024-21626)",
        judge: |facts| {
            let identity = &facts.seen.identity;
            let conditions = [
                (
                    identity.descriptors.is_empty(),
                    format!("descriptors {:?}", identity.descriptors),
                ),
                (
                    identity.working_directory == place::WORKSPACE,
                    format!("in {}", identity.working_directory),
                ),
            ];
            all(&conditions, "none, /work")
        },
    },
    Control {
        number: "64",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "no way to the engine",
        expected: "no socket, nothing on its TCP ports",
        remedy: "Never mount the engine's socket; have the engine listen on it alone",
        judge: |facts| {
            let open: Vec<&String> = facts
                .seen
                .network
                .connections
                .iter()
                .filter(|(name, answer)| is_engine(name) && answer.as_str() == "ok")
                .map(|(name, _)| name)
                .collect();
            let is_its_own = |path: &str| {
                let device = path.strip_prefix("/dev/");
                let own = device.is_some_and(|name| DEVICES_OF_OWN_KERNEL.contains(&name));
                own && facts.has_own_kernel()
            };
            let sockets = facts.seen.files.sockets.iter();
            let sockets: Vec<&String> = sockets.filter(|path| !is_its_own(path)).collect();
            let conditions = [
                (sockets.is_empty(), some(&sockets)),
                (open.is_empty(), some(&open)),
            ];
            all(&conditions, "none")
        },
    },
    Control {
        number: "77",
        mark: Mark::Mandatory,
        area: Area::Network,
        title: "planted canary stays outside",
        expected: "not found by name, path or process",
        remedy: "Something of the host is visible inside: see rows 25 and 30",
        judge: |facts| {
            let found = &facts.seen.files.canary;
            decide(
                found.is_empty(),
                if found.is_empty() {
                    "not found".to_owned()
                } else {
                    some(found)
                },
            )
        },
    },
];

fn is_engine(connection: &str) -> bool {
    connection.ends_with(" 2375") || connection.ends_with(" 2376")
}

fn no_network(facts: &SandboxFacts) -> Finding {
    let network = &facts.seen.network;
    let reached = others(&network.connections, |_, answer| {
        !["ok", "no answer", "ECONNREFUSED", "ETIMEDOUT"].contains(&answer)
    });
    let conditions = [
        (
            !network.connections.is_empty(),
            "nothing was tried".to_owned(),
        ),
        (reached.is_empty(), some(&reached)),
        (
            network.interfaces == ["lo"],
            format!("interfaces {}", some(&network.interfaces)),
        ),
        (
            facts.applied.network_mode == "none",
            format!("the engine says {}", facts.applied.network_mode),
        ),
        (
            network.connecting_milliseconds <= AT_ONCE_MILLISECONDS,
            format!("refused after {} ms", network.connecting_milliseconds),
        ),
    ];
    all(&conditions, summary(&network.connections))
}

/// Addresses of metadata services, as the probe spells them.
const METADATA: [&str; 4] = ["169.254.", "2852039166", "0xa9fea9fe", "fd00:ec2::"];

fn metadata(facts: &SandboxFacts) -> Finding {
    let network = &facts.seen.network;
    let tried: Vec<(&String, &String)> = network
        .connections
        .iter()
        .filter(|(name, _)| METADATA.iter().any(|address| name.starts_with(address)))
        .collect();
    let reached: Vec<&str> = tried
        .iter()
        .filter(|(_, answer)| ["ok", "no answer", "ECONNREFUSED"].contains(&answer.as_str()))
        .map(|(name, _)| name.as_str())
        .collect();
    let named = network.names.get("metadata.google.internal");
    let conditions = [
        (
            tried.len() >= METADATA.len(),
            format!("only {} were tried", tried.len()),
        ),
        (reached.is_empty(), some(&reached)),
        (
            named.is_some_and(|answer| answer != "ok"),
            "its name is known".to_owned(),
        ),
    ];
    all(&conditions, format!("{} spellings refused", tried.len()))
}

/// Variables that an engine gives to the first process itself.
const OF_ENGINE: [&str; 4] = ["HOME", "HOSTNAME", "PATH", "TERM"];

fn environment(facts: &SandboxFacts) -> Finding {
    let identity = &facts.seen.identity;
    if identity.environment != facts.environment {
        let foreign: Vec<&String> = identity
            .environment
            .iter()
            .filter(|name| !facts.environment.contains(name))
            .collect();
        return broken(if foreign.is_empty() {
            "variables are missing".to_owned()
        } else {
            some(&foreign)
        });
    }
    let count = identity.environment.len();
    match &identity.first_environment {
        NamesOrError::Error(error) => holds(format!("{count} variables; of process 1: {error}")),
        NamesOrError::Names(names) if names.is_empty() => {
            holds(format!("{count} variables; of process 1: none"))
        }
        NamesOrError::Names(names)
            if names.iter().all(|name| OF_ENGINE.contains(&name.as_str())) =>
        {
            differs(format!("{count} variables; of process 1: {}", some(names)))
        }
        NamesOrError::Names(names) => broken(format!("of process 1: {}", some(names))),
    }
}
