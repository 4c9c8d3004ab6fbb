//! The coder that needs no model: deterministic and offline.
//!
//! Its first program misspells the target and fails; its second one trains on the data set for real. So
//! everything around a model is used as with one: a failing execution, its analysis, a repair.

use async_trait::async_trait;

use super::coder::{Assignment, Coder, Written};
use crate::runs::task::ModelUsage;

const FIRST: &str = include_str!("mock/first.py");
const SECOND: &str = include_str!("mock/second.py");

/// What is filled into the programs stands there.
const FACTS: &str = "FACTS = {}";

/// Writes the same programs for the same data set.
#[derive(Debug, Clone, Copy, Default)]
pub struct MockCoder;

#[async_trait]
impl Coder for MockCoder {
    async fn write(&self, assignment: &Assignment<'_>) -> Written {
        Written {
            code: program(assignment),
            usage: ModelUsage::default(),
        }
    }
}

fn program(assignment: &Assignment<'_>) -> Result<String, String> {
    let seen = assignment.seen;
    let Some((training, table)) = seen.profile.training_table() else {
        return Err("the data set has no table to learn from".to_owned());
    };
    let held_out = seen.profile.held_out_table().map(|(path, _)| path);
    let task = &seen.perceived.task;
    // JSON without null and booleans is Python as well: what is not there is left out.
    let mut facts = serde_json::Map::new();
    let mut put = |name: &str, value: &str| facts.insert(name.to_owned(), value.into());
    put("training", training);
    put("delimiter", &table.delimiter);
    put("task_type", &task.task_type);
    if let Some(path) = held_out {
        put("held_out", path);
    }
    if let Some(target) = &task.target_column {
        put("target", target);
    }
    let facts = serde_json::Value::Object(facts);
    let template = if assignment.iteration == 1 {
        FIRST
    } else {
        SECOND
    };
    Ok(template.replacen(FACTS, &format!("FACTS = {facts}"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orchestrator::perception::Seen;
    use crate::orchestrator::perception::profile::tests::{column, profile, table};
    use crate::orchestrator::perception::task;
    use crate::runs::task::Perceived;

    /// The misspelt target.
    const MISSPELT: &str = "targt";

    fn seen(files: &[serde_json::Value]) -> Seen {
        let profile = profile(files);
        let task = task::choose(None, &profile);
        Seen {
            profile,
            perceived: Perceived {
                task,
                library: None,
            },
        }
    }

    fn write(seen: &Seen, iteration: u32) -> Result<String, String> {
        let limits = crate::config::Execution::default().default_limits();
        program(&Assignment {
            iteration,
            instruction: None,
            seen,
            expected_files: &[],
            limits: &limits,
            previous: None,
            redaction: &crate::execution::redaction::Redaction::default(),
        })
    }

    #[test]
    fn the_first_program_misspells_the_target_and_the_next_ones_do_not() {
        let columns = [column("a", "float", 9), column("it's \"\\ ☃", "int", 2)];
        let seen = seen(&[
            table("train.csv", 9, &columns),
            table("test.csv", 3, &columns[..1]),
        ]);
        let first = write(&seen, 1).unwrap();
        assert!(first.contains(&format!("[\"{MISSPELT}\"]")));
        let second = write(&seen, 2).unwrap();
        assert!(!second.contains(MISSPELT));
        assert_eq!(write(&seen, 3).unwrap(), second);
        let facts = "FACTS = {\"training\":\"train.csv\",\"delimiter\":\",\",\"task_type\":\"classification\",\
             \"held_out\":\"test.csv\",\"target\":\"it's \\\"\\\\ ☃\"}\n";
        assert!(first.contains(facts) && second.contains(facts), "{second}");
    }

    #[test]
    fn without_a_table_there_is_no_program() {
        assert!(write(&seen(&[]), 1).is_err());
    }
}
