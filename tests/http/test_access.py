"""Who may do what: every route, by every scope, for queues that the token names and those that it does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import redis

from orchestration_queue.errors import UsageError
from orchestration_queue.http import create_app
from orchestration_queue.http.access import Access, DeniedError, Token, read_groups, read_tokens
from orchestration_queue.http.app import API_ROUTES
from orchestration_queue.http.routes import Route, Scope
from tests.http.conftest import called

ALLOWED = {
    Scope.READ: {"read", "act", "admin"},
    Scope.ADD: {"add", "act", "admin"},
    Scope.WORK: {"work", "act", "admin"},
    Scope.ACT: {"act", "admin"},
    Scope.ADMIN: {"admin"},
    Scope.OPEN: {"read", "add", "work", "act", "admin"},
}
SCOPES = ("read", "add", "work", "act", "admin")


@pytest.fixture
async def guarded(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    tokens = [Token.of(f"{scope}-mine", f"{scope}-mine", [scope], ["mine-*"]) for scope in SCOPES]
    tokens += [Token.of(f"{scope}-all", f"{scope}-all", [scope]) for scope in SCOPES]
    async with called(create_app(server_url, access=Access(tokens))) as client:
        yield client


def path_of(route: Route, queue: str) -> str:
    parts = [queue if part == ":name" else "x" if part.startswith(":") else part for part in route.path.split("/")]
    # A stream would not end; without its subscription or its job it does.
    return "/".join(parts)


async def status(client: httpx.AsyncClient, route: Route, queue: str, token: str) -> int:
    if route.path == "/queues/:name/events":
        queue = queue + ":"  # refused behind the check, so that no stream begins
    response = await client.request(
        route.method, path_of(route, queue), headers={"authorization": f"Bearer {token}"} if token else {}
    )
    return response.status_code


@pytest.mark.parametrize("route", API_ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_matrix(guarded: httpx.AsyncClient, route: Route) -> None:
    if route.scope is Scope.OPEN:
        assert await status(guarded, route, "mine-1", "") == 200
        return
    assert await status(guarded, route, "mine-1", "") == 401
    assert await status(guarded, route, "mine-1", "unknown") == 401
    for scope in SCOPES:
        is_allowed = scope in ALLOWED[route.scope]
        assert (await status(guarded, route, "mine-1", f"{scope}-all") != 403) is is_allowed, scope
        is_mine = is_allowed and route.names_queue
        assert (await status(guarded, route, "mine-1", f"{scope}-mine") != 403) is is_mine, scope
        if route.names_queue:
            assert await status(guarded, route, "other", f"{scope}-mine") == 403, scope


async def test_flows_need_the_queues_in_their_body(guarded: httpx.AsyncClient) -> None:
    flow = {"name": "a", "queueName": "mine-1", "data": 1}
    token = {"authorization": "Bearer add-mine"}
    assert (await guarded.post("/flows", json={"flow": flow}, headers=token)).status_code == 201
    wider = flow | {"children": [{"name": "b", "queueName": "other", "data": 1}]}
    assert (await guarded.post("/flows", json={"flow": wider}, headers=token)).status_code == 403


async def test_a_trusted_header_names_the_user(server_url: str, raw: redis.Redis) -> None:
    async with called(create_app(server_url, access=Access(trusted_header="X-User"))) as client:
        assert (await client.get("/queues/q/counts")).status_code == 401
        assert (await client.get("/queues/q/counts", headers={"x-user": "ann"})).status_code == 200


GROUPS = [Token.of_group(f"{scope}-mine", [scope], ["mine-*"]) for scope in SCOPES]
GROUPS += [Token.of_group(f"{scope}-all", [scope]) for scope in SCOPES]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("route_scope", [scope for scope in Scope if scope is not Scope.OPEN])
def test_groups_allow_what_tokens_of_their_scopes_do(scope: str, route_scope: Scope) -> None:
    access = Access(trusted_header="X-User", groups_header="X-Groups", groups=GROUPS)

    def allows(groups: str, *queues: str) -> bool:
        try:
            return access.check(route_scope, {"x-user": "ann", "x-groups": groups}, queues) == "ann"
        except DeniedError:
            return False

    is_allowed = scope in ALLOWED[route_scope]
    assert allows(f"other, {scope}-all") is allows(f"{scope}-all", "a", "b") is is_allowed
    assert allows(f"{scope}-mine,other", "mine-1") is is_allowed
    assert not allows(f"{scope}-mine")
    assert not allows(f"{scope}-mine", "mine-1", "other")
    for none in ("", ",", "other", f"{scope}-MINE", f"{scope}-mine;x"):
        assert not allows(none, "mine-1")


async def test_groups_hold_for_routes_and_pages(server_url: str, raw: redis.Redis) -> None:
    access = Access(trusted_header="X-User", groups_header="X-Groups", groups=GROUPS)
    async with called(create_app(server_url, console=True, access=access)) as client:
        for path in ("/queues/mine-1/counts", "/v1/queues/mine-1/flows", "/ui/queues/mine-1"):
            for groups, expected in (("read-mine", 200), ("add-mine", 403), ("", 403)):
                headers = {"x-user": "ann", "x-groups": groups}
                assert (await client.get(path, headers=headers)).status_code == expected, (path, groups)
            assert (await client.get(path, headers={"x-groups": "read-mine"})).status_code in (401, 303)
        shown = await client.get("/ui/queues/mine-1", headers={"x-user": "ann", "x-groups": "read-mine,act-mine"})
        assert ("Pause" in shown.text, "Drain" in shown.text) == (True, False)


def test_groups_without_headers_are_refused(tmp_path: Path) -> None:
    for given in (
        {"groups": GROUPS},
        {"groups": GROUPS, "groups_header": "G"},
        {"trusted_header": "U", "groups_header": "G"},
    ):
        with pytest.raises(UsageError, match="header"):
            Access(**given)
    path = tmp_path / "groups.json"
    path.write_text('[{"group": "oncall", "scopes": ["act"], "queues": ["ci-*"]}]')
    assert read_groups(path) == [Token.of_group("oncall", ["act"], ["ci-*"])]
    for text in (
        "[",
        "5",
        "[5]",
        '[{"group": ""}]',
        '[{"group": "a,b", "scopes": ["act"]}]',
        '[{"group": "a", "scopes": ["root"]}]',
    ):
        path.write_text(text)
        with pytest.raises(UsageError):
            read_groups(path)


async def test_a_token_may_send_so_many_requests_a_second(server_url: str, raw: redis.Redis) -> None:
    tokens = [Token.of("slow", "slow", ["read"], rate=0.001), Token.of("free", "free", ["read"])]
    for first, second in (("/queues/q/counts", "/v1/queues/q/flows"), ("/v1/queues/q/flows", "/queues/q/counts")):
        async with called(create_app(server_url, access=Access(tokens))) as client:
            slow, free = ({"authorization": f"Bearer {name}"} for name in ("slow", "free"))
            assert (await client.get(first, headers=slow)).status_code == 200
            refused = await client.get(second, headers=slow)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert "0.001 requests a second" in refused.text
            assert (await client.get(second, headers=free)).status_code == 200
    for rate in (0, -1, "5", True, float("nan")):
        with pytest.raises(UsageError, match="rate"):
            Token.of("a", "b", ["read"], rate=rate)  # type: ignore[arg-type]


def test_token_files_keep_digests_and_refuse_mistakes(tmp_path: Path) -> None:
    made = Token.of("ci", "secret", ["add"], ["ci-*"], rate=5)
    path = tmp_path / "tokens.json"
    path.write_text(f'[{{"name": "ci", "sha256": "{made.digest}", "scopes": ["add"], "queues": ["ci-*"], "rate": 5}}]')
    assert read_tokens(path) == [made]
    for text in ("[", "[5]", '[{"name": "a"}]', '[{"name": "a", "sha256": "b", "scopes": ["root"]}]'):
        path.write_text(text)
        with pytest.raises(UsageError):
            read_tokens(path)
    with pytest.raises(UsageError, match="scope"):
        Token.of("a", "b", [])
