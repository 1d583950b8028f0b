#!/usr/bin/env bash
# Feeds parsers of foreign bytes with arbitrary ones, each target for SECS seconds (60). Needs a nightly compiler; brings cargo-fuzz.
#
#   scripts/fuzz.sh [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

cargo fuzz --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-fuzz
mapfile -t targets < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else cargo +nightly fuzz list; fi)

# A tar to start from: its checksums are nothing that mutations find.
seeds=corpus/layer
mkdir -p "$seeds"
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p "$made/dir/sub"
echo some >"$made/dir/file"
ln "$made/dir/file" "$made/hard"
ln -s dir/file "$made/soft"
mkfifo "$made/fifo"
touch "$made/dir/.wh.gone" "$made/dir/.wh..wh..opq" "$made/$(printf 'n%.0s' {1..200})"
for format in gnu pax; do
    tar --format="$format" --sort=name -C "$made" -cf "$seeds/$format" .
done

for target in "${targets[@]}"; do
    cargo +nightly fuzz run "$target" -- -max_total_time="${SECS:-60}" -timeout=20 -rss_limit_mb=2048 -verbosity=0
done
