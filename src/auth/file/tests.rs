//! The file of tokens against a real directory.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use futures_util::future::join_all;

use super::*;
use crate::auth::NewToken;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn record() -> TokenRecord {
    let token = NewToken::generate().unwrap();
    TokenRecord {
        key: token.key,
        tenant: TenantId::default(),
        role: Role::Submit,
        name: Some("ci".to_owned()),
        sha256: token.digest,
        created_at: at(1),
        expires_at: Some(at(10)),
        revoked_at: None,
    }
}

async fn add(path: &Path, record: TokenRecord) {
    let added = update(path, |tokens| {
        tokens.push(record);
        Ok(())
    });
    added.await.unwrap();
}

#[test]
fn a_token_is_good_until_it_expires_or_is_revoked() {
    let mut token = record();
    assert_eq!(token.state(at(9)), TokenState::Active);
    assert_eq!(token.ended_at(at(9)), None);
    assert_eq!(token.state(at(10)), TokenState::Expired);
    assert_eq!(token.ended_at(at(11)), Some(at(10)));
    token.revoked_at = Some(at(5));
    assert_eq!(token.state(at(6)), TokenState::Revoked);
    assert_eq!(token.ended_at(at(11)), Some(at(5)));
    let endless = TokenRecord {
        expires_at: None,
        ..record()
    };
    assert_eq!(endless.state(at(1 << 36)), TokenState::Active);
}

#[tokio::test]
async fn tokens_come_back_and_only_the_owner_can_use_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    assert!(matches!(list(&path), Err(TokensError::Missing { .. })));
    let kept = record();
    add(&path, kept.clone()).await;
    let before = Stamp::of(&path).unwrap();
    add(&path, record()).await;
    assert_ne!(Stamp::of(&path).unwrap(), before);
    let tokens = list(&path).unwrap();
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0].key, kept.key);
    assert!(bool::from(tokens[0].sha256.is(&kept.sha256)));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    // Nothing half-done stays: the file and its lock.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);

    std::fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
    assert!(matches!(list(&path), Err(TokensError::Exposed { .. })));
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    for (mode, is_refused) in [(0o777, true), (0o1777, false), (0o770, false)] {
        std::fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        let is_replaceable = matches!(list(&path), Err(TokensError::Replaceable { .. }));
        assert_eq!(is_replaceable, is_refused, "{mode:o}");
    }
}

#[tokio::test]
async fn changes_at_once_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    join_all((0..20).map(|_| add(&path, record()))).await;
    assert_eq!(list(&path).unwrap().len(), 20);
}

#[tokio::test]
async fn a_change_that_is_refused_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    add(&path, record()).await;
    let before = std::fs::read(&path).unwrap();
    let refused = update(&path, |tokens| {
        tokens.clear();
        Err::<(), _>(TokensError::Full)
    });
    assert!(matches!(refused.await, Err(TokensError::Full)));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn what_is_no_tokens_file_is_refused_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let twice = serde_json::to_value(record()).unwrap();
    for text in [
        String::new(),
        r#"["SECRET"]"#.to_owned(),
        r#"{"version": 2, "tokens": []}"#.to_owned(),
        r#"{"version": 1, "tokens": [], "SECRET": 1}"#.to_owned(),
        serde_json::json!({ "version": 1, "tokens": [twice, twice] }).to_string(),
        format!(r#"{{"version": 1, "tokens": []{}}}"#, " ".repeat(9 << 20)),
    ] {
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let error = list(&path).unwrap_err();
        assert!(matches!(error, TokensError::Invalid { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains("SECRET"), "{error:?}");
        let kept = update(&path, |_| Ok(())).await;
        assert!(kept.is_err(), "a damaged file is not overwritten");
    }
    let refused = list(directory.path());
    assert!(matches!(refused, Err(TokensError::Invalid { .. })));
}

/// Who may write to the directory would choose which file is made with the rights of whoever makes tokens.
#[tokio::test]
async fn the_lock_is_not_made_through_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let elsewhere = directory.path().join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, directory.path().join("tokens.lock")).unwrap();
    let refused = update(&path, |_| Ok(())).await.unwrap_err();
    assert!(
        matches!(refused, TokensError::Unwritable { .. }),
        "{refused}"
    );
    assert!(!elsewhere.exists());
}
