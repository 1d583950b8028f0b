#!/bin/sh
# Measures every row of the speed table, both sides in one run, and prints them. Judges nothing: machines are noisy.
#
#   bench/run.sh                 everything
#   bench/run.sh start exec      only these rows (start, exec, convert, memory, transfer, cold, share, arriving, pause, fork, reset, template, child, compose)
#
# Needs root and docker.io (its daemon is started here, in a network namespace and folders of its own, and ended).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/.." && pwd)
export WARREN="${WARREN:-$root/target/release/warren}"
if [ ! -x "$WARREN" ]; then
    echo "bench: $WARREN is not there: run 'make build' first" >&2
    exit 2
fi
if ! command -v dockerd >/dev/null && [ ! -x /usr/sbin/dockerd ]; then
    echo "bench: dockerd is missing; install it with: apt-get install -y docker.io" >&2
    exit 2
fi
python=$("$root/tests/conformance/venv.sh")
PYTHONPATH="$root/tests/conformance" exec "$python" "$here/bench.py" "$@"
