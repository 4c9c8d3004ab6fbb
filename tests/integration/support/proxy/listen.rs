//! A conversation with a supervisor that is passed on byte for byte, while somebody listens to what the
//! supervisor is told.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;

use fumehood_protocol::{Decoder, FrameError, ResumeToken, ToSupervisor};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Is told what supervisors are told, with the head of the call that opened the stream.
type Heard = Box<dyn Fn(&str, &ToSupervisor) + Send + Sync>;

/// Who listens, to all streams of a proxy.
pub(crate) struct Listener {
    heard: Heard,
    /// The tokens of the programs that were started: a stream that is opened again begins with one.
    tokens: Mutex<HashSet<[u8; ResumeToken::BYTES]>>,
}

impl Listener {
    /// Somebody who hears every message.
    pub(crate) fn new(heard: impl Fn(&str, &ToSupervisor) + Send + Sync + 'static) -> Self {
        Self {
            heard: Box::new(heard),
            tokens: Mutex::default(),
        }
    }

    fn hear(&self, head: &str, message: &ToSupervisor) {
        if let ToSupervisor::Start(start) = message {
            self.tokens.lock().unwrap().insert(start.resume_token.0);
        }
        (self.heard)(head, message);
    }

    fn is_token(&self, bytes: &[u8; ResumeToken::BYTES]) -> bool {
        self.tokens.lock().unwrap().contains(bytes)
    }
}

/// Carries one attachment until either end closes it. Takes no part in a proxy's standing still.
pub(super) async fn carry(
    mut client: UnixStream,
    engine: &Path,
    (head, begun): (&str, &[u8]),
    listener: &Listener,
) -> std::io::Result<()> {
    let mut engine = UnixStream::connect(engine).await?;
    engine.write_all(head.as_bytes()).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_engine, mut to_engine) = engine.split();
    let telling = async {
        let mut ear = Ear::default();
        let mut bytes = begun.to_vec();
        loop {
            // Before it is passed on: what the supervisor has heard was counted.
            ear.hear(&bytes, head, listener);
            to_engine.write_all(&bytes).await?;
            bytes.clear();
            if from_client.read_buf(&mut bytes).await? == 0 {
                return to_engine.shutdown().await;
            }
        }
    };
    let answering = async {
        tokio::io::copy(&mut from_engine, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::try_join!(telling, answering)?;
    Ok(())
}

/// Understands one stream: frames, or a token and then frames.
#[derive(Default)]
struct Ear {
    decoder: Decoder,
    /// The beginning, until it is long enough to be told from a token.
    first: Vec<u8>,
    has_begun: bool,
}

impl Ear {
    fn hear(&mut self, bytes: &[u8], head: &str, listener: &Listener) {
        if self.has_begun {
            self.decoder.push(bytes);
        } else {
            self.first.extend_from_slice(bytes);
            let Some((token, rest)) = self.first.split_first_chunk() else {
                return;
            };
            self.has_begun = true;
            // A daemon may have died with a token put away and the program not started: nobody has
            // heard that token before, but hardly one reads as the length of a frame.
            let mut decoder = Decoder::default();
            decoder.push(&self.first);
            let is_no_frame = matches!(decoder.next_frame(), Err(FrameError::Length(_)));
            let frames: &[u8] = if listener.is_token(token) || is_no_frame {
                rest
            } else {
                &self.first
            };
            self.decoder.push(frames);
        }
        while let Some(frame) = self.decoder.next_frame().expect("frames") {
            listener.hear(head, &frame.message().expect("a message"));
        }
    }
}

#[test]
fn a_stream_is_understood_however_it_is_cut_and_after_a_token_too() {
    use std::sync::Arc;

    use fumehood_protocol::encode;

    let count = Arc::new(Mutex::new(0));
    let counting = Arc::clone(&count);
    let listener = Listener::new(move |head, _| {
        assert_eq!(head, "head");
        *counting.lock().unwrap() += 1;
    });
    // One that reads as a length, and was heard of; and one that nobody was told.
    let mut heard = [7; ResumeToken::BYTES];
    heard[..4].copy_from_slice(&[0, 0, 1, 0]);
    listener.tokens.lock().unwrap().insert(heard);
    let unheard = [7; ResumeToken::BYTES];
    let frames = [
        encode(0, &ToSupervisor::Resume(3)).unwrap(),
        encode(0, &ToSupervisor::Ack(4)).unwrap(),
        encode(0, &ToSupervisor::Cancel).unwrap(),
    ];
    let frames = frames.concat();
    let again = [&heard[..], &frames].concat();
    let after_death = [&unheard[..], &frames].concat();
    for stream in [&frames, &again, &after_death] {
        for step in 1..stream.len() {
            let mut ear = Ear::default();
            *count.lock().unwrap() = 0;
            for piece in stream.chunks(step) {
                ear.hear(piece, "head", &listener);
            }
            assert_eq!(*count.lock().unwrap(), 3, "in pieces of {step}");
        }
    }
}
