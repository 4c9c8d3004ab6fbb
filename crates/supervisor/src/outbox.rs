//! Owns what goes out: numbers the frames, keeps each until it is acknowledged, writes them when
//! somebody takes them, and repeats them for a daemon that attaches again. It never waits, and
//! never keeps more than the window.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fumehood_protocol::{
    FromSupervisor, MAX_BODY_BYTES, MAX_PAYLOAD_BYTES, ResumeToken, WINDOW_BYTES, encode,
};

use crate::error::Fatal;

/// Room for the message that ends a run, which output must not take.
const RESERVE_BYTES: usize = MAX_BODY_BYTES;

/// Upper bound of header, envelope and path around a payload.
const ENVELOPE_BYTES: usize = 1024;

/// Written in one turn of the loop.
const PER_TURN: usize = 1 << 20;

/// How long to leave an output alone whose reader is gone.
const RETRY: Duration = Duration::from_millis(500);

/// The outgoing side of the stream.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Unacknowledged frames; the first has the sequence number `first`.
    window: VecDeque<Rc<Vec<u8>>>,
    first: u64,
    /// Bytes in `window`.
    retained: usize,
    /// Sequence number of the frame to write next.
    next: u64,
    /// The bytes being written, and how many of them are.
    writing: Option<(Rc<Vec<u8>>, usize)>,
    /// To write at the next boundary between frames, before repeating the window.
    marker: Option<ResumeToken>,
    /// When an acknowledgement last made room.
    progress: Instant,
    /// Nobody reads; look again then.
    closed_until: Option<Instant>,
}

impl Outbox {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            window: VecDeque::new(),
            first: 1,
            retained: 0,
            next: 1,
            writing: None,
            marker: None,
            progress: now,
            closed_until: None,
        }
    }

    /// Queues a message and gives its sequence number. The caller has asked for room before,
    /// except for the few messages that the reserve is for.
    pub(crate) fn push(&mut self, message: &FromSupervisor) -> Result<u64, Fatal> {
        let sequence = self.end();
        let frame = encode(sequence, message)?;
        self.retained += frame.len();
        self.window.push_back(Rc::new(frame));
        Ok(sequence)
    }

    /// Whether an `Output` with this payload fits.
    pub(crate) fn has_room_for_output(&self, payload: usize) -> bool {
        self.retained + payload + ENVELOPE_BYTES + RESERVE_BYTES <= WINDOW_BYTES
    }

    /// Whether any one message about artifacts fits.
    pub(crate) fn has_room_for_artifact(&self) -> bool {
        self.retained + MAX_PAYLOAD_BYTES + ENVELOPE_BYTES <= WINDOW_BYTES
    }

    /// When an acknowledgement last made room.
    pub(crate) fn progress(&self) -> Instant {
        self.progress
    }

    /// Forgets every frame up to this one.
    pub(crate) fn acknowledge(&mut self, sequence: u64, now: Instant) -> Result<(), Fatal> {
        if sequence >= self.end() {
            return Err(Fatal::Protocol(format!("frame {sequence} was never sent")));
        }
        while self.first <= sequence {
            let Some(frame) = self.window.pop_front() else {
                break;
            };
            self.retained -= frame.len();
            self.first += 1;
            self.progress = now;
        }
        self.next = self.next.max(self.first);
        Ok(())
    }

    /// Starts anew for a daemon that has everything up to `sequence`.
    pub(crate) fn resume(
        &mut self,
        sequence: u64,
        token: ResumeToken,
        now: Instant,
    ) -> Result<(), Fatal> {
        self.acknowledge(sequence, now)?;
        self.marker = Some(token);
        self.closed_until = None;
        Ok(())
    }

    /// Whether this frame was acknowledged.
    pub(crate) fn is_acknowledged(&self, sequence: u64) -> bool {
        sequence < self.first
    }

    /// Whether there is something to write and perhaps somebody to take it.
    pub(crate) fn wants_to_write(&self, now: Instant) -> bool {
        self.has_something() && self.closed_until.is_none_or(|until| now >= until)
    }

    /// When to try again although the output is not polled.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.closed_until.filter(|_| self.has_something())
    }

    /// Writes what is taken at once, within the bound of a turn.
    pub(crate) fn flush(&mut self, mut output: impl Write, now: Instant) -> Result<(), Fatal> {
        let mut written = 0;
        while written < PER_TURN && self.wants_to_write(now) {
            let Some((bytes, offset)) = self.current() else {
                break;
            };
            match output.write(&bytes[offset..]) {
                Ok(0) => break,
                Ok(count) => {
                    written += count;
                    self.closed_until = None;
                    let rest = offset + count < bytes.len();
                    self.writing = rest.then_some((bytes, offset + count));
                }
                Err(error) => {
                    self.writing = Some((bytes, offset));
                    match error.kind() {
                        io::ErrorKind::WouldBlock => break,
                        io::ErrorKind::Interrupted => {}
                        io::ErrorKind::BrokenPipe => self.closed_until = Some(now + RETRY),
                        _ => return Err(Fatal::Io("writing to the daemon", error)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes out what to write now.
    fn current(&mut self) -> Option<(Rc<Vec<u8>>, usize)> {
        if let Some(current) = self.writing.take() {
            return Some(current);
        }
        if let Some(token) = self.marker.take() {
            self.next = self.first;
            return Some((Rc::new(token.0.to_vec()), 0));
        }
        let index = usize::try_from(self.next - self.first).ok()?;
        let frame = self.window.get(index)?;
        self.next += 1;
        Some((Rc::clone(frame), 0))
    }

    fn has_something(&self) -> bool {
        self.writing.is_some() || self.marker.is_some() || self.next < self.end()
    }

    /// The sequence number after the last frame.
    fn end(&self) -> u64 {
        self.first + self.window.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fumehood_protocol::message::Done;

    const TOKEN: ResumeToken = ResumeToken([0xEE; 16]);

    fn message(files: u64) -> FromSupervisor {
        FromSupervisor::Done(Done {
            files,
            bytes: 0,
            skipped_unlisted: 0,
        })
    }

    fn outbox(messages: u64) -> (Outbox, Instant) {
        let now = Instant::now();
        let mut outbox = Outbox::new(now);
        for number in 1..=messages {
            assert_eq!(outbox.push(&message(number)).unwrap(), number);
        }
        (outbox, now)
    }

    /// Takes so many bytes and then no more.
    struct Taker(Vec<u8>, usize);

    impl Write for Taker {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.1);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.1 -= count;
            self.0.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn frames(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        numbers
            .into_iter()
            .flat_map(|number| encode(number, &message(number)).unwrap())
            .collect()
    }

    #[test]
    fn a_resumed_stream_finishes_its_frame_then_marks_and_repeats() {
        let (mut outbox, now) = outbox(4);
        let mut taker = Taker(Vec::new(), frames([1]).len() + 5);
        outbox.flush(&mut taker, now).unwrap();
        outbox.resume(1, TOKEN, now).unwrap();
        taker.1 = usize::MAX;
        outbox.flush(&mut taker, now).unwrap();
        assert_eq!(
            taker.0,
            [frames([1, 2]), TOKEN.0.to_vec(), frames([2, 3, 4])].concat()
        );
    }

    #[test]
    fn a_frame_acknowledged_while_it_is_repeated_is_finished_all_the_same() {
        let (mut outbox, now) = outbox(3);
        let mut taker = Taker(Vec::new(), usize::MAX);
        outbox.flush(&mut taker, now).unwrap();
        outbox.resume(0, TOKEN, now).unwrap();
        taker = Taker(Vec::new(), TOKEN.0.len() + 3);
        outbox.flush(&mut taker, now).unwrap();
        outbox.resume(2, TOKEN, now).unwrap();
        taker.1 = usize::MAX;
        outbox.flush(&mut taker, now).unwrap();
        let token = TOKEN.0.to_vec();
        assert_eq!(
            taker.0,
            [token.clone(), frames([1]), token, frames([3])].concat()
        );
    }

    #[test]
    fn acknowledged_frames_are_forgotten_and_unsent_ones_cannot_be() {
        let (mut outbox, now) = outbox(3);
        outbox.acknowledge(2, now).unwrap();
        assert!(outbox.is_acknowledged(2) && !outbox.is_acknowledged(3));
        assert_eq!(outbox.retained, frames([3]).len());
        assert!(matches!(
            outbox.acknowledge(4, now),
            Err(Fatal::Protocol(_))
        ));
        outbox.acknowledge(1, now).unwrap();
        outbox.acknowledge(3, now).unwrap();
        assert_eq!(outbox.retained, 0);
    }

    #[test]
    fn an_output_without_reader_is_left_alone_until_somebody_resumes() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut outbox, now) = outbox(1);
        outbox.flush(Closed, now).unwrap();
        assert!(!outbox.wants_to_write(now));
        assert!(outbox.wants_to_write(outbox.wake_at().unwrap()));
        outbox.resume(0, TOKEN, now).unwrap();
        assert!(outbox.wants_to_write(now));
    }
}
