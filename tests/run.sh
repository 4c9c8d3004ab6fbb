#!/usr/bin/env bash
# Runs every test: installs and starts what they need, ends with the counts. Safe to run again.
#
#   tests/run.sh [CARGO TEST FILTER]      with a filter: only the integration tests that match
#
# FUZZ_SECONDS (default 10) is how long each fuzz target runs, SOAK_ROUNDS (default 25) how often the
# soak kills the daemon.
set -euo pipefail
cd "$(dirname "$0")/.."
script_command=$(printf '%q ' "$PWD/tests/run.sh" "$@")
. deploy/host.sh

YES=1
mkdir -p target
log=$PWD/target/test-output.log
: >"$log"
failed_steps=''
durations=''

# step NAME COMMAND...: a failing step does not keep the others from running.
step() {
    name=$1
    began=$SECONDS
    shift
    say "$name"
    if ! "$@" 2>&1 | tee -a "$log"; then
        failed_steps="$failed_steps${failed_steps:+, }$name"
    fi
    durations="$durations${durations:+, }${name,,} $((SECONDS - began)) s"
}

# installed TOOL VERSION: a cargo tool of this very version, built if need be.
installed() {
    "cargo" "${1#cargo-}" --version 2>/dev/null | grep -q "$2" || cargo install --quiet --locked "$1" --version "$2"
}

# Each is called with "set -e" off, as part of a condition: every command tells its own failure.
scripts() {
    for script in deploy/*.sh tests/*.sh tests/faults/*.sh benches/*.sh images/python/*.sh .ci/run; do
        bash -n "$script" || return 1
    done
}

dependencies() {
    installed cargo-deny 0.20.2 && cargo deny --locked check bans licenses sources
}

# The bill of materials, and that nothing of what is linked is missing in it.
sbom() {
    installed cargo-sbom 0.10.0 || return 1
    cargo sbom --output-format cyclone_dx_json_1_6 >target/fumehood.cdx.json || return 1
    linked=$(cargo tree --locked --workspace --edges normal --prefix none --format '{p}' | sed -nE 's/^([^ ]+) v([^ ]+)( \(proc-macro\))?( \(\*\))?$/\1@\2/p' | sort -u) || return 1
    for crate in $linked; do
        grep -q "\"pkg:cargo/${crate//+/%2B}\"\|\"pkg:cargo/$crate\"" target/fumehood.cdx.json || { echo "missing in the bill of materials: $crate"; return 1; }
    done
    echo "target/fumehood.cdx.json: $(wc -w <<<"$linked") crates"
}

advisories() {
    if timeout 20 git ls-remote --quiet --exit-code https://github.com/RustSec/advisory-db HEAD >/dev/null 2>&1; then
        installed cargo-deny 0.20.2 && cargo deny --locked check advisories
    else
        skip "advisories (their database is not reachable from here)"
    fi
}

fuzz() {
    if ! cargo +nightly --version >/dev/null 2>&1; then
        skip "fuzzing (needs a nightly toolchain: rustup toolchain install nightly)"
        return 0
    fi
    installed cargo-fuzz 0.13.2 || return 1
    targets=$(cargo +nightly fuzz list) || return 1
    # All at once, and built like the tests: for a few seconds an optimised build is not worth its minutes.
    cargo +nightly fuzz build --dev >target/fuzz.log 2>&1 || { tail -n 50 target/fuzz.log; return 1; }
    # shellcheck disable=SC2086 # a list
    printf '%s\n' $targets | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz_one {}'
}

# Each uses one CPU.
fuzz_one() {
    mkdir -p "fuzz/corpus/$1"
    if cargo +nightly fuzz run --dev "$1" "fuzz/corpus/$1" "fuzz/seeds/$1" -- -max_total_time="${FUZZ_SECONDS:-10}" \
        -timeout=10 -print_final_stats=1 >"target/fuzz-$1.log" 2>&1; then
        printf '%s: %s\n' "$1" "$(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "target/fuzz-$1.log")"
    else
        tail -n 50 "target/fuzz-$1.log"
        return 1
    fi
}
export -f fuzz_one

# python_environment DIRECTORY: what the Python client is tested with, in the versions that are written down.
python_environment() {
    requirements=clients/python/requirements-test.txt
    [ -f "$1/requirements" ] && cmp -s "$requirements" "$1/requirements" && return 0
    rm -rf "$1"
    python3 -m venv "$1" || return 1
    "$1/bin/pip" install --quiet --no-compile --require-hashes --requirement "$requirements" || return 1
    cp "$requirements" "$1/requirements"
}

# The client as its users get it, a wheel, against the daemon that was built.
python_client() {
    venv=$PWD/target/python-client
    python_environment "$venv" || return 1
    "$venv/bin/pip" install --quiet --force-reinstall --no-deps --no-build-isolation ./clients/python || return 1
    (
        cd clients/python || exit 1
        status=0
        "$venv/bin/ruff" format --check . || status=1
        "$venv/bin/ruff" check . || status=1
        "$venv/bin/mypy" || status=1
        FUMEHOOD_BIN=$PWD/../../target/debug/fumehood "$venv/bin/pytest" --quiet || status=1
        exit "$status"
    )
}

# A part of the fault bench; the whole takes longer than a change should wait.
faults() {
    if [ "$(id -u)" -ne 0 ]; then
        skip "the fault bench (needs root, for an engine and disks of its own)"
    elif ! PATH=$PATH:/usr/sbin:/sbin command -v dockerd >/dev/null; then
        skip "the fault bench (needs dockerd here, for an engine of its own)"
    else
        tests/faults/run.sh quick
    fi
}

# What was left out is said again at the end. A file, since steps run in subshells.
skip() {
    echo "$1: SKIPPED"
    echo "$1" >>target/skipped
}
: >target/skipped

# shellcheck disable=SC2086 # a list
ensure_packages $basics python3=python3 setpriv=util-linux
python3 -c 'import ensurepip' 2>/dev/null || ensure_packages /usr/share/doc/python3-venv=python3-venv
ensure_engine "$PWD/target/dockerd.log"
ensure_rust
# The hostile programs are run on both runtimes where both can be had: then a missing one is a failure. What cannot be
# downloaded is none.
if ensure_gvisor; then
    export TESTS_REQUIRE_RUNSC=1
else
    skip "tests on gVisor (the engine has no runtime runsc)"
fi

if [ $# -eq 0 ]; then
    step "Format" cargo fmt --all --check
    step "Lints" cargo clippy --locked --workspace --all-targets -- --deny warnings
    step "Documentation" env RUSTDOCFLAGS='--deny warnings' cargo doc --locked --workspace --no-deps --document-private-items
    step "Scripts" scripts
    step "Tests of the benchmark" python3 -m unittest discover -t benches -s benches/tests
    step "Unit tests" cargo test --locked --workspace --no-fail-fast --lib --bins --test tidy
    step "Supervisor tests" cargo test --locked --package fumehood-supervisor --test integration
fi
# Together, so that no core waits for the other.
[ $# -ne 0 ] || step "Build of the tests" cargo test --locked --no-run --test integration --test faults
step "Sandbox image" cargo run --locked --quiet -- image build
# Few at a time: each has a daemon and containers of its own, and deadlines to keep. Hostile programs are among
# themselves: they are looked at for what they do to the disk and to others.
# Those that wait most of their time, for deadlines and for an engine that does not answer.
waiting='engine:: faults:: unavailable:: moments::a_sandbox_that_appears'
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # a list
    step "Integration tests" cargo test --locked --test integration -- --test-threads=2 --skip hostile:: --skip load:: $(printf -- '--skip %s ' $waiting)
    # How soon it answers under load is looked at without any other load.
    step "Tests under load" cargo test --locked --test integration -- --test-threads=1 load::
    # shellcheck disable=SC2086 # a list
    step "Tests that wait" cargo test --locked --test integration -- --test-threads=4 $waiting
    step "Hostile programs" cargo test --locked --test integration -- --test-threads=2 hostile::
else
    step "Integration tests" cargo test --locked --test integration -- --test-threads=2 "$@"
fi
if [ $# -eq 0 ]; then
    step "Python client" python_client
    step "Fault bench" faults
    step "Dependencies" dependencies
    step "Advisories" advisories
    step "Bill of materials" sbom
    step "Fuzzing" fuzz
fi

passed=$(grep -oE '^test result: .* ([0-9]+) passed' "$log" | grep -oE '[0-9]+ passed' | awk '{n += $1} END {print n + 0}') || passed=0
failed=$(grep -oE '[0-9]+ failed' <(grep '^test result:' "$log") | awk '{n += $1} END {print n + 0}') || failed=0
say "Result"
# Once more at the end, where a person or a shortened log looks first.
awk '/^failures:$/ {shown = 1} /^test result:/ {shown = 0} shown' "$log" | tail -n 200
while read -r what; do echo "Skipped: $what"; done <target/skipped
[ -z "$failed_steps" ] || echo "Failed: $failed_steps"
echo "Took $((SECONDS / 60)) min $((SECONDS % 60)) s: $durations"
echo "$passed passed, $failed failed"
[ -z "$failed_steps" ] && [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
