"""Network: the metadata service in all its spellings, the engine, the cluster, the daemon, the world.

Attacks whatever has an address (BR-30); each attempt has to fail, and at once.
"""

import errno
import json
import socket
import time
import urllib.request

DAEMON = "@DAEMON@"
TARGETS = [
    ("169.254.169.254", 80), ("2852039166", 80), ("0xa9fea9fe", 80), ("::ffff:169.254.169.254", 80), ("fd00:ec2::254", 80),
    ("169.254.170.2", 80), ("metadata.google.internal", 80), ("host.docker.internal", 8080), ("172.17.0.1", 2375), ("172.17.0.1", 2376),
    ("10.96.0.1", 443), ("kubernetes.default.svc", 443), ("127.0.0.1", 8080), ("::1", 80), ("localhost", 22), ("1.1.1.1", 53),
    ("fe80::1%eth0", 80), ("example.com", 443),
]


def connect(host, port):
    begun = time.monotonic()
    try:
        socket.create_connection((host, port), timeout=8).close()
        outcome = "open"
    except socket.gaierror:
        outcome = "unknown"
    except OSError as error:
        outcome = errno.errorcode.get(error.errno, "timeout")
    return outcome if time.monotonic() - begun < 5 else f"late {outcome}"


host, port = DAEMON.rsplit(":", 1)
told = {"daemon": connect(host, int(port))}
# Where there is a network after all, the rest takes long.
print(json.dumps(told), flush=True)
told.update({f"{host} {port}": connect(host, port) for host, port in TARGETS})
try:
    urllib.request.urlopen("http://example.com/x.csv", timeout=8)
    told["url"] = "open"
except OSError:
    told["url"] = "unknown"
told["interfaces"] = " ".join(sorted(line.split(":")[0].strip() for line in list(open("/proc/net/dev"))[2:]))
print(json.dumps(told))
