//! Looks for planted secrets in everything that leaves the daemon, in every form in which a program,
//! a log or a file may show them (security.md section 6).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest as _, Sha256};

/// A text that is nowhere else: what is found of it, was leaked.
pub(crate) fn canary(place: &str) -> String {
    format!("CANARY_{place}_{}", hex::encode(rand::random::<[u8; 16]>()))
}

/// Something that somebody can read.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Sink {
    pub(crate) fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.into(),
            bytes: bytes.into(),
        }
    }
}

/// In which sinks any form of the canary is.
pub(crate) fn found(canary: &str, sinks: &[Sink]) -> BTreeSet<String> {
    let forms = forms(canary);
    let is_in = |sink: &Sink| forms.iter().any(|(_, form)| contains(&sink.bytes, form));
    let found = sinks.iter().filter(|sink| is_in(sink));
    found.map(|sink| sink.name.clone()).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Every form in which a text is looked for, with its name.
fn forms(text: &str) -> Vec<(String, Vec<u8>)> {
    let each = |format: &dyn Fn(u8) -> String| text.bytes().map(format).collect::<String>();
    let wide = |of: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(of).collect::<Vec<u8>>();
    let mut forms = vec![
        ("plain".to_owned(), text.as_bytes().to_vec()),
        (
            "end".to_owned(),
            text.as_bytes()[text.len() - 16..].to_vec(),
        ),
        (
            "beginning".to_owned(),
            text.as_bytes()[text.len() - 32..][..16].to_vec(),
        ),
        ("reversed".to_owned(), text.bytes().rev().collect()),
        ("hexadecimal".to_owned(), hex::encode(text).into_bytes()),
        (
            "HEXADECIMAL".to_owned(),
            hex::encode_upper(text).into_bytes(),
        ),
        (
            "percent".to_owned(),
            each(&|byte| format!("%{byte:02X}")).into_bytes(),
        ),
        (
            "json".to_owned(),
            each(&|byte| format!("\\u{byte:04x}")).into_bytes(),
        ),
        (
            "html".to_owned(),
            each(&|byte| format!("&#{byte};")).into_bytes(),
        ),
        ("utf-16le".to_owned(), wide(u16::to_le_bytes)),
        ("utf-16be".to_owned(), wide(u16::to_be_bytes)),
        (
            "sha-256".to_owned(),
            hex::encode(Sha256::digest(text)).into_bytes(),
        ),
    ];
    for before in 0..3_usize {
        let padded = [&vec![0; before], text.as_bytes()].concat();
        let encoded = STANDARD_NO_PAD.encode(padded);
        // What is next to it has a part in the characters at both ends.
        let own = &encoded[(before * 8).div_ceil(6)..encoded.len() - 2];
        let url_safe = own.replace('+', "-").replace('/', "_");
        forms.push((format!("base64 after {before}"), own.as_bytes().to_vec()));
        forms.push((
            format!("url-safe base64 after {before}"),
            url_safe.into_bytes(),
        ));
    }
    forms
}

#[test]
fn every_form_is_found_and_nothing_else() {
    let secret = canary("here");
    for (name, form) in forms(&secret) {
        let around = [b"before ".as_slice(), &form, b" after"].concat();
        let sink = [Sink::new("sink", around)];
        assert_eq!(found(&secret, &sink).len(), 1, "{name}");
        assert!(found(&canary("here"), &sink).is_empty(), "{name}");
    }
    for before in ["", "x", "xy", "xyz"] {
        let encoded = STANDARD_NO_PAD.encode(format!("{before}{secret} and more"));
        assert_eq!(
            found(&secret, &[Sink::new("sink", encoded)]).len(),
            1,
            "{before}"
        );
    }
}
