"""OCI layouts as tools write them: indexes within indexes, images for several machines, layers of both compressions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oci
import pytest
from commands import warren
from prime_sandboxes import SandboxClient
from registry import Registry
from server import Server


@pytest.fixture
def name(server: Server) -> Iterator[str]:
    """A name to import under, free again afterwards."""
    yield "layout:v1"
    warren("images", "remove", "layout:v1")


def mixed(registry: Registry) -> oci.Image:
    """BusyBox below a zstd layer below a gzip one."""
    base = registry.images.get("musl")
    upper = [oci.Layer.zstd_of_tar(oci.LayerTar().add("z/one", data=b"zstd").bytes()), oci.LayerTar().add("z/two", data=b"gzip").layer()]
    return base.with_config(layers=[*base.layers, *upper])


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_this_machines_image_is_found_in_nested_indexes(registry: Registry, client: SandboxClient, create: Any, tmp_path: Path, name: str, depth: int):
    image = mixed(registry)
    layout = oci.write_nested_layout(tmp_path / "layout", [image.with_config(architecture="arm64"), image, image.with_config(architecture="s390x")], depth)
    assert warren("images", "import", str(layout), "--name", name).ok()
    sandbox = create(image=name)
    assert client.execute_command(sandbox.id, "cat /z/one /z/two; uname -m").stdout == "zstdgzipx86_64\n"
    assert client.client.request("GET", f"/sandbox/{sandbox.id}")["imageDigest"] == oci.digest(image.manifest())


@pytest.mark.parametrize("depth", [0, 1])
def test_an_index_without_this_machine_tells_what_it_has(server: Server, registry: Registry, tmp_path: Path, depth: int):
    image = mixed(registry)
    layout = oci.write_nested_layout(tmp_path / "layout", [image.with_config(architecture=other) for other in ("arm64", "s390x")], depth)
    refused = warren("images", "import", str(layout), "--name", "foreign:v1")
    assert refused.code == 1 and "linux/arm64, linux/s390x" in refused.stderr and "linux/amd64" in refused.stderr, refused
    assert "foreign" not in warren("images", "list").ok().stdout


def test_indexes_without_end_are_refused(server: Server, registry: Registry, tmp_path: Path):
    layout = oci.write_nested_layout(tmp_path / "layout", [mixed(registry)], 40)
    refused = warren("images", "import", str(layout), "--name", "endless:v1")
    assert refused.code == 1 and "index" in refused.stderr, refused
