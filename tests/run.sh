#!/usr/bin/env bash
# Runs every test: installs and starts what they need, ends with the counts. Safe to run again.
#
#   tests/run.sh [CARGO TEST FILTER]      with a filter: only the integration tests that match
#
# FUZZ_SECONDS (default 20) is how long each fuzz target runs.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/host.sh

YES=1
mkdir -p target
log=$PWD/target/test-output.log
: >"$log"
failed_steps=''

# step NAME COMMAND...: a failing step does not keep the others from running.
step() {
    name=$1
    shift
    say "$name"
    if ! "$@" 2>&1 | tee -a "$log"; then
        failed_steps="$failed_steps${failed_steps:+, }$name"
    fi
}

# installed TOOL VERSION: a cargo tool of this very version, built if need be.
installed() {
    "cargo" "${1#cargo-}" --version 2>/dev/null | grep -q "$2" || cargo install --quiet --locked "$1" --version "$2"
}

advisories() {
    if timeout 20 git ls-remote --quiet --exit-code https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
        cargo deny --locked check advisories
    else
        echo "The advisory database is not reachable from here: advisories were NOT checked."
    fi
}

fuzz() {
    if ! cargo +nightly --version >/dev/null 2>&1; then
        echo "There is no nightly toolchain here, which fuzzing needs: fuzz targets were NOT run."
        return 0
    fi
    installed cargo-fuzz 0.13.2
    for target in $(cargo +nightly fuzz list); do
        mkdir -p "fuzz/corpus/$target"
        cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
            -max_total_time="${FUZZ_SECONDS:-20}" -timeout=10 -print_final_stats=1 2>&1 | tail -n 15
    done
}

ensure_packages curl=curl jq=jq cc=build-essential mmdebstrap=mmdebstrap git=git python3=python3 setpriv=util-linux
ensure_engine "$PWD/target/dockerd.log"
ensure_rust

if [ $# -eq 0 ]; then
    step "Format" cargo fmt --all --check
    step "Lints" cargo clippy --locked --workspace --all-targets -- --deny warnings
    step "Documentation" env RUSTDOCFLAGS='--deny warnings' cargo doc --locked --workspace --no-deps --document-private-items
    step "Scripts" bash -n deploy/quickstart.sh tests/run.sh deploy/host.sh
    step "Unit tests" cargo test --locked --workspace --lib --bins --test tidy
    step "Supervisor tests" cargo test --locked --package fumehood-supervisor --tests
fi
step "Sandbox image" cargo run --locked --quiet -- image build
# Few at a time: each has a daemon and containers of its own, and deadlines to keep.
step "Integration tests" cargo test --locked --test integration -- --test-threads=2 "$@"
if [ $# -eq 0 ]; then
    installed cargo-deny 0.20.2
    step "Dependencies" cargo deny --locked check bans licenses sources
    step "Advisories" advisories
    step "Fuzzing" fuzz
fi

passed=$(grep -oE '^test result: .* ([0-9]+) passed' "$log" | grep -oE '[0-9]+ passed' | awk '{n += $1} END {print n + 0}')
failed=$(grep -oE '[0-9]+ failed' <(grep '^test result:' "$log") | awk '{n += $1} END {print n + 0}')
say "Result"
[ -z "$failed_steps" ] || echo "Failed: $failed_steps"
echo "$passed passed, $failed failed"
[ -z "$failed_steps" ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
