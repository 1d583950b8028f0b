"""A reverse proxy on loopback that notes every request with its answer, and can answer in the server's place."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from server import Server

PASS_SECS = 90
HOP_HEADERS = ("host", "connection", "content-length", "accept-encoding")


@dataclass
class Seen:
    verb: str
    path: str
    body: bytes
    answer: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


# Sees a request and the server's status for it; a number answers the client with that status instead.
Fault = Callable[[str, str, int], int | None]


class Recorder:
    """Control calls only: gateway URLs are made from the server's own address, so data goes past it."""

    def __init__(self, server: Server, fault: Fault = lambda verb, path, status: None) -> None:
        self._server, self._fault = server, fault
        self.requests: list[Seen] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def paths(self) -> list[str]:
        return [f"{seen.verb} {seen.path}" for seen in self.requests]

    def _handler(recorder) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_HEADERS}
                url = recorder._server.url + self.path
                answer = httpx.request(self.command, url, headers=headers, content=body, trust_env=False, timeout=PASS_SECS)
                status = recorder._fault(self.command, self.path, answer.status_code) or answer.status_code
                recorder.requests.append(Seen(self.command, self.path, body, status))
                content = answer.content if status == answer.status_code else b'{"detail": "made up by the test"}'
                self.send_response(status)
                self.send_header("content-type", answer.headers.get("content-type", "application/json"))
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _pass

            def log_message(self, *args: object) -> None:
                pass

        return Handler

    def __enter__(self) -> Recorder:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self._http.shutdown()
        self._http.server_close()
