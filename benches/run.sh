#!/usr/bin/env bash
# The benchmark: fumehood beside other ways to run a Python program, on this host's engine.
#
#   benches/run.sh [--yes] [--quick] [--runs N] [--only NAME,…] [--help, for the rest]
#
# Installs what is missing (after asking, or with --yes), builds fumehood and the sandbox image,
# makes two Python environments under target/, measures, and writes benches/results/. Safe to run
# again and to interrupt. The host should have nothing else to do meanwhile.
#
# FUMEHOOD names a daemon to measure instead of building one; PYTHON the interpreter to use.
set -euo pipefail
cd "$(dirname "$0")/.."
script_command=$(printf '%q ' "$PWD/benches/run.sh" "$@")
. deploy/host.sh

YES=0
arguments=()
for argument in "$@"; do
    case "$argument" in
        --yes) YES=1 ;;
        *) arguments+=("$argument") ;;
    esac
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PYTHONPATH=$PWD/benches PYTHONDONTWRITEBYTECODE=1

# shellcheck disable=SC2086 # a list
ensure_packages $basics python3=python3 docker=docker.io wrk=wrk
# The interpreter itself: what stands in PATH may be a shim that costs more than the interpreter.
python=${PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=$(command -v python3)
python=$("$python" -c 'import sys; print(sys._base_executable)')
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed: set PYTHON"
case " ${arguments[*]-} " in
    *' --help '* | *' -h '*) exec "$python" -m fumehood_bench --help ;;
esac
# Debian's python3 comes without what makes environments.
"$python" -c 'import ensurepip' 2>/dev/null || ensure_packages /usr/lib/ensurepip=python3-venv

# environment DIRECTORY REQUIREMENTS: a virtual environment with exactly these; made anew if they or
# the interpreter have changed.
environment() {
    wanted=$("$python" -VV && cat "$2")
    [ "$(cat "$1/made-of" 2>/dev/null)" = "$wanted" ] && return 0
    say "Making the Python environment $(basename "$1")"
    rm -rf "$1"
    "$python" -m venv "$1"
    "$1/bin/python" -m pip --quiet --disable-pip-version-check install --requirement "$2"
    # As in the image: compiled before the first run.
    "$1/bin/python" -m compileall -q "$1/lib" >/dev/null || true
    printf '%s\n' "$wanted" >"$1/made-of"
}
mkdir -p "$target"
environment "$target/bench-venv" benches/requirements.txt
# The same wheels as in the image, and nothing else.
environment "$target/bench-venv-bare" images/python/requirements.txt

ensure_engine "$target/dockerd.log"
fumehood=${FUMEHOOD:-$target/release/fumehood}
if [ -z "${FUMEHOOD:-}" ]; then
    ensure_rust
    say "Building fumehood"
    cargo build --release --locked
fi
say "Making the sandbox image"
"$fumehood" image build

say "Measuring"
exec "$target/bench-venv/bin/python" -m fumehood_bench \
    --daemon "$fumehood" \
    --bare-python "$target/bench-venv-bare/bin/python" \
    --work "$target/bench-work" "${arguments[@]}"
