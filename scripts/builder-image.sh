#!/usr/bin/env bash
# Makes the image that Dockerfiles are built in: Debian with Docker, as a root file system tar.
#
#   scripts/builder-image.sh FILE.tar
#   warren images import FILE.tar --name prime/_server/builder:1
#
#   BUILDER_SUITE=bookworm      Debian release
#   BUILDER_MIRROR=URL          Debian mirror
#
# Needs root and debootstrap. What the node asks of the image: dockerd and docker with BuildKit, tar, gzip, cmp and a shell.
set -euo pipefail

out=${1:?usage: scripts/builder-image.sh FILE.tar}
suite=${BUILDER_SUITE:-bookworm}
mirror=${BUILDER_MIRROR:-http://deb.debian.org/debian}
# What `ADD` unpacks needs xz; what `RUN` reaches over the network needs a packet filter and certificates.
packages=docker.io,iptables,iproute2,ca-certificates,xz-utils,diffutils
surplus=(usr/share/doc usr/share/man usr/share/locale usr/share/info var/cache/apt var/lib/apt/lists)

command -v debootstrap >/dev/null || { echo "builder-image: debootstrap is missing: apt-get install debootstrap" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "builder-image: run it as root" >&2; exit 1; }

work=$(mktemp -d "$(dirname "$(realpath -m "$out")")/builder.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" "$mirror" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    exit 1
}
for folder in "${surplus[@]}"; do rm -rf -- "$work/root/$folder"; done
tar --xattrs --numeric-owner --one-file-system -C "$work/root" -cf "$work/tar" .
mv -- "$work/tar" "$out"
