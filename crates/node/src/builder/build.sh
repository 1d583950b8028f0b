#!/bin/bash
# Runs in a builder sandbox, where the context lies beside this file.
#
#   build.sh open DOCKERFILE                    unpacks the context; its Dockerfile is file/Dockerfile then
#   build.sh take HEX NAME                      calls the base HEX, which is here since an earlier build, NAME; 3 if it is not here
#   build.sh load HEX NAME                      the same with the file system in base.tar and its config in base.json
#   build.sh build [ARGUMENTS OF docker build]  builds into image.tar, a docker-archive
set -euo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DOCKER_BUILDKIT=1
cd "$(dirname "$0")"
step=$1
shift

# Name under which public clients pack the Dockerfile beside the context. It is no part of the context: COPY must not see it.
PACKED=.__prime_dockerfile__
DAEMON_SECS_MAX=180
# A busy machine takes a while to come to its start command.
DAEMON_BORN_SECS_MAX=20
# What the layer cache may hold; the rest of the disk is for the build itself.
CACHE_KEPT=8GB
# What bases are called between builds. What a Dockerfile calls them is forgotten with its build: the next may not use them.
KEPT=warren-kept

# Docker is the sandbox's start command: there before this script, where the sandbox went on from an app template, or soon after.
start_daemon() {
    docker version >/dev/null 2>&1 && return
    echo "==> starting Docker"
    local waited=0
    until docker version >/dev/null 2>&1; do
        waited=$((waited + 1))
        if [ $waited -gt $((DAEMON_SECS_MAX * 5)) ] || { [ $waited -gt $((DAEMON_BORN_SECS_MAX * 5)) ] && ! grep -qsx dockerd /proc/[0-9]*/comm; }; then
            tail -n 20 /var/log/dockerd.log
            echo "==> Docker does not start"
            exit 1
        fi
        sleep 0.2
    done
}

# The ignore file of a Dockerfile lies beside it under its name, and wins over the context's.
take_ignore_file() {
    local ignore
    while IFS= read -r -d '' ignore; do
        if cmp -s "${ignore%.dockerignore}" file/Dockerfile; then
            cp -- "$ignore" file/Dockerfile.dockerignore
            return
        fi
    done < <(find context -name '?*.dockerignore' -type f -print0)
}

open() {
    rm -rf context file image.tar
    mkdir context file
    : >bases
    tar -xzf context.tar.gz -C context --numeric-owner --same-permissions
    rm -f context.tar.gz
    if [ "$1" = "$PACKED" ]; then
        mv -- "context/$PACKED" file/Dockerfile
        take_ignore_file
        return
    fi
    [ -f "context/$1" ] || { echo "==> there is no Dockerfile in the context"; exit 1; }
    cp -- "context/$1" file/Dockerfile
    [ ! -f "context/$1.dockerignore" ] || cp -- "context/$1.dockerignore" file/Dockerfile.dockerignore
}

take() {
    start_daemon
    docker image inspect "$KEPT:$1" >/dev/null 2>&1 || exit 3
    echo "$1" >>bases
    docker tag "$KEPT:$1" "$2"
}

load() {
    local empty=() id layer
    start_daemon
    rm -rf base
    mkdir -p base/root
    tar -xf base.tar -C base
    rm -f base.tar
    mount -o loop,ro,noload base/disk base/root
    trap 'umount base/root 2>/dev/null; rm -rf base' EXIT
    # Made by the file system, not by the image.
    [ -n "$(ls -A base/root/lost+found 2>/dev/null)" ] || empty=(--exclude=./lost+found)
    # The same image is the same layer each time.
    id=$(tar --format=posix --pax-option='exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime' --sort=name \
        --numeric-owner --xattrs --xattrs-include='*' --anchored "${empty[@]}" -C base/root -c . | docker import -)
    layer=$(docker inspect --format '{{index .RootFS.Layers 0}}' "$id")
    # A config for the layer that is there by now.
    printf ',"rootfs":{"type":"layers","diff_ids":["%s"]}}' "$layer" | cat base.json - >base/config.json
    printf '[{"Config":"config.json","RepoTags":["%s:%s"],"Layers":["layer.tar"]}]' "$KEPT" "$1" >base/manifest.json
    tar -C base -c manifest.json config.json | docker load --quiet
    docker rmi "$id" >/dev/null
    take "$@"
}

forget_names() {
    local name
    docker images --format '{{.Repository}}:{{.Tag}}' | while read -r name; do
        case $name in
        warren-build:result | '<none>'*) ;;
        "$KEPT":*) grep -qx -- "${name#*:}" bases || docker rmi "$name" ;;
        *) docker rmi "$name" ;;
        esac
    done >/dev/null 2>&1
}

build() {
    start_daemon
    trap forget_names EXIT
    echo "==> building"
    docker build --progress=plain --tag warren-build:result --file file/Dockerfile "$@" context 2>&1
    echo "==> exporting"
    docker save --output image.tar warren-build:result
    rm -rf context file
    # Not a reason to fail: the next build has less room.
    docker image prune --force >/dev/null 2>&1 || true
    docker builder prune --force --keep-storage "$CACHE_KEPT" >/dev/null 2>&1 || true
}

"$step" "$@"
