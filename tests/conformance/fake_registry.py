"""A registry on loopback that notes every request, and answers as a test says: logins by repository, faults, odd images."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from oci import CONFIG, INDEX, MANIFEST, Image, digest

# Sees method and path; answers status and headers in the registry's place, or None.
Fault = Callable[[str, str], tuple[int, dict[str, str]] | None]


@dataclass
class Seen:
    verb: str
    path: str
    login: str
    answer: int


class FakeRegistry:
    def __init__(self) -> None:
        self._content: dict[str, tuple[str, bytes]] = {}
        self.logins: dict[str, str] = {}
        self.fault: Fault = lambda verb, path: None
        self.seen: list[Seen] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.address = f"127.0.0.1:{self._http.server_address[1]}"

    def push(self, name: str, tag: str, image: Image) -> str:
        """Puts an image under a tag; answers the reference."""
        for blob in [*(layer.blob for layer in image.layers), image.config()]:
            self._content[f"/v2/{name}/blobs/{digest(blob)}"] = (CONFIG, blob)
        self.put_manifest(name, tag, MANIFEST, image.manifest())
        return f"{self.address}/{name}:{tag}"

    def put_manifest(self, name: str, tag: str, kind: str, body: bytes) -> str:
        """Puts any manifest under a tag and its digest; answers the digest."""
        for version in (tag, digest(body)):
            self._content[f"/v2/{name}/manifests/{version}"] = (kind, body)
        return digest(body)

    def put_index(self, name: str, tag: str, entries: list[dict[str, object]]) -> str:
        return self.put_manifest(name, tag, INDEX, json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode())

    def spoil(self, name: str, blob: str) -> None:
        """Another content for a blob than its name says."""
        kind, body = self._content[f"/v2/{name}/blobs/{blob}"]
        self._content[f"/v2/{name}/blobs/{blob}"] = (kind, bytes([body[0] ^ 1]) + body[1:])

    def gets(self) -> Counter[str]:
        """Requests that asked for content by its digest and got it, by digest."""
        return Counter(seen.path.rsplit("/", 1)[1] for seen in self.seen if seen.verb == "GET" and "sha256:" in seen.path and seen.answer == 200)

    def asked(self, needle: str) -> int:
        return sum(needle in seen.path for seen in self.seen)

    def _answer(self, verb: str, path: str, authorization: str) -> tuple[int, dict[str, str], bytes]:
        if made_up := self.fault(verb, path):
            return *made_up, b"{}"
        repository = path.removeprefix("/v2/").rsplit("/", 2)[0]
        login = self.logins.get(repository)
        if login and authorization != "Basic " + base64.b64encode(login.encode()).decode():
            return 401, {"www-authenticate": 'Basic realm="fake"'}, b"{}"
        if path not in self._content:
            return 404, {}, b"{}"
        kind, body = self._content[path]
        return 200, {"content-type": kind, "docker-content-digest": digest(body)}, body

    def _handler(registry) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                status, headers, body = registry._answer(self.command, self.path, self.headers.get("authorization", ""))
                registry.seen.append(Seen(self.command, self.path, self.headers.get("authorization", ""), status))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = _serve

            def log_message(self, *args: object) -> None:
                pass

        return Handler

    def __enter__(self) -> FakeRegistry:
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *args: object) -> None:
        self._http.shutdown()
        self._http.server_close()
