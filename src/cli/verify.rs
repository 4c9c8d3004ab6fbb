//! `fumehood verify`: receipts, their place in the chain and the files that belong to them, offline.
//! Needs neither daemon, engine nor configuration.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::report;
use crate::receipt::Receipt;
use crate::receipt::artifacts;
use crate::receipt::audit::{Audit, Known};
use crate::receipt::key::PublicKey;
use crate::receipt::verify::MAX_RECEIPT_BYTES;

/// Something is wrong with what was checked.
const EXIT_WRONG: u8 = 1;

/// What was to be checked cannot be read; what clap gives for wrong arguments, too.
const EXIT_USAGE: u8 = 2;

/// Differences that are named one by one.
const MAX_NAMED: usize = 100;

/// Check receipts, their chain and the files that belong to them, offline
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if everything that was asked for is as it should be; 1 if something \
    differs, which is named; 2 if it could not be checked.\n\nWithout --key a receipt is checked with \
    the key that it names itself, which everybody can make: compare it with what `fumehood receipt \
    key` prints where the receipt was made, or give that key."
)]
pub(super) struct Verify {
    /// File with a receipt, as GET /runs/{id}/receipt gave it, or with several that follow each
    /// other, one a line, as `fumehood receipt export` gives them
    receipt: PathBuf,
    /// Directory with the artifacts of the execution that the receipt is about
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// Public key that has to have signed each; several if the daemon's was replaced
    #[arg(long, value_name = "PUBLIC_KEY")]
    key: Vec<PublicKey>,
    /// File with the receipt before the first one
    #[arg(long, value_name = "RECEIPT")]
    previous: Option<PathBuf>,
    /// File with a receipt that was kept elsewhere and has to be among them
    #[arg(long, value_name = "RECEIPT")]
    kept: Option<PathBuf>,
}

/// What was checked: what is good, in words, and what is wrong.
#[derive(Debug, Default)]
struct Findings {
    good: String,
    problems: Vec<String>,
    /// Further problems, which are only counted.
    unnamed: usize,
    /// Not everything was looked at.
    cut_short: bool,
}

impl Findings {
    fn good(&mut self, words: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.good, "  {words}");
    }

    /// Notes problems with `of` before each; tells whether there were any.
    fn wrong<P: ToString>(&mut self, of: &str, problems: impl IntoIterator<Item = P>) -> bool {
        let mut any = false;
        for problem in problems {
            any = true;
            if self.problems.len() < MAX_NAMED {
                self.problems.push(format!("{of}{}", problem.to_string()));
            } else {
                self.unnamed += 1;
            }
        }
        any
    }

    fn show(&self) -> ExitCode {
        let code = if self.problems.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_WRONG)
        };
        let code = report::product(&self.good, code);
        for problem in &self.problems {
            report::failure(problem);
        }
        if self.unnamed > 0 {
            report::failure(&format!("{} more differences", self.unnamed));
        }
        if self.cut_short {
            report::failure("what comes after that was not looked at");
        }
        code
    }
}

impl Verify {
    pub(super) fn execute(self) -> ExitCode {
        match self.check() {
            Ok(findings) => findings.show(),
            Err(Unreadable { path, source }) => {
                report::failure(&format!("{} cannot be read: {source}", path.display()));
                ExitCode::from(EXIT_USAGE)
            }
        }
    }

    fn check(&self) -> Result<Findings, Unreadable> {
        let mut findings = Findings::default();
        let known = Known {
            keys: self.key.clone(),
            previous: other(
                self.previous.as_deref(),
                "the receipt before: ",
                &mut findings,
            )?,
            kept: other(self.kept.as_deref(), "the kept receipt: ", &mut findings)?,
        };
        let mut audit = Audit::new(known);
        let count = self.read_all(&mut audit, &mut findings)?;
        if !findings.cut_short {
            findings.wrong("", audit.end());
        }
        let Some(last) = audit.last() else {
            return Ok(findings);
        };
        findings.good = self.about(&audit, last, findings.problems.is_empty());
        if let Some(directory) = &self.artifacts {
            if count > 1 {
                let words =
                    format!("{count} receipts are in it: --artifacts needs a file with one");
                return Err(unreadable(&self.receipt, io::Error::other(words)));
            }
            let compared = artifacts::compare(last, directory);
            let problems = compared.map_err(|source| unreadable(directory, source))?;
            if !findings.wrong("", problems) {
                let files = last.artifacts().len();
                let all =
                    format!("artifacts: all {files} are as they were recorded, and no others");
                findings.good(&all);
            }
        }
        Ok(findings)
    }

    /// Has every line audited; tells how many there are.
    fn read_all(&self, audit: &mut Audit, findings: &mut Findings) -> Result<u64, Unreadable> {
        let failed = |source| unreadable(&self.receipt, source);
        let mut file = BufReader::new(File::open(&self.receipt).map_err(failed)?);
        let (mut line, mut count) = (Vec::new(), 0u64);
        // Even an empty file is said to hold no receipt.
        while read_line(&mut file, &mut line).map_err(failed)? || count == 0 {
            count += 1;
            let problems = audit.add(&line);
            let of = match count {
                1 => String::new(),
                line => format!("line {line}: "),
            };
            findings.wrong(&of, problems);
            if findings.problems.len() == MAX_NAMED {
                // Whatever comes now makes nothing better, and may never end.
                findings.cut_short = true;
                break;
            }
        }
        Ok(count)
    }

    /// What the receipts are about and, if nothing is wrong with them, what is good about them.
    fn about(&self, audit: &Audit, last: &Receipt, sound: bool) -> String {
        let (first, number) = (audit.first().unwrap_or_default(), last.number());
        let instance = last.instance().escape_debug();
        let subject = if first == number {
            format!(
                "Receipt {number} of the daemon {instance}: execution {} of run {} ended with {}.\n",
                last.execution().escape_debug(),
                last.run().escape_debug(),
                last.status().escape_debug(),
            )
        } else {
            format!("Receipts {first} to {number} of the daemon {instance}.\n")
        };
        if !sound {
            return subject;
        }
        let mut about = Findings {
            good: subject,
            ..Findings::default()
        };
        let key = last.key();
        about.good(&match self.key.len() {
            0 => format!(
                "signature: by the key that it names, {key}; whose that is nobody has told (see --key)"
            ),
            1 => format!("signature: by the given key, {key}"),
            _ => "signature: by the given keys".to_owned(),
        });
        if first < number {
            about.good("chain: each follows the one before");
        }
        if self.previous.is_some() {
            about.good(&format!(
                "chain: it follows receipt {}",
                first.saturating_sub(1)
            ));
        } else if first > 1 {
            about.good("chain: the receipt before was not given (see --previous)");
        }
        if self.kept.is_some() {
            about.good("chain: the receipt that was kept is part of it");
        }
        about.good
    }
}

/// Another receipt that was named, if it is one.
fn other(
    path: Option<&Path>,
    of: &str,
    findings: &mut Findings,
) -> Result<Option<Receipt>, Unreadable> {
    let Some(path) = path else {
        return Ok(None);
    };
    let reading = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(path)?;
        file.take(MAX_RECEIPT_BYTES + 1).read_to_end(&mut bytes)?;
        within_bounds(&bytes)?;
        Ok(bytes)
    };
    let bytes = reading().map_err(|source| unreadable(path, source))?;
    match Receipt::open(&bytes) {
        Ok(receipt) => Ok(Some(receipt)),
        Err(problem) => {
            findings.wrong(of, [problem]);
            Ok(None)
        }
    }
}

/// The next line with its end, in place of the last one; `false` if there is none.
fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut bounded = file.take(MAX_RECEIPT_BYTES + 1);
    let read = bounded.read_until(b'\n', line)?;
    within_bounds(line)?;
    Ok(read > 0)
}

fn within_bounds(text: &[u8]) -> io::Result<()> {
    if text.len() as u64 <= MAX_RECEIPT_BYTES {
        return Ok(());
    }
    let words = format!(
        "it is longer than a receipt can be ({})",
        report::bytes(MAX_RECEIPT_BYTES)
    );
    Err(io::Error::other(words))
}

/// Something that was to be checked and cannot be read.
#[derive(Debug)]
struct Unreadable {
    path: PathBuf,
    source: io::Error,
}

fn unreadable(path: &Path, source: io::Error) -> Unreadable {
    Unreadable {
        path: path.to_owned(),
        source,
    }
}
