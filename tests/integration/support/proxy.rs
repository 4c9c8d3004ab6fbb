//! An engine that misbehaves: a proxy in front of the engine's socket that hangs, delays, refuses,
//! cuts or alters the calls that a test names, and passes everything else on unchanged.
//!
//! Each connection carries one call: the proxy asks the engine to close it after its answer, so
//! that a call can be told from the next one without understanding more of HTTP.

mod http;
mod listen;
mod retell;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{answer, answer_head, ask, closing, read_head, whole, with_length};
pub(crate) use listen::Listener;
pub(crate) use retell::Retelling;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The machine's usual engine.
const ENGINE: &str = "/var/run/docker.sock";

/// Changes a text on its way.
pub(crate) type Change = Arc<dyn Fn(String) -> String + Send + Sync>;

/// Changes a document on its way; gets the head of the request, too.
pub(crate) type Rewrite = Arc<dyn Fn(&str, &mut Value) + Send + Sync>;

/// What happens to a call.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Nothing; it is only counted.
    Pass,
    /// The engine never hears of it, and nobody answers until [`Proxy::behave`].
    Hang,
    /// The engine hears of it later, even if the caller has gone away by then.
    Delay(Duration),
    /// It is refused with a status and a message, as the engine would refuse it.
    Refuse(u16, &'static str),
    /// The engine does it, and the answer is lost.
    LoseAnswer,
    /// The engine does it, and nobody answers until [`Proxy::behave`].
    HangAfter,
    /// The engine does it, and only so many bytes of the answer's body arrive.
    Truncate(usize),
    /// The request, its head included, and the body of the answer are changed on their way. A
    /// request has to keep its length.
    Alter { request: Change, answer: Change },
    /// The bodies of request and answer, where they are JSON, are changed on their way.
    Rewrite { request: Rewrite, answer: Rewrite },
    /// The messages between daemon and supervisor are changed on their way; of `attach` only.
    Retell(Retelling),
    /// The messages from the daemon to the supervisor are listened to; of `attach` only.
    Listen(Arc<Listener>),
}

struct Rule {
    method: &'static str,
    part: &'static str,
    fault: Fault,
    hits: Hits,
    /// How many calls still meet it.
    left: usize,
}

/// How often a rule was met.
#[derive(Clone, Default)]
pub(crate) struct Hits {
    begun: Arc<AtomicUsize>,
    over: Arc<AtomicUsize>,
}

impl Hits {
    /// Calls that arrived.
    pub(crate) fn count(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Calls that the engine has answered, whether or not somebody still listened.
    pub(crate) fn over(&self) -> usize {
        self.over.load(Ordering::SeqCst)
    }
}

struct Shared {
    engine: PathBuf,
    rules: Mutex<Vec<Rule>>,
    /// Cancelled to end the connections of now.
    cut: Mutex<CancellationToken>,
    tasks: TaskTracker,
    frozen: watch::Sender<bool>,
}

/// A running proxy.
pub(crate) struct Proxy {
    directory: TempDir,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Proxy {
    /// A proxy that passes everything on to the usual engine.
    pub(crate) fn start() -> Self {
        Self::before(Path::new(ENGINE))
    }

    /// A proxy that passes everything on to the engine at this socket.
    pub(crate) fn before(engine: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("engine.sock")).unwrap();
        let shared = Arc::new(Shared {
            engine: engine.to_owned(),
            rules: Mutex::default(),
            cut: Mutex::default(),
            tasks: TaskTracker::new(),
            frozen: watch::Sender::default(),
        });
        let serving = Arc::clone(&shared);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        shared.tasks.spawn(async move {
            while let Some(Ok((client, _))) = stopped.run_until_cancelled(listener.accept()).await {
                serving.tasks.spawn(serve(Arc::clone(&serving), client));
            }
        });
        Self {
            directory,
            shared,
            stop,
        }
    }

    /// The socket to give to a daemon.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("engine.sock")
    }

    /// From now on, calls with this method whose path contains `part` meet `fault`. The first rule
    /// that fits counts.
    pub(crate) fn fault(&self, method: &'static str, part: &'static str, fault: Fault) -> Hits {
        self.rule(method, part, fault, usize::MAX)
    }

    /// The next such call meets `fault`, and those after it do not.
    pub(crate) fn fault_once(
        &self,
        method: &'static str,
        part: &'static str,
        fault: Fault,
    ) -> Hits {
        self.rule(method, part, fault, 1)
    }

    fn rule(&self, method: &'static str, part: &'static str, fault: Fault, left: usize) -> Hits {
        let hits = Hits::default();
        let rule = Rule {
            method,
            part,
            fault,
            hits: hits.clone(),
            left,
        };
        self.shared.rules.lock().unwrap().push(rule);
        hits
    }

    /// From now on sandboxes are made otherwise than they are asked for, and inspection shows what
    /// was asked for: only who looks inside can notice.
    pub(crate) fn weaken(&self, change: impl Fn(&mut Value) + Send + Sync + 'static) {
        let asked: Arc<Mutex<HashMap<String, Value>>> = Arc::default();
        let remembered = Arc::clone(&asked);
        let create = move |head: &str, body: &mut Value| {
            // Not what only fills the supervisor's volume.
            if body["HostConfig"]["ReadonlyRootfs"] == true {
                let name = name_in(head).to_owned();
                remembered.lock().unwrap().insert(name, body.clone());
                change(body);
            }
        };
        let inspect = move |head: &str, shown: &mut Value| {
            let asked = asked.lock().unwrap();
            let about = asked.iter().find(|(name, _)| head.contains(name.as_str()));
            if let Some((_, body)) = about {
                pretend(shown, body);
            }
        };
        let create = Fault::Rewrite {
            request: Arc::new(create),
            answer: Arc::new(|_: &str, _: &mut Value| {}),
        };
        let inspect = Fault::Rewrite {
            request: Arc::new(|_: &str, _: &mut Value| {}),
            answer: Arc::new(inspect),
        };
        self.fault("POST", "/containers/create", create);
        self.fault("GET", "/json", inspect);
    }

    /// Forgets every fault, and closes the connections of calls that hang.
    pub(crate) fn behave(&self) {
        self.shared.rules.lock().unwrap().clear();
        self.cut();
    }

    /// Ends every connection of now.
    pub(crate) fn cut(&self) {
        self.shared.cut();
    }

    /// The same from within a fault: what passes at this moment still arrives, and nothing after it.
    pub(crate) fn cutter(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.cut()
    }

    /// The engine stands still, as if it were stopped by a signal: connections are taken, and no
    /// byte moves on any of them until it is thawed.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.shared.frozen.send_replace(frozen);
    }

    /// The engine is gone: nobody is at its address, and every connection ends.
    pub(crate) fn leave(&self) {
        std::fs::rename(self.socket(), self.directory.path().join("away")).unwrap();
        self.cut();
    }

    /// The engine is back.
    pub(crate) fn come_back(&self) {
        std::fs::rename(self.directory.path().join("away"), self.socket()).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Shared {
    fn cut(&self) {
        std::mem::take(&mut *self.cut.lock().unwrap()).cancel();
    }

    fn fault_for(&self, head: &str) -> (Fault, Hits) {
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap_or_default());
        let mut rules = self.rules.lock().unwrap();
        let fits =
            |rule: &&mut Rule| rule.method == method && path.contains(rule.part) && rule.left > 0;
        let Some(rule) = rules.iter_mut().find(fits) else {
            return (Fault::Pass, Hits::default());
        };
        rule.left -= 1;
        rule.hits.begun.fetch_add(1, Ordering::SeqCst);
        (rule.fault.clone(), rule.hits.clone())
    }
}

async fn serve(shared: Arc<Shared>, client: UnixStream) {
    let cut = shared.cut.lock().unwrap().clone();
    // Which end broke is for the daemon to notice; the proxy has nothing to say about it.
    let _ = cut.run_until_cancelled(one_call(&shared, client)).await;
}

async fn one_call(shared: &Shared, mut client: UnixStream) -> std::io::Result<()> {
    let Some((head, begun)) = read_head(&mut client).await? else {
        return Ok(());
    };
    let (engine, frozen) = (&shared.engine, shared.frozen.subscribe());
    thawed(&frozen).await;
    let (fault, hits) = shared.fault_for(&head);
    match fault {
        Fault::Pass => pass(client, engine, (&head, &begun), &frozen).await,
        Fault::Hang => std::future::pending().await,
        Fault::Delay(delay) => {
            let (head, body) = whole(&mut client, head, begun).await?;
            tokio::time::sleep(delay).await;
            let (status, body) = ask(engine, &head, &body).await?;
            hits.over.fetch_add(1, Ordering::SeqCst);
            answer(client, &status, &body).await
        }
        Fault::Refuse(status, message) => {
            let body = serde_json::json!({ "message": message }).to_string();
            answer(client, &format!("{status} Refused"), body.as_bytes()).await
        }
        Fault::LoseAnswer => {
            let (head, body) = whole(&mut client, head, begun).await?;
            ask(engine, &head, &body).await?;
            Ok(())
        }
        Fault::HangAfter => {
            let (head, body) = whole(&mut client, head, begun).await?;
            ask(engine, &head, &body).await?;
            hits.over.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
        Fault::Truncate(bytes) => {
            let (head, body) = whole(&mut client, head, begun).await?;
            let (status, body) = ask(engine, &head, &body).await?;
            let head = answer_head(&status, body.len());
            let kept = &body[..bytes.min(body.len())];
            client.write_all(head.as_bytes()).await?;
            client.write_all(kept).await
        }
        Fault::Alter {
            request,
            answer: change,
        } => {
            let (head, body) = whole(&mut client, head, begun).await?;
            let body = request(String::from_utf8(body).unwrap());
            let (status, text) = ask(engine, &request(head), body.as_bytes()).await?;
            let text = change(String::from_utf8(text).unwrap());
            answer(client, &status, text.as_bytes()).await
        }
        Fault::Rewrite {
            request,
            answer: change,
        } => {
            let (head, body) = whole(&mut client, head, begun).await?;
            let body = rewritten(&request, &head, body);
            let (status, text) = ask(engine, &with_length(&head, body.len()), &body).await?;
            let text = rewritten(&change, &head, text);
            answer(client, &status, &text).await
        }
        Fault::Retell(retelling) => {
            retell::carry(client, engine, (&head, &begun), &retelling).await
        }
        Fault::Listen(listener) => listen::carry(client, engine, (&head, &begun), &listener).await,
    }
}

/// A body after the change; one that is no JSON stays as it is.
fn rewritten(change: &Rewrite, head: &str, body: Vec<u8>) -> Vec<u8> {
    let Ok(mut document) = serde_json::from_slice(&body) else {
        return body;
    };
    change(head, &mut document);
    serde_json::to_vec(&document).unwrap()
}

/// Passes a call on, both ways until both ends have closed: right for upgraded streams, too.
async fn pass(
    mut client: UnixStream,
    engine: &Path,
    (head, begun): (&str, &[u8]),
    frozen: &watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut engine = UnixStream::connect(engine).await?;
    engine.write_all(closing(head).as_bytes()).await?;
    engine.write_all(begun).await?;
    let (from_client, to_client) = client.split();
    let (from_engine, to_engine) = engine.split();
    tokio::try_join!(
        pump(from_client, to_engine, frozen),
        pump(from_engine, to_client, frozen),
    )?;
    Ok(())
}

/// Moves bytes until their end, and none while the engine is frozen.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    frozen: &watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(64 << 10);
    loop {
        bytes.clear();
        let end = from.read_buf(&mut bytes).await? == 0;
        thawed(frozen).await;
        if end {
            return to.shutdown().await;
        }
        to.write_all(&bytes).await?;
    }
}

async fn thawed(frozen: &watch::Receiver<bool>) {
    let _ = frozen.clone().wait_for(|frozen| !frozen).await;
}

/// The name that a container is to have.
fn name_in(head: &str) -> &str {
    let (_, rest) = head.split_once("name=").unwrap();
    rest.split(['&', ' ']).next().unwrap()
}

/// Makes what inspection shows look like what was asked for.
fn pretend(shown: &mut Value, asked: &Value) {
    for (key, value) in asked["HostConfig"].as_object().unwrap() {
        shown["HostConfig"][key] = value.clone();
    }
    for key in ["User", "Hostname", "Entrypoint", "Tty"] {
        shown["Config"][key] = asked[key].clone();
    }
    let targets: Vec<Value> = asked["HostConfig"]["Mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["Target"].clone())
        .collect();
    if let Some(mounts) = shown["Mounts"].as_array_mut() {
        mounts.retain(|mount| targets.contains(&mount["Destination"]));
    }
}
