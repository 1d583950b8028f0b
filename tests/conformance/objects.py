"""An object store on loopback: a folder over HTTP, with GET, ranges and PUT; as slow as a test wants, and it counts what it gives."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PIECE = 64 << 10


class Objects:
    def __init__(self, folder: Path, bytes_per_sec: float | None = None) -> None:
        self.folder, self.bytes_per_sec = folder, bytes_per_sec
        self.sent = 0
        self.broken = False
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/"

    def start(self) -> Objects:
        self.folder.mkdir(parents=True, exist_ok=True)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def size(self) -> int:
        """Bytes of all packs."""
        return sum(path.stat().st_size for path in self.folder.glob("packs/*"))

    def images(self) -> int:
        return len(list(self.folder.glob("images/*")))

    def _pass(self, count: int) -> None:
        """Waits for the turn of so many bytes: all connections share the line."""
        with self._lock:
            self.sent += count
            if not self.bytes_per_sec:
                return
            start = max(self._free_at, time.monotonic())
            self._free_at = start + count / self.bytes_per_sec
            pause = self._free_at - time.monotonic()
        time.sleep(max(0.0, pause))

    def _handler(objects) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _path(self) -> Path | None:
                path = (objects.folder / self.path.lstrip("/")).resolve()
                return path if path.is_relative_to(objects.folder.resolve()) else None

            def _answer(self, status: int, headers: dict[str, str] | None = None, length: int = 0) -> None:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(length))
                self.end_headers()

            def do_PUT(self) -> None:
                path, left = self._path(), int(self.headers["Content-Length"])
                assert path
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_suffix(f".{threading.get_ident()}")
                with part.open("wb") as file:
                    while left:
                        piece = self.rfile.read(min(left, PIECE))
                        file.write(piece)
                        left -= len(piece)
                part.rename(path)
                self._answer(201)

            def do_GET(self) -> None:
                path = self._path()
                if objects.broken:
                    return self._answer(503)
                if path is None or not path.is_file():
                    return self._answer(404)
                size = path.stat().st_size
                start, end, status, headers = 0, size, 200, {}
                if found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                    start, end, status = int(found[1]), min(int(found[2]) + 1, size), 206
                    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
                headers["Last-Modified"] = self.date_time_string(int(path.stat().st_mtime))
                self._answer(status, headers, end - start)
                # Who asked may be ended in the middle.
                with path.open("rb") as file, contextlib.suppress(ConnectionError):
                    file.seek(start)
                    while start < end:
                        piece = file.read(min(PIECE, end - start))
                        objects._pass(len(piece))
                        self.wfile.write(piece)
                        start += len(piece)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
