//! Waiting for a condition, with a bound and the last state in the message.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Asks again and again until the answer is as wanted.
///
/// # Panics
///
/// If that takes longer than `bound`.
pub(crate) async fn until<T: Debug, F: Future<Output = T>>(
    bound: Duration,
    ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> T {
    within(bound, ask, wanted)
        .await
        .unwrap_or_else(|last| panic!("not as wanted within {bound:?}, last: {last:?}"))
}

/// Asks again and again until the answer is as wanted, or gives the last one as an error.
pub(crate) async fn within<T, F: Future<Output = T>>(
    bound: Duration,
    mut ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> Result<T, T> {
    let start = Instant::now();
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return Ok(answer);
        }
        if start.elapsed() >= bound {
            return Err(answer);
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}
