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

# engine_has_runtime NAME
engine_has_runtime() {
    curl --silent --fail --max-time 30 --noproxy '*' --unix-socket "$engine_socket" http://engine/info 2>/dev/null |
        jq --exit-status --arg name "$1" '.Runtimes | has($name)' >/dev/null 2>&1
}

# ensure_gvisor: gives the engine the runtime runsc, from the distribution's package. Tells why and returns 1
# if it cannot, after three minutes and a half at most. What stands in the engine's configuration stays; if the
# engine does not take the new one, the old one is put back.
ensure_gvisor() {
    engine_has_runtime runsc && return 0
    case "$engine_socket" in
        /var/run/docker.sock | /run/docker.sock) ;;
        *) echo "the engine at $engine_socket is not this host's own"; return 1 ;;
    esac
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
        echo "this needs root"
        return 1
    fi
    if ! command -v runsc >/dev/null 2>&1; then
        command -v apt-get >/dev/null 2>&1 || { echo "there is no apt-get to install runsc with"; return 1; }
        confirm "Install gVisor (the package runsc) with apt-get?" || { echo "runsc is not installed"; return 1; }
        say "Installing runsc"
        as_root timeout 60 apt-get -qq update || echo "the list of packages could not be brought up to date"
        as_root timeout 120 env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends runsc >/dev/null ||
            { echo "the package runsc cannot be had here"; return 1; }
    fi
    # Some hosts forbid what gVisor is built on. A runtime that starts nothing is not given to the engine.
    as_root timeout 60 runsc --network=none do true ||
        { echo "gVisor is installed, but starts no sandbox on this host"; return 1; }
    confirm "Add the runtime runsc to the engine's configuration?" || { echo "the engine has no runtime runsc"; return 1; }
    add_runtime runsc "$(command -v runsc)"
}

# add_runtime NAME PROGRAM: into /etc/docker/daemon.json, which the engine then reads again. A sandbox has no
# network: gVisor is not to set one up, either.
add_runtime() {
    configuration=$(readlink -m /etc/docker/daemon.json)
    as_root mkdir -p "$(dirname "$configuration")" || return 1
    nothing='{}'
    before=$(as_root cat "$configuration" 2>/dev/null) || before=''
    # What is there under this name already is not touched; an empty file is as good as none.
    after=$(printf '%s' "${before:-$nothing}" | jq --arg name "$1" --arg program "$2" \
        '.runtimes[$name] //= {path: $program, runtimeArgs: ["--network=none"]}') ||
        { echo "$configuration is no JSON that could be added to"; return 1; }
    say "Adding $1 to $configuration"
    printf '%s\n' "$after" | as_root tee "$configuration.new" >/dev/null || return 1
    if as_root test -e "$configuration"; then
        as_root chmod --reference="$configuration" "$configuration.new" || return 1
        as_root cp -p "$configuration" "$configuration.before" || return 1
    fi
    as_root mv "$configuration.new" "$configuration" || return 1
    if reload_engine && wait_for_runtime "$1"; then
        as_root rm -f "$configuration.before"
        return 0
    fi
    echo "the engine does not take $configuration with $1 in it: what was there before is put back"
    as_root mv "$configuration.before" "$configuration" 2>/dev/null || as_root rm -f "$configuration"
    reload_engine
    return 1
}

# reload_engine: it reads its configuration again, and its containers go on.
reload_engine() {
    if [ -d /run/systemd/system ]; then
        as_root systemctl reload docker
    else
        as_root sh -c 'kill -HUP "$(cat /var/run/docker.pid)"'
    fi
}

wait_for_runtime() {
    tries=0
    until engine_has_runtime "$1"; do
        tries=$((tries + 1))
        [ "$tries" -le 40 ] || return 1
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
