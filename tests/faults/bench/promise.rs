//! What is promised at the moment, in one place: the switch that makes every check stricter.

/// Whether a run that is going on survives the daemon's end: adoption.
///
/// While it is `false` a run that was going on at a kill has to end as interrupted, which is honest
/// and less than what security.md 3.3 asks for. Whoever merges adoption sets it to `true`: then no
/// run of the soak may end as interrupted any more, and no published directory may be without its
/// run. The rows of the matrix that wait for adoption are to lose their `#[ignore]` with it.
pub(crate) const RUNS_SURVIVE_A_KILL: bool = false;

/// What a run says that did not survive.
pub(crate) const INTERRUPTED: &str = "Interrupted: ";
