//! What the engine and `mmdebstrap` say while they work, made into clean, bounded lines.
//!
//! Owns the way from raw chunks to [`Progress`]. Decides nothing about success.

use super::Progress;

/// Longer lines are cut: nobody reads further, and a line must not grow without bound.
const MAX_LINE_BYTES: usize = 2048;
/// How many image ids of a build are remembered, far more than a recipe has steps.
const MAX_LAYERS: usize = 256;

/// Joins chunks to lines and passes them on.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pending: Vec<u8>,
    layers: Vec<String>,
}

impl Lines {
    /// Takes a chunk, which may end in the middle of a line.
    pub(super) fn push(&mut self, chunk: &[u8], progress: &mut dyn Progress) {
        for &byte in chunk {
            if byte == b'\n' || byte == b'\r' {
                self.finish(progress);
            } else if self.pending.len() < MAX_LINE_BYTES {
                self.pending.push(byte);
            }
        }
    }

    /// Passes on what is left of an unfinished line.
    pub(super) fn finish(&mut self, progress: &mut dyn Progress) {
        let line = printable(&String::from_utf8_lossy(&self.pending));
        self.pending.clear();
        let line = line.trim();
        if let Some(step) = build_step(line) {
            progress.step(step);
        } else if let Some(id) = line.strip_prefix("---> ").filter(|id| is_image_id(id)) {
            if self.layers.len() < MAX_LAYERS {
                self.layers.push(id.to_owned());
            }
        } else if !line.is_empty() && !is_bookkeeping(line) {
            progress.detail(line);
        }
    }

    /// The ids of the images that the build has named so far, oldest first.
    pub(super) fn layers(&self) -> &[String] {
        &self.layers
    }
}

/// `Step 3/11 : RUN x` is a step; its text is what follows the colon.
fn build_step(line: &str) -> Option<&str> {
    let (number, text) = line.strip_prefix("Step ")?.split_once(" : ")?;
    let counts = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'/');
    counts.then_some(text)
}

/// What the builder says about its own containers and cache.
fn is_bookkeeping(line: &str) -> bool {
    line.starts_with("--->") || line.starts_with("Removing intermediate container ")
}

fn is_image_id(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Takes colour sequences and other control characters out: the text goes to a terminal.
fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // A sequence ends with its first character from '@' to '~'.
            characters
                .by_ref()
                .find(|character| ('@'..='~').contains(character));
        } else if character == '\t' {
            clean.push(' ');
        } else if !character.is_control() {
            clean.push(character);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorder(Vec<(&'static str, String)>);

    impl Progress for Recorder {
        fn step(&mut self, text: &str) {
            self.0.push(("step", text.to_owned()));
        }

        fn detail(&mut self, line: &str) {
            self.0.push(("detail", line.to_owned()));
        }
    }

    fn run(chunks: &[&[u8]]) -> (Vec<(&'static str, String)>, Vec<String>) {
        let mut recorder = Recorder::default();
        let mut lines = Lines::default();
        for chunk in chunks {
            lines.push(chunk, &mut recorder);
        }
        lines.finish(&mut recorder);
        (recorder.0, lines.layers)
    }

    #[test]
    fn steps_details_and_layers_are_told_apart() {
        let (seen, layers) = run(&[
            b"Step 4/11 : RUN sh /build/install-packages.sh\n",
            b" ---> Running in 4101fa786d14\n ---> a2ac78360a4d\n",
            b"Step aside : no step\n",
        ]);
        assert_eq!(
            seen,
            [
                ("step", "RUN sh /build/install-packages.sh".to_owned()),
                ("detail", "Step aside : no step".to_owned()),
            ]
        );
        assert_eq!(layers, ["a2ac78360a4d"]);
    }

    #[test]
    fn lines_are_joined_over_chunks_and_split_at_either_line_end() {
        let (seen, _) = run(&[b"Down", b"loading\r50%\r\n", b"\n100%"]);
        let texts: Vec<_> = seen.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["Downloading", "50%", "100%"]);
    }

    #[test]
    fn control_sequences_do_not_reach_the_terminal() {
        let (seen, _) = run(&["\u{1b}[91mred\u{1b}[0m\u{7}\ttext\u{9b}2J\n".as_bytes()]);
        assert_eq!(seen, [("detail", "red text2J".to_owned())]);
    }

    #[test]
    fn a_flood_without_line_ends_stays_bounded() {
        let chunk = vec![b'x'; MAX_LINE_BYTES];
        let (seen, _) = run(&[&chunk, &chunk, &chunk]);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].1.len(), MAX_LINE_BYTES);
    }

    #[test]
    fn text_that_is_not_utf8_is_shown_all_the_same() {
        let (seen, _) = run(&[b"caf\xe9\n"]);
        assert_eq!(seen, [("detail", "caf\u{fffd}".to_owned())]);
    }
}
