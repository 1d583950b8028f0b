#!/usr/bin/env bash
# Checks dependencies against deny.toml. Brings cargo-deny if it is missing, and does without advisories where their
# database cannot be reached. The bans that matter most are also tests of their own (crates/cli/tests/house.rs).
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=0.20.2
tools=$PWD/target/tools
PATH=$PATH:$tools/bin

if ! cargo deny --version >/dev/null 2>&1; then
    echo "deny: installing cargo-deny $VERSION into target/tools" >&2
    if ! cargo install --quiet --locked --root "$tools" --version "$VERSION" cargo-deny; then
        echo "deny: cargo-deny can be neither found nor installed here; licenses and advisories are NOT checked" >&2
        exit "${DENY_MISSING_IS:-0}"
    fi
fi

cargo deny --locked check --hide-inclusion-graph bans licenses sources
if cargo deny --locked fetch db 2>/dev/null; then
    cargo deny --locked check --disable-fetch advisories
else
    echo "deny: the advisory database cannot be reached; advisories are NOT checked" >&2
fi
