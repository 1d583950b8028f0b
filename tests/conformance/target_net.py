"""A host that sandboxes may reach and that is not loopback: a network namespace with a small HTTP server and an echo server in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass

import httpx

import waiting

HOST_ADDRESS = "198.51.100.1"
TARGET_ADDRESS = "198.51.100.2"
PORT = 8080
ECHO_PORT = 7007
GREETING = b"hello from outside\n"

SERVER = f"""
import http.server, socketserver, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while got := self.request.recv(1000): self.request.sendall(got)
class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
threading.Thread(target=EchoServer(('{TARGET_ADDRESS}', {ECHO_PORT}), Echo).serve_forever, daemon=True).start()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('content-length', '{len(GREETING)}'); self.end_headers(); self.wfile.write({GREETING!r})
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(('{TARGET_ADDRESS}', {PORT}), Handler).serve_forever()
"""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass
class Target:
    name: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return TARGET_ADDRESS

    def start(self) -> Target:
        inner, outer = f"{self.name}-i", f"{self.name}-o"
        _ip("netns", "add", self.name)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        _ip("addr", "add", f"{HOST_ADDRESS}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        for words in (["addr", "add", f"{TARGET_ADDRESS}/30", "dev", inner], ["link", "set", inner, "up"], ["link", "set", "lo", "up"]):
            _ip("-n", self.name, *words)
        self.process = subprocess.Popen(["ip", "netns", "exec", self.name, sys.executable, "-c", SERVER], stdin=subprocess.DEVNULL)
        waiting.until(self._ready, 15, "the server in the network namespace answers")
        return self

    def _ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://{TARGET_ADDRESS}:{PORT}/", trust_env=False, timeout=2).content == GREETING
        return False

    def close(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(10)
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", f"{self.name}-o")
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "del", self.name)


def make() -> Target:
    return Target(f"wrt{os.getpid() % 100000}")
