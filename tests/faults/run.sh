#!/usr/bin/env bash
# The fault bench. Needs root, and what tests/run.sh installs, starts and builds.
#
#   tests/faults/run.sh          every row, the soak, and that a release build has no fault points
#   tests/faults/run.sh quick    the part that tests/run.sh runs: some rows, and the soak
#
# SOAK_ROUNDS (default 25) is how often the soak kills the daemon.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PATH:/usr/sbin:/sbin

# Of each kind of fault those that take a few seconds. A name that no test has is noticed (matrix.rs).
quick='
    bench::
    matrix::
    release::
    kills::r0_
    kills::r1_
    kills::killed_at_any_point_after_its_start_a_run_ends_once_and_leaves_nothing
    engine_down::f5_
    engine_down::f6_while_the_engine_is_away_runs_are_told
    engine_odd::f10_
    disks::f14_
    clock::the_injected_clock_
    store::f15_a_torn_end_
'

# One test at a time: there is one engine to spoil.
case "${1:-}" in
    '')
        cargo test --locked --test faults -- --test-threads=1
        cargo build --locked --release
        cargo test --locked --test faults -- --ignored release::
        ;;
    quick)
        # shellcheck disable=SC2086 # a list
        cargo test --locked --test faults -- --test-threads=1 $quick
        ;;
    *)
        echo "usage: tests/faults/run.sh [quick]" >&2
        exit 2
        ;;
esac
exec tests/faults/soak.sh "${SOAK_ROUNDS:-25}"
