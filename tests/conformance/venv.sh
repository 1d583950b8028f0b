#!/bin/sh
# Prints the Python of the venv for requirements.txt; makes it first if the requirements changed. Also used by bench/run.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
key=$(cat "$here/requirements.txt" "$here/venv.sh" | sha256sum | cut -c1-16)
venv="$root/target/conformance-venv"

if [ "$(cat "$venv/.key" 2>/dev/null)" != "$key" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$venv/bin/python" -m pip install --quiet --requirement "$here/requirements.txt" >&2
    echo "$key" >"$venv/.key"
fi
echo "$venv/bin/python"
