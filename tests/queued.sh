#!/usr/bin/env bash
# Kills a daemon that has 100,000 accepted runs waiting, and looks whether all of them are there afterwards.
#
#   tests/queued.sh [NUMBER]
#
# The usual tests do the same with fewer. Needs what tests/run.sh needs, which has it installed.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUMEHOOD_TEST_QUEUED=${1:-100000}
exec cargo test --locked --test integration -- --nocapture all_that_were_accepted_wait_on_after_a_kill
