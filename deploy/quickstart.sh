#!/usr/bin/env bash
# From a fresh Debian machine to a model trained in a sandbox, in one command.
#
#   deploy/quickstart.sh [--yes] [--listen ADDRESS:PORT]
#
# Installs what is missing (after asking, or with --yes), builds fumehood and the sandbox image,
# starts the daemon on loopback, submits the example and shows its result. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
script_command=$(printf '%q ' "$PWD/deploy/quickstart.sh" "$@")
. deploy/host.sh

YES=0
listen=127.0.0.1:8000
while [ $# -gt 0 ]; do
    case "$1" in
        --yes) YES=1 ;;
        --listen) listen=${2:?--listen needs an address}; shift ;;
        *) die "unknown argument: $1 (known: --yes, --listen ADDRESS:PORT)" ;;
    esac
    shift
done
state=.fumehood
mkdir -p "$state"

# shellcheck disable=SC2086 # a list
ensure_packages $basics
ensure_engine "$PWD/$state/dockerd.log"
ensure_rust

say "Building fumehood"
cargo build --release --locked
fumehood=${CARGO_TARGET_DIR:-target}/release/fumehood

say "Making the sandbox image"
"$fumehood" image build

say "Writing public data sets to data/ (by a program in a sandbox)"
if [ ! -f data/breast_cancer/train.csv ]; then
    made=$("$fumehood" run --json tests/fixtures/datasets.py) || die "the data sets could not be written: $made"
    mkdir -p data
    cp -r "outputs/models/$(jq -r .execution_id <<<"$made")/." data/
fi
ls data

url=http://$listen
ask() { curl --silent --show-error --noproxy '*' --max-time 300 "$@"; }
# Whether the daemon that this script started before is still there: its pid may be another's by now.
ours() { [ -f "$state/serve.pid" ] && [ "$(readlink "/proc/$(cat "$state/serve.pid")/exe" 2>/dev/null)" = "$(realpath "$fumehood")" ]; }
if ours && ask "$url/settings" 2>/dev/null | jq -e .limits >/dev/null 2>&1; then
    say "The daemon of this checkout listens on $url already: using it"
else
    if ask "$url/health" >/dev/null 2>&1; then
        die "something else listens on $listen: stop it, or pass --listen 127.0.0.1:PORT"
    fi
    say "Starting the daemon on $url"
    FUMEHOOD_API__LISTEN=$listen setsid "$fumehood" serve >"$state/serve.log" 2>&1 </dev/null &
    echo $! >"$state/serve.pid"
    for _ in $(seq 100); do
        [ "$(ask "$url/live" 2>/dev/null | jq -r .status 2>/dev/null)" = ok ] && break
        kill -0 "$(cat "$state/serve.pid")" 2>/dev/null || { cat "$state/serve.log" >&2; die "the daemon did not start"; }
        sleep 0.2
    done
fi
# It examines the sandboxes of this host first, which takes some seconds.
for _ in $(seq 300); do
    readiness=$(ask "$url/ready") || die "the daemon does not answer; its log: $state/serve.log"
    grep -q "not been examined yet" <<<"$readiness" || break
    sleep 0.2
done
jq -e '.status == "ready"' <<<"$readiness" >/dev/null || die "the daemon is not ready: $readiness"

say "Submitting examples/train.py on data/breast_cancer"
answer=$(jq -n --rawfile code examples/train.py \
    '{dataset_path: "data/breast_cancer", code: $code, expected_output_files: ["predictions.csv", "summary.json"]}' |
    ask -H 'Content-Type: application/json' -H 'Prefer: wait=200' --data-binary @- "$url/runs")
jq -e .run_id <<<"$answer" >/dev/null || die "the run was not accepted: $answer"
jq '{run_id, status, final_metrics, prediction_artifact_reference, model_artifact_reference,
     seconds: .execution_duration, usage: .result.usage, warnings: .result.warnings}' <<<"$answer"
jq -r '.result.stdout' <<<"$answer"
jq -e '.status == "SUCCESS"' <<<"$answer" >/dev/null || die "the example did not succeed: $(jq -r .final_error <<<"$answer")"

say "Artifacts in outputs/models/$(jq -r .result.execution_id <<<"$answer")"
(cd "outputs/models/$(jq -r .result.execution_id <<<"$answer")" && find . -type f -printf '%10s  %P\n' | sort -k2)

say "Done"
echo "The daemon goes on: curl $url/runs"
echo "Stop it with: kill $(cat "$state/serve.pid")      (its log: $state/serve.log)"
echo "A program of yours, without the daemon: $fumehood run script.py --dataset DIR"
