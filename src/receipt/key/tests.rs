//! Whose key is taken, and which signatures count.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_key_is_made_once_for_its_owner_only_and_stays_the_same() {
    let directory = tempfile::tempdir().unwrap();
    assert!(ReceiptKey::load(directory.path()).unwrap().is_none());
    let made = ReceiptKey::load_or_make(directory.path()).unwrap().public();
    assert_eq!(mode(&directory.path().join(KEY_FILE)), 0o600);
    let again = ReceiptKey::load_or_make(directory.path()).unwrap().public();
    assert_eq!(made, again);
    let names = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(names, 1, "something half-done is left");
    let other = tempfile::tempdir().unwrap();
    assert_ne!(
        ReceiptKey::load_or_make(other.path()).unwrap().public(),
        made
    );
}

#[test]
fn of_many_who_make_one_at_once_all_get_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let keys: Vec<PublicKey> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| ReceiptKey::load_or_make(path).unwrap().public()))
            .collect();
        makers
            .into_iter()
            .map(|maker| maker.join().unwrap())
            .collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[test]
fn a_key_that_others_can_read_or_write_is_refused_with_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    ReceiptKey::load_or_make(directory.path()).unwrap();
    let path = directory.path().join(KEY_FILE);
    for exposed in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666] {
        std::fs::set_permissions(&path, Permissions::from_mode(exposed)).unwrap();
        let error = ReceiptKey::load_or_make(directory.path()).unwrap_err();
        assert!(matches!(error, KeyError::Exposed { mode, .. } if mode == exposed));
        let text = error.to_string();
        assert!(text.contains("chmod 600"), "{text}");
        assert!(text.contains(&format!("{exposed:04o}")), "{text}");
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    ReceiptKey::load_or_make(directory.path()).unwrap();
}

#[test]
fn what_is_no_key_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(KEY_FILE);
    let secret = "00".repeat(32);
    for text in [
        String::new(),
        secret.clone(),
        format!("{LABEL}{secret}"),
        format!("{LABEL}{}\n", &secret[2..]),
        format!("{LABEL}{}\n", "AA".repeat(32)),
        format!("{LABEL}{secret}\n\n"),
    ] {
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = ReceiptKey::load_or_make(directory.path()).unwrap_err();
        assert!(matches!(error, KeyError::Damaged { .. }), "{text:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    let error = ReceiptKey::load_or_make(directory.path()).unwrap_err();
    assert!(matches!(error, KeyError::Damaged { .. }));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &path).unwrap();
    let error = ReceiptKey::load_or_make(directory.path()).unwrap_err();
    assert!(matches!(error, KeyError::Link { .. }), "{error}");
    assert!(error.to_string().contains("remove the link"), "{error}");
    std::fs::remove_file(&path).unwrap();
    // Nobody ever writes into it: it must not be waited for.
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let error = ReceiptKey::load_or_make(directory.path()).unwrap_err();
    assert!(matches!(error, KeyError::Damaged { .. }), "{error}");
}

#[test]
fn a_key_of_another_user_is_refused_with_the_remedy_whatever_its_mode() {
    let path = Path::new("state/receipt-key");
    assert!(refusal(path, 1000, 0o100_600, 1000).is_none());
    for mode in [0o100_600, 0o100_644] {
        let error = refusal(path, 1001, mode, 1000).unwrap();
        assert!(matches!(error, KeyError::Foreign { owner: 1001, .. }));
        let text = error.to_string();
        for words in ["state/receipt-key", "uid 1001", "chown"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        let directory = tempfile::tempdir().unwrap();
        ReceiptKey::load_or_make(directory.path()).unwrap();
        let path = directory.path().join(KEY_FILE);
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        let error = ReceiptKey::load_or_make(directory.path()).unwrap_err();
        assert!(matches!(error, KeyError::Foreign { owner: 12_345, .. }));
    }
}

/// The order of the group, little-endian: S and S + L satisfy the same equation.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

#[test]
fn the_other_form_of_a_signature_that_satisfies_the_equation_is_refused() {
    let key = ReceiptKey::of_secret(&[1; 32]);
    let signature = key.sign(b"message");
    let mut bytes = digits::<64>(&signature).unwrap();
    let mut carry = 0;
    for (byte, order) in bytes[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = (sum & 0xff).try_into().unwrap();
        carry = sum >> 8;
    }
    assert!(!key.public().has_signed(b"message", &hex::encode(bytes)));
}

#[test]
fn no_key_of_small_order_is_taken_although_everybody_can_sign_with_it() {
    // The neutral point; a signature of zeros and the neutral point fits every message for a
    // careless verifier.
    let neutral = PublicKey({
        let mut bytes = [0; 32];
        bytes[0] = 1;
        bytes
    });
    let forged = format!("01{}", "00".repeat(63));
    assert!(!neutral.has_signed(b"anything", &forged));
}

#[test]
fn neither_a_key_nor_an_error_shows_the_secret() {
    let key = ReceiptKey::of_secret(&[7; 32]);
    let shown = format!("{key:?}");
    assert!(!shown.contains("0707"), "{shown}");
    assert!(!shown.contains("7, 7"), "{shown}");
}

#[test]
fn a_public_key_has_one_spelling_and_is_no_weak_one() {
    let text = ReceiptKey::of_secret(&[7; 32]).public().to_string();
    assert_eq!(text.parse::<PublicKey>().unwrap().to_string(), text);
    let neutral = format!("01{}", "00".repeat(31));
    for wrong in ["", "00", &text.to_uppercase(), &text[1..], &neutral] {
        assert_eq!(wrong.parse::<PublicKey>(), Err(NoPublicKey), "{wrong}");
    }
}

#[test]
fn a_signature_is_over_one_message_by_one_key_in_one_spelling() {
    let (key, other) = (
        ReceiptKey::of_secret(&[1; 32]),
        ReceiptKey::of_secret(&[2; 32]),
    );
    let signature = key.sign(b"message");
    assert!(key.public().has_signed(b"message", &signature));
    assert!(!key.public().has_signed(b"massage", &signature));
    assert!(!other.public().has_signed(b"message", &signature));
    assert!(
        !key.public()
            .has_signed(b"message", &signature.to_uppercase())
    );
    assert!(!key.public().has_signed(b"message", &signature[2..]));
}
