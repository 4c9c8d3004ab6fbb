"""Network: sockets that have no file, of this host's other processes.

Attacks neighbours by names that no mount hides.
"""

import json
import socket

NAMES = ["\0/containerd-shim/x", "\0/tmp/.X11-unix/X0", "\0meeting point", "\0dbus", "/run/systemd/notify", "/run/dbus/system_bus_socket"]

strangers = sum(line.split()[-1].startswith(("/", "@")) for line in list(open("/proc/net/unix"))[1:])
connected = 0
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    for name in NAMES:
        with socket.socket(socket.AF_UNIX, kind) as end:
            try:
                end.connect(name)
                connected += 1
            except OSError:
                pass
print(json.dumps({"strangers": strangers, "connected": connected}))
