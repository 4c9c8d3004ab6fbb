//! The profile of a data set: what a script in a sandbox printed, read within caps.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Longer texts are no profile.
const MAX_BYTES: usize = 64 << 10;
const MAX_FILES: usize = 200;
const MAX_COLUMNS: usize = 200;
const MAX_LIBRARIES: usize = 32;
const MAX_EXAMPLES: usize = 4;
/// Characters of a name, and of an example.
const MAX_NAME: usize = 480;
/// Characters of the beginning of a text.
const MAX_HEAD: usize = 800;

/// What is known of a data set.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its files, by path.
    pub files: Vec<FileProfile>,
    /// How many there are.
    pub files_total: u64,
    /// Whether everything was looked at.
    pub complete: bool,
    /// Versions of the libraries that the image holds, by the name they are imported by.
    pub libraries: BTreeMap<String, String>,
}

/// A file of a data set.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProfile {
    /// Relative to the data set.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What is in it, if it is a table.
    #[serde(default)]
    pub table: Option<Table>,
    /// How it begins, if it is a text.
    #[serde(default)]
    pub head: Option<String>,
    /// Why it could not be read.
    #[serde(default)]
    pub problem: Option<String>,
}

/// A file of rows and columns.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Rows that were looked at.
    pub rows: u64,
    /// Rows with more or fewer cells than there are columns.
    pub ragged_rows: u64,
    /// Whether these were all.
    pub complete: bool,
    /// What is between two cells.
    pub delimiter: String,
    /// How many columns there are.
    pub columns_total: u64,
    /// The columns, in order.
    pub columns: Vec<Column>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What its cells are.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Cells that say nothing.
    pub missing: u64,
    /// Different values, as far as they were told apart.
    pub distinct: u64,
    /// Whether all were.
    pub distinct_complete: bool,
    /// Some of them.
    pub examples: Vec<String>,
    /// The least number.
    #[serde(default)]
    pub min: Option<f64>,
    /// The greatest.
    #[serde(default)]
    pub max: Option<f64>,
}

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Whole numbers.
    Int,
    /// Numbers.
    Float,
    /// Yes or no.
    Bool,
    /// Days or times.
    Date,
    /// Anything else.
    Text,
    /// Nothing.
    Empty,
}

impl Kind {
    /// As the script writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Float => "float",
            Self::Bool => "bool",
            Self::Date => "date",
            Self::Text => "text",
            Self::Empty => "empty",
        }
    }
}

impl Profile {
    /// Reads what the script printed. Nothing in it is trusted: it is cut to its caps, and freed of
    /// characters that do something to whoever shows them.
    ///
    /// # Errors
    ///
    /// Why it is no profile, for clients.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        if text.len() > MAX_BYTES {
            return Err("what the script says of it is too long");
        }
        // The parser refuses deep nesting.
        let mut profile: Self =
            serde_json::from_str(text).map_err(|_| "what the script says of it is no profile")?;
        profile.files.truncate(MAX_FILES);
        for file in &mut profile.files {
            tidy(&mut file.path, MAX_NAME);
            if let Some(problem) = &mut file.problem {
                tidy(problem, MAX_NAME);
            }
            if let Some(head) = &mut file.head {
                tidy_lines(head);
            }
            if let Some(table) = &mut file.table {
                tidy(&mut table.delimiter, 1);
                table.columns.truncate(MAX_COLUMNS);
                for column in &mut table.columns {
                    tidy(&mut column.name, MAX_NAME);
                    column.examples.truncate(MAX_EXAMPLES);
                    for example in &mut column.examples {
                        tidy(example, MAX_NAME);
                    }
                }
            }
        }
        while profile.libraries.len() > MAX_LIBRARIES {
            profile.libraries.pop_last();
        }
        for version in profile.libraries.values_mut() {
            tidy(version, 40);
        }
        Ok(profile)
    }

    /// The tables, by path.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        let files = self.files.iter();
        files.filter_map(|file| Some((file.path.as_str(), file.table.as_ref()?)))
    }

    /// The table to learn from: one that is called so, else the one with the most rows that is for
    /// nothing else.
    #[must_use]
    pub fn training_table(&self) -> Option<(&str, &Table)> {
        let named = self
            .tables()
            .find(|(path, _)| is_called(path, &["train", "training"]));
        named.or_else(|| {
            let others = self.tables().filter(|(path, _)| !is_held_out(path));
            // Of equals the first one.
            others
                .rev_max_by_rows()
                .or_else(|| self.tables().rev_max_by_rows())
        })
    }

    /// The table to predict, if there is one besides the one to learn from.
    #[must_use]
    pub fn held_out_table(&self) -> Option<(&str, &Table)> {
        let (training, _) = self.training_table()?;
        let mut tables = self.tables();
        tables.find(|(path, _)| {
            *path != training && is_called(path, &["test", "predict", "unlabelled"])
        })
    }
}

/// The one with the most rows, of equals the first.
trait ByRows<'a>: Iterator<Item = (&'a str, &'a Table)> + Sized {
    fn rev_max_by_rows(self) -> Option<(&'a str, &'a Table)> {
        self.reduce(|best, next| {
            if next.1.rows > best.1.rows {
                next
            } else {
                best
            }
        })
    }
}

impl<'a, I: Iterator<Item = (&'a str, &'a Table)>> ByRows<'a> for I {}

fn is_held_out(path: &str) -> bool {
    is_called(
        path,
        &[
            "test",
            "predict",
            "submission",
            "sample",
            "unlabelled",
            "labels",
        ],
    )
}

/// Whether one of the words is in a file's name.
fn is_called(path: &str, words: &[&str]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let mut parts = name.split(|c: char| !c.is_alphanumeric());
    parts.any(|part| words.contains(&part))
}

fn tidy(text: &mut String, characters: usize) {
    let kept = |c: &char| !c.is_control() && !is_deceptive(*c);
    *text = text.chars().filter(kept).take(characters).collect();
}

fn tidy_lines(text: &mut String) {
    let kept = |c: &char| *c == '\n' || (!c.is_control() && !is_deceptive(*c));
    *text = text.chars().filter(kept).take(MAX_HEAD).collect();
}

/// Characters that change the order in which others are shown, or show nothing.
fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A column of a profile, as the script prints it.
    pub(crate) fn column(name: &str, kind: &str, distinct: u64) -> Value {
        json!({"name": name, "type": kind, "missing": 0, "distinct": distinct,
            "distinct_complete": distinct < 50, "examples": ["0"]})
    }

    /// A file with a table, as the script prints it.
    pub(crate) fn table(path: &str, rows: u64, columns: &[Value]) -> Value {
        json!({"path": path, "bytes": 10, "table": {"rows": rows, "ragged_rows": 0, "complete": true,
            "delimiter": ",", "columns_total": columns.len(), "columns": columns}})
    }

    /// What the script prints of these files.
    pub(crate) fn printed(files: &[Value]) -> String {
        json!({"files": files, "files_total": files.len(), "complete": true,
            "libraries": {"sklearn": "1.7.0", "pandas": "2.3.0"}})
        .to_string()
    }

    pub(crate) fn profile(files: &[Value]) -> Profile {
        Profile::read(&printed(files)).unwrap()
    }

    fn training(names: &[(&str, u64)]) -> Option<String> {
        let files: Vec<Value> = names
            .iter()
            .map(|(path, rows)| table(path, *rows, &[]))
            .collect();
        let profile = profile(&files);
        profile.training_table().map(|(path, _)| path.to_owned())
    }

    #[test]
    fn the_table_to_learn_from_is_found() {
        type Case<'a> = (&'a [(&'a str, u64)], Option<&'a str>);
        let cases: [Case<'_>; 7] = [
            (&[("test.csv", 9), ("train.csv", 5)], Some("train.csv")),
            (
                &[("a/my-train.csv", 1), ("z.csv", 5)],
                Some("a/my-train.csv"),
            ),
            (&[("trained_models.csv", 1), ("z.csv", 5)], Some("z.csv")),
            (
                &[("a.csv", 5), ("b.csv", 5), ("sample_submission.csv", 9)],
                Some("a.csv"),
            ),
            (&[("a.csv", 5), ("b.csv", 6)], Some("b.csv")),
            (&[("test.csv", 5)], Some("test.csv")),
            (&[], None),
        ];
        for (names, expected) in cases {
            assert_eq!(training(names).as_deref(), expected, "{names:?}");
        }
    }

    #[test]
    fn the_table_to_predict_is_another_one() {
        let both = profile(&[table("test.csv", 2, &[]), table("train.csv", 5, &[])]);
        assert_eq!(both.held_out_table().unwrap().0, "test.csv");
        let only = profile(&[table("test.csv", 2, &[])]);
        assert_eq!(only.held_out_table(), None);
    }

    #[test]
    fn a_hostile_print_is_cut_to_its_caps_or_refused() {
        for text in ["", "[]", "{}", r#"{"files": 1}"#, "\u{0}", "NaN"] {
            assert!(Profile::read(text).is_err(), "{text}");
        }
        let deep = "[".repeat(60_000);
        assert!(Profile::read(&deep).is_err());
        let long = " ".repeat(MAX_BYTES + 1);
        assert!(Profile::read(&long).is_err());
        let mut unknown: Value = serde_json::from_str(&printed(&[])).unwrap();
        unknown["more"] = json!(1);
        assert!(Profile::read(&unknown.to_string()).is_err());

        let wide: Vec<Value> = (0..400)
            .map(|n| column(&format!("c{n}"), "int", 2))
            .collect();
        let files = [table("a\u{202e}\u{1b}[31m.csv", 1, &wide)];
        let cut = profile(&files);
        assert_eq!(cut.files[0].path, "a[31m.csv");
        assert_eq!(
            cut.files[0].table.as_ref().unwrap().columns.len(),
            MAX_COLUMNS
        );
        let many: Vec<Value> = (0..300).map(|n| table(&n.to_string(), 1, &[])).collect();
        assert_eq!(profile(&many).files.len(), MAX_FILES);
    }
}
