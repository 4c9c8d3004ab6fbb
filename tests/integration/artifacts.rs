//! What leaves a sandbox as a file, what does not, and that nothing foreign ever does.

mod bounds;

mod names;

use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::Daemon;
use crate::support::program::paths;

const CANARY: &str = "CANARY-of-the-host-91c4";

/// Every entry below a directory, as path and content; links are an error.
fn tree(root: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            assert!(kind.is_dir() || kind.is_file(), "{}", path.display());
            let name = path.strip_prefix(root).unwrap();
            let name = name.to_str().unwrap().to_owned();
            if kind.is_dir() {
                found.push((name, None));
                pending.push(path);
            } else {
                found.push((name, Some(std::fs::read(path).unwrap())));
            }
        }
    }
    found.sort();
    found
}

/// The files of a result, after checking that listing and disk agree to the byte.
#[track_caller]
pub(crate) fn files(daemon: &Daemon, result: &Value) -> Vec<(String, Vec<u8>)> {
    let directory = daemon.artifacts(result["execution_id"].as_str().unwrap());
    let files: Vec<_> = tree(&directory)
        .into_iter()
        .filter_map(|(name, content)| Some((name, content?)))
        .collect();
    let mut listed: Vec<_> = result["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|artifact| {
            let text = |field: &str| artifact[field].as_str().unwrap().to_owned();
            (
                text("path"),
                artifact["size"].as_u64().unwrap(),
                text("sha256"),
            )
        })
        .collect();
    listed.sort();
    let on_disk: Vec<_> = files
        .iter()
        .map(|(name, content)| {
            (
                name.clone(),
                content.len() as u64,
                hex::encode(Sha256::digest(content)),
            )
        })
        .collect();
    assert_eq!(listed, on_disk);
    files
}

/// Why something was left out.
#[track_caller]
fn reason<'a>(result: &'a Value, path: &str) -> &'a str {
    let skipped = result["artifacts_skipped"].as_array().unwrap();
    let entry = skipped.iter().find(|entry| entry["path"] == path);
    entry.unwrap_or_else(|| panic!("{path} is not listed: {skipped:#?}"))["reason"]
        .as_str()
        .unwrap()
}

#[track_caller]
fn assert_no_canary(daemon: &Daemon, result: &Value) {
    for (name, content) in files(daemon, result) {
        let foreign = content
            .windows(CANARY.len())
            .any(|w| w == CANARY.as_bytes())
            || content.windows(5).any(|w| w == b"root:");
        assert!(!foreign, "{name}: {}", String::from_utf8_lossy(&content));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn br_20_links_and_special_files_are_listed_and_never_followed() {
    let daemon = Daemon::start().await;
    let secret = daemon.path().join("secret.txt");
    std::fs::write(&secret, CANARY).unwrap();
    std::fs::create_dir(daemon.data().join("d")).unwrap();
    std::fs::write(daemon.data().join("d/data.csv"), CANARY).unwrap();
    let code = format!(
        "
import json, os, socket
links = {{'passwd.csv': '/etc/passwd', 'env': '/proc/1/environ', 'up': '../../../../../../etc/hostname',
  'dangling.txt': '/work/created_by_copy', 'loop': 'loop', 'data': '/data', 'rootdir': '/', 'host': {secret:?},
  'alias.txt': 'good.txt', 'self': '.', 'fd': '/proc/self/fd/0', 'models': '/data'}}
for name, target in links.items():
    os.symlink(target, 'out/' + name)
os.makedirs('out/sub'); os.symlink('/etc', 'out/sub/dir')
previous = '/etc/passwd'
for i in range(40):
    os.symlink(previous, f'out/sub/chain{{i}}'); previous = f'chain{{i}}'
os.symlink('/etc/passwd', 'top.csv'); os.symlink('/data/data.csv', 'predictions.csv')
open('out/good.txt', 'w').write('good')
s = socket.socket(socket.AF_UNIX); s.bind('out/socket')
refused = []
for make in (lambda: os.mkfifo('out/result.csv'), lambda: os.mknod('out/chr', 0o20666, os.makedev(1, 1)),
             lambda: os.mknod('out/blk', 0o60666, os.makedev(254, 0)), lambda: os.link('/data/data.csv', 'out/hard.csv'),
             lambda: os.link('/etc/passwd', 'out/hard2.csv')):
    try: make(); refused.append('done')
    except OSError as e: refused.append(e.errno)
print(json.dumps(refused))
"
    );
    let body = json!({
        "code": code, "dataset_path": "data/d", "expected_output_files": ["good.txt"],
    });
    let run = daemon.run(body).await;
    let result = &run["result"];
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    assert_eq!(result["stdout"], "[1, 1, 1, 18, 18]\n");
    assert_eq!(result["output_files"], json!(["good.txt"]));
    assert_eq!(
        files(&daemon, result),
        [("good.txt".to_owned(), b"good".to_vec())]
    );
    let links = [
        "passwd.csv",
        "env",
        "up",
        "dangling.txt",
        "loop",
        "data",
        "rootdir",
        "host",
        "alias.txt",
        "self",
        "fd",
        "models",
        "sub/dir",
        "sub/chain39",
        "top.csv",
        "predictions.csv",
    ];
    for link in links {
        assert_eq!(reason(result, link), "a symbolic link", "{link}");
    }
    assert_eq!(reason(result, "socket"), "no regular file or directory");
    assert_eq!(run["prediction_artifact_reference"], Value::Null);
    assert_eq!(run["model_artifact_reference"], Value::Null);
    assert!(!run.to_string().contains(CANARY));
    assert!(!daemon.path().join("created_by_copy").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn br_20_a_process_that_swaps_files_for_links_at_the_end_gains_nothing() {
    let daemon = Daemon::start().await;
    let secret = daemon.path().join("secret.txt");
    std::fs::write(&secret, CANARY).unwrap();
    let code = format!(
        "
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-S', '-c', '''import os
os.chdir('/work/out')
n = 0
while 1:
  open('s','w').close(); os.rename('s','m.pkl'); os.symlink('/etc/passwd','t'); os.rename('t','m.pkl')
  os.symlink({secret:?},'t'); os.rename('t','x.pkl'); open('s','w').close(); os.rename('s','x.pkl')
  if n == 0: open('/tmp/going', 'w').close()
  n += 1
'''], start_new_session=True)
while not os.path.exists('/tmp/going'): pass
open('out/good.txt', 'w').write('good')
os._exit(0)
"
    );
    let body = json!({ "code": code });
    let runs = futures_util::future::join_all((0..20).map(|_| daemon.result(body.clone()))).await;
    for result in runs {
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        assert!(
            result["output_files"]
                .as_array()
                .unwrap()
                .contains(&json!("good.txt"))
        );
        assert_no_canary(&daemon, &result);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn br_22_archives_stay_opaque_and_each_hard_linked_name_has_the_content() {
    let daemon = Daemon::start().await;
    let code = "
import hashlib, io, os, tarfile
b = io.BytesIO()
with tarfile.open(fileobj=b, mode='w') as t:
    for n in ('../../../../evil.txt', '/abs_evil.txt'):
        i = tarfile.TarInfo(n); i.size = 4; t.addfile(i, io.BytesIO(b'evil'))
long = 'out/' + '/'.join(['p' * 90] * 4); os.makedirs(long)
inner = b'\\0' * 512 + b.getvalue()
open(long + '/' + 'q' * 200 + '.bin', 'wb').write(inner)
open('out/a.txt', 'w').write('shared'); os.link('out/a.txt', 'out/z.txt')
os.link('out/a.txt', 'out/' + 'p' * 90 + '/h.txt')
os.link('out/a.txt', 'top.txt')
print(hashlib.sha256(inner).hexdigest())
";
    let result = daemon.execute(code).await;
    let p = "p".repeat(90);
    let long = format!("{p}/{p}/{p}/{p}/{}.bin", "q".repeat(200));
    let mut expected = vec![
        "a.txt".to_owned(),
        format!("{p}/h.txt"),
        long.clone(),
        "top.txt".to_owned(),
        "z.txt".to_owned(),
    ];
    expected.sort();
    assert_eq!(result["output_files"], json!(expected));
    for (name, content) in files(&daemon, &result) {
        if name == long {
            let hash = hex::encode(Sha256::digest(&content));
            assert_eq!(result["stdout"], format!("{hash}\n"));
        } else {
            assert_eq!(content, b"shared", "{name}");
        }
    }
    for (name, content) in tree(&daemon.path().join("outputs")) {
        assert!(!name.contains("evil"), "{name}");
        drop(content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn br_23_files_on_tmpfs_arrive_whole_and_with_their_hash() {
    let daemon = Daemon::start().await;
    let code = "
import hashlib, os
b = os.urandom(3_000_000)
open('out/weights.bin', 'wb').write(b); open('side.bin', 'wb').write(b)
open('out/empty', 'w').close(); os.mkdir('out/nothing')
print(hashlib.sha256(b).hexdigest())
";
    let result = daemon.execute(code).await;
    let hash = result["stdout"].as_str().unwrap().trim();
    assert_eq!(
        paths(&result["artifacts"]),
        ["empty", "weights.bin", "side.bin"]
    );
    for (name, content) in files(&daemon, &result) {
        if name != "empty" {
            assert_eq!(hex::encode(Sha256::digest(&content)), hash, "{name}");
        }
    }
    let directory = daemon.artifacts(result["execution_id"].as_str().unwrap());
    assert!(directory.join("nothing").is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn br_24_names_of_every_kind_are_kept_apart_and_written_on_one_line() {
    let daemon = Daemon::start().await;
    let code = r#"
import os
os.chdir("out")
for n in (b"\xff\xfe.bin", b"a\nb\rc.txt", b"n" * 255, "n\u00e9.csv".encode(), "ne\u0301.csv".encode(), b"-rf", b"a:b|c?.txt",
          b"%2e%2e%2fx", b"..\\..\\x", b" lead and trail ", b"CON", "\u202egpj.exe".encode(), b'q"q.html', b".hidden", b"case", b"CASE",
          b"trailing.", b"\xff" * 200):
    open(n, "wb").write(n)
"#;
    let result = daemon.execute(code).await;
    assert_eq!(result["status"], "SUCCESS");
    let names: Vec<String> = files(&daemon, &result)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names.len(), 17, "{names:#?}");
    for kept in [
        "né.csv",
        "ne\u{301}.csv",
        "-rf",
        "a:b|c?.txt",
        "%2e%2e%2fx",
        "..\\..\\x",
        " lead and trail ",
        "CON",
        "q\"q.html",
        ".hidden",
        "case",
        "CASE",
        "trailing.",
        "%FF%FE.bin",
        "a%0Ab%0Dc.txt",
        "%E2%80%AEgpj.exe",
    ] {
        assert!(
            names.iter().any(|name| name == kept),
            "{kept:?} is not in {names:#?}"
        );
    }
    assert!(names.contains(&"n".repeat(255)));
    let skipped = result["artifacts_skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    let lines = daemon.log();
    assert!(lines.lines().all(|line| !line.starts_with("rc.txt")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_directory_that_was_replaced_gives_no_foreign_file() {
    let daemon = Daemon::start().await;
    for replacement in [
        "os.symlink('/etc', 'out')",
        "os.symlink('/proc/1', 'out')",
        "open('out', 'w').write('a file')",
        "pass",
    ] {
        let code = format!(
            "import os\nos.rmdir('out')\n{replacement}\nopen('good.txt', 'w').write('good')"
        );
        let result = daemon.execute(&code).await;
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        let kept = files(&daemon, &result);
        assert!(
            kept.contains(&("good.txt".to_owned(), b"good".to_vec())),
            "{kept:?}"
        );
        assert_no_canary(&daemon, &result);
        assert!(kept.len() <= 2);
    }
}
