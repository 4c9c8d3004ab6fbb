//! Owns one output stream of the program: what of it is forwarded, what is counted only, and
//! its last bytes. It never stops draining for longer than [`STALL`], so that a daemon that is
//! gone cannot hold up the program.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _};
use std::time::{Duration, Instant};

use fumehood_protocol::message::{Output, Stream, StreamTotals};
use fumehood_protocol::{FromSupervisor, MAX_PAYLOAD_BYTES};

use crate::error::Fatal;
use crate::outbox::Outbox;

/// Size of the buffer for [`Pump::drain`], reused for all reads.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// Reads in one turn of the loop: 1 MiB, then the deadline is looked at again.
const READS_PER_TURN: usize = 4;

/// Output that trickles is sent at most so often, so that frames of one byte do not fill the
/// window with envelopes.
const GATHER: Duration = Duration::from_millis(10);

/// How long a full window may hold up the program while no acknowledgement comes; then nobody is
/// taking the output, and the stream is cut.
const STALL: Duration = Duration::from_secs(1);

/// One stream on its way out.
#[derive(Debug)]
pub(crate) struct Pump {
    stream: Stream,
    /// `None` once it has ended.
    pipe: Option<File>,
    /// Bytes still to forward; 0 once the stream was cut.
    head_left: u64,
    /// Forwarded next, at most one payload.
    gathered: Vec<u8>,
    sent_at: Option<Instant>,
    /// Since when the window has had no room for `gathered`.
    waiting_since: Option<Instant>,
    bytes: u64,
    forwarded: u64,
    tail: Tail,
}

impl Pump {
    pub(crate) fn new(stream: Stream, pipe: File, head_bytes: u64, tail_bytes: usize) -> Self {
        Self {
            stream,
            pipe: Some(pipe),
            head_left: head_bytes,
            gathered: Vec::new(),
            sent_at: None,
            waiting_since: None,
            bytes: 0,
            forwarded: 0,
            tail: Tail::new(tail_bytes),
        }
    }

    /// The pipe, while more can be taken from it.
    pub(crate) fn readable(&self) -> Option<&File> {
        self.pipe
            .as_ref()
            .filter(|_| self.gathered.len() < MAX_PAYLOAD_BYTES)
    }

    /// Whether everything has been read and forwarded.
    pub(crate) fn is_finished(&self) -> bool {
        self.pipe.is_none() && self.gathered.is_empty()
    }

    /// When to come back although nothing was written.
    pub(crate) fn wake_at(&self, outbox: &Outbox) -> Option<Instant> {
        match (self.waiting_since, self.sent_at) {
            _ if self.gathered.is_empty() => None,
            (Some(since), _) => Some(since.max(outbox.progress()) + STALL),
            (None, sent_at) => sent_at.map(|at| at + GATHER),
        }
    }

    /// Reads what is there, within the bound of a turn, and forwards what is due.
    ///
    /// With `last`, every writer is dead: an empty pipe is then an ended one.
    pub(crate) fn drain(
        &mut self,
        buffer: &mut [u8],
        outbox: &mut Outbox,
        now: Instant,
        last: bool,
    ) -> Result<(), Fatal> {
        for _ in 0..READS_PER_TURN {
            let room = MAX_PAYLOAD_BYTES - self.gathered.len();
            let wanted = if self.head_left > 0 {
                room.min(buffer.len())
            } else {
                buffer.len()
            };
            let Some(pipe) = self.readable() else { break };
            let mut reader = pipe;
            match reader.read(&mut buffer[..wanted]) {
                Ok(0) => self.pipe = None,
                Ok(count) => self.take(&buffer[..count]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::WouldBlock if last => self.pipe = None,
                    io::ErrorKind::WouldBlock => break,
                    _ => return Err(Fatal::Io("reading the program's output", error)),
                },
            }
            self.forward(outbox, now)?;
        }
        self.forward(outbox, now)
    }

    /// The final account of the stream.
    pub(crate) fn totals(&self) -> StreamTotals {
        StreamTotals {
            bytes: self.bytes,
            forwarded_bytes: self.forwarded,
            tail: self.tail.bytes(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.tail.push(bytes);
        let head = usize::try_from(self.head_left)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        self.gathered.extend_from_slice(&bytes[..head]);
        self.head_left -= head as u64;
    }

    fn forward(&mut self, outbox: &mut Outbox, now: Instant) -> Result<(), Fatal> {
        let due = self.pipe.is_none()
            || self.head_left == 0
            || self.gathered.len() >= MAX_PAYLOAD_BYTES
            || self.sent_at.is_none_or(|at| now >= at + GATHER);
        if self.gathered.is_empty() || !due {
            return Ok(());
        }
        if outbox.has_room_for_output(self.gathered.len()) {
            let bytes = std::mem::take(&mut self.gathered);
            self.forwarded += bytes.len() as u64;
            self.sent_at = Some(now);
            self.waiting_since = None;
            outbox.push(&FromSupervisor::Output(Output {
                stream: self.stream,
                bytes,
            }))?;
            return Ok(());
        }
        let since = *self.waiting_since.get_or_insert(now);
        if now >= since.max(outbox.progress()) + STALL {
            // What was forwarded must stay a prefix of the stream: once cut, it stays cut.
            self.head_left = 0;
            self.gathered = Vec::new();
            self.waiting_since = None;
        }
        Ok(())
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
}

impl Tail {
    fn new(limit: usize) -> Self {
        Self {
            bytes: VecDeque::with_capacity(limit),
            limit,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.limit)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.limit);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end_of_the_stream_however_it_came() {
        let stream: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for limit in [0, 1, 7, 256, 2000] {
            for piece in [1, 3, 100, 1000] {
                let mut tail = Tail::new(limit);
                stream.chunks(piece).for_each(|bytes| tail.push(bytes));
                assert_eq!(tail.bytes(), stream[stream.len().saturating_sub(limit)..]);
            }
        }
    }
}
