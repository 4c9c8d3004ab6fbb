"""Engine: its sockets, those of its kin, a cluster's token, and devices that lead out of a virtual machine.

Attacks whoever has more rights than a sandbox.
"""

import errno
import json
import os
import socket
import stat

PATHS = [
    "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/podman/podman.sock",
    "/var/lib/kubelet", "/run/k3s/containerd/containerd.sock", "/var/run/secrets/kubernetes.io/serviceaccount/token", "/var/lib/docker",
    "/dev/vsock", "/dev/vhost-vsock", "/dev/kvm", "/dev/fuse", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/net/tun",
]


def attempt(function, *arguments):
    try:
        function(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def is_socket(path):
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


told = {path: attempt(os.stat, path) for path in PATHS}
told["sockets"] = sum(
    is_socket(os.path.join(folder, name))
    for top in os.listdir("/") if top not in ("proc", "sys")
    for folder, _, files in os.walk("/" + top) for name in files
)
told["vsock"] = attempt(lambda: socket.socket(40, socket.SOCK_STREAM).close())
print(json.dumps(told))
