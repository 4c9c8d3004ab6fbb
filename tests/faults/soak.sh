#!/usr/bin/env bash
# Kills the daemon at random instants under load and checks afterwards what was promised.
#
#   tests/faults/soak.sh N          so many kills; SOAK_SEED=... repeats the instants of an earlier soak
#
# Needs root, Docker Engine and the sandbox image (tests/run.sh sees to all of them).
set -euo pipefail
cd "$(dirname "$0")/../.."
case "${1:-}" in
    '' | *[!0-9]*) echo "usage: tests/faults/soak.sh N" >&2; exit 2 ;;
esac
export SOAK_ROUNDS=$1
exec cargo test --locked --test faults -- \
    --ignored --exact --nocapture soak::killed_at_random_instants_under_load_it_keeps_every_promise
