//! What is to be predicted and how it is measured: pure functions of instruction and profile.

use super::profile::{Column, Kind, Profile, Table};
use crate::runs::task::TaskSummary;

/// Whole numbers with more different values are a quantity, not a class.
const MAX_CLASSES: u64 = 20;

/// Files that a task names.
const MAX_NAMED_FILES: usize = 50;

/// Names that a target often has, the most telling first.
const USUAL_TARGETS: [&str; 13] = [
    "target",
    "label",
    "labels",
    "class",
    "y",
    "outcome",
    "response",
    "category",
    "diagnosis",
    "species",
    "survived",
    "churn",
    "price",
];

/// Words before the name of a target.
const INTRODUCTIONS: [&str; 11] = [
    "predict",
    "predicting",
    "classify",
    "forecast",
    "estimate",
    "target",
    "label",
    "regress",
    "column",
    "outcome",
    "model",
];

/// How a task is called in the interface.
const CLASSIFICATION: &str = "classification";
const REGRESSION: &str = "regression";
const CLUSTERING: &str = "clustering";
const UNKNOWN: &str = "unknown";

/// Words of an instruction that say what kind of task it is.
const KIND_WORDS: [(&str, &[&str]); 3] = [
    (
        CLUSTERING,
        &[
            "cluster",
            "clusters",
            "clustering",
            "segment",
            "segmentation",
        ],
    ),
    (
        REGRESSION,
        &[
            "regression",
            "regress",
            "regressor",
            "forecast",
            "rmse",
            "mae",
        ],
    ),
    (
        CLASSIFICATION,
        &[
            "classification",
            "classify",
            "classifier",
            "accuracy",
            "f1",
            "auc",
        ],
    ),
];

/// Metrics, with the words that ask for them.
const METRICS: [(&str, &str, &[&str]); 9] = [
    ("f1", CLASSIFICATION, &["f1", "f1-score", "f1 score"]),
    (
        "roc_auc",
        CLASSIFICATION,
        &["auc", "roc", "roc_auc", "roc-auc"],
    ),
    (
        "log_loss",
        CLASSIFICATION,
        &["log loss", "log_loss", "logloss"],
    ),
    ("accuracy", CLASSIFICATION, &["accuracy"]),
    ("rmse", REGRESSION, &["rmse", "root mean squared error"]),
    ("mae", REGRESSION, &["mae", "mean absolute error"]),
    ("r2", REGRESSION, &["r2", "r^2", "r-squared"]),
    ("mse", REGRESSION, &["mse", "mean squared error"]),
    ("silhouette", CLUSTERING, &["silhouette"]),
];

/// Decides what a run is about.
#[must_use]
pub fn choose(instruction: Option<&str>, profile: &Profile) -> TaskSummary {
    let instruction = instruction.map(str::trim).filter(|text| !text.is_empty());
    let training = profile.training_table();
    let table = training.map(|(_, table)| table);
    let said = instruction.and_then(kind_that_is_said);
    let target = match (said, table) {
        (Some(CLUSTERING), _) | (_, None) => None,
        (_, Some(table)) => target(instruction, table, profile.held_out_table().map(|(_, t)| t)),
    };
    let column = target.as_ref().and_then(|(name, _)| table?.column(name));
    let task_type = said.unwrap_or_else(|| column.map_or(UNKNOWN, kind_of_target));
    let target_column = target.as_ref().map(|(name, _)| name.clone());
    let metric = metric(instruction, task_type);
    let objective = match (instruction, &target_column) {
        (Some(text), _) => text.to_owned(),
        (None, Some(target)) => format!("Predict the column {target} ({task_type})."),
        (None, None) => "Find out what the data set is good for and model it.".to_owned(),
    };
    let why_target = target.map_or_else(
        || "No column to predict was found.".to_owned(),
        |(name, why)| format!("The target is {name}: {why}."),
    );
    let why_kind = match (said, column) {
        (Some(kind), _) => format!("The instruction speaks of {kind}."),
        (None, Some(column)) => format!("It is taken for {task_type}: {}.", described(column)),
        (None, None) => "The kind of the task is not known.".to_owned(),
    };
    TaskSummary {
        objective,
        task_type: task_type.to_owned(),
        target_column,
        input_data_files: data_files(profile),
        output_requirements: OUTPUT_REQUIREMENTS.to_owned(),
        evaluation_metric: metric.map(str::to_owned),
        constraints: CONSTRAINTS.map(str::to_owned).to_vec(),
        relevant_description_files: descriptions(profile),
        explanation: format!("{why_target} {why_kind}"),
    }
}

const OUTPUT_REQUIREMENTS: &str = "predictions.csv, summary.json with success, model_path and metrics, \
     and the model under models";

const CONSTRAINTS: [&str; 3] = [
    "the data set is read-only",
    "there is no network",
    "only installed libraries can be used",
];

/// The column to predict, and why it is taken for that.
fn target(
    instruction: Option<&str>,
    table: &Table,
    held_out: Option<&Table>,
) -> Option<(String, &'static str)> {
    if let Some(name) = instruction.and_then(|text| named_target(text, table)) {
        return Some((name, "the instruction names it"));
    }
    if let Some(held_out) = held_out {
        let mut missing = table
            .columns
            .iter()
            .filter(|c| held_out.column(&c.name).is_none());
        if let (Some(column), None) = (missing.next(), missing.next()) {
            return Some((column.name.clone(), "only the table to predict lacks it"));
        }
    }
    let usual = USUAL_TARGETS.iter().find_map(|usual| {
        let mut columns = table.columns.iter();
        columns.find(|column| column.name.to_lowercase() == *usual)
    });
    if let Some(column) = usual {
        return Some((column.name.clone(), "it is called like one"));
    }
    // Not if the last column that is known is not the last there is.
    let all_known = table.columns.len() as u64 == table.columns_total;
    let last = table
        .columns
        .last()
        .filter(|_| all_known && table.columns.len() > 1)?;
    Some((last.name.clone(), "it is the last column"))
}

/// The column that the instruction names: right after a word such as "predict", or at all if it is
/// only one.
fn named_target(instruction: &str, table: &Table) -> Option<String> {
    let words = words(instruction);
    let mut introduced = Vec::new();
    let mut named = Vec::new();
    for column in table
        .columns
        .iter()
        .filter(|column| !column.name.is_empty())
    {
        let name = self::words(&column.name);
        for at in places(&words, &name) {
            named.push(column);
            if is_introduced(&words[..at]) {
                introduced.push((name.len(), at, column));
            }
        }
    }
    // The longest name, and of those the first that is mentioned.
    introduced.sort_by_key(|(length, at, _)| (std::cmp::Reverse(*length), *at));
    if let Some((_, _, column)) = introduced.first() {
        return Some(column.name.clone());
    }
    named.dedup_by(|one, other| one.name == other.name);
    // A single letter is too often a word.
    match named.as_slice() {
        [only] if only.name.chars().count() > 1 => Some(only.name.clone()),
        _ => None,
    }
}

/// Whether the words before a name end in an introduction, fillers left out.
fn is_introduced(before: &[String]) -> bool {
    const FILLERS: [&str; 10] = [
        "the", "a", "column", "variable", "is", "of", "field", "value", "called", "named",
    ];
    let mut back = before.iter().rev();
    let last = back.find(|word| !FILLERS.contains(&word.as_str()));
    let close = before.last().is_some_and(|word| word == "column");
    close || last.is_some_and(|word| INTRODUCTIONS.contains(&word.as_str()))
}

fn places(words: &[String], name: &[String]) -> Vec<usize> {
    if name.is_empty() || name.len() > words.len() {
        return Vec::new();
    }
    let windows = words.windows(name.len()).enumerate();
    windows
        .filter(|(_, window)| *window == name)
        .map(|(at, _)| at)
        .collect()
}

/// Lower-case words: an underscore is between two, as in names of columns.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric());
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Whether a text has these words, one after the other.
#[must_use]
pub(super) fn mentions(text: &str, phrase: &str) -> bool {
    !places(&words(text), &words(phrase)).is_empty()
}

fn kind_that_is_said(instruction: &str) -> Option<&'static str> {
    let is_said = |said: &[&str]| said.iter().any(|word| mentions(instruction, word));
    let found = KIND_WORDS.iter().find(|(_, said)| is_said(said));
    found.map(|(kind, _)| *kind)
}

fn kind_of_target(column: &Column) -> &'static str {
    match column.kind {
        Kind::Text | Kind::Bool | Kind::Date => CLASSIFICATION,
        Kind::Int if column.distinct_complete && column.distinct <= MAX_CLASSES => CLASSIFICATION,
        Kind::Int | Kind::Float => REGRESSION,
        Kind::Empty => UNKNOWN,
    }
}

fn described(column: &Column) -> String {
    let more = if column.distinct_complete {
        ""
    } else {
        "more than "
    };
    let (kind, distinct) = (column.kind.as_str(), column.distinct);
    format!("the column is {kind} with {more}{distinct} different values")
}

fn metric(instruction: Option<&str>, task_type: &str) -> Option<&'static str> {
    let fitting = METRICS.iter().filter(|(_, kind, _)| *kind == task_type);
    let asked = fitting.clone().find(|(_, _, names)| {
        instruction.is_some_and(|text| names.iter().any(|name| mentions(text, name)))
    });
    if let Some((metric, _, _)) = asked {
        return Some(metric);
    }
    match task_type {
        CLASSIFICATION => Some("accuracy"),
        REGRESSION => Some("rmse"),
        CLUSTERING => Some("silhouette"),
        _ => None,
    }
}

/// Tables, the one to learn from first, then everything else that describes nothing.
fn data_files(profile: &Profile) -> Vec<String> {
    let first = profile.training_table().map(|(path, _)| path);
    let second = profile.held_out_table().map(|(path, _)| path);
    let described = descriptions(profile);
    let others = profile.files.iter().map(|file| file.path.as_str());
    let others = others.filter(|path| Some(*path) != first && Some(*path) != second);
    let others = others.filter(|path| !described.iter().any(|known| known == path));
    let all = first.into_iter().chain(second).chain(others);
    all.take(MAX_NAMED_FILES).map(str::to_owned).collect()
}

fn descriptions(profile: &Profile) -> Vec<String> {
    let texts = profile.files.iter().filter(|file| file.head.is_some());
    let describing = texts.filter(|file| {
        let name = file
            .path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_lowercase();
        name.ends_with(".md")
            || name.ends_with(".rst")
            || [
                "readme",
                "descr",
                "data_card",
                "datacard",
                "about",
                "dictionary",
            ]
            .iter()
            .any(|word| name.contains(word))
    });
    describing
        .take(MAX_NAMED_FILES)
        .map(|file| file.path.clone())
        .collect()
}

impl Table {
    /// The column with this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

#[cfg(test)]
mod tests;
