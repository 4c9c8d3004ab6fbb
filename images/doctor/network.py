"""Whom the program can reach: rows 2, 48 to 52, 64."""

import os
import socket
import time

from doctor import name, text

# Public, private, metadata services in their spellings, the engine's usual TCP ports.
ADDRESSES = [
    ("1.1.1.1", 53), ("8.8.8.8", 443), ("10.0.0.1", 80), ("172.17.0.1", 2375), ("172.17.0.1", 2376),
    ("192.168.0.1", 80), ("169.254.169.254", 80), ("2852039166", 80), ("0xa9fea9fe", 80),
    ("fd00:ec2::254", 80), ("2606:4700:4700::1111", 53),
]

NAMES = ["example.com", "metadata.google.internal"]


def connect(address, port):
    """`ok`, or the name of the error; at most a second."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as end:
            end.settimeout(1)
            end.connect((socket.inet_ntoa(socket.inet_aton(address)) if family == socket.AF_INET else address, port))
        return "ok"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return name(error.errno)


def neighbour(address):
    """Whether the sandbox beside this one can be spoken to."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            end.settimeout(1)
            end.connect("\0" + address)
        return "ok"
    except OSError as error:
        return name(error.errno)


def resolve(host):
    try:
        socket.getaddrinfo(host, 80)
        return "ok"
    except OSError as error:
        return type(error).__name__


def seen(settings):
    begun = time.monotonic()
    connections = {f"{address} {port}": connect(address, port) for address, port in ADDRESSES}
    slowest = time.monotonic() - begun
    unix = [line.split()[-1] for line in text("/proc/net/unix").splitlines()[1:]]
    return {
        "neighbour": neighbour(settings["neighbour"]),
        "connections": connections,
        "connecting_milliseconds": int(slowest * 1000),
        "interfaces": [line.split(":")[0].strip() for line in text("/proc/net/dev").splitlines()[2:] if ":" in line],
        "names": {host: resolve(host) for host in NAMES},
        "resolver": [line for line in text("/etc/resolv.conf").splitlines() if line.startswith("nameserver")],
        "unix_sockets": [path for path in unix if path.startswith(("/", "@"))],
        "cluster": sorted(key for key in os.environ if key.startswith("KUBERNETES_") or key.endswith("_SERVICE_HOST"))
        + [path for path in ("/var/run/secrets", "/run/secrets") if os.path.exists(path)],
    }
