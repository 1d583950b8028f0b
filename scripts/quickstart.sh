#!/usr/bin/env bash
# From a fresh Debian 12 machine to a command in a sandbox. Can be repeated: what is there is used.
#
#   QUICKSTART_PORT=8700    port of the server, on 127.0.0.1
#   QUICKSTART_IMAGE=REF    image to pull instead of the small Debian that is made here
#   QUICKSTART_STOP=1       end the sandbox and the server at the end
#   WARREN_DATA_DIR=DIR     where the server keeps everything (./.warren)
set -euo pipefail
cd "$(dirname "$0")/.."

port=${QUICKSTART_PORT:-8700}
data_dir=$(realpath -m "${WARREN_DATA_DIR:-.warren}")
image=${QUICKSTART_IMAGE:-}
warren=$PWD/target/release/warren
work=$PWD/target/quickstart
READY_SECS=180

say() { printf '\n==> %s\n' "$*" >&2; }
fail() { printf 'quickstart: %s\n' "$@" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

packages() {
    local packages=(qemu-system-x86 linux-image-cloud-amd64 busybox-static bash-static e2fsprogs curl ca-certificates)
    command -v cc >/dev/null || packages+=(build-essential)
    [ -n "$image" ] || packages+=(debootstrap)
    say "packages"
    scripts/packages.sh "${packages[@]}"
}

build() {
    export PATH=$PATH:$HOME/.cargo/bin
    command -v cargo >/dev/null || fail "Rust is not installed." \
        "get it with: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y" \
        "then run make quickstart again"
    say "build"
    make --no-print-directory build
}

# A small Debian root file system as a tar; made once.
debian_root() {
    local suite mirror root=$work/root tar=$1
    suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
    mirror=${QUICKSTART_MIRROR:-http://deb.debian.org/debian}
    eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
    export http_proxy
    say "a small Debian ($suite) by debootstrap"
    as_root rm -rf "$root"
    mkdir -p "$work"
    as_root env ${http_proxy:+http_proxy="$http_proxy"} /usr/sbin/debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
        fail "debootstrap failed; see $work/debootstrap.log" "another mirror can be given as QUICKSTART_MIRROR"
    as_root tar --xattrs --numeric-owner --one-file-system -C "$root" \
        --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
        --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' -cf "$tar.part" .
    as_root chown "$(id -u)" "$tar.part"
    mv "$tar.part" "$tar"
    as_root rm -rf "$root"
}

server_pid() {
    local pid
    pid=$(cat "$data_dir/serve.pid" 2>/dev/null) && [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" != "" ] && echo "$pid"
}

start_server() {
    if pid=$(server_pid); then
        say "server: already running (pid $pid)"
        return
    fi
    say "server on http://127.0.0.1:$port, data in $data_dir"
    mkdir -p "$data_dir"
    setsid "$warren" serve --data-dir "$data_dir" --listen "127.0.0.1:$port" </dev/null >>"$data_dir/serve.log" 2>&1 &
    pid=$!
    echo "$pid" >"$data_dir/serve.pid"
    for ((i = 0; i < READY_SECS * 5; i++)); do
        if curl --silent --fail --noproxy '*' --output /dev/null "http://127.0.0.1:$port/healthz"; then return; fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    tail -n 20 "$data_dir/serve.log" >&2
    fail "the server did not start; its log is $data_dir/serve.log" "$warren doctor says what is missing"
}

stop_server() {
    say "stop"
    "$warren" sandbox delete "$@" >&2
    kill "$pid"
    for ((i = 0; i < 150; i++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    rm -f "$data_dir/serve.pid"
}

now_ms() { date +%s%3N; }

# Makes a sandbox and runs a command in it; sets `sandbox` and `took` (milliseconds).
try() {
    local began
    began=$(now_ms)
    sandbox=$("$warren" sandbox create --quiet --name quickstart --timeout-minutes -1 "$image")
    "$warren" sandbox run "$sandbox" -- sh -c 'echo "hello from $(uname -sr), $(. /etc/os-release; echo "$PRETTY_NAME")"'
    took=$(($(now_ms) - began))
}

packages
build
start_server
export WARREN_URL=http://127.0.0.1:$port WARREN_API_KEY
WARREN_API_KEY=$(cat "$data_dir/api-key")

say "image"
if [ -n "$image" ]; then
    "$warren" images pull "$image"
else
    tar=$work/debian.tar
    [ -f "$tar" ] || debian_root "$tar"
    image=quickstart/debian:latest
    "$warren" images import "$tar" --name "$image"
fi

say "the first sandbox (its kernel boots once; later ones start from that)"
try
first=$took first_sandbox=$sandbox
say "the second"
try
"$warren" sandbox delete --quiet "$first_sandbox" >/dev/null

printf '\n  first sandbox, from create to the output of its command: %d ms\n  second: %d ms\n' "$first" "$took"
if [ "${QUICKSTART_STOP:-}" = 1 ]; then
    stop_server "$sandbox"
    exit 0
fi
cat <<EOF

The server goes on (pid $pid, log $data_dir/serve.log). Use it:

  export WARREN_URL=$WARREN_URL WARREN_API_KEY=\$(cat $data_dir/api-key)
  export PATH=$PWD/target/release:\$PATH
  warren sandbox run $sandbox -- ls /
  warren sandbox shell $sandbox

With the prime CLI and SDK:

  export PRIME_API_BASE_URL=$WARREN_URL PRIME_API_KEY=\$(cat $data_dir/api-key)
  prime sandbox create $image

Stop it, and remove everything it keeps:

  warren sandbox delete --all --yes; kill $pid
  rm -rf $data_dir
EOF
