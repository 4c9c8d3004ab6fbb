#!/bin/sh
# Makes the root file system of the sandbox image out of the base: packages in,
# package managers and privileges out, users and mount points added. Ends with
# check.py, so that a root that breaks a promise is never built.
set -eu

export DEBIAN_FRONTEND=noninteractive

# The OpenMP runtime that LightGBM's wheel expects of the system.
apt-get update
apt-get install --yes --no-install-recommends libgomp1

# The first site directory is the one for local packages, in Debian's Python
# and in the official images alike.
site=$(python3 -c 'import site; print(site.getsitepackages()[0])')
mkdir -p "$site"

# What the official images bring: pip and its kin.
rm -rf "$site"/pip "$site"/pip-* "$site"/setuptools* "$site"/pkg_resources \
    "$site"/_distutils_hack "$site"/distutils-precedence.pth "$site"/wheel*
rm -f /usr/local/bin/pip* /usr/local/bin/wheel /usr/local/bin/idle* /usr/local/bin/pydoc*
cp -R /build/packages/. "$site"/

# A name for every uid that a sandbox may get: getpass.getuser() and
# pathlib.Path.home() look it up.
uid=50000
while [ "$uid" -lt 50256 ]; do
    name=sandbox$((uid - 50000))
    echo "$name:x:$uid:$uid::/work/.home:/usr/sbin/nologin" >>/etc/passwd
    echo "$name:x:$uid:" >>/etc/group
    uid=$((uid + 1))
done

# Mount points. The root is read-only at run time, so they have to be here.
for directory in /work /data /fumehood; do
    mkdir -p "$directory"
    chown 0:0 "$directory"
    chmod 0755 "$directory"
done

# Compiled once here: at run time nothing could be written beside the sources.
# Unchecked, because copies do not promise to keep modification times.
stdlib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
rm -rf "$stdlib"/ensurepip "$stdlib"/idlelib "$stdlib"/lib2to3/tests "$stdlib"/test
python3 -m compileall -q -f -j 0 --invalidation-mode unchecked-hash "$stdlib" "$site" \
    >/dev/null || true # sources kept for other Python versions do not compile

# The package managers and their files, Perl, which only they need, and
# documentation. The list of installed packages stays, because vulnerability
# scanners read it.
rm -rf /usr/bin/apt* /usr/lib/apt /etc/apt /var/lib/apt \
    /usr/bin/dpkg* /usr/sbin/dpkg* /usr/lib/dpkg /usr/share/dpkg /etc/dpkg /var/lib/dpkg/info \
    /usr/lib/*/libapt-* /usr/bin/py3compile /usr/bin/py3clean \
    /usr/bin/*perl* /usr/share/perl* /usr/lib/*/perl* /usr/lib/*/libperl.so* \
    /usr/share/bug /usr/share/doc /usr/share/info /usr/share/lintian /usr/share/locale \
    /usr/share/man /root/.cache /tmp/* /var/cache/* /var/log/* /var/tmp/*
find /var/lib/dpkg -name '*-old' -delete

# Administration: a sandbox mounts nothing and has no users to manage. What
# stays is what others look for: nologin in the user list, ldconfig in ctypes.
find /usr/sbin -mindepth 1 ! -name nologin ! -name 'ldconfig*' -delete

# A program with setuid or setgid is there to gain a privilege: none is wanted.
# On directories the bit only goes.
find / -xdev -type f -perm /6000 -delete
find / -xdev -type d -perm /6000 -exec chmod a-s {} +

cp /build/check.py /tmp/check.py
rm -rf /build
python3 -I -B /tmp/check.py
rm -rf /tmp/check.py /tmp/*
