//! The shapes of answers, field by field.

use super::*;

#[test]
fn an_excerpt_keeps_head_and_tail() {
    assert_eq!(excerpt("short", None), "short");
    let exact = "é".repeat(EXCERPT);
    assert_eq!(excerpt(&exact, None), exact);
    let long = format!("HEAD{}TAIL", "é".repeat(5000));
    let kept = excerpt(&long, None);
    assert!(kept.starts_with("HEAD") && kept.ends_with("TAIL"));
    assert!(kept.chars().count() <= EXCERPT && kept.chars().count() > EXCERPT - 5);
    let kept = excerpt(&long, Some("the true end"));
    assert!(kept.starts_with("HEAD") && kept.ends_with("\n...\nthe true end"));
}
