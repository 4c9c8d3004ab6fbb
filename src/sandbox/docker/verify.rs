//! Did the engine apply what it was asked for? Compares the request with what inspecting the
//! created container shows (invariant 6).
//!
//! Every setting of the request is compared, by its JSON, so that none can be forgotten here when
//! it is added there. An engine too old for a setting drops it silently: then it differs.

use bollard::models::{ContainerCreateBody, ContainerInspectResponse};
use serde_json::Value;

/// The settings outside `HostConfig` that inspection shows under `Config`.
const CONFIG_FIELDS: &[&str] = &[
    "User",
    "Entrypoint",
    "Cmd",
    "WorkingDir",
    "Hostname",
    "Domainname",
    "Tty",
    "OpenStdin",
    "StdinOnce",
    "Healthcheck",
    "Labels",
];

/// What differs, as the names of the settings; empty if nothing does.
#[must_use]
pub fn differences(asked: &ContainerCreateBody, applied: &ContainerInspectResponse) -> Vec<String> {
    let (Ok(asked_json), Ok(applied_json)) =
        (serde_json::to_value(asked), serde_json::to_value(applied))
    else {
        return vec!["(the engine's answer cannot be read)".to_owned()];
    };
    let mut differing = Vec::new();
    for field in CONFIG_FIELDS {
        compare(
            field,
            &asked_json[field],
            &applied_json["Config"][field],
            &mut differing,
        );
    }
    compare(
        "HostConfig",
        &asked_json["HostConfig"],
        &applied_json["HostConfig"],
        &mut differing,
    );
    compare(
        "Image",
        &asked_json["Image"],
        &applied_json["Image"],
        &mut differing,
    );
    if !environment_is_empty(&applied_json["Config"]["Env"]) {
        differing.push("Env".to_owned());
    }
    differing.extend(foreign_mounts(&asked_json, &applied_json));
    differing
}

/// Compares what was asked for, field by field; what was not asked for is the engine's default.
fn compare(name: &str, asked: &Value, applied: &Value, differing: &mut Vec<String>) {
    match (asked, applied) {
        (Value::Object(asked), Value::Object(applied)) => {
            for (key, value) in asked {
                let applied = applied.get(key).unwrap_or(&Value::Null);
                compare(&format!("{name}.{key}"), value, applied, differing);
            }
        }
        (Value::Array(asked), Value::Array(applied)) if asked.len() == applied.len() => {
            for (index, (asked, applied)) in asked.iter().zip(applied).enumerate() {
                compare(&format!("{name}[{index}]"), asked, applied, differing);
            }
        }
        _ if is_empty(asked) && is_empty(applied) => {}
        _ if asked == applied => {}
        _ => differing.push(name.to_owned()),
    }
}

/// The engine writes "nothing" in several ways.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Whether no variable has a value: names alone only remove the image's.
fn environment_is_empty(environment: &Value) -> bool {
    environment.as_array().is_none_or(|list| {
        list.iter()
            .all(|entry| entry.as_str().is_some_and(|e| !e.contains('=')))
    })
}

/// Row 30: the list of mounts is closed, so an image's own volumes show up here.
fn foreign_mounts(asked: &Value, applied: &Value) -> Vec<String> {
    let targets = |mounts: &Value, key: &str| -> Vec<String> {
        let list = mounts.as_array().into_iter().flatten();
        list.filter_map(|mount| Some(mount[key].as_str()?.to_owned()))
            .collect()
    };
    let wanted = targets(&asked["HostConfig"]["Mounts"], "Target");
    targets(&applied["Mounts"], "Destination")
        .into_iter()
        .filter(|target| !wanted.contains(target))
        .map(|target| format!("Mounts {target}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut Value);

    fn asked() -> ContainerCreateBody {
        serde_json::from_value(serde_json::json!({
            "User": "50000:50000",
            "Image": "sha256:1",
            "HostConfig": {
                "PidsLimit": 257,
                "CapAdd": [],
                "Tmpfs": {"/work": "size=1"},
                "Mounts": [{"Type": "volume", "Target": "/fumehood", "ReadOnly": true}],
            },
        }))
        .unwrap()
    }

    fn applied(change: impl FnOnce(&mut Value)) -> ContainerInspectResponse {
        let mut value = serde_json::json!({
            "Image": "sha256:1",
            "Config": {"User": "50000:50000", "Env": ["PYTHON_VERSION"]},
            "HostConfig": {
                "PidsLimit": 257,
                "CapAdd": null,
                "CpuShares": 2,
                "Tmpfs": {"/work": "size=1"},
                "Mounts": [{"Type": "volume", "Target": "/fumehood", "ReadOnly": true}],
            },
            "Mounts": [{"Destination": "/fumehood"}],
        });
        change(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_container_as_asked_for_has_no_differences() {
        assert_eq!(
            differences(&asked(), &applied(|_| {})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn whatever_the_engine_dropped_or_added_is_named() {
        let cases: [(&str, Change); 6] = [
            ("HostConfig.PidsLimit", |v| {
                v["HostConfig"]["PidsLimit"] = Value::Null
            }),
            ("HostConfig.CapAdd", |v| {
                v["HostConfig"]["CapAdd"] = serde_json::json!(["SYS_ADMIN"])
            }),
            ("HostConfig.Tmpfs./work", |v| {
                v["HostConfig"]["Tmpfs"]["/work"] = "size=2".into()
            }),
            ("HostConfig.Mounts[0].ReadOnly", |v| {
                v["HostConfig"]["Mounts"][0]["ReadOnly"] = false.into();
            }),
            ("Env", |v| {
                v["Config"]["Env"] = serde_json::json!(["KEY=value"])
            }),
            ("Mounts /var/lib/x", |v| {
                v["Mounts"] = serde_json::json!([{"Destination": "/var/lib/x"}]);
            }),
        ];
        for (name, change) in cases {
            assert_eq!(
                differences(&asked(), &applied(change)),
                vec![name.to_owned()]
            );
        }
    }
}
