"""Lines 1 to 12 of the checklist: what is common to all calls, and the account."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import PRIME, prime
from prime_sandboxes import APIClient, SandboxClient, UnauthorizedError
from recorder import Recorder
from server import Server

import waiting

TEAM_ID = re.compile(r"^c[a-z0-9]{24}$")
HANDLER_SECS = 20


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    with server.http() as http:
        http.headers["content-type"] = "application/json"
        http.base_url = httpx.URL(f"{server.url}/api/v1/")
        yield http


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """A HOME of its own, for commands that write ~/.prime."""
    return {"HOME": str(tmp_path)}


@pytest.fixture(scope="session")
def team(server: Server) -> str:
    """A team with the owner as its administrator."""
    with server.http() as http:
        answer = http.post("/api/v1/admin/teams", json={"slug": "conformance", "name": "Conformance"})
        assert answer.is_success, answer.text
        return answer.json()["teamId"]


def test_line_01_whoami_prints_account_and_limits_and_writes_the_user_id(server: Server, home: dict[str, str], tmp_path: Path):
    done = prime("whoami", env=home).ok()
    with server.http() as http:
        data = http.get("/api/v1/user/whoami").raise_for_status().json()["data"]
    for text in ("Personal", data["id"], data["name"], data["email"], data["slug"], "Concurrent VM sandboxes", "Sandbox CPU cores"):
        assert text in done.stdout
    assert json.loads((tmp_path / ".prime/config.json").read_text())["user_id"] == data["id"]


def test_line_02_a_wrong_key_is_unauthorized_and_not_repeated(server: Server, home: dict[str, str]):
    with Recorder(server) as recorder:
        env = {**home, "PRIME_API_BASE_URL": recorder.url, "PRIME_API_KEY": "wrong"}
        done = prime("sandbox", "list", env=env)
        assert done.code == 1 and "Unauthorized" in done.text
        assert prime("whoami", env=env).code == 1
    assert [(r.path.split("?")[0], r.answer) for r in recorder.requests] == [("/api/v1/sandbox", 401), ("/api/v1/user/whoami", 401)]
    with pytest.raises(UnauthorizedError):
        SandboxClient(APIClient(api_key="wrong")).list()


@pytest.mark.parametrize("suffix", ["/", "/api/v1", "/api/v1/"])
def test_line_03_base_url_with_slash_or_prefix_works(server: Server, monkeypatch: pytest.MonkeyPatch, suffix: str):
    monkeypatch.setenv("PRIME_API_BASE_URL", server.url + suffix)
    assert SandboxClient(APIClient()).list().page == 1


def test_line_04_a_post_without_a_body_is_accepted(api: httpx.Client, shared: str):
    answer = api.post(f"sandbox/{shared}/auth", headers={"content-length": "0"})
    assert answer.status_code in (200, 201), answer.text
    assert {"gateway_url", "user_ns", "job_id", "token", "expires_at"} <= answer.json().keys()
    assert api.post(f"sandbox/{shared}/checkpoints", headers={"content-length": "0"}).status_code in (200, 201)


def test_line_05_get_and_delete_with_content_type_and_no_body(api: httpx.Client, create: Any):
    sandbox = create(wait=False)
    assert api.get(f"sandbox/{sandbox.id}").status_code == 200
    assert api.get("sandbox").status_code == 200
    assert api.delete(f"sandbox/{sandbox.id}").status_code in (200, 204)


def test_line_06_delete_with_a_json_body_reaches_the_handler(api: httpx.Client, create: Any):
    sandbox = create(wait=False)
    answer = api.request("DELETE", "sandbox", json={"sandbox_ids": [sandbox.id], "all_users": False})
    assert answer.status_code == 200 and answer.json()["succeeded"] == [sandbox.id]


def test_line_07_every_error_body_has_detail_and_422_has_the_list_form(api: httpx.Client):
    plain = [
        api.get("sandbox/snosuchsandbox1"), api.get("nonsense"), api.put("sandbox"), api.get("sandbox/snosuchsandbox1/logs"),
        api.get("user/whoami", headers={"authorization": "Bearer wrong"}), api.get("user/whoami", headers={"authorization": "nonsense"}),
    ]
    for answer in plain:
        assert 400 <= answer.status_code < 500, answer
        assert isinstance(answer.json()["detail"], str) and answer.json()["detail"], answer.text
    listed = [
        api.post("sandbox", json={"docker_image": "x"}), api.post("sandbox", content=b"{"), api.post("sandbox", content=b""),
        api.post("sandbox", json={"name": "x", "docker_image": "x", "cpu_cores": -1}),
        api.post("sandbox", json={"name": "x", "docker_image": "x", "network_allowlist": [], "network_denylist": []}),
        api.post("sandbox/status:batchGet", json={"sandbox_ids": []}), api.get("sandbox", params={"page": "zero"}),
    ]
    for answer in listed:
        assert answer.status_code == 422, (answer.status_code, answer.text)
        for item in answer.json()["detail"]:
            assert isinstance(item["loc"], list) and isinstance(item["msg"], str) and isinstance(item["type"], str)


def test_line_08_every_2xx_is_an_object_or_204(api: httpx.Client, create: Any):
    sandbox = create()
    path = f"sandbox/{sandbox.id}"
    answers = [
        api.get("user/whoami"), api.get("user/teams"), api.get("billing/wallet"), api.get("sandbox"), api.get(path), api.get(f"{path}/logs"),
        api.get(f"{path}/error-context"), api.get(f"{path}/egress-policy"), api.post(f"{path}/auth"),
        api.post("sandbox/status:batchGet", json={"sandbox_ids": [sandbox.id]}),
        api.post("sandbox/background-jobs/status:batchGet", json={"jobs": [{"sandbox_id": sandbox.id, "job_id": "00000000"}]}),
        api.delete(path), api.delete(path), api.request("DELETE", "sandbox", json={"sandbox_ids": [sandbox.id], "all_users": False}),
    ]
    for answer in answers:
        assert answer.is_success, (answer.request.url, answer.text)
        assert answer.status_code == 204 or isinstance(answer.json(), dict)


def test_line_09_secrets_with_a_slash_answers_without_a_redirect(api: httpx.Client):
    for answer in (api.get("secrets/"), api.post("secrets/", json={"name": "A_SECRET", "value": "x"})):
        assert not answer.is_redirect and answer.status_code not in (404, 405), (answer.status_code, answer.text)


def test_line_10_no_handler_hangs(server: Server, create: Any, glibc: str):
    """Calls about objects that will never change or never come, each with a deadline; and bodies that never end."""
    sandbox = create(image="127.0.0.1:1/nothing/here:v1", wait=False)
    with server.http(timeout=HANDLER_SECS) as http:
        http.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": [sandbox.id, "snosuchsandbox1"]}).raise_for_status()
        for verb, path in (("GET", ""), ("GET", "/logs"), ("GET", "/error-context"), ("GET", "/egress-policy"), ("POST", "/auth")):
            http.request(verb, f"/api/v1/sandbox/{sandbox.id}{path}")
        http.post("/api/v1/sandbox/background-jobs/status:batchGet", json={"jobs": [{"sandbox_id": sandbox.id, "job_id": "00000000"}]})
        begun = time.monotonic()
        http.post("/api/v1/sandbox", json={"name": "x", "docker_image": glibc, "memory_gb": 10_000})
        assert time.monotonic() - begun < HANDLER_SECS


def test_line_11_teams_members_and_wallet_print_tables(server: Server, team: str, home: dict[str, str]):
    assert TEAM_ID.match(team)
    listed = prime("teams", "list", env=home).ok().text
    assert team in listed and "Conformance" in listed
    with server.http() as http:
        me = http.get("/api/v1/user/whoami").json()["data"]
    members = prime("teams", "members", "--team-id", team, env=home).ok().text
    assert me["id"] in members and "admin" in members
    assert "Wallet" in prime("wallet", env=home).ok().text
    prime("config", "set-team-id", team, env=home).ok()
    assert "Conformance" in prime("wallet", env=home).ok().text
    with server.http() as http:
        teams = http.get("/api/v1/user/teams", params={"offset": 0, "limit": 100}).json()
        assert teams["total_count"] == len(teams["data"]) and all(TEAM_ID.match(t["teamId"]) for t in teams["data"])
        assert http.get("/api/v1/user/teams", params={"offset": 100, "limit": 100}).json()["data"] == []


def test_line_12_login_headless_completes(server: Server, home: dict[str, str], tmp_path: Path):
    """The owner approves the challenge that `prime login` shows; the client then holds a working key of its own."""
    env = {**home, "PRIME_API_KEY": "", "PRIME_FRONTEND_URL": server.url}
    login = subprocess.Popen([str(PRIME), "login", "--headless", "--max-concurrent-sandboxes", "7"], env=environment(env),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output = Output(login)
        shown = waiting.until(lambda: re.search(r"challenge\?code=([A-Z0-9]{4}-[A-Z0-9]{4})", output.text()) or login.poll() is not None, 30, "prime login shows a code")
        assert shown is not True, f"prime login ended with {login.returncode}: {output.text()}"
        code = shown[1]
        with server.http() as http:
            assert http.get("/api/v1/auth_challenge/status", params={"challenge": code}, headers={"authorization": "Bearer wrong"}).status_code in (401, 403, 404)
            approved = http.post("/api/v1/auth_challenge/approve", json={"challenge": code})
            assert approved.is_success, approved.text
        assert login.wait(60) == 0, output.text()
    finally:
        login.kill()
    assert "Successfully logged in" in output.text()
    config = json.loads((tmp_path / ".prime/config.json").read_text())
    assert config["api_key"] != server.api_key
    with server.http(config["api_key"]) as http:
        me = http.get("/api/v1/user/whoami").raise_for_status().json()["data"]
        assert me["id"] == config["user_id"] and me["key_limits"]["max_concurrent_sandboxes"] == 7
        gone = http.get("/api/v1/auth_challenge/status", params={"challenge": "nosuchcode"}, headers={"authorization": "Bearer nothing"})
        assert gone.status_code == 404 and gone.json()["detail"]


def environment(changes: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **changes}


class Output:
    """What a process has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._thread.start()

    def _read(self, pipe: Any) -> None:
        while chunk := pipe.read1(4096):
            self._parts.append(chunk)

    def text(self) -> str:
        return b"".join(self._parts).decode(errors="replace").replace("\n", "")
