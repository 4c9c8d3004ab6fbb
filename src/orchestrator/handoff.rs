//! What a daemon puts away of an execution, so that the next one can take it over.
//!
//! One file for each execution that was or may have been started, in the state directory. It is
//! there before the program is told to start: no file means that it never was. It is not flushed to
//! disk: it has to outlive the daemon, which the kernel's cache does, and not the host, with which
//! the sandbox ends, too. So it costs a run no flush. That the host was started anew is known from
//! the journal.
//!
//! A supervisor keeps what it has sent until that is acknowledged. What is acknowledged is therefore
//! put away here before, and nothing that a dead daemon had only in its memory is lost.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fumehood_protocol::ResumeToken;
use fumehood_protocol::message::Exited;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tracing::warn;

use super::takeover::rules::PutAway;
use crate::clock::{self, HostTime};
use crate::execution::isolation::Isolation;
use crate::execution::output::Head;
use crate::execution::result::SandboxUse;
use crate::ids::ExecutionId;
use crate::receipt::evidence::DatasetListing;

/// The directory in the state directory.
const DIRECTORY: &str = "handoffs";

/// The version of the files. Another one is not understood.
const VERSION: u32 = 1;

/// Ends the name of a file that is being written.
const UNFINISHED: &str = ".new";

/// What cannot be put away or read back.
#[derive(Debug, thiserror::Error)]
pub enum HandoffError {
    /// The state directory.
    #[error("the state directory cannot be written to: check app.state_dir and the disk it is on")]
    Io(#[from] io::Error),
    /// A file that is none of this version's.
    #[error("what an earlier daemon put away of an execution cannot be read")]
    Unreadable(#[from] serde_json::Error),
    /// A file of another version.
    #[error("another version of fumehood put away what is known of an execution")]
    Version,
    /// All of them.
    #[error(
        "the directory in which earlier daemons put away what they knew of their executions was gone"
    )]
    Gone,
}

/// What the next daemon needs to know of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handoff {
    version: u32,
    /// Leads into the talk with the supervisor.
    pub(super) token: ResumeToken,
    /// Taken by the sandbox.
    pub(super) uid: u32,
    /// Just before the program was told to start, by the wall clock, which is for people;
    pub(super) starting_at: Timestamp,
    /// and by the host's time, from which it is reckoned what the program has left.
    pub(super) started: HostTime,
    /// For the receipt.
    pub(super) isolation: Isolation,
    /// For the receipt.
    pub(super) dataset: Option<DatasetListing>,
    pub(super) sandbox_use: SandboxUse,
    /// What deserved a warning before the start.
    pub(super) notes: Vec<String>,
    pub(super) progress: SoFar,
}

/// How far the talk with the supervisor was when something of it was acknowledged last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SoFar {
    /// The last message whose content is in here.
    pub(super) received: u64,
    pub(super) stdout: Kept,
    pub(super) stderr: Kept,
    /// The supervisor's report; what was received after it were artifacts, which are not in here.
    pub(super) exited: Option<Box<Exited>>,
}

/// A head of an output stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    #[serde(with = "base64_text")]
    bytes: Vec<u8>,
    total: u64,
}

impl Kept {
    pub(super) fn of(head: &Head) -> Self {
        Self {
            bytes: head.kept().to_vec(),
            total: head.total(),
        }
    }

    pub(super) fn head(&self, cap: u64) -> Head {
        Head::restored(cap, self.bytes.clone(), self.total)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Handoff {
    /// Of a program that is about to be started.
    pub(super) fn of_start(
        token: ResumeToken,
        uid: u32,
        isolation: &Isolation,
        dataset: Option<&DatasetListing>,
        (sandbox_use, notes): (SandboxUse, &[String]),
    ) -> Self {
        Self {
            version: VERSION,
            token,
            uid,
            starting_at: clock::now(),
            started: HostTime::now(),
            isolation: isolation.clone(),
            dataset: dataset.cloned(),
            sandbox_use,
            notes: notes.to_vec(),
            progress: SoFar::default(),
        }
    }

    /// How much time has passed since the program was told to start. In another life of the host its
    /// sandbox is not there any more; if nobody can tell, what the wall clock says is an estimate.
    pub(super) fn passed(&self) -> Duration {
        let since = HostTime::now().since(&self.started);
        since.unwrap_or_else(|| {
            let passed = clock::now().duration_since(self.starting_at);
            Duration::try_from(passed).unwrap_or_default()
        })
    }

    /// How much that is.
    pub(super) fn put_away(&self) -> PutAway {
        if self.progress == SoFar::default() {
            PutAway::Start
        } else {
            PutAway::Everything
        }
    }
}

/// Puts away how far a talk is, before that is acknowledged.
#[async_trait]
pub(super) trait Keeper: Send + Sync + std::fmt::Debug {
    /// Puts it away. A failure is logged: the run goes on, and is lost only if the daemon dies, too.
    async fn keep(&self, progress: SoFar);
}

/// The files of one state directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handoffs {
    directory: Arc<Path>,
    /// It was not there.
    is_new: bool,
}

/// Of one execution that is followed.
#[derive(Debug, Clone)]
pub(super) struct FileKeeper {
    path: PathBuf,
    /// As it is in the file.
    handoff: Arc<Mutex<Handoff>>,
}

impl Handoffs {
    /// Those of a state directory; makes the place for them. Blocks.
    ///
    /// # Errors
    ///
    /// [`HandoffError`] if nothing can be written there.
    pub fn open(state_dir: &Path) -> Result<Self, HandoffError> {
        let directory = state_dir.join(DIRECTORY);
        let is_new = !directory.try_exists()?;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)?;
        Ok(Self {
            directory: directory.into(),
            is_new,
        })
    }

    /// Puts away what is known of an execution that is about to be started, or to be followed again.
    pub(super) async fn put(
        &self,
        execution: &ExecutionId,
        handoff: Handoff,
    ) -> Result<FileKeeper, HandoffError> {
        let path = self.path(execution);
        let keeper = FileKeeper {
            path,
            handoff: Arc::new(Mutex::new(handoff)),
        };
        let writing = keeper.clone();
        blocking(move || {
            let handoff = writing
                .handoff
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            write(&writing.path, &handoff)
        })
        .await?;
        Ok(keeper)
    }

    /// What an earlier daemon put away of an execution; `None` if its program was never told to start.
    ///
    /// # Errors
    ///
    /// [`HandoffError::Gone`] if the place of all of them was not there: nothing is known then.
    pub(super) async fn left(
        &self,
        execution: &ExecutionId,
    ) -> Result<Option<Handoff>, HandoffError> {
        if self.is_new {
            return Err(HandoffError::Gone);
        }
        self.find(execution).await
    }

    /// What was put away of an execution; `None` if its program was never told to start.
    pub(super) async fn find(
        &self,
        execution: &ExecutionId,
    ) -> Result<Option<Handoff>, HandoffError> {
        let path = self.path(execution);
        blocking(move || read(&path)).await
    }

    /// Forgets an execution that is recorded.
    pub(super) async fn forget(&self, execution: &ExecutionId) {
        let path = self.path(execution);
        let removed = blocking(move || match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        });
        if let Err(error) = removed.await {
            warn!(execution.id = %execution, %error, "what was put away of an execution stays");
        }
    }

    /// Forgets all executions but these.
    pub(super) async fn keep_only(&self, executions: &[ExecutionId]) {
        let kept: HashSet<String> = executions.iter().map(ToString::to_string).collect();
        let directory = Arc::clone(&self.directory);
        let tidied = blocking(move || {
            for entry in fs::read_dir(&directory)?.flatten() {
                if !kept.contains(&*entry.file_name().to_string_lossy()) {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        });
        if let Err(error) = tidied.await {
            warn!(%error, "what was put away of executions that are over stays");
        }
    }

    fn path(&self, execution: &ExecutionId) -> PathBuf {
        self.directory.join(execution.as_str())
    }
}

#[async_trait]
impl Keeper for FileKeeper {
    async fn keep(&self, progress: SoFar) {
        let keeper = self.clone();
        let written = blocking(move || {
            let mut handoff = keeper
                .handoff
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // One that was not waited for to its end may come late.
            if progress.received > handoff.progress.received {
                handoff.progress = progress;
                write(&keeper.path, &handoff)?;
            }
            Ok(())
        });
        if let Err(error) = written.await {
            warn!(%error, "an execution could not be put away: it is lost if the daemon dies");
        }
    }
}

/// Of an execution that no other process takes over.
#[derive(Debug)]
pub(super) struct Unkept;

#[async_trait]
impl Keeper for Unkept {
    async fn keep(&self, _progress: SoFar) {}
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HandoffError> + Send + 'static,
) -> Result<T, HandoffError> {
    spawn_blocking(work)
        .await
        .map_err(|died| HandoffError::Io(io::Error::other(died)))?
}

/// In one step: a reader sees the file as it was or as it is.
fn write(path: &Path, handoff: &Handoff) -> Result<(), HandoffError> {
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(UNFINISHED);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&serde_json::to_vec(handoff)?)?;
    fs::rename(&unfinished, path)?;
    Ok(())
}

fn read(path: &Path) -> Result<Option<Handoff>, HandoffError> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let Versioned { version } = serde_json::from_slice(&bytes)?;
    if version != VERSION {
        return Err(HandoffError::Version);
    }
    let handoff: Handoff = serde_json::from_slice(&bytes)?;
    // Its supervisor stays what it was, whatever became of the daemon.
    if handoff.isolation.found.protocol != fumehood_protocol::VERSION {
        return Err(HandoffError::Version);
    }
    Ok(Some(handoff))
}

/// Bytes as text, since JSON has none.
mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
pub(super) mod tests;
