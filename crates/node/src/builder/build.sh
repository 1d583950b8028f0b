#!/bin/bash
# Runs in a builder sandbox: builds the context beside this file into image.tar, a docker-archive.
#
#   build.sh DOCKERFILE [ARGUMENTS OF docker build...]
set -euo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DOCKER_BUILDKIT=1
cd "$(dirname "$0")"
dockerfile=$1
shift

# Name under which public clients pack the Dockerfile beside the context. It is no part of the context: COPY must not see it.
PACKED=.__prime_dockerfile__
DAEMON_SECS_MAX=180
# What the layer cache may hold; the rest of the disk is for the build itself.
CACHE_KEPT=8GB

start_daemon() {
    docker version >/dev/null 2>&1 && return
    echo "==> starting Docker"
    setsid nohup dockerd >/var/log/dockerd.log 2>&1 </dev/null &
    local pid=$! waited=0
    until docker version >/dev/null 2>&1; do
        if ! kill -0 "$pid" 2>/dev/null || [ $((waited += 1)) -gt $((DAEMON_SECS_MAX * 5)) ]; then
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

rm -rf context file image.tar
mkdir context file
tar -xzf context.tar.gz -C context --numeric-owner --same-permissions
rm -f context.tar.gz
if [ "$dockerfile" = "$PACKED" ]; then
    mv -- "context/$PACKED" file/Dockerfile
    take_ignore_file
    dockerfile=file/Dockerfile
else
    dockerfile=context/$dockerfile
fi
[ -f "$dockerfile" ] || { echo "==> there is no Dockerfile in the context"; exit 1; }

start_daemon
echo "==> building"
docker build --progress=plain --tag warren-build:result --file "$dockerfile" "$@" context 2>&1
echo "==> exporting"
docker save --output image.tar warren-build:result
rm -rf context file
# Not a reason to fail: the next build has less room.
docker image prune --force >/dev/null 2>&1 || true
docker builder prune --force --keep-storage "$CACHE_KEPT" >/dev/null 2>&1 || true
