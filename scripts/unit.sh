#!/usr/bin/env bash
# Runs the tests beside the code, with nextest where it is installed. Arguments go to the runner.
set -euo pipefail
cd "$(dirname "$0")/.."

if cargo nextest --version >/dev/null 2>&1; then
    exec cargo nextest run --locked --workspace --no-fail-fast "$@"
fi
exec cargo test --locked --workspace --no-fail-fast "$@"
