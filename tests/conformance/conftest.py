"""Fixtures: one server for most tests, one with TLS, servers that a test may break, images, clients, sandboxes.

Everything is a real process: the server, QEMU machines, a registry, the clients of the venv. What a session started, it ends,
by process id, and it fails if anything of a sandbox is left on the host afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import certifi
import pytest
from prime_sandboxes import APIClient, AsyncSandboxClient, CreateSandboxRequest, Sandbox, SandboxClient

import authority
import building
import target_net
from clocks import Clocks
from commands import warren
from images import DEBIAN_MIRROR, DEBIAN_SUITE, Images
from registry import Registry
from server import STARTED, Server
from wire import Gateway

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("WARREN", ROOT / "target/release/warren"))

BUILDER_TAR = "builder.v1.tar"
BUILDER_SECS = 900
IMPORT_SECS = 300
BUILDERS_GONE_SECS = 30
SMALL = {"cpu_cores": 1.0, "memory_gb": 0.25, "disk_size_gb": 1.0}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@pytest.fixture(scope="session")
def workspace() -> Iterator[Path]:
    """Where this session keeps data directories, logs and the clients' HOME. Kept if WARREN_TEST_KEEP is set.

    The suite's authority is trusted before the first client is made, since clients read certifi's bundle once a process.
    """
    # Not below target: unix sockets have short paths.
    folder = Path(tempfile.mkdtemp(prefix="wct-"))
    home = folder / "home"
    home.mkdir()
    before = dict(os.environ)
    # The certificate variables would make httpx look past certifi's bundle, which is where the suite's authority is.
    for name in [name for name in os.environ if name.startswith(("PRIME_", "WARREN_URL", "WARREN_API", "SSL_CERT_"))]:
        del os.environ[name]
    os.environ.update(HOME=str(home), NO_PROXY="127.0.0.1,localhost", no_proxy="127.0.0.1,localhost", PRIME_DISABLE_VERSION_CHECK="1", COLUMNS="200")
    bundle = Path(certifi.where())
    authority.trust(authority.make(folder / "tls"), bundle)
    yield folder
    authority.distrust(bundle)
    os.environ.clear()
    os.environ.update(before)
    if not os.environ.get("WARREN_TEST_KEEP"):
        shutil.rmtree(folder, ignore_errors=True)


LOG_LINES = 40


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """What the servers said last is part of a failure."""
    report = yield
    if report.failed:
        for started in STARTED:
            if started.log.exists():
                lines = started.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
                report.sections.append((f"end of {started.log.name}", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def images() -> Images:
    return Images(ROOT / "target/test-images")


@pytest.fixture(scope="session")
def registry(workspace: Path, images: Images) -> Iterator[Registry]:
    registry = Registry(workspace / "registry", images).start()
    yield registry
    registry.close()


@pytest.fixture(scope="session")
def server(workspace: Path) -> Iterator[Server]:
    """The server of most tests. Nobody kills it; whoever must takes `own_server`."""
    server = Server(BINARY, workspace / "main").start()
    os.environ.update(PRIME_API_BASE_URL=server.url, PRIME_API_KEY=server.api_key)
    yield server
    try:
        server.delete_all()
        server.assert_clean()
    finally:
        server.close()


@pytest.fixture
def own_server(workspace: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server for one test, which may kill and restart it. The clients of that test talk to it."""
    own = Server(BINARY, workspace / f"own-{uuid.uuid4().hex[:6]}")
    seed(own.data_dir, server.data_dir)
    own.start()
    monkeypatch.setenv("PRIME_API_BASE_URL", own.url)
    monkeypatch.setenv("PRIME_API_KEY", own.api_key)
    yield own
    try:
        own.delete_all()
        own.assert_clean()
    finally:
        own.close()


def seed(into: Path, source: Path) -> None:
    """Spares a further server what depends on the machine alone: guest assets, templates, the accelerator's verdict."""
    into.mkdir(mode=0o700)
    known = [source / name for name in ("assets", "templates", "accel.json") if (source / name).exists()]
    subprocess.run(["cp", "--archive", "--sparse=always", "--reflink=auto", *map(str, known), str(into)], check=True)


@pytest.fixture(scope="session")
def builder_tar(images: Images) -> Path:
    path = ROOT / "target/test-images" / BUILDER_TAR
    if not path.exists():
        env = {**os.environ, "BUILDER_MIRROR": DEBIAN_MIRROR, "BUILDER_SUITE": DEBIAN_SUITE}
        subprocess.run([str(ROOT / "scripts/builder-image.sh"), str(path)], check=True, env=env, timeout=BUILDER_SECS)
    return path


@pytest.fixture(scope="session")
def builds(workspace: Path, server: Server, builder_tar: Path) -> Iterator[Server]:
    """A server that can build, and may be killed."""
    own = Server(BINARY, workspace / "builds")
    seed(own.data_dir, server.data_dir)
    own.start()
    imported = warren("images", "import", str(builder_tar), "--name", "prime/_server/builder:1", env=own.cli_environment(), secs=IMPORT_SECS)
    imported.ok()
    yield own
    try:
        building.drop_cache(own)
        own.delete_all()
        own.assert_clean(BUILDERS_GONE_SECS)
    finally:
        own.close()


@pytest.fixture(scope="session")
def tls_server(workspace: Path, server: Server) -> Iterator[Server]:
    """A server that speaks HTTPS with a certificate of the suite's authority."""
    own = Server(BINARY, workspace / "tls-data", tls=authority.files(workspace / "tls"))
    seed(own.data_dir, server.data_dir)
    try:
        own.start()
        yield own
        own.delete_all()
        own.assert_clean()
    finally:
        own.close()


@pytest.fixture
def client(server: Server) -> SandboxClient:
    return SandboxClient(APIClient())


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[AsyncSandboxClient]:
    async with AsyncSandboxClient() as client:
        yield client


@pytest.fixture(scope="session")
def glibc(registry: Registry) -> str:
    """Reference of the suite's main image."""
    return registry.reference("glibc")


def request(image: str, **more: object) -> CreateSandboxRequest:
    """A small sandbox of `image`."""
    values = {"name": f"t-{uuid.uuid4().hex[:8]}", "docker_image": image, **SMALL, **more}
    return CreateSandboxRequest(**values)


Create = Callable[..., Sandbox]


@pytest.fixture
def create(client: SandboxClient, glibc: str) -> Iterator[Create]:
    """Makes running sandboxes that the end of the test deletes."""
    made: list[str] = []

    def create(image: str = glibc, wait: bool = True, **more: object) -> Sandbox:
        sandbox = client.create(request(image, **more))
        made.append(sandbox.id)
        if wait:
            client.wait_for_creation(sandbox.id)
        return sandbox

    yield create
    for sandbox_id in made:
        with contextlib.suppress(Exception):
            client.delete(sandbox_id)


@pytest.fixture(scope="session")
def shared(server: Server, glibc: str) -> str:
    """Id of a sandbox for tests that leave nothing behind which could disturb another."""
    client = SandboxClient(APIClient())
    sandbox = client.create(request(glibc, name="shared", memory_gb=0.5, disk_size_gb=4.0, timeout_minutes=-1))
    client.wait_for_creation(sandbox.id)
    return sandbox.id


@pytest.fixture
def gateway(server: Server, shared: str) -> Gateway:
    """The shared sandbox's data plane, for requests by hand."""
    with server.http() as http:
        return Gateway(http.post(f"/api/v1/sandbox/{shared}/auth").raise_for_status().json())


@pytest.fixture(scope="session")
def target() -> Iterator[target_net.Target]:
    target = target_net.make()
    try:
        yield target.start()
    finally:
        target.close()


@pytest.fixture(scope="session", autouse=True)
def clocks(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Iterator[Clocks | None]:
    """Sandboxes whose timeouts run while other tests do; made only if a test of this run asks for them."""
    if not any("clocks" in item.fixturenames and item.get_closest_marker("last") for item in request.session.items):
        yield None
        return
    server: Server = request.getfixturevalue("server")
    clocks = Clocks(server, request.getfixturevalue("glibc"))
    clocks.start()
    yield clocks
    clocks.close()
