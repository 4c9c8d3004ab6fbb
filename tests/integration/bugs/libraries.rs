//! The guard against too much hardening: what ordinary programs need works.

use serde_json::json;

use crate::support::program::printed;
use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn br_45_libraries_find_a_home_a_user_a_cache_and_locks() {
    let daemon = Daemon::start().await;
    std::fs::create_dir(daemon.data().join("d")).unwrap();
    std::fs::write(daemon.data().join("d/x.csv"), "a\n1\n").unwrap();
    let code = r#"
import fcntl, getpass, json, os, pathlib, pwd, sqlite3, tempfile, time
home = pathlib.Path.home()
told = {"user": getpass.getuser(), "home": str(home), "writable": os.access(home, os.W_OK), "tmp": tempfile.gettempdir(),
        "name": pwd.getpwuid(os.getuid()).pw_name, "expanded": os.path.expanduser("~/x")}
start = time.time()
import matplotlib; matplotlib.use("Agg"); import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.title("Grüße ☃"); plt.savefig("out/p.png")
told["plot is quick"] = time.time() - start < 30
missing = []
for mod in ("sklearn.linear_model", "lightgbm", "scipy.optimize", "pandas", "joblib", "ssl", "sqlite3", "lzma", "bz2", "curses", "ctypes", "uuid"):
    try: __import__(mod)
    except ImportError as e: missing.append(str(e))
told["missing"] = missing
with tempfile.NamedTemporaryFile() as f: f.write(b"x"); f.flush(); told["temporary"] = os.path.getsize(f.name)
with open("/data/x.csv") as f:
    fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB); told["lock"] = "shared"
db = sqlite3.connect("out/x.db"); db.execute("create table t (a)"); db.execute("insert into t values (1)"); db.commit()
told["rows"] = sqlite3.connect("file:out/x.db?mode=ro", uri=True).execute("select count(*) from t").fetchone()[0]
import subprocess, shutil
told["subprocess"] = subprocess.run(["/bin/sh", "-c", "echo $HOME"], capture_output=True, text=True).stdout
shutil.copy2("out/p.png", "out/q.png"); subprocess.run(["cp", "-p", "out/p.png", "out/r.png"], check=True); subprocess.run(["mv", "out/r.png", "/tmp/s.png"], check=True)
print(json.dumps(told))
"#;
    let body = json!({"code": code, "dataset_path": "data/d"});
    let result = daemon.result(body).await;
    let told = printed(&result);
    let user = told["user"].as_str().unwrap().to_owned();
    assert!(user.starts_with("sandbox"), "{user}");
    let expected = json!({
        "user": user, "home": "/work/.home", "writable": true, "tmp": "/tmp", "name": user, "expanded": "/work/.home/x",
        "plot is quick": true, "missing": [], "temporary": 1, "lock": "shared", "rows": 1, "subprocess": "/work/.home\n",
    });
    assert_eq!(told, expected);
    assert_eq!(result["stderr"], "");
    assert_eq!(result["output_files"], json!(["p.png", "q.png", "x.db"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn br_46_threads_follow_the_quota_and_fit_the_process_limit() {
    let settings = Settings {
        toml: "[execution]\nmax_processes = 32\ncpus = 1.0".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let code = r#"
import json, os, time
import numpy as np
a = np.random.default_rng(0).random((300, 300)); t = time.time()
for _ in range(30): np.linalg.svd(a)
took = time.time() - t
tasks = len(os.listdir("/proc/self/task"))
os.environ["JOBLIB_MULTIPROCESSING"] = "1"
from joblib import Parallel, delayed
done = len(Parallel(n_jobs=-1)(delayed(pow)(i, 2) for i in range(50)))
from sklearn.ensemble import RandomForestClassifier
RandomForestClassifier(20, n_jobs=-1).fit(a, a[:, 0] > 0.5)
import lightgbm
lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(a, a[:, 0] > 0.5)
print(json.dumps({"quick": took < 20, "tasks": tasks, "done": done}))
"#;
    let result = daemon.execute(code).await;
    assert_eq!(
        printed(&result),
        json!({"quick": true, "tasks": 1, "done": 50})
    );
    assert!(
        !result["stderr"]
            .as_str()
            .unwrap()
            .contains("pthread_create"),
        "{result:#}"
    );
    assert_eq!(result["warnings"], json!([]), "{result:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn br_16_shared_memory_holds_what_is_documented_and_serves_worker_processes() {
    let daemon = Daemon::start().await;
    let code = r#"
import mmap, multiprocessing as mp
from multiprocessing import shared_memory
f = open("/dev/shm/probe", "w+b"); f.truncate(200 << 20)
m = mmap.mmap(f.fileno(), 200 << 20)
for i in range(0, 200 << 20, 4096):
    m[i] = 1
def load(arguments):
    name, index = arguments
    block = shared_memory.SharedMemory(name); block.buf[index] = index + 1; block.close()
    return index
if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    with mp.Pool(2) as pool:
        print(pool.map(load, [(block.name, i) for i in range(4)]), bytes(block.buf[:4]).hex())
    block.close(); block.unlink()
    q = mp.Queue(); p = mp.get_context("spawn").Process(target=print, args=("spawned",)); p.start(); p.join()
    e = mp.Event(); e.set(); print(e.is_set(), mp.Lock().acquire(), p.exitcode)
"#;
    let result = daemon.execute(code).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    let text = "[0, 1, 2, 3] 01020304\nspawned\nTrue True 0\n";
    assert_eq!(result["stdout"], text, "{result:#}");

    // It counts towards the memory limit: a shm of many times that cannot be used.
    let code = "
f = open('/dev/shm/probe', 'wb')
while True: f.write(bytes(1 << 20)); f.flush()
";
    let options = json!({"memory_mb": 256, "shm_mb": 180, "workspace_mb": 8});
    let result = daemon
        .result(json!({"code": code, "options": options}))
        .await;
    assert_eq!(result["status"], "FAILURE");
    assert_ne!(result["limit"], json!(null), "{result:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heavy_and_honest_program_is_not_stopped_by_any_wall() {
    assert_honest_work_succeeds(&Daemon::start().await).await;
}

pub(crate) async fn assert_honest_work_succeeds(daemon: &Daemon) {
    let code = r#"
import asyncio, concurrent.futures, json, multiprocessing as mp, os, pathlib, subprocess, sys, threading
import joblib, numpy as np, pandas as pd
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

def square(x): return x * x

async def chat():
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print('child')", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()

if __name__ == "__main__":
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    a, b, c, d = train_test_split(X, y, random_state=0)
    model = make_pipeline(StandardScaler(), RandomForestClassifier(50, n_jobs=2, random_state=0)).fit(a, c)
    told = {"score": model.score(b, d) > 0.9, "cross": bool(cross_val_score(model, X, y, cv=3, n_jobs=2).mean() > 0.9)}
    with mp.Pool(2) as pool: told["pool"] = pool.map(square, range(4))
    told["joblib"] = joblib.Parallel(n_jobs=2)(joblib.delayed(square)(i) for i in range(4))
    with concurrent.futures.ThreadPoolExecutor(8) as threads: told["threads"] = sum(threads.map(square, range(100)))
    with concurrent.futures.ProcessPoolExecutor(2) as processes: told["processes"] = sum(processes.map(square, range(100)))
    told["asyncio"] = asyncio.run(chat())
    told["shell"] = subprocess.run("echo a | tr a b", shell=True, capture_output=True, text=True).stdout.strip()
    folder = pathlib.Path("out/Größe 日本"); folder.mkdir()
    frame = pd.DataFrame(np.random.default_rng(0).random((60000, 5)), columns=list("abcde"))
    frame.to_csv(folder / "große.csv", index=False)
    told["csv"] = (folder / "große.csv").stat().st_size > 5_000_000 and len(pd.read_csv(folder / "große.csv")) == 60000
    figure, axes = plt.subplots(); axes.hist(frame["a"]); figure.savefig("out/plot.png"); figure.savefig("out/plot.pdf")
    os.mkdir("out/models"); joblib.dump(model, "out/models/m.joblib", compress=3)
    told["reloaded"] = bool((joblib.load("out/models/m.joblib").predict(b) == model.predict(b)).all())
    print(json.dumps(told))
"#;
    let body = json!({"code": code, "options": {"cpus": 2, "timeout_seconds": 100}});
    let result = daemon.result(body).await;
    let expected = json!({
        "score": true, "cross": true, "pool": [0, 1, 4, 9], "joblib": [0, 1, 4, 9], "threads": 328_350, "processes": 328_350,
        "asyncio": "child", "shell": "b", "csv": true, "reloaded": true,
    });
    assert_eq!(printed(&result), expected, "{result:#}");
    assert_eq!(result["stderr"], "");
    let files = [
        "Größe 日本/große.csv",
        "models/m.joblib",
        "plot.pdf",
        "plot.png",
    ];
    assert_eq!(result["output_files"], json!(files));
    assert_eq!(result["artifacts_skipped"], json!([]));
}
