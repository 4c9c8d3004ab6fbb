# Sourced by deploy/quickstart.sh and tests/run.sh: brings a Debian-like host to the point where
# fumehood can be built and run. Each function does nothing if there is nothing to do.

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { printf '\nerror: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# confirm QUESTION: asks unless YES=1; without a terminal and without YES=1 the answer is no.
confirm() {
    [ "${YES:-0}" = 1 ] && return 0
    [ -t 0 ] || return 1
    printf '%s [y/N] ' "$1"
    read -r reply
    case "$reply" in [yY]*) return 0 ;; *) return 1 ;; esac
}

# ensure_packages COMMAND=PACKAGE...: installs the package of each command that is missing.
ensure_packages() {
    missing=''
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null 2>&1 || PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%=*}" >/dev/null 2>&1 ||
            missing="$missing ${pair#*=}"
    done
    [ -z "$missing" ] && return 0
    command -v apt-get >/dev/null 2>&1 || die "install these first:$missing"
    confirm "Install with apt-get:$missing ?" || die "needed:$missing (or answer yes, or pass --yes)"
    say "Installing$missing"
    as_root apt-get -qq update
    # shellcheck disable=SC2086 # a list of package names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null
}

engine_answers() {
    curl --silent --fail --max-time 5 --unix-socket /var/run/docker.sock http://engine/_ping >/dev/null 2>&1
}

# ensure_engine LOG: starts Docker Engine if it does not answer; installs it if there is none.
ensure_engine() {
    engine_answers && return 0
    # The engine's own recommendations are needed: it makes its networks with iptables.
    ensure_packages dockerd=docker.io iptables=iptables
    say "Starting Docker Engine"
    if [ -d /run/systemd/system ]; then
        as_root systemctl start docker
    else
        as_root sh -c 'setsid dockerd >"$1" 2>&1 </dev/null &' sh "$1"
    fi
    tries=0
    until engine_answers; do
        tries=$((tries + 1))
        [ "$tries" -le 120 ] || die "Docker Engine does not answer; its log is $1 (or: journalctl -u docker)"
        [ -S /var/run/docker.sock ] && [ ! -w /var/run/docker.sock ] &&
            die "this user may not use Docker Engine: run as root, or join the group docker and log in again"
        sleep 0.5
    done
}

# ensure_rust: the toolchain itself follows from rust-toolchain.toml.
ensure_rust() {
    command -v cargo >/dev/null 2>&1 && return 0
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env" && command -v cargo >/dev/null 2>&1 && return 0
    confirm "Install Rust with rustup for this user?" || die "Rust is needed: see https://rustup.rs, or pass --yes"
    say "Installing Rust"
    curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs |
        sh -s -- -y --profile minimal --default-toolchain none
    . "$HOME/.cargo/env"
}
