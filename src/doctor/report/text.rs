//! The card for people, as wide as their terminal. Pure.

use std::fmt::Write as _;

use super::{Card, RuntimeCard};
use crate::doctor::controls::{Area, Score, Verdict, harmless, missing};
use crate::doctor::evaluation::ItemScore;

/// Whether text may have colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// For a terminal.
    On,
    /// For everything else.
    Off,
}

/// How the card is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether it may have colours.
    pub colour: Colour,
    /// The width in columns; beyond some bounds it is not followed.
    pub columns: usize,
}

/// Narrower than this no table can be read, and wider no line.
const COLUMNS: (usize, usize) = (72, 140);

/// Widths of the first and the last column.
const ROW: usize = 9;
const VERDICT: usize = 7;

/// Between the columns.
const GAP: &str = "  ";

/// What the letters beside the rows mean.
const LEGEND: &str =
    "M: mandatory; m: mandatory to report; S: of the strong tier, or where the host offers it";

/// Before a remedy.
const INDENT: usize = ROW + GAP.len();

/// Width of the benchmarks' names.
const SUITE: usize = 20;

/// The card.
#[must_use]
pub fn text(card: &Card, look: Look) -> String {
    let (least, most) = COLUMNS;
    let mut page = Page {
        text: String::new(),
        colour: look.colour,
        columns: look.columns.clamp(least, most),
    };
    let engine = &card.engine;
    let told = |text: &Option<String>| harmless(text.as_deref().unwrap_or("?"));
    page.paragraph(&format!(
        "fumehood {} on Docker Engine {} (runc {}, kernel {})",
        card.version,
        harmless(&engine.version),
        told(&engine.runc_version),
        told(&engine.kernel)
    ));
    page.table("Engine and host", &card.machine);
    for runtime in &card.runtimes {
        let title = format!("Sandboxes of {}", harmless(&runtime.runtime));
        page.table(&title, &runtime.controls);
        page.items(&runtime.evaluation);
    }
    page.line("");
    for runtime in &card.runtimes {
        page.summary(runtime);
    }
    page.paragraph(LEGEND);
    page.text
}

struct Page {
    text: String,
    colour: Colour,
    columns: usize,
}

impl Page {
    fn line(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{}", text.trim_end());
    }

    fn paragraph(&mut self, text: &str) {
        for part in wrap(text, self.columns) {
            self.line(&part);
        }
    }

    fn painted(&self, text: &str, code: &str) -> String {
        match self.colour {
            Colour::On => format!("\x1b[{code}m{text}\x1b[0m"),
            Colour::Off => text.to_owned(),
        }
    }

    /// Widths of row, control, expected, seen and verdict.
    fn widths(&self) -> [usize; 5] {
        let free = self.columns - ROW - VERDICT - 4 * GAP.len();
        let (control, expected) = (free * 30 / 100, free * 33 / 100);
        [ROW, control, expected, free - control - expected, VERDICT]
    }

    fn table(&mut self, title: &str, scores: &[Score]) {
        let title = self.painted(title, "1");
        self.line("");
        self.line(&title);
        let mut scores: Vec<&Score> = scores.iter().collect();
        // Stable: within an area as in its table.
        scores.sort_by_key(|score| score.area);
        let mut area: Option<Area> = None;
        for score in scores {
            if area != Some(score.area) {
                area = Some(score.area);
                let title = self.painted(score.area.title(), "1");
                self.line("");
                self.line(&format!("  {title}"));
                let heading = ["row", "control", "expected", "seen", "verdict"];
                self.row(&heading.map(str::to_owned), "2");
            }
            self.score(score);
        }
    }

    fn score(&mut self, score: &Score) {
        let cells = [
            format!("{} {}", score.number, score.mark.letter()),
            score.control.to_owned(),
            score.expected.to_owned(),
            score.seen.clone(),
            score.verdict.word().to_owned(),
        ];
        self.row(&cells, code(score.verdict));
        if let Some(remedy) = score.remedy {
            for part in wrap(remedy, self.columns - INDENT - 2) {
                self.line(&format!("{:INDENT$}> {part}", ""));
            }
        }
    }

    /// One line of the table, or as many as its longest cell needs; its last cell is painted.
    fn row(&mut self, cells: &[String; 5], code: &str) {
        let widths = self.widths();
        let wrapped: Vec<Vec<String>> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| wrap(cell, width))
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or_default();
        for index in 0..height {
            let part = |column: usize| wrapped[column].get(index).map_or("", String::as_str);
            let mut line = String::new();
            for (column, width) in widths.into_iter().enumerate().take(4) {
                let _ = write!(line, "{:width$}{GAP}", part(column));
            }
            match part(4) {
                "" => {}
                last => line.push_str(&self.painted(last, code)),
            }
            self.line(&line);
        }
    }

    fn items(&mut self, scores: &[ItemScore]) {
        let title = self.painted("Benchmarks, told by the rows above", "1");
        self.line("");
        self.line(&format!("  {title}"));
        let mut suites: Vec<&str> = scores.iter().map(|score| score.suite).collect();
        suites.dedup();
        for suite in suites {
            let told = told(scores, suite);
            let parts = wrap(&told, self.columns - SUITE - 4);
            for (index, part) in parts.into_iter().enumerate() {
                let name = if index == 0 { suite } else { "" };
                self.line(&format!("  {name:SUITE$}  {part}"));
            }
        }
    }

    fn summary(&mut self, runtime: &RuntimeCard) {
        let count = |wanted: Verdict| {
            let those = runtime.controls.iter();
            those.filter(|score| score.verdict == wanted).count()
        };
        let failing: Vec<String> = missing(&runtime.controls)
            .map(|score| format!("row {} ({})", score.number, score.control))
            .collect();
        let (verdict, words) = if failing.is_empty() {
            (Verdict::Pass, "every mandatory control holds".to_owned())
        } else {
            (Verdict::Fail, format!("missing: {}", failing.join(", ")))
        };
        let name = harmless(&runtime.runtime);
        for part in wrap(&format!("{name}: {words}"), self.columns) {
            let line = self.painted(&part, code(verdict));
            self.line(&line);
        }
        let counts = format!(
            "{} pass, {} fail, {} warnings, {} differ by runtime, {} not available",
            count(Verdict::Pass),
            count(Verdict::Fail),
            count(Verdict::Warning),
            count(Verdict::Differs),
            count(Verdict::NotAvailable)
        );
        self.line(&format!("  {counts}"));
    }
}

/// How many items of a benchmark hold, and which do not.
fn told(scores: &[ItemScore], suite: &str) -> String {
    let of_suite: Vec<&ItemScore> = scores.iter().filter(|s| s.suite == suite).collect();
    let holds = |score: &&&ItemScore| match score.verdict {
        Some(Verdict::Pass | Verdict::Differs) => true,
        Some(Verdict::Fail | Verdict::Warning | Verdict::NotAvailable) | None => false,
    };
    let others: Vec<String> = of_suite
        .iter()
        .filter(|score| !holds(score))
        .map(|score| {
            let word = score.verdict.map_or("not judged", Verdict::word);
            format!("{} {word}", score.item)
        })
        .collect();
    let held = of_suite.len() - others.len();
    let rest = if others.is_empty() {
        String::new()
    } else {
        format!("; {}", others.join(", "))
    };
    format!("{held} of {}{rest}", of_suite.len())
}

fn code(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "32",
        Verdict::Fail => "1;31",
        Verdict::Warning => "33",
        Verdict::Differs => "36",
        Verdict::NotAvailable => "2",
    }
}

/// Words in lines of at most `width` characters, which is not 0; a longer word is cut into pieces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        for (index, piece) in pieces(word, width).into_iter().enumerate() {
            let used = lines.last().map_or(0, |line| line.chars().count());
            let fits = index == 0 && used > 0 && used + 1 + piece.chars().count() <= width;
            match lines.last_mut() {
                Some(line) if fits => {
                    line.push(' ');
                    line.push_str(&piece);
                }
                Some(line) if used == 0 => line.push_str(&piece),
                Some(_) | None => lines.push(piece),
            }
        }
    }
    lines
}

/// A word in pieces of at most `width` characters, cut after a sign if there is one.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let mut rest: Vec<char> = word.chars().collect();
    let mut pieces = Vec::new();
    while rest.len() > width {
        let is_sign = |c: &char| matches!(c, '_' | '.' | ',' | '-' | '/' | ':');
        let sign = rest[..width].iter().rposition(is_sign);
        // Not a piece of one or two characters.
        let end = sign.map_or(width, |at| at + 1);
        let tail = rest.split_off(if end < 3 { width } else { end });
        pieces.push(rest.into_iter().collect());
        rest = tail;
    }
    pieces.push(rest.into_iter().collect());
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::tests::card;
    use super::*;

    const PIPE: Look = Look {
        colour: Colour::Off,
        columns: 100,
    };

    #[test]
    fn a_card_is_as_wide_as_its_terminal_and_speaks_to_none() {
        for columns in [72, 80, 100, 120] {
            for spoil in [false, true] {
                let text = text(&card(spoil), Look { columns, ..PIPE });
                for line in text.lines() {
                    assert!(line.chars().count() <= columns, "{columns}: {line}");
                    assert!(!line.contains('\x1b'), "{line}");
                }
            }
        }
        for (columns, as_if) in [(0, 72), (10_000, 140)] {
            let [one, other] = [columns, as_if].map(|columns| {
                let look = Look { columns, ..PIPE };
                text(&card(true), look)
            });
            assert_eq!(one, other);
        }
        let colour = Colour::On;
        let coloured = text(&card(true), Look { colour, ..PIPE });
        assert!(coloured.contains("\x1b[1;31mFAIL\x1b[0m"));
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy_and_nothing_else_is() {
        let good = text(&card(false), PIPE);
        let words = "runc: every mandatory control holds";
        assert!(good.contains(words), "{good}");
        assert!(!good.contains("FAIL"));
        let text = text(&card(true), PIPE);
        for words in [
            "runc: missing: row 5 (no new privileges), row 6 (no devices)",
            "> The engine did not do what it was asked for",
            "5.26 FAIL",
            "runsc: every mandatory control holds",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn words_are_wrapped_and_long_ones_cut_after_a_sign() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij kl", 4), ["abcd", "efgh", "ij", "kl"]);
        assert_eq!(wrap("x one_two.three", 9), ["x", "one_two.", "three"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
