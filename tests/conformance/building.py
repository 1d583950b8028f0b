"""Contexts and builds of the tests about owned images."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import httpx
import waiting
from images import Images
from prime_sandboxes import APIClient
from prime_sandboxes.images import ImageClient
from prime_sandboxes.models import BuildImageRequest
from server import Server

BUILD_SECS = 600
OVER = ("COMPLETED", "FAILED", "CANCELLED")


def root_of(images: Images, name: str, into: Path) -> Path:
    """The layers of one of the suite's images as tars in a context, for `ADD` on `scratch`: a base without a registry."""
    for number, layer in enumerate(images.get(name).layers):
        (into / f"root{number}.tar").write_bytes(gzip.decompress(layer.blob))
    return into


def context_of(folder: Path) -> bytes:
    """A folder as an upload, nothing left out."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar:
        tar.add(folder, arcname=".")
    return buffer.getvalue()


def push(server: Server, name: str, context: bytes, **more: Any) -> str:
    """Asks for a build of a Dockerfile by the SDK, uploads and starts it; answers its id."""
    client = ImageClient(APIClient())
    asked = client.initiate_build(BuildImageRequest(image_name=name, image_tag="v1", **more))
    upload(asked.upload_url, context)
    client.start_build(asked.build_id)
    return asked.build_id


def upload(url: str, context: bytes) -> None:
    httpx.put(url, content=context, headers={"content-type": "application/octet-stream"}, timeout=120, trust_env=False).raise_for_status()


def state(server: Server, build_id: str) -> dict[str, Any]:
    with server.http() as http:
        return http.get(f"/api/v1/images/build/{build_id}").raise_for_status().json()


def logs(server: Server, build_id: str) -> str:
    with server.http() as http:
        return http.get(f"/api/v1/images/build/{build_id}/logs").raise_for_status().json()["logs"]


def over(server: Server, build_id: str, secs: float = BUILD_SECS) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        now = state(server, build_id)
        return now if now["status"] in OVER else None

    return waiting.until(look, secs, f"build {build_id} is over")


def completed(server: Server, build_id: str, secs: float = BUILD_SECS) -> dict[str, Any]:
    ended = over(server, build_id, secs)
    assert ended["status"] == "COMPLETED", f"{ended}\n{logs(server, build_id)[-3000:]}"
    return ended


def drop_cache(server: Server, **of: str) -> None:
    with server.http(timeout=60) as http:
        http.delete("/api/v1/images/build-cache", params=of).raise_for_status()
