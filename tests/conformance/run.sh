#!/bin/sh
# Runs the conformance suite against target/release/warren, in a venv of its own. Arguments go to pytest.
#
#   tests/conformance/run.sh                      everything
#   tests/conformance/run.sh -k line_45           one line of the checklist
#   WARREN=path/to/warren tests/conformance/run.sh
#
# Needs root (debootstrap, a network namespace) and these Debian packages; says which are missing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

missing=
need() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || missing="$missing $2"; }
need python3 python3
need docker-registry docker-registry
need debootstrap debootstrap
need busybox busybox-static
need musl-gcc musl-tools
need ip iproute2
need setcap libcap2-bin
need e2fsck e2fsprogs
need dockerd docker.io
need zstd zstd
need ssh-keygen openssh-client
python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ]; then
    echo "tests/conformance: missing Debian packages:$missing" >&2
    echo "tests/conformance: install them with: apt-get install -y$missing" >&2
    exit 2
fi

export WARREN="${WARREN:-$root/target/release/warren}"
if [ ! -x "$WARREN" ]; then
    echo "tests/conformance: $WARREN is not there: run 'make build' first" >&2
    exit 2
fi

python=$("$here/venv.sh")
exec "$python" -m pytest -c "$here/pytest.ini" --rootdir "$here" "$@"
