#!/usr/bin/env bash
# Installs Debian packages that are missing: scripts/packages.sh NAME...
# Does nothing, and needs no rights, where all are there.
set -euo pipefail

missing=()
for package in "$@"; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "packages: missing: ${missing[*]}" >&2
        echo "packages: install them as root with: apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"
}

# QEMU packages of another origin that are newer than the distribution's QEMU cannot stand beside it. They are taken back to the
# version that fits; nothing else is touched.
fitting_qemu() {
    local wanted package installed
    [[ " ${missing[*]} " == *" qemu-system-x86 "* ]] || return 0
    wanted=$(apt-cache policy qemu-system-x86 | awk '/Candidate:/ { print $2 }')
    for package in qemu-utils qemu-system-common qemu-system-data qemu-block-extra; do
        installed=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$package" 2>/dev/null || true)
        if [[ $installed == "installed "* && $installed != "installed $wanted" ]] &&
            apt-cache madison "$package" | grep -qF " $wanted "; then
            echo "$package=$wanted"
        fi
    done
}

install_all() {
    local pins=()
    mapfile -t pins < <(fitting_qemu)
    [ ${#pins[@]} -eq 0 ] || echo "packages: taking back ${pins[*]}" >&2
    apt install -y --no-install-recommends --allow-downgrades "${missing[@]}" "${pins[@]}"
}

echo "packages: installing ${missing[*]}" >&2
known=$(apt-cache policy "${missing[0]}" 2>/dev/null | awk '/Candidate:/ { print $2 }')
if [ -z "$known" ] || [ "$known" = "(none)" ]; then
    apt update
    install_all
else
    install_all || { apt update && install_all; }
fi
