//! `fumehood config`, `image list`, and the layers of the configuration.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::Bench;

fn effective(called: &super::Called) -> toml::Table {
    assert_eq!(called.code, 0, "{called:?}");
    called.stdout.parse().unwrap()
}

#[test]
fn config_prints_what_holds_with_later_layers_over_earlier_ones() {
    let bench = Bench::new();
    let defaults = effective(&bench.call(&["config"]));
    assert_eq!(defaults["api"]["listen"].as_str(), Some("127.0.0.1:8000"));
    assert_eq!(
        defaults["api"]["max_body_bytes"].as_integer(),
        Some(16 << 20)
    );
    assert_eq!(defaults["app"]["max_queued_runs"].as_integer(), Some(1000));
    assert_eq!(
        defaults["app"]["run_timeout_seconds"].as_integer(),
        Some(600)
    );
    assert_eq!(defaults["app"]["output_root"].as_str(), Some("outputs"));
    let execution = &defaults["execution"];
    assert_eq!(execution["timeout_seconds"].as_float(), Some(120.0));
    for (key, value) in [
        ("max_stdout_size_bytes", 102_400),
        ("max_stderr_size_bytes", 102_400),
        ("memory_mb", 2048),
        ("max_processes", 256),
        ("workspace_mb", 1024),
        ("shm_mb", 256),
        ("max_artifact_mb", 1024),
        ("max_artifact_files", 10_000),
    ] {
        assert_eq!(execution[key].as_integer(), Some(value), "{key}");
    }
    assert_eq!(defaults["limits"]["max_iterations"].as_integer(), Some(10));
    assert_eq!(defaults["llm"]["mode"].as_str(), Some("mock"));

    bench.write(
        "fumehood.toml",
        "[execution]\nmemory_mb = 512\ncpus = 0.5\n",
    );
    bench.write("other.toml", "[execution]\nmemory_mb = 700\n");
    let mut command = bench.command(&["config"]);
    command.env("FUMEHOOD_EXECUTION__MEMORY_MB", "600");
    let layered = effective(&command.output().unwrap().into());
    assert_eq!(layered["execution"]["memory_mb"].as_integer(), Some(600));
    assert_eq!(layered["execution"]["cpus"].as_float(), Some(0.5));
    let other = effective(&bench.call(&["config", "--config", "other.toml"]));
    assert_eq!(other["execution"]["memory_mb"].as_integer(), Some(700));

    // A flag wins over everything, as a program can tell.
    bench.write(
        "script.py",
        "print(open('/sys/fs/cgroup/x').read() if 0 else 'ran')",
    );
    let mut command = bench.command(&["run", "script.py", "--json", "--timeout", "5"]);
    command.env("FUMEHOOD_EXECUTION__TIMEOUT_SECONDS", "0");
    let called = super::Called::from(command.output().unwrap());
    assert_eq!(called.code, 0, "{called:?}");

    // What is printed can be read again and means the same.
    let printed = bench.call(&["config"]).stdout;
    bench.write("again.toml", &printed);
    let again = bench.call(&["config", "--config", "again.toml"]);
    assert_eq!(again.stdout, printed);
}

#[test]
fn config_prints_no_key_from_the_environment() {
    let bench = Bench::new();
    bench.write(".env", "OPENAI_API_KEY=canary-dotenv\n");
    let mut command = bench.command(&["config"]);
    command
        .env("OPENAI_API_KEY", "canary-key")
        .env("HOME", "/canary-home");
    let called = super::Called::from(command.output().unwrap());
    assert_eq!(called.code, 0, "{called:?}");
    assert!(!format!("{called:?}").contains("canary"), "{called:?}");
    assert!(
        called.stdout.contains("OPENAI_API_KEY"),
        "the name is no secret"
    );
}

#[test]
fn every_mistake_of_a_configuration_is_named_at_once_and_nothing_starts() {
    let bench = Bench::new();
    bench.write(
        "fumehood.toml",
        "[execution]\nmemry_mb = 1\ntimeout_seconds = 'soon'\n[nonsense]\nx = 1\n",
    );
    bench.write("script.py", "print()");
    for arguments in [
        &["config"][..],
        &["run", "script.py"],
        &["serve"],
        &["image", "list"],
    ] {
        let mut command = bench.command(arguments);
        command.env("FUMEHOOD_API__PORT", "1");
        let called = super::Called::from(command.output().unwrap());
        assert_eq!(called.code, 78, "{called:?}");
        for name in [
            "execution.memry_mb",
            "execution.timeout_seconds",
            "nonsense",
            "FUMEHOOD_API__PORT",
        ] {
            assert!(called.stderr.contains(name), "{name}: {called:?}");
        }
        assert_eq!(called.stdout, "");
    }
    assert!(!bench.path().join(".fumehood").exists());
    let called = bench.call(&["config", "--config", "missing.toml"]);
    assert_eq!(called.code, 78);
    assert!(called.stderr.contains("missing.toml"), "{called:?}");
}

#[test]
fn serving_is_refused_where_anybody_could_reach_it_or_nothing_would_be_allowed() {
    let bench = Bench::new();
    for (arguments, toml, name) in [
        (&["serve", "--listen", "0.0.0.0:0"][..], "", "api.listen"),
        (&["serve", "--listen", "[::]:0"], "", "api.listen"),
        (&["serve"], "[api]\nlisten = '192.0.2.1:8000'", "api.listen"),
        (
            &["serve"],
            "[app]\nallowed_data_root = []",
            "app.allowed_data_root",
        ),
        (
            &["serve"],
            "[app]\nallowed_data_root = 'missing'",
            "app.allowed_data_root",
        ),
        (
            &["serve"],
            "[app]\nmax_concurrent_runs = 0",
            "app.max_concurrent_runs",
        ),
        (
            &["serve"],
            "[execution]\nmemory_mb = 99999999",
            "execution.memory_mb",
        ),
        (&["serve"], "[execution]\ncpus = nan", "execution.cpus"),
        (
            &["serve"],
            "[execution]\nuid_base = 0",
            "execution.uid_base",
        ),
    ] {
        bench.write("fumehood.toml", toml);
        let called = bench.call(arguments);
        assert_eq!(called.code, 78, "{arguments:?} {toml}: {called:?}");
        assert!(called.stderr.contains(name), "{toml}: {called:?}");
    }
    assert!(!bench.path().join(".fumehood").exists());
}

#[test]
fn the_images_are_listed_with_the_default_marked() {
    let bench = Bench::new();
    let called = bench.call(&["image", "list"]);
    assert_eq!(called.code, 0, "{called:?}");
    let marked: Vec<_> = called
        .stdout
        .lines()
        .filter(|line| line.ends_with("(default)"))
        .collect();
    assert_eq!(marked.len(), 1, "{called:?}");
    assert!(
        marked[0].contains("iB") && marked[0].contains("base "),
        "{marked:?}"
    );

    // The name that is shown can be used.
    let reference = marked[0].split_whitespace().next().unwrap();
    bench.write("script.py", "print('in it')");
    let called = bench.call(&["run", "script.py", "--image", reference]);
    assert_eq!(
        (called.code, called.stdout.as_str()),
        (0, "in it\n"),
        "{called:?}"
    );
}

#[test]
fn help_and_version_say_what_there_is() {
    let bench = Bench::new();
    let help = bench.call(&["--help"]);
    assert_eq!(help.code, 0);
    for command in ["serve", "run", "image", "token", "config"] {
        assert!(help.stdout.contains(command), "{}", help.stdout);
    }
    let version = bench.call(&["--version"]);
    assert!(version.stdout.contains(env!("CARGO_PKG_VERSION")));
    let codes = bench.call(&["run", "--help"]).stdout;
    for code in ["124", "65", "130", "69", "78"] {
        assert!(codes.contains(code), "{codes}");
    }
}

#[test]
fn an_image_that_is_there_is_not_built_again() {
    let bench = Bench::new();
    let called = bench.call(&["image", "build"]);
    assert_eq!(called.code, 0, "{called:?}");
    assert!(called.stderr.contains("is there already"), "{called:?}");
    assert!(
        !called.stderr.contains('\u{1b}'),
        "no colours in a pipe: {called:?}"
    );
}

/// A script must not go on with half a configuration, nor anybody own a token that nobody has.
#[test]
fn output_that_is_lost_is_a_failure_and_a_token_that_is_lost_is_none() {
    let bench = Bench::new();
    let tokens = ("FUMEHOOD_AUTH__TOKENS_FILE", "tokens");
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    let into = |arguments: &[&str], stdout: Stdio| {
        let mut command = bench.command(arguments);
        let output = command.env(tokens.0, tokens.1).stdout(stdout).output();
        super::Called::from(output.unwrap())
    };
    let create = ["token", "create", "--role", "read"];
    let kept = into(&create, Stdio::piped()).stdout;
    let key = format!("fumehood receipt key 1: {}\n", "1".repeat(64));
    std::fs::create_dir_all(bench.path().join(".fumehood")).unwrap();
    let key = bench.write(".fumehood/receipt-key", &key);
    std::fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
    let program = bench.write("program.py", "print('ran')");
    for arguments in [
        &["config"][..],
        &["token", "list"],
        &["receipt", "key"],
        &["image", "list"],
        &["run", "--json", program.to_str().unwrap()],
    ] {
        let called = into(arguments, full().into());
        assert_eq!(called.code, 74, "{called:?}");
        assert!(called.stderr.contains("could not be written"), "{called:?}");
        // Who went away has read enough.
        assert_eq!(into(arguments, closed().into()).code, 0);
    }
    for stdout in [full().into(), closed().into()] {
        let called = into(&create, stdout);
        assert_eq!(called.code, 78, "{called:?}");
        assert!(called.stderr.contains("there is none"), "{called:?}");
    }
    let list = into(&["token", "list"], Stdio::piped()).stdout;
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(list.contains(&kept[3..15]), "{list}");
}
