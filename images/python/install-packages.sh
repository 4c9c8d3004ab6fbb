#!/bin/sh
# Installs the pinned requirements into /packages. Runs in the first build
# stage, of which only that directory survives.
set -eu

if ! python3 -m pip --version >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install --yes --no-install-recommends python3-pip
fi

# Where outgoing TLS is re-signed, pip has to trust the host's bundle. It stays
# in this stage.
if [ -f /build/ca-certificates.crt ]; then
    export PIP_CERT=/build/ca-certificates.crt
fi

# Hashes are demanded of every file, and wheels only: no set-up code of a
# package runs here, and no compiler is needed.
python3 -m pip install \
    --no-cache-dir --no-compile --no-input --disable-pip-version-check \
    --retries 5 --timeout 60 --progress-bar off \
    --require-hashes --only-binary :all: \
    --target /packages --requirement /build/requirements.txt

# Command line tools, manual pages and test suites: nothing imports them.
rm -rf /packages/bin /packages/share
find /packages -type d -name tests -prune -exec rm -rf {} +
rm -rf /packages/joblib/test
