"""Takes POSTs and drops their bodies. Prints its port."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer

BLOCK = memoryview(bytearray(1 << 20))


class Drop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        left = int(self.headers["content-length"])
        while left > 0 and (taken := self.rfile.readinto1(BLOCK[: min(left, len(BLOCK))])):  # type: ignore[attr-defined]
            left -= taken
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Drop)
    print(server.server_port, flush=True)
    server.serve_forever()
