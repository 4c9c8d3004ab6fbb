//! What is rejected, and under which name.

use proptest::prelude::*;

use super::*;
use crate::artifacts::path::ArtifactPath;
use crate::execution::Artifact;
use crate::execution::paths::input_file_path;
use crate::execution::spec::MAX_ARTIFACT_FILES;
use crate::receipt::chain::{Notary, Sealed};
use crate::receipt::document::{Account, Known};
use crate::receipt::key::ReceiptKey;
use crate::receipt::testing::{
    chain_of, evidence, execution_id, notary, notary_with, receipt, result, run_id, sealed,
};
use crate::runs::admission::MAX_FILES;

fn open(sealed: &Sealed) -> Receipt {
    Receipt::open(sealed.text.as_bytes()).unwrap()
}

/// A short one.
fn lost(notary: &Notary) -> Sealed {
    let account = Account {
        run: run_id(),
        execution: &execution_id(1),
        known: Known::Lost,
    };
    notary.seal(&notary.draft(&account).unwrap(), None)
}

/// A text that the key signed although it is no statement of a notary.
fn signed(statement: &str) -> String {
    let signature = ReceiptKey::of_secret(&[7; 32]).sign(&chain::message(statement));
    format!("{BEFORE_SIGNATURE}{signature}{BEFORE_STATEMENT}{statement}{END}")
}

/// The statement of a receipt, with `from` replaced.
fn edited(sealed: &Sealed, from: &str, to: &str) -> String {
    let (_, statement) = parts(&sealed.text).unwrap();
    assert!(statement.contains(from), "{from} is not in {statement}");
    statement.replace(from, to)
}

#[test]
fn a_receipt_as_it_was_made_is_good() {
    let notary = notary();
    let sealed = receipt(&notary, 3, None);
    let opened = open(&sealed);
    assert_eq!(opened.number(), 1);
    assert_eq!(opened.execution(), "exec_00000003");
    assert_eq!(opened.run(), run_id().to_string());
    assert_eq!(opened.status(), "SUCCESS");
    assert_eq!(opened.instance(), "abcdefghijkl");
    assert_eq!(opened.artifacts().len(), 2);
    assert_eq!(opened.setup_script().unwrap().path, "setup.sh");
    assert_eq!(opened.signed_with(&[notary.public_key()]), Ok(()));
    Receipt::open(format!("{}\n", sealed.text).as_bytes()).unwrap();
    open(&lost(&notary));
}

/// Every list in it is as long as it can be, and every name is as long as a name can be, and twice or six
/// times as long where it is told.
#[test]
fn the_longest_receipt_that_can_come_of_an_execution_can_be_verified() {
    let path = |character: &str| [character.repeat(255).as_str(); 4].join("/");
    let (artifact, input) = (path("\""), path("\u{1}"));
    assert!(ArtifactPath::from_bytes(artifact.as_bytes()).is_ok());
    assert!(ArtifactPath::from_bytes(format!("{artifact}/").as_bytes()).is_err());
    assert_eq!(input_file_path(&input).as_ref(), Ok(&input));
    assert!(input_file_path(&format!("{input}/xx")).is_err());
    let (sha256, size) = ("ab".repeat(32), (1 << 53) - 1);
    let artifact = Artifact {
        path: artifact,
        size,
        sha256: sha256.clone(),
    };
    let input = HashedFile {
        path: input,
        sha256,
        size,
    };
    let mut result = result(&execution_id(1));
    result.artifacts = vec![artifact; usize::try_from(MAX_ARTIFACT_FILES).unwrap()];
    let mut evidence = evidence();
    evidence.input_files = vec![input; MAX_FILES];
    let sealed = sealed(&notary(), &result, &evidence, None);
    let length = sealed.text.len() as u64;
    let most = MAX_RECEIPT_BYTES;
    assert!((most / 2..most).contains(&length), "{length}");
    assert_eq!(open(&sealed).artifacts().len() as u64, MAX_ARTIFACT_FILES);
}

#[test]
fn a_receipt_that_is_altered_in_any_bit_is_rejected() {
    let sealed = lost(&notary());
    let mut bytes = sealed.text.into_bytes();
    for index in 0..bytes.len() {
        for bit in 0..8 {
            bytes[index] ^= 1 << bit;
            let opened = Receipt::open(&bytes);
            assert!(opened.is_err(), "bit {bit} of byte {index}: {opened:?}");
            bytes[index] ^= 1 << bit;
        }
    }
    Receipt::open(&bytes).unwrap();
}

#[test]
fn a_receipt_that_is_altered_in_any_byte_is_rejected() {
    let sealed = receipt(&notary(), 1, None);
    let mut bytes = sealed.text.into_bytes();
    for index in 0..bytes.len() {
        let was = bytes[index];
        bytes[index] = if was == b'0' { b'1' } else { b'0' };
        let opened = Receipt::open(&bytes);
        assert!(opened.is_err(), "byte {index}: {opened:?}");
        bytes[index] = was;
    }
    Receipt::open(&bytes).unwrap();
}

#[test]
fn a_receipt_with_a_byte_more_or_less_anywhere_is_rejected() {
    let text = lost(&notary()).text;
    for index in 0..text.len() {
        let mut shorter = text.clone();
        shorter.remove(index);
        assert!(Receipt::open(shorter.as_bytes()).is_err(), "{index}");
        assert!(Receipt::open(&text.as_bytes()[..index]).is_err(), "{index}");
        for more in [' ', '0', '"', '\n'] {
            let mut longer = text.clone();
            longer.insert(index, more);
            assert!(Receipt::open(longer.as_bytes()).is_err(), "{index}");
        }
    }
    for end in [" ", "\n\n", "\r\n", "}", "\0"] {
        assert!(Receipt::open(format!("{text}{end}").as_bytes()).is_err());
    }
}

#[test]
fn what_is_no_receipt_is_told_by_what_it_lacks() {
    let good = receipt(&notary(), 1, None);
    let (signature, statement) = parts(&good.text).unwrap();
    let form = |text: &str| Receipt::open(text.as_bytes()).unwrap_err();
    assert_eq!(
        Receipt::open(&[0xff]).unwrap_err(),
        Problem::Form("not UTF-8")
    );
    for odd in ["", "{}", "null", statement] {
        assert!(matches!(form(odd), Problem::Form(_)), "{odd}");
    }
    let with = |statement: &str| {
        format!("{BEFORE_SIGNATURE}{signature}{BEFORE_STATEMENT}{statement}{END}")
    };
    assert_eq!(form(&with("{")), Problem::Form("not JSON"));
    let spaced = statement.replace("\"outcome\":", "\"outcome\": ");
    assert_eq!(form(&signed(&spaced)), Problem::NotCanonical);
    let twice = statement.replacen('{', "{\"chain\":{\"number\":1,\"previous\":null},", 1);
    assert_eq!(form(&signed(&twice)), Problem::NotCanonical);
    let newer = edited(&good, "\"schema_version\":1", "\"schema_version\":2");
    let problem = form(&signed(&newer));
    assert!(matches!(problem, Problem::OtherSchema { ref version, .. } if version == "2"));
    let other = edited(&good, "fumehood-receipt", "another");
    assert!(matches!(form(&signed(&other)), Problem::OtherSchema { .. }));
    let keyless = edited(&good, "public_key", "public_kez");
    assert_eq!(
        form(&signed(&keyless)),
        Problem::Form("it names no public key")
    );
    let incomplete = edited(&good, "\"artifacts\"", "\"artifactz\"");
    let problem = form(&signed(&incomplete));
    assert!(
        matches!(problem, Problem::Form(_) | Problem::NotCanonical),
        "{problem:?}"
    );
}

#[test]
fn a_name_of_another_kind_is_not_shown_whole() {
    let good = receipt(&notary(), 1, None);
    let other = edited(&good, "fumehood-receipt", &"z".repeat(1 << 20));
    let problem = Receipt::open(signed(&other).as_bytes()).unwrap_err();
    assert!(problem.to_string().len() < 300);
    let no_name = edited(&good, "\"fumehood-receipt\"", "[1]");
    let problem = Receipt::open(signed(&no_name).as_bytes()).unwrap_err();
    assert!(matches!(problem, Problem::OtherSchema { ref schema, .. } if schema == "?"));
}

#[test]
fn a_statement_that_was_changed_does_not_fit_its_signature() {
    let notary = notary();
    let good = receipt(&notary, 1, None);
    let (signature, _) = parts(&good.text).unwrap();
    for (from, to) in [
        ("\"status\":\"SUCCESS\"", "\"status\":\"FAILURE\""),
        ("\"size\":7", "\"size\":8"),
        ("\"uid\":50000", "\"uid\":50001"),
        ("\"number\":1", "\"number\":2"),
        ("\"read_only_root\":true", "\"read_only_root\":false"),
    ] {
        let statement = edited(&good, from, to);
        let text = format!("{BEFORE_SIGNATURE}{signature}{BEFORE_STATEMENT}{statement}{END}");
        let problem = Receipt::open(text.as_bytes()).unwrap_err();
        let key = notary.public_key();
        assert_eq!(problem, Problem::Signature { key }, "{to}");
    }
}

#[test]
fn a_receipt_of_another_key_is_good_only_for_those_who_ask_for_no_key() {
    let (ours, theirs) = (notary(), notary_with(8, "abcdefghijkl"));
    let opened = open(&receipt(&theirs, 1, None));
    let problem = opened.signed_with(&[ours.public_key()]).unwrap_err();
    let expected = Problem::OtherKey {
        found: theirs.public_key(),
        expected: vec![ours.public_key()],
    };
    assert_eq!(problem, expected);
}

#[test]
fn a_receipt_cannot_be_signed_in_anothers_name() {
    // Signed with our key, but it names theirs.
    let theirs = notary_with(8, "abcdefghijkl");
    let (_, statement) = parts(&receipt(&theirs, 1, None).text)
        .map(|(signature, statement)| (signature.to_owned(), statement.to_owned()))
        .unwrap();
    let problem = Receipt::open(signed(&statement).as_bytes()).unwrap_err();
    let key = theirs.public_key();
    assert_eq!(problem, Problem::Signature { key });
}

#[test]
fn each_receipt_of_a_chain_follows_the_one_before_and_no_other() {
    let chain: Vec<Receipt> = chain_of(&notary(), 4).iter().map(open).collect();
    for (index, this) in chain.iter().enumerate().skip(1) {
        for (other, before) in chain.iter().enumerate() {
            let problems = this.follows(before);
            assert_eq!(problems.is_empty(), other + 1 == index, "{problems:?}");
        }
    }
    let problems = chain[3].follows(&chain[0]);
    assert!(
        matches!(
            problems.as_slice(),
            [
                Problem::Number {
                    number: 4,
                    previous: 1
                },
                Problem::Link { .. }
            ]
        ),
        "{problems:?}"
    );
}

#[test]
fn a_receipt_that_was_exchanged_in_the_middle_of_a_chain_is_noticed() {
    let notary = notary();
    let chain = chain_of(&notary, 3);
    // As good as the second one, by the same key, in the same place, about another execution.
    let exchanged = receipt(&notary, 9, Some(&chain[0].head));
    assert_eq!(open(&exchanged).follows(&open(&chain[0])), []);
    let problems = open(&chain[2]).follows(&open(&exchanged));
    let expected = Problem::Link {
        expected: chain[1].head.link.clone(),
        found: exchanged.head.link.clone(),
    };
    assert_eq!(problems, [expected]);
}

#[test]
fn another_daemon_or_key_in_the_chain_is_named() {
    let chain = chain_of(&notary(), 1);
    let first = open(&chain[0]);
    let replaced = receipt(&notary_with(8, "abcdefghijkl"), 2, Some(&chain[0].head));
    let problems = open(&replaced).follows(&first);
    let previous = *first.key();
    assert_eq!(problems, [Problem::KeyReplaced { previous }]);
    let other = receipt(&notary_with(7, "zzzzzzzzzzzz"), 2, Some(&chain[0].head));
    let problems = open(&other).follows(&first);
    assert!(matches!(problems.as_slice(), [Problem::OtherDaemon { .. }]));
}

#[test]
fn only_the_first_receipt_has_none_before_it() {
    let chain = chain_of(&notary(), 2);
    let orphan = edited(&chain[0], "\"number\":1", "\"number\":5");
    let problem = Receipt::open(signed(&orphan).as_bytes()).unwrap_err();
    assert_eq!(problem, Problem::Start(5));
    let parented = edited(&chain[1], "\"number\":2", "\"number\":1");
    let problem = Receipt::open(signed(&parented).as_bytes()).unwrap_err();
    assert_eq!(problem, Problem::Start(1));
}

#[test]
fn every_spelling_but_the_one_that_was_signed_is_refused_even_with_a_fitting_signature() {
    let good = receipt(&notary(), 1, None);
    for (from, to) in [
        // White space, and where there may be some in JSON.
        ("{\"chain\":", "{ \"chain\":"),
        (",\"daemon\"", ",\n\"daemon\""),
        ("\"number\":1", "\"number\":1 "),
        ("\"number\":1", "\"number\":\t1"),
        // Numbers.
        ("\"number\":1", "\"number\":1.0"),
        ("\"number\":1", "\"number\":1e0"),
        ("\"number\":1", "\"number\":10E-1"),
        ("\"exit_code\":0", "\"exit_code\":-0"),
        ("\"exit_code\":0", "\"exit_code\":0.0"),
        (
            "\"duration_milliseconds\":1250",
            "\"duration_milliseconds\":9007199254740992",
        ),
        (
            "\"duration_milliseconds\":1250",
            "\"duration_milliseconds\":1e300",
        ),
        (
            "\"duration_milliseconds\":1250",
            "\"duration_milliseconds\":18446744073709551616",
        ),
        ("\"number\":1", "\"number\":1e999"),
        // Escapes.
        ("SUCCESS", "SUCCES\\u0053"),
        ("SUCCESS", "\\ud800"),
        ("models/model.pkl", "models\\/model.pkl"),
        ("models/model.pkl", "models/model.pkl\\u007f"),
        // Keys: twice, side by side or far apart, and in another order.
        ("\"number\":1", "\"number\":1,\"number\":1"),
        ("\"number\":1", "\"number\":2,\"number\":1"),
        (
            "\"status\":\"SUCCESS\"",
            "\"status\":\"SUCCESS\",\"\\u0073tatus\":\"FAILURE\"",
        ),
        (
            "\"number\":1,\"previous\":null",
            "\"previous\":null,\"number\":1",
        ),
    ] {
        let problem = Receipt::open(signed(&edited(&good, from, to)).as_bytes()).unwrap_err();
        assert_eq!(problem, Problem::NotCanonical, "{to}");
    }
    // What the reader's own numbers look like inside: an object in canonical form, and no number.
    let inside = "\"number\":{\"$serde_json::private::Number\":\"1\"}";
    let problem = Receipt::open(signed(&edited(&good, "\"number\":1", inside)).as_bytes());
    assert!(matches!(problem, Err(Problem::Form(_))), "{problem:?}");
    for (from, to) in [
        ("\"number\":1", "\"number\":01"),
        ("\"number\":1", "\"number\":+1"),
        ("\"number\":1", "\"number\":NaN"),
        ("SUCCESS", "\u{1}"),
        ("\"outcome\":", "\"outcome\":/**/"),
    ] {
        let problem = Receipt::open(signed(&edited(&good, from, to)).as_bytes()).unwrap_err();
        assert_eq!(problem, Problem::Form("not JSON"), "{to}");
    }
}

#[test]
fn a_character_is_never_taken_for_another_that_looks_the_same() {
    let notary = notary();
    let good = receipt(&notary, 1, None);
    let (signature, _) = parts(&good.text).unwrap();
    // Composed and decomposed, and a letter of another alphabet: canonical, but not what was signed.
    for (from, to) in [
        ("SUCCESS", "SUCC\u{415}SS"),
        ("helper.py", "he\u{301}lper.py"),
    ] {
        let statement = edited(&good, from, to);
        let text = format!("{BEFORE_SIGNATURE}{signature}{BEFORE_STATEMENT}{statement}{END}");
        let problem = Receipt::open(text.as_bytes()).unwrap_err();
        let key = notary.public_key();
        assert_eq!(problem, Problem::Signature { key });
    }
}

#[test]
fn what_is_nested_too_deep_is_refused_without_being_gone_through() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    let problem = Receipt::open(signed(&deep).as_bytes()).unwrap_err();
    assert_eq!(problem, Problem::Form("nested too deep"));
}

#[test]
fn numbers_that_no_chain_has_are_refused() {
    let good = receipt(&notary(), 1, None);
    for number in ["0", "-1", "\"1\"", "null", "\"9223372036854775808\""] {
        let edited = edited(&good, "\"number\":1", &format!("\"number\":{number}"));
        let problem = Receipt::open(signed(&edited).as_bytes()).unwrap_err();
        assert!(
            matches!(problem, Problem::Start(_) | Problem::Form(_)),
            "{number}: {problem:?}"
        );
    }
}

proptest! {
    #[test]
    fn whatever_is_put_into_a_receipt_it_is_refused_and_nothing_panics(
        at in 0usize..4000, cut in 0usize..200, put in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let good = receipt(&notary(), 1, None).text.into_bytes();
        let at = at.min(good.len());
        let mut bytes = good.clone();
        bytes.splice(at..(at + cut).min(good.len()), put);
        let same = bytes == good || bytes == [&good[..], b"\n"].concat();
        prop_assert_eq!(Receipt::open(&bytes).is_ok(), same);
    }
}
