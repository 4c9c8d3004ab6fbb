//! A conversation with a supervisor whose messages are changed on their way: a supervisor that was
//! told something else, or that does its work badly.

use std::path::Path;
use std::sync::Arc;

use fumehood_protocol::{Decoder, FromSupervisor, ToSupervisor, encode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::http::find_end;

/// What becomes of the messages, in both directions.
#[derive(Clone)]
pub(crate) struct Retelling {
    to: Arc<dyn Fn(&mut ToSupervisor) + Send + Sync>,
    from: Arc<dyn Fn(&mut FromSupervisor) + Send + Sync>,
}

impl Retelling {
    /// The supervisor is told something else.
    pub(crate) fn to(change: impl Fn(&mut ToSupervisor) + Send + Sync + 'static) -> Self {
        Self {
            to: Arc::new(change),
            from: Arc::new(|_| {}),
        }
    }

    /// The supervisor says something else.
    pub(crate) fn from(change: impl Fn(&mut FromSupervisor) + Send + Sync + 'static) -> Self {
        Self {
            to: Arc::new(|_| {}),
            from: Arc::new(change),
        }
    }
}

/// Carries one attachment until either end closes it.
pub(super) async fn carry(
    mut client: UnixStream,
    engine: &Path,
    (head, begun): (&str, &[u8]),
    retelling: &Retelling,
) -> std::io::Result<()> {
    let mut engine = UnixStream::connect(engine).await?;
    engine.write_all(head.as_bytes()).await?;
    let (from_client, to_client) = client.split();
    let (from_engine, to_engine) = engine.split();
    tokio::try_join!(
        to_supervisor(begun, from_client, to_engine, retelling),
        from_supervisor(from_engine, to_client, retelling),
    )?;
    Ok(())
}

async fn to_supervisor(
    begun: &[u8],
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    retelling: &Retelling,
) -> std::io::Result<()> {
    let mut decoder = Decoder::default();
    let mut bytes = begun.to_vec();
    loop {
        decoder.push(&bytes);
        while let Some(frame) = decoder.next_frame().unwrap() {
            let mut message = frame.message().unwrap();
            (retelling.to)(&mut message);
            to.write_all(&encode(frame.sequence, &message).unwrap())
                .await?;
        }
        bytes.clear();
        if from.read_buf(&mut bytes).await? == 0 {
            return to.shutdown().await;
        }
    }
}

/// The engine puts eight bytes before each piece: which stream, and how long.
async fn from_supervisor(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    retelling: &Retelling,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = find_end(&bytes) {
            break end;
        }
        if from.read_buf(&mut bytes).await? == 0 {
            return to.write_all(&bytes).await;
        }
    };
    to.write_all(&bytes[..end]).await?;
    bytes.drain(..end);
    let mut decoder = Decoder::default();
    loop {
        while let Some((header, rest)) = bytes.split_first_chunk::<8>() {
            let [stream, _, _, _, length @ ..] = *header;
            let length = u32::from_be_bytes(length) as usize;
            let Some(piece) = rest.get(..length) else {
                break;
            };
            if stream == 1 {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    let mut message = frame.message().unwrap();
                    (retelling.from)(&mut message);
                    let frame = encode(frame.sequence, &message).unwrap();
                    let length = u32::try_from(frame.len()).unwrap();
                    to.write_all(&[1, 0, 0, 0]).await?;
                    to.write_all(&length.to_be_bytes()).await?;
                    to.write_all(&frame).await?;
                }
            }
            bytes.drain(..8 + length);
        }
        if from.read_buf(&mut bytes).await? == 0 {
            return to.shutdown().await;
        }
    }
}
