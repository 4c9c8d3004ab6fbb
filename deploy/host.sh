# Sourced by deploy/quickstart.sh and tests/run.sh: brings a Debian-like host to the point where
# fumehood can be built and run. Each function does nothing if there is nothing to do.

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
die() { printf '\nerror: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        die "this needs root and there is no sudo: run it as root: $*"
    fi
}

# confirm QUESTION: asks unless YES=1; without a terminal and without YES=1 the answer is no.
confirm() {
    [ "${YES:-0}" = 1 ] && return 0
    [ -t 0 ] || return 1
    printf '%s [y/N] ' "$1"
    read -r reply
    case "$reply" in [yY]*) return 0 ;; *) return 1 ;; esac
}

# ensure_packages COMMAND=PACKAGE...: installs the package of each command that is missing; a
# "command" that begins with / is a file.
ensure_packages() {
    missing=''
    for pair in "$@"; do
        case "$pair" in
            /*) [ -e "${pair%%=*}" ] || missing="$missing ${pair#*=}" ;;
            *) PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%=*}" >/dev/null 2>&1 || missing="$missing ${pair#*=}" ;;
        esac
    done
    [ -z "$missing" ] && return 0
    command -v apt-get >/dev/null 2>&1 || die "install these first:$missing"
    confirm "Install with apt-get:$missing ?" || die "needed:$missing (or answer yes, or pass --yes)"
    say "Installing$missing"
    as_root apt-get -qq update
    # shellcheck disable=SC2086 # a list of package names
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $missing >/dev/null
}

# The engine's socket: where the fumehood program looks for it, too.
case "${DOCKER_HOST:-}" in
    unix://*) engine_socket=${DOCKER_HOST#unix://} ;;
    *) engine_socket=/var/run/docker.sock ;;
esac

# Packages that both scripts need. Without the certificates nothing can be fetched.
basics='curl=curl jq=jq cc=build-essential mmdebstrap=mmdebstrap git=git
    /etc/ssl/certs/ca-certificates.crt=ca-certificates'

engine_answers() {
    curl --silent --fail --max-time 5 --noproxy '*' --unix-socket "$engine_socket" http://engine/_ping >/dev/null 2>&1
}

# join_engine_group: a user that may not use the engine yet starts this script again as one that may.
join_engine_group() {
    if [ -n "${FUMEHOOD_JOINED:-}" ] || ! getent group docker >/dev/null; then
        die "this user may not use Docker Engine: run as root, or join its group and log in again"
    fi
    confirm "Let $(id -un) use Docker Engine, which amounts to root on this machine?" ||
        die "this user may not use Docker Engine: run as root, or join the group docker"
    as_root usermod -aG docker "$(id -un)"
    say "Going on as a member of the group docker"
    exec sg docker -c "FUMEHOOD_JOINED=1 $script_command"
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
        if [ -S "$engine_socket" ] && [ ! -w "$engine_socket" ]; then
            join_engine_group
        fi
        sleep 0.5
    done
}

# ensure_rust: the toolchain itself follows from rust-toolchain.toml.
ensure_rust() {
    [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
    # A distribution's cargo is too old and does not know rust-toolchain.toml: rustup has to be there.
    command -v rustup >/dev/null 2>&1 && command -v cargo >/dev/null 2>&1 && return 0
    confirm "Install Rust with rustup for this user?" || die "Rust is needed: see https://rustup.rs, or pass --yes"
    say "Installing Rust"
    curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs |
        sh -s -- -y --profile minimal --default-toolchain none
    . "$HOME/.cargo/env"
}
