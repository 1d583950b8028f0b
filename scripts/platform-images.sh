#!/usr/bin/env bash
# Makes the platform's own images and imports them under the names that clients ask for: scripts/platform-images.sh
#
#   volume-import:dev   Debian with bash and rsync: `prime volumes create --from DIR` copies into a volume through a sandbox of it
#
#   WARREN=PATH                the binary (target/release/warren)
#   WARREN_URL, WARREN_API_KEY the server, as for every command of the CLI
#   PLATFORM_IMAGES_DIR=DIR    where the root file system is kept, so that a repetition only imports it (target/platform-images)
#   PLATFORM_IMAGES_MIRROR=URL Debian's packages
set -euo pipefail
cd "$(dirname "$0")/.."

warren=${WARREN:-$PWD/target/release/warren}
work=${PLATFORM_IMAGES_DIR:-$PWD/target/platform-images}
suite=bookworm
mirror=${PLATFORM_IMAGES_MIRROR:-http://deb.debian.org/debian}
# What only people read, or only the package manager.
surplus=(usr/share/doc usr/share/man usr/share/locale usr/share/info var/cache/apt var/lib/apt/lists)

fail() { printf 'platform-images: %s\n' "$@" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Debian's least and these packages (NAME,...) as a tar.
debian_root() {
    local tar=$1 packages=$2 root exclude=()
    eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
    export http_proxy
    root=$(mktemp -d "$work/root.XXXXXX")
    as_root env ${http_proxy:+http_proxy="$http_proxy"} /usr/sbin/debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
        fail "debootstrap failed; see $work/debootstrap.log" "another mirror can be given as PLATFORM_IMAGES_MIRROR"
    for folder in "${surplus[@]}"; do exclude+=("--exclude=./$folder/*"); done
    as_root tar --xattrs --numeric-owner --one-file-system -C "$root" "${exclude[@]}" -cf "$tar.part" .
    as_root chown "$(id -u)" "$tar.part"
    mv "$tar.part" "$tar"
    as_root rm -rf "$root"
}

[ -x "$warren" ] || fail "$warren is not there: run 'make build' first"
scripts/packages.sh debootstrap
mkdir -p "$work"
tar=$work/volume-import.v1.tar
[ -f "$tar" ] || debian_root "$tar" rsync
"$warren" images import "$tar" --name volume-import:dev
