//! The daemon is killed at random instants, again and again, while clients keep it busy: the last
//! line of security.md 3.3. `tests/faults/soak.sh N` runs it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::bench::invariants::{Asked, Program, Tally, check, is_over, seen};
use crate::bench::stand::Stand;
use crate::bench::starts::nonce;
use crate::support::wait::until;

/// If nobody says how many.
const DEFAULT_ROUNDS: u32 = 3;

/// Runs submitted in each round: twice as many as go on at a time.
const RUNS_PER_ROUND: usize = 6;

/// A kill comes at most so long after the daemon takes runs: longer than most of them take.
const LATEST_KILL: Duration = Duration::from_millis(2500);

/// How often it comes while runs are still being accepted and begun.
const KILLED_EARLY: f64 = 0.25;

/// Accepting and beginning takes about so long.
const LATEST_EARLY_KILL: Duration = Duration::from_millis(100);

/// How often a daemon is killed before it takes runs again.
const KILLED_WHILE_STARTING: f64 = 0.25;

/// A start takes about so long.
const LATEST_KILL_OF_A_START: Duration = Duration::from_millis(300);

/// Ended runs that are looked at again after each kill.
const LOOKED_AT_AGAIN: usize = 10;

/// More work than is done between two kills is not piled up.
const MOST_UNFINISHED: usize = 24;

/// Lines that tell of the rounds, at most.
const MOST_LINES: u32 = 50;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes its number of rounds from tests/faults/soak.sh"]
async fn killed_at_random_instants_under_load_it_keeps_every_promise() {
    let rounds = number("SOAK_ROUNDS").map_or(DEFAULT_ROUNDS, |n| u32::try_from(n).unwrap());
    let seed = number("SOAK_SEED").unwrap_or_else(rand::random);
    eprintln!("\nThe daemon is killed {rounds} times; SOAK_SEED={seed} repeats the instants.");
    let begun = Instant::now();
    let mut soak = Soak::new(seed).await;
    for round in 1..=rounds {
        let told = soak.round(round).await;
        if round % rounds.div_ceil(MOST_LINES) == 0 {
            eprintln!("  kill {round:>3}: {told}");
        }
    }
    let Tally {
        adopted,
        afresh,
        given_up,
    } = soak.conclude().await;
    let runs = soak.asked.len();
    let whole = runs - given_up;
    // A moment of less than a thousandth of a second.
    assert!(
        given_up <= 1 + runs / 200,
        "{given_up} of {runs} were given up"
    );
    assert!(adopted > 0, "no kill met a program that ran");
    eprintln!(
        "After {rounds} kills, and {} of daemons that were starting:",
        soak.interrupted_starts
    );
    for held in [
        format!("{runs} runs were asked for: all are there, and no other"),
        "no program was started twice".to_owned(),
        format!("{whole} ended as their programs meant to, with all they printed and wrote"),
        format!(
            "{adopted} of them were attached to again by another daemon, after a start or an end"
        ),
        format!("{afresh} more were prepared afresh by another daemon, before their start"),
        format!(
            "{given_up} were killed in the moment of their start: not started, and said to be our fault"
        ),
        "no record changed after its end".to_owned(),
        format!("{runs} receipts in one chain, one for each run"),
        "nothing is left: no container, volume, half-done file, directory or descriptor".to_owned(),
        "the store is sound".to_owned(),
    ] {
        eprintln!("  ok  {held}");
    }
    eprintln!(
        "For RESULTS.md: {rounds} kills, {} of starts, {runs} runs: {whole} whole, of them {adopted} attached to \
         again and {afresh} prepared afresh; {given_up} given up at their start, 0 lost, 0 started twice, 0 left; {} s, seed {seed}",
        soak.interrupted_starts,
        begun.elapsed().as_secs()
    );
}

/// A soak that is going on.
struct Soak {
    stand: Stand,
    random: StdRng,
    asked: Vec<Asked>,
    /// What was seen of runs when they were over, by id.
    over: BTreeMap<String, Value>,
    interrupted_starts: usize,
}

/// What is submitted in a round.
type Batch = Vec<(String, Program)>;

impl Soak {
    async fn new(seed: u64) -> Self {
        let toml = "[app]\nmax_concurrent_runs = 3\n[execution]\nmax_artifact_mb = 64";
        Self {
            stand: Stand::with(Default::default(), toml).await,
            random: StdRng::seed_from_u64(seed),
            asked: Vec::new(),
            over: BTreeMap::new(),
            interrupted_starts: 0,
        }
    }

    /// Load, a kill, another daemon, and a look at what it knows; tells what happened.
    async fn round(&mut self, round: u32) -> String {
        let latest = if self.random.random_bool(KILLED_EARLY) {
            LATEST_EARLY_KILL
        } else {
            LATEST_KILL
        };
        let until_kill = self.random.random_range(Duration::ZERO..latest);
        let batch = self.batch();
        let acknowledged = self.submit_until(&batch, until_kill).await;
        self.stand.daemon.kill();
        let killed = Instant::now();
        // Putting things in order can be interrupted, too.
        let mut starts = 0;
        while self.random.random_bool(KILLED_WHILE_STARTING) {
            let after = self
                .random
                .random_range(Duration::ZERO..LATEST_KILL_OF_A_START);
            self.stand.interrupted_start(after).await;
            starts += 1;
        }
        self.interrupted_starts += starts;
        self.stand.daemon.launch();
        let back = killed.elapsed();
        let (submitted, known) = (batch.len(), acknowledged.len());
        self.ask_again(round, batch, &acknowledged).await;
        self.look(round).await;
        let unfinished = self.asked.len() - self.over.len();
        format!(
            "after {:.2} s, {known} of {submitted} runs acknowledged; {}back in {:.2} s; \
             {} runs are over, {unfinished} not yet",
            until_kill.as_secs_f64(),
            match starts {
                0 => String::new(),
                1 => "its start killed, too; ".to_owned(),
                times => format!("{times} of its starts killed, too; "),
            },
            back.as_secs_f64(),
            self.over.len()
        )
    }

    fn batch(&mut self) -> Batch {
        let unfinished = self.asked.len() - self.over.len();
        let more = RUNS_PER_ROUND.min(MOST_UNFINISHED.saturating_sub(unfinished));
        (0..more)
            .map(|_| (nonce(), Program::ALL[self.random.random_range(0..4)]))
            .collect()
    }

    /// Submits for as long as the daemon has, so that the kill comes meanwhile, too. Gives the ids that
    /// were acknowledged, by nonce.
    async fn submit_until(&self, batch: &Batch, time: Duration) -> BTreeMap<String, String> {
        let kill_at = Instant::now() + time;
        let mut acknowledged = BTreeMap::new();
        let submitting = async {
            for (nonce, program) in batch {
                let body = body(*program, nonce);
                if let Some(id) = self.stand.try_submit(&body, Some(nonce)).await {
                    acknowledged.insert(nonce.clone(), id);
                }
            }
        };
        let _ = tokio::time::timeout(time, submitting).await;
        tokio::time::sleep_until(kill_at.into()).await;
        acknowledged
    }

    /// A client that got no answer asks again with its key: acknowledged or not, one run.
    async fn ask_again(&mut self, round: u32, batch: Batch, known: &BTreeMap<String, String>) {
        for (nonce, program) in batch {
            let body = body(program, &nonce);
            let id = self.stand.try_submit(&body, Some(&nonce)).await;
            let id = id.unwrap_or_else(|| panic!("kill {round}: not accepted"));
            // Another id would mean that the first one was lost after it had been acknowledged.
            let known = known.get(&nonce);
            assert!(known.is_none_or(|known| *known == id), "kill {round}: lost");
            self.asked.push(Asked { id, nonce, program });
        }
    }

    /// Notes what is over, and that some of what was over before is as it was.
    async fn look(&mut self, round: u32) {
        let daemon = &self.stand.daemon;
        for (id, earlier) in sample(&self.over, &mut self.random) {
            assert_eq!(seen(daemon, id).await, *earlier, "kill {round}");
        }
        for run in &self.asked {
            if !self.over.contains_key(&run.id) {
                let now = seen(daemon, &run.id).await;
                if is_over(&now) {
                    self.over.insert(run.id.clone(), now);
                }
            }
        }
    }

    /// Waits for the end of all runs and checks what has to be true then.
    async fn conclude(&mut self) -> Tally {
        let tally = check(&mut self.stand, &self.asked).await;
        for (id, earlier) in &self.over {
            let now = seen(&self.stand.daemon, id).await;
            assert_eq!(now, *earlier, "a final record changed");
        }
        assert_descriptors_come_back(&self.stand).await;
        tally
    }
}

fn body(program: Program, nonce: &str) -> Value {
    json!({ "code": program.text(nonce), "options": { "timeout_seconds": 60 } })
}

/// Some of the runs that are over.
fn sample<'a>(
    over: &'a BTreeMap<String, Value>,
    random: &mut StdRng,
) -> Vec<(&'a String, &'a Value)> {
    let entries: Vec<_> = over.iter().collect();
    (0..LOOKED_AT_AGAIN.min(entries.len()))
        .map(|_| entries[random.random_range(0..entries.len())])
        .collect()
}

/// A run costs descriptors for as long as it takes.
async fn assert_descriptors_come_back(stand: &Stand) {
    stand.assert_heals().await;
    let before = stand.daemon.descriptors();
    for program in Program::ALL {
        stand.daemon.run(body(program, &nonce())).await;
    }
    let bound = Duration::from_secs(30);
    let open = async || stand.daemon.descriptors();
    until(bound, open, |open| *open <= before + 2).await;
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}
