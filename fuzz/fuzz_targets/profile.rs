//! What a script in a sandbox prints about a data set is hostile: reading it and deciding by it neither
//! panics nor lets through what does something to whoever shows it.

#![no_main]

use fumehood::execution::redaction::Redaction;
use fumehood::orchestrator::perception::{Profile, library, task};
use fumehood::orchestrator::prompt::Filter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let redaction = Redaction::default();
    let filter = Filter {
        redaction: &redaction,
        secrets: &[],
    };
    let clean = filter.clean(text);
    assert_eq!(filter.clean(&clean), clean);
    let Ok(profile) = Profile::read(text) else {
        return;
    };
    let names = profile.files.iter().map(|file| file.path.as_str());
    for name in names.chain(profile.tables().flat_map(|(_, table)| {
        table.columns.iter().map(|column| column.name.as_str())
    })) {
        assert!(!name.contains(char::is_control));
    }
    for wish in [None, Some(text), Some("predict the target")] {
        let task = task::choose(wish, &profile);
        if let Some(target) = &task.target_column {
            let (_, table) = profile.training_table().expect("a target is in a table");
            assert!(table.column(target).is_some());
        }
        library::choose(wish, &profile);
    }
});
