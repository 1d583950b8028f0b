"""The Connect protocol by hand, for what no client shows: frames, headers, repeated ids."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from prime_sandboxes._proto.command_session import command_session_pb2 as pb

SERVICE = "command_session.CommandSession"
STREAM = "application/connect+proto"
UNARY = "application/proto"
END_STREAM = 2


def envelope(message: Any, flags: int = 0) -> bytes:
    body = message if isinstance(message, bytes) else message.SerializeToString()
    return struct.pack(">BI", flags, len(body)) + body


def start_request(script: str, *, session_uuid: str | None = None, stdin: bool = False, **spec: Any) -> Any:
    command = pb.CommandSpec(cmd="/bin/bash", args=["-c", script], **spec)
    return pb.StartRequest(command=command, stdin=stdin, session_uuid=session_uuid)


def session(session_uuid: str) -> Any:
    return pb.CommandSessionSelector(session_uuid=session_uuid)


def new_uuid() -> str:
    return str(uuid.uuid4())


@dataclass
class Frame:
    flags: int
    body: bytes

    @property
    def is_end(self) -> bool:
        return bool(self.flags & END_STREAM)

    @property
    def end(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def event(self) -> Any:
        return pb.StartResponse.FromString(self.body).event


def frames(chunks: Iterator[bytes]) -> Iterator[Frame]:
    """Cuts a byte stream into frames; a rest at its end is a failure."""
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= 5:
            flags, length = struct.unpack(">BI", buffer[:5])
            if len(buffer) < 5 + length:
                break
            yield Frame(flags, buffer[5 : 5 + length])
            buffer = buffer[5 + length :]
    assert not buffer, f"{len(buffer)} bytes after the last whole frame"


@dataclass
class Gateway:
    """One sandbox's data plane, as the auth answer describes it."""

    auth: dict[str, str]
    verify: str | bool = False

    @property
    def base(self) -> str:
        return f"{self.auth['gateway_url']}/{self.auth['user_ns']}/{self.auth['job_id']}"

    def rpc(self, method: str) -> str:
        return f"{self.base}/{SERVICE}/{method}"

    def headers(self, content_type: str, timeout_ms: int = 20_000) -> dict[str, str]:
        return {
            "authorization": f"Bearer {self.auth['token']}", "connect-protocol-version": "1", "content-type": content_type,
            "connect-timeout-ms": str(timeout_ms), "accept-encoding": "zstd,gzip,br", "user-agent": "connectrpc/0.11.1",
        }

    def client(self, timeout: float = 60, **options: Any) -> httpx.Client:
        return httpx.Client(timeout=timeout, verify=self.verify, trust_env=False, **options)

    def stream(self, http: httpx.Client, method: str, request: Any, timeout_ms: int = 20_000) -> Any:
        """Context manager of a streaming answer; the request body is chunked, as the client's is."""
        headers = self.headers(STREAM, timeout_ms) | {"connect-content-encoding": "identity", "connect-accept-encoding": "gzip,identity"}
        return http.stream("POST", self.rpc(method), headers=headers, content=iter([envelope(request)]))

    def run(self, script: str, method: str = "Start", **options: Any) -> list[Frame]:
        with self.client() as http, self.stream(http, method, start_request(script, **options)) as answer:
            assert answer.status_code == 200, (answer.status_code, answer.read())
            return list(frames(answer.iter_raw()))

    def unary(self, method: str, request: Any, **headers: str) -> httpx.Response:
        with self.client() as http:
            return http.post(self.rpc(method), headers=self.headers(UNARY) | {"content-encoding": "identity"} | headers, content=request.SerializeToString())

    def file(self, verb: str, operation: str, **options: Any) -> httpx.Response:
        with self.client() as http:
            return http.request(verb, f"{self.base}/{operation}", headers={"authorization": f"Bearer {self.auth['token']}"}, **options)


def exit_code(events: list[Frame]) -> int:
    ends = [f.event.end for f in events if not f.is_end and f.event.WhichOneof("event") == "end"]
    assert len(ends) == 1, f"expected one EndEvent, got {len(ends)}"
    return ends[0].exit_code


def output(events: list[Frame], stream: str = "stdout") -> bytes:
    data = (f.event.data for f in events if not f.is_end and f.event.WhichOneof("event") == "data")
    return b"".join(getattr(d, stream) for d in data if d.WhichOneof("output") == stream)
