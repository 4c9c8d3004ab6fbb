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

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"

# shellcheck disable=SC2086 # a list
ensure_packages $basics python3=python3 /usr/share/doc/python3-venv=python3-venv docker=docker.io wrk=wrk
# The interpreter itself: what stands in PATH may be a shim that costs more than the interpreter.
python=${PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=$(command -v python3)
python=$("$python" -c 'import sys; print(sys._base_executable)')
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed: set PYTHON"

# environment DIRECTORY REQUIREMENTS...: a virtual environment with exactly these; made anew if
# they or the interpreter have changed.
environment() {
    directory=$1
    shift
    wanted=$("$python" -VV && cat "$@")
    [ "$(cat "$directory/made-of" 2>/dev/null)" = "$wanted" ] && return 0
    say "Making the Python environment $directory"
    rm -rf "$directory"
    "$python" -m venv "$directory"
    for requirements in "$@"; do
        "$directory/bin/python" -m pip --quiet --disable-pip-version-check install --requirement "$requirements"
    done
    # As in the image: compiled before the first run.
    "$directory/bin/python" -m compileall -q "$directory/lib" >/dev/null || true
    printf '%s\n' "$wanted" >"$directory/made-of"
}
environment "$target/bench-venv" benches/requirements.txt
case " ${arguments[*]-} " in
    *' --help '* | *' -h '*) ;;
    *)
        # The same wheels as in the image, and nothing else.
        environment "$target/bench-venv-bare" images/python/requirements.txt
        ensure_engine "$PWD/$target/dockerd.log"
        if [ -z "${FUMEHOOD:-}" ]; then
            ensure_rust
            say "Building fumehood"
            cargo build --release --locked
        fi
        say "Making the sandbox image"
        "${FUMEHOOD:-$target/release/fumehood}" image build
        say "Measuring"
        ;;
esac

export PYTHONPATH=$PWD/benches PYTHONDONTWRITEBYTECODE=1
exec "$target/bench-venv/bin/python" -m fumehood_bench \
    --daemon "${FUMEHOOD:-$target/release/fumehood}" \
    --bare-python "$target/bench-venv-bare/bin/python" \
    --work "$target/bench-work" "${arguments[@]}"
