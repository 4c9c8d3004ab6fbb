//! The forty hostile programs of the security bar (security.md section 2), and one for each
//! published hole of a comparable system (section 7): what each may achieve, and that nothing of
//! it is left. The programs are in `tests/hostile`, with what is expected of them.

mod expectations;

mod always;

mod disk;

mod engine_calls;

mod controls;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Map, Value};

use self::always::{
    Before, CANARY, Health, assert_clean, assert_neighbour_is_served, neighbour_run,
};
use self::expectations::{Neighbour, Outcome, Program, Runtime, directory, programs};
use crate::bugs::libraries::assert_honest_work_succeeds;
use crate::support::data::{make_open_set, repository};
use crate::support::engine::has_runtime;
use crate::support::{Daemon, Settings};

/// The default time limit of a program here, in seconds.
const TIMEOUT: f64 = 20.0;

/// How many programs are run at a time.
const AT_ONCE: usize = 2;

/// How many at once of a program that is run many times: a sandbox of gVisor takes half a second
/// of the host's CPUs to start.
const COPIES_ON_GVISOR: usize = 10;

/// One test per program and runtime, named after both.
macro_rules! programs {
    ($($test:ident = $name:literal,)*) => {
        const TESTED: &[&str] = &[$($name),*];

        mod runc {
            use super::{Runtime, withstand};

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                withstand($name, Runtime::Runc).await;
            })*
        }

        mod runsc {
            use super::{Runtime, withstand};

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                withstand($name, Runtime::Runsc).await;
            })*
        }
    };
}

programs! {
    p01_fork_bomb = "01_fork_bomb",
    p02_thread_bomb = "02_thread_bomb",
    p03_memory_hoard = "03_memory_hoard",
    p04_children_hoard = "04_children_hoard",
    p05_memory_everywhere = "05_memory_everywhere",
    p06_disk_fill = "06_disk_fill",
    p07_file_size = "07_file_size",
    p08_inodes = "08_inodes",
    p09_sparse = "09_sparse",
    p10_endless_output = "10_endless_output",
    p11_endless_line = "11_endless_line",
    p12_forged_output = "12_forged_output",
    p13_descriptors = "13_descriptors",
    p14_ignored_signals = "14_ignored_signals",
    p15_orphans = "15_orphans",
    p16_stopped = "16_stopped",
    p17_blocked_io = "17_blocked_io",
    p19_proc = "19_proc",
    p20_secrets = "20_secrets",
    p21_network = "21_network",
    p22_abstract_sockets = "22_abstract_sockets",
    p23_engine_sockets = "23_engine_sockets",
    p24_data_set = "24_data_set",
    p25_links = "25_links",
    p26_hard_links = "26_hard_links",
    p27_special_files = "27_special_files",
    p28_swapped_at_exit = "28_swapped_at_exit",
    p29_names = "29_names",
    p30_bombs_in_files = "30_bombs_in_files",
    p33_left_marks = "33_left_marks",
    p34_neighbours = "34_neighbours",
    p35_privilege = "35_privilege",
    p36_system_calls = "36_system_calls",
    p37_execution = "37_execution",
    p38_starvation = "38_starvation",
    p39_crash_loop = "39_crash_loop",
    hole_leaked_descriptor = "hole_leaked_descriptor",
    hole_masked_paths = "hole_masked_paths",
    hole_copy_race = "hole_copy_race",
    hole_planted_helper = "hole_planted_helper",
    hole_copy_fail = "hole_copy_fail",
    hole_linked_workspace = "hole_linked_workspace",
    hole_replaced_script = "hole_replaced_script",
    hole_first_process = "hole_first_process",
    hole_first_statement = "hole_first_statement",
    hole_shell_names = "hole_shell_names",
    hole_object_graph = "hole_object_graph",
}

/// A program's end, and everything around it.
async fn withstand(name: &str, runtime: Runtime) {
    if is_missing(runtime).await {
        return;
    }
    let program = &programs()[name];
    let outcome = program
        .on(runtime)
        .expect("a program that is run has an outcome");
    let daemon = hostile_daemon(runtime, AT_ONCE).await;
    let body = body(name, program, &daemon);
    let copies = match runtime {
        Runtime::Runc => program.copies,
        Runtime::Runsc if std::env::var_os("TESTS_ALL_COPIES").is_some() => program.copies,
        Runtime::Runsc => program.copies.min(COPIES_ON_GVISOR),
    };
    let before = Before::look(&daemon).await;
    let work = run(program, copies, &daemon, &body);
    let (runs, health) = Health::during(&daemon, work).await;
    for run in &runs {
        assert_outcome(name, program, outcome, run);
        assert_clean(&daemon, run);
    }
    health.assert_good();
    match program.neighbour {
        Neighbour::Afterwards | Neighbour::Meanwhile => {
            assert_neighbour_is_served(&daemon).await;
        }
        Neighbour::SameProgram => {
            let run = neighbour_run(&daemon, &body).await;
            assert_outcome(name, program, outcome, &run);
            assert_clean(&daemon, &run);
        }
    }
    before.assert_unharmed(&daemon).await;
}

/// Whether there is nothing to be tested, which is said. `tests/run.sh` sees to it that every
/// runtime is there where that is possible, and then wants it tested.
async fn is_missing(runtime: Runtime) -> bool {
    if runtime == Runtime::Runc || has_runtime(runtime.name()).await {
        return false;
    }
    let required = std::env::var_os("TESTS_REQUIRE_RUNSC").is_some();
    assert!(!required, "the engine has no runtime {}", runtime.name());
    eprintln!("SKIPPED: the engine has no runtime {}", runtime.name());
    true
}

/// A daemon with small limits, secrets around it, and a data set that everybody could change.
async fn hostile_daemon(runtime: Runtime, at_once: usize) -> Daemon {
    let toml = format!(
        "[app]\nmax_concurrent_runs = {at_once}\n\
         [execution]\nruntime = '{}'\ntimeout_seconds = {TIMEOUT:.1}\nmemory_mb = 256\n\
         workspace_mb = 32\nshm_mb = 32\nmax_processes = 64\nmax_artifact_mb = 16\n\
         max_artifact_files = 1000",
        runtime.name()
    );
    let names = ["OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "KUBECONFIG"];
    let daemon = Daemon::start_with(Settings {
        toml,
        environment: names.map(|name| (name, CANARY.to_owned())).into(),
        ..Settings::default()
    })
    .await;
    std::fs::write(daemon.path().join("secret.txt"), CANARY).unwrap();
    make_open_set(&daemon.data().join("set"));
    daemon
}

/// The text of a program, with what it has to know of this host.
fn source(name: &str, daemon: &Daemon) -> String {
    let path = directory().join(name).with_extension("py");
    let secret = daemon.path().join("secret.txt");
    std::fs::read_to_string(path)
        .unwrap()
        .replace("@DAEMON@", daemon.address().trim_start_matches("http://"))
        .replace("@SECRET@", secret.to_str().unwrap())
}

fn body(name: &str, program: &Program, daemon: &Daemon) -> Value {
    let mut body: Map<String, Value> = program.request.clone();
    body.insert("code".to_owned(), source(name, daemon).into());
    body.insert("dataset_path".to_owned(), "data/set".into());
    body.into()
}

/// Runs a program, as often at once as it wants to be; gives the run objects.
async fn run(program: &Program, copies: usize, daemon: &Daemon, body: &Value) -> Vec<Value> {
    let runs = join_all((0..copies).map(|_| daemon.run(body.clone())));
    if program.neighbour == Neighbour::Meanwhile {
        tokio::join!(runs, assert_neighbour_is_served(daemon)).0
    } else {
        runs.await
    }
}

fn assert_outcome(name: &str, program: &Program, outcome: &Outcome, run: &Value) {
    let mut differences = outcome.differences(run);
    let limit = program.timeout().unwrap_or(TIMEOUT);
    let took = run["result"]["duration_seconds"].as_f64().unwrap();
    if took > limit + 1.0 {
        differences.push(format!("it ran for {took} s with a limit of {limit} s"));
    }
    assert!(
        differences.is_empty(),
        "{name}, which attacks {}, did not end as expected: {differences:#?}\n{run:#}",
        program.attacks
    );
}

/// Row 37: programs are killed for memory, many at a time, and nobody else notices.
#[tokio::test(flavor = "multi_thread")]
async fn eight_memory_hoards_at_a_time_harm_neither_the_daemon_nor_others() {
    const COUNT: usize = 8;
    let name = "03_memory_hoard";
    let (program, runtime) = (&programs()[name], Runtime::Runc);
    let daemon = hostile_daemon(runtime, COUNT).await;
    let body = body(name, program, &daemon);
    let before = Before::look(&daemon).await;
    let work = run(program, COUNT, &daemon, &body);
    let (runs, health) = Health::during(&daemon, work).await;
    for run in &runs {
        assert_outcome(name, program, program.on(runtime).unwrap(), run);
    }
    health.assert_good();
    assert_neighbour_is_served(&daemon).await;
    before.assert_unharmed(&daemon).await;
}

/// The guard against walls that also keep out what is wanted: as on the usual runtime.
#[tokio::test(flavor = "multi_thread")]
async fn p40_honest_work_succeeds_on_runsc_too() {
    if is_missing(Runtime::Runsc).await {
        return;
    }
    let settings = Settings {
        toml: "[execution]\nruntime = 'runsc'".to_owned(),
        ..Settings::default()
    };
    assert_honest_work_succeeds(&Daemon::start_with(settings).await).await;
}

#[test]
fn every_program_has_a_test_and_every_twin_exists() {
    let files: BTreeSet<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "py"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let tested: BTreeSet<String> = TESTED.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(files, tested, "files and tests");
    let with_outcome = programs()
        .iter()
        .filter(|(_, program)| program.on(Runtime::Runc).is_some());
    let with_outcome: BTreeSet<String> = with_outcome.map(|(name, _)| name.clone()).collect();
    assert_eq!(with_outcome, tested, "outcomes and tests");

    for number in 1..=40 {
        let begin = format!("{number:02}_");
        let listed = programs().keys().filter(|name| name.starts_with(&begin));
        assert_eq!(listed.count(), 1, "program {number}");
    }
    for (name, program) in programs() {
        let alone = program.on(Runtime::Runc).is_none();
        assert!(!alone || !program.twins.is_empty(), "{name} has no test");
        for twin in &program.twins {
            let (module, function) = twin.rsplit_once("::").unwrap();
            let path = format!("tests/integration/{}.rs", module.replace("::", "/"));
            let text = std::fs::read_to_string(repository().join(&path));
            let text = text.unwrap_or_else(|error| panic!("{path}: {error}"));
            let defined = text.contains(&format!("fn {function}("));
            assert!(defined, "{name}: there is no test {twin}");
        }
    }
}
