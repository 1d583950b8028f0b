"""A local registry (Debian's docker-registry), and pushes of the suite's images to it."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import oci
import waiting
from images import Images
from server import Tls, free_port

READY_SECS = 20


@dataclass
class Registry:
    folder: Path
    images: Images
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    htpasswd: str | None = None
    tls: Tls | None = None
    # Another registry whose content this one serves too.
    content_of: Registry | None = None
    _pushed: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def write_config(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        auth = ""
        if self.htpasswd:
            (self.folder / "htpasswd").write_text(self.htpasswd)
            auth = f"auth:\n  htpasswd:\n    realm: test\n    path: {self.folder}/htpasswd\n"
        tls = f"  tls:\n    certificate: {self.tls.certificate}\n    key: {self.tls.key}\n" if self.tls else ""
        content = (self.content_of or self).folder / "data"
        config = self.folder / "config.yml"
        config.write_text(
            f"version: 0.1\nlog:\n  accesslog:\n    disabled: false\nstorage:\n  filesystem:\n    rootdirectory: {content}\n"
            f"http:\n  addr: {self.address}\n{tls}{auth}"
        )
        return config

    def start(self) -> Registry:
        config = self.write_config()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        waiting.until(self._ready, READY_SECS, f"the registry answers; see {self.log}")
        return self

    @property
    def log(self) -> Path:
        return self.folder / "registry.log"

    def _ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/v2/", trust_env=False, verify=str(self.tls.authority) if self.tls else False).status_code in (200, 401)
        return False

    def reference(self, name: str) -> str:
        """Reference of one of the suite's images; pushed on first use."""
        if name not in self._pushed:
            self._pushed[name] = self.push(name, "v1", self.images.get(name))
        return self._pushed[name]

    def push(self, name: str, tag: str, image: oci.Image, auth: tuple[str, str] | None = None) -> str:
        return oci.push(self.address, name, tag, image, auth)

    def requests(self, needle: str) -> int:
        """Requests of the access log that contain `needle`."""
        return sum(needle in line for line in self.log.read_text(errors="replace").splitlines() if '] "GET ' in line)

    def blob_file(self, digest: str) -> Path:
        plain = digest.removeprefix("sha256:")
        return self.folder / "data/docker/registry/v2/blobs/sha256" / plain[:2] / plain / "data"

    def close(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait(READY_SECS)
