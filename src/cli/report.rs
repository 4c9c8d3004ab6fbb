//! What people see: every line that the program prints besides its log.

use std::error::Error;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use super::exit;
use crate::sandbox::EngineError;
use crate::telemetry::Chain;

/// Prints to standard output.
///
/// # Errors
///
/// Not all of it could be written.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Prints what a command is called for; gives its exit code, which is another one if that is lost. A
/// reader that went away has had enough.
pub(super) fn product(text: &str, code: ExitCode) -> ExitCode {
    print(text).map_or_else(|error| unwritten(&error, code), |()| code)
}

/// The exit code of a command that would have ended with `code`, but whose output was lost.
pub(super) fn unwritten(error: &io::Error, code: ExitCode) -> ExitCode {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return code;
    }
    failure(&format!("the output could not be written whole: {error}"));
    ExitCode::from(exit::OUTPUT)
}

/// Prints a line to standard error.
pub(super) fn note(text: &str) {
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{text}");
}

/// Prints an error with its sources to standard error.
pub(super) fn error(error: &dyn Error) {
    failure(&Chain(error).to_string());
}

/// Prints what is wrong to standard error.
pub(super) fn failure(text: &str) {
    let words = harmless(text.as_bytes());
    note(&format!("{} {words}", paint("error:", "1;31")));
}

/// Prints what keeps the engine from being used, and where it was looked for.
pub(super) fn engine_error(error: &EngineError, host: &str) {
    note(&format!("{} {error}", paint("error:", "1;31")));
    note(&format!(
        "  (the engine was asked at {host}; set engine.host or DOCKER_HOST if it is elsewhere)"
    ));
    if let Some(source) = error.source() {
        let words = harmless(Chain(source).to_string().as_bytes());
        note(&format!("  {words}"));
    }
}

/// Text in a colour, where standard error is a terminal.
pub(super) fn paint(text: &str, colour: &str) -> String {
    if io::stderr().is_terminal() {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// The width of the terminal that standard output is.
pub(super) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// A number of bytes for people.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut tenths = count * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10 * 1024 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Removes what could change a terminal from text of a sandbox, tabs and line ends aside.
pub(super) fn harmless(bytes: &[u8]) -> String {
    let is_kept = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    String::from_utf8_lossy(bytes)
        .chars()
        .map(|c| if is_kept(c) { c } else { '\u{fffd}' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (3 << 30, "3.0 GiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn a_program_cannot_speak_to_the_terminal() {
        assert_eq!(
            harmless(b"a\x1b[31m\x07\tb\n"),
            "a\u{fffd}[31m\u{fffd}\tb\n"
        );
    }
}
