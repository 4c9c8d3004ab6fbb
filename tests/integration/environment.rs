//! The program's environment is a list, not a filter: no secret of anybody's reaches it
//! (contract section 2.10, BR-31).

use bollard::models::{ContainerConfig, ContainerCreateBody};
use bollard::query_parameters::{
    CommitContainerOptions, CreateContainerOptions, RemoveContainerOptions, RemoveImageOptions,
};
use serde_json::{Value, json};

use crate::isolation::running_sandboxes;
use crate::support::daemon::PATIENCE;
use crate::support::engine::{docker, inspect};
use crate::support::program::printed;
use crate::support::wait::until;
use crate::support::watch::nothing_left;
use crate::support::{Daemon, Settings};

const CANARY: &str = "CANARY-5b1f0c9ad2e84c77";
const REPOSITORY: &str = "fumehood-test/environment";
const IMAGE: &str = "fumehood-test/environment:trapped";

/// Names that deny lists know, and names that they do not.
const NAMES: [&str; 8] = [
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "FOO_DSN",
    "HTTPS_PROXY",
    "LLM",
    "PYTHONPATH",
    "LD_PRELOAD_",
    "OMP_PROC_BIND",
];

/// A daemon with secrets in its environment, its configuration, a `.env` beside it and a file
/// beside the data root.
async fn daemon_with_secrets() -> Daemon {
    let settings = Settings {
        toml: format!(
            "[execution]\nimages = ['{IMAGE}']\n[llm]\nbase_url = 'http://{CANARY}.invalid/'"
        ),
        environment: NAMES
            .map(|name| (name, format!("http://u:{CANARY}-{name}@proxy.invalid")))
            .into(),
        ..Settings::default()
    };
    let mut daemon = Daemon::start_with(settings).await;
    daemon.stop();
    std::fs::write(
        daemon.path().join(".env"),
        format!("OPENAI_API_KEY={CANARY}-dotenv\n"),
    )
    .unwrap();
    std::fs::write(daemon.path().join("secret.txt"), CANARY).unwrap();
    daemon.launch();
    daemon
}

/// The sandbox image with secrets and traps in its own settings.
fn trapped() -> ContainerConfig {
    let environment = [
        format!("IMAGE_SECRET={CANARY}-image"),
        format!("PATH=/{CANARY}"),
        "PYTHONSTARTUP=/evil.py".to_owned(),
        "PYTHONPATH=/evil".to_owned(),
        "LD_LIBRARY_PATH=/evil".to_owned(),
        "EMPTY=".to_owned(),
    ];
    ContainerConfig {
        env: Some(environment.into()),
        user: Some("0:0".to_owned()),
        entrypoint: Some(vec!["/bin/false".to_owned()]),
        working_dir: Some("/usr".to_owned()),
        labels: Some([("fumehood.execution".to_owned(), "exec_00000000".to_owned())].into()),
        ..Default::default()
    }
}

/// Makes an image of the sandbox image with other settings.
async fn make_image(tag: &str, config: ContainerConfig) {
    let docker = docker().await;
    let name = format!("fumehood-test-{tag}-{}", std::process::id());
    let create = CreateContainerOptions {
        name: Some(name.clone()),
        ..Default::default()
    };
    let body = ContainerCreateBody {
        image: Some(fumehood::sandbox::docker::images::default_reference()),
        cmd: Some(vec!["/none".to_owned()]),
        ..Default::default()
    };
    docker.create_container(Some(create), body).await.unwrap();
    let commit = CommitContainerOptions {
        container: Some(name.clone()),
        repo: Some(REPOSITORY.to_owned()),
        tag: Some(tag.to_owned()),
        ..Default::default()
    };
    docker.commit_container(commit, config).await.unwrap();
    let remove = None::<RemoveContainerOptions>;
    docker.remove_container(&name, remove).await.unwrap();
}

async fn remove_image(tag: &str) {
    let remove = None::<RemoveImageOptions>;
    let image = format!("{REPOSITORY}:{tag}");
    docker()
        .await
        .remove_image(&image, remove, None)
        .await
        .unwrap();
}

/// The documented list.
fn documented(threads: &str) -> Value {
    json!({
        "FUMEHOOD_DATASET": "/data",
        "FUMEHOOD_OUTPUT": "/work/out",
        "HOME": "/work/.home",
        "LANG": "C.UTF-8",
        "MKL_NUM_THREADS": threads,
        "MPLCONFIGDIR": "/work/.cache/matplotlib",
        "NUMBA_CACHE_DIR": "/work/.cache/numba",
        "NUMEXPR_NUM_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONUNBUFFERED": "1",
        "XDG_CACHE_HOME": "/work/.cache",
    })
}

const LOOK: &str = "
import glob, json, os, subprocess
def read(path):
    try: return open(path, 'rb').read().decode('latin-1')
    except OSError as e: return e.errno
raw = dict(entry.split('=', 1) for entry in read('/proc/self/environ').split('\\0') if entry)
child = subprocess.run(['/usr/bin/env', '-0'], stdout=subprocess.PIPE).stdout.decode().split('\\0')
places = ['/proc/1/cmdline', '/proc/self/mountinfo', '/proc/mounts', '/etc/hosts', '/etc/hostname', '/proc/self/cgroup']
places += [p for pattern in ('/var/run/secrets/**', '/run/**', '/root/**', '/home/**', '/data/**', '/fumehood/.*') for p in glob.glob(pattern, recursive=True)]
print(json.dumps({
    'own': dict(os.environ), 'raw': raw, 'child': dict(entry.split('=', 1) for entry in child if entry),
    'init': read('/proc/1/environ'), 'seen': {p: read(p) for p in places},
    'sockets': [d + '/' + f for top in os.listdir('/') if top not in ('proc', 'sys') for d, _, fs in os.walk('/' + top)
                for f in fs if f.endswith('.sock')],
}))
";

#[tokio::test(flavor = "multi_thread")]
async fn a_program_sees_exactly_the_documented_environment_and_no_secret() {
    make_image("trapped", trapped()).await;
    let daemon = daemon_with_secrets().await;
    for (options, threads) in [
        (json!({}), "1"),
        (json!({"image": IMAGE, "cpus": 1.9}), "1"),
        (json!({"image": IMAGE, "cpus": 2}), "2"),
    ] {
        let body = json!({"code": LOOK, "options": options});
        let told = printed(&daemon.result(body).await);
        for view in ["own", "raw", "child"] {
            assert_eq!(told[view], documented(threads), "{view}, {options}");
        }
        assert_eq!(told["init"], 13, "the supervisor's environment is readable");
        assert_eq!(told["sockets"], json!([]));
        assert!(!told.to_string().contains(CANARY), "{told:#}");
    }
    nothing_left(&daemon, PATIENCE).await;
    remove_image("trapped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_the_daemon_is_in_an_answer_in_its_log_or_on_the_engine() {
    let daemon = daemon_with_secrets().await;
    let code = "open('out/a.txt', 'w').write('a')\nimport time\ntime.sleep(600)";
    let id = daemon.submit(json!({ "code": code })).await;
    let list = || running_sandboxes(&daemon);
    let names = until(PATIENCE, list, |names| names.len() == 1).await;
    let seen = serde_json::to_string(&inspect(&names[0]).await).unwrap();
    assert!(
        !seen.contains(CANARY) && !seen.contains("time.sleep"),
        "{seen}"
    );

    let (status, _) = daemon.post(&format!("/runs/{id}/cancel"), &json!({})).await;
    assert!(status < 300);
    daemon.ended(&id).await;
    for path in [
        "/runs".to_owned(),
        format!("/runs/{id}"),
        format!("/runs/{id}/episodes"),
        format!("/runs/{id}/artifacts"),
        "/settings".to_owned(),
        "/ready".to_owned(),
        format!("/runs/{CANARY}x").replace(CANARY, "unknown"),
    ] {
        let (_, answer) = daemon.get(&path).await;
        let answer = answer.to_string();
        assert!(!answer.contains(CANARY), "{path}: {answer}");
        assert!(!answer.contains("time.sleep"), "{path}: {answer}");
        let place = daemon.path().to_str().unwrap();
        assert!(!answer.contains(place), "{path}: {answer}");
    }
    assert!(!daemon.log().contains(CANARY), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_with_volumes_is_refused_by_name_and_is_not_the_program_s_failure() {
    let config = ContainerConfig {
        volumes: Some(vec!["/var/lib/fill".to_owned()]),
        ..Default::default()
    };
    make_image("volume", config).await;
    let image = format!("{REPOSITORY}:volume");
    let settings = Settings {
        toml: format!("[execution]\nimages = ['{image}']"),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let body = json!({"code": "print(1)", "options": {"image": image}});
    let result = daemon.result(body).await;
    assert_eq!(result["status"], "ERROR", "{result:#}");
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert_eq!(result["return_code"], Value::Null);
    let text = result["error_info"].as_str().unwrap();
    assert!(text.contains(&image) && text.contains("VOLUME"), "{text}");
    remove_image("volume").await;
}
