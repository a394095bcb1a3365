"""A server that accepts connections and replies to nothing: whatever a program calls, it gets our error in time."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import pytest
import redis

from orchestration_queue import client, server
from orchestration_queue.doctor import run_checks
from orchestration_queue.errors import TransportError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.http import create_app
from orchestration_queue.protocol.call import Call
from orchestration_queue.schedules import Every
from orchestration_queue.tasks import Tasks
from orchestration_queue.wires import chasquimq, qless
from tests.conftest import start_server
from tests.integration.test_cli import Oq, commands
from tests.integration.test_cli_hostile import SHOWN
from tests.waiting import wait_until

LONG_S = 600
"""How long callers are ready to wait for something to happen: much longer than for the server."""
FLOW = Dag("flow", [Node("a")], queue="q")
PACKAGES = ("client", "wires.chasquimq", "wires.qless", "doctor", "http", "server", "tasks", "worker")


class Server(NamedTuple):
    process: subprocess.Popen[bytes]
    path: Path

    def url(self, *, timeout: float = 0.5, connect_timeout: float = 0.5) -> str:
        return f"unix://{self.path}?timeout={timeout}&connect_timeout={connect_timeout}"

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Server]:
    server = Server(start_server(tmp_path / "s"), tmp_path / "s")
    yield server
    server.process.send_signal(signal.SIGCONT)
    server.process.kill()
    server.process.wait(60)


class Entry(NamedTuple):
    """A call of a client, by the names of its sync face."""

    module: Any
    kind: str
    method: str
    own: tuple[Any, ...] = ()
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})

    def make(self, face: str, url: str) -> Any:
        return getattr(self.module, f"Async{self.kind}" if face == "async" else self.kind)(*self.own, url=url)

    async def call(self, face: str, made: Any) -> object:
        if self.method == "next":
            return await (anext(made) if face == "async" else asyncio.to_thread(next, made))
        *parts, method = self.method.split(".")
        for part in parts:
            made = getattr(made, part)
        if face == "async":
            return await getattr(made, method)(*self.arguments, **self.options)
        return await asyncio.to_thread(getattr(made, method), *self.arguments, **self.options)


def of(module: Any, kind: str, method: str, *arguments: Any, own: tuple[Any, ...] = ("q",), **options: Any) -> Entry:
    return Entry(module, kind, method, own, arguments, options)


ENTRIES = [
    of(server, "Connection", "execute", Call("PING"), own=()),
    of(client, "Queue", "add", "work"),
    of(client, "Queue", "add_and_wait", "work", timeout=LONG_S),
    of(client, "Queue", "counts"),
    of(client, "Queue", "find", "1"),
    of(client, "Queue", "take", wait=LONG_S),
    of(client, "Queue", "pools.set", "pool", 1),
    of(client, "Queue", "shares.set", "share", 2),
    of(client, "Queue", "tags.list"),
    of(client, "Queue", "flows.list"),
    of(client, "Queue", "usage.summary"),
    of(client, "Queue", "dead_letters.list"),
    of(client, "Alerts", "list", own=()),
    of(client, "Producer", "add", "work"),
    of(client, "JobSchedulers", "upsert", "tick", Every(60)),
    of(client, "Broadcast", "publish", "work"),
    of(client, "FlowProducer", "submit", FLOW, own=()),
    of(client, "QueueEvents", "read", LONG_S),
    of(client, "QueueEvents", "next"),
    of(client, "ShardedQueue", "counts", own=("q", 2)),
    of(chasquimq, "ChasquiQueue", "add", "work"),
    of(chasquimq, "ChasquiQueue", "add_and_wait", "work", timeout=LONG_S),
    of(chasquimq, "ChasquiQueue", "counts"),
    of(chasquimq, "ChasquiEvents", "read", LONG_S),
    of(chasquimq, "ChasquiEvents", "next"),
    of(qless, "QlessClient", "put", "q", "K", own=()),
    of(qless, "QlessClient", "pop", "q", own=()),
    of(qless, "QlessEvents", "read", LONG_S, own=("log",)),
    of(qless, "QlessEvents", "next", own=("log",)),
]
PARTS = {"DeadLetters", "EventReader", "Flow", "Flows", "Job", "LogTail", "Pools", "Registration", "ShardedEvents"} | {
    "Shares",
    "Tags",
    "UsageLedger",
}
"""Made by a client of the table, on its connection."""
OTHERWISE = {
    "ChasquiMove": "below",
    "QlessMove": "below",
    "create_app": "below",
    "run_checks": "below",
    "Tasks": "below",
    "parse_url": "connects to nothing",
    "Subscription": "of QlessEvents",
    "report_usage": "of a job that a worker runs",
    "ActiveJob": "of a job that a worker runs",
    "Worker": "waits for its server: tests/chaos/test_outages",
    "BroadcastWorker": "waits for its server",
    "shard_workers": "waits for its server",
    "ChasquiWorker": "waits for its server",
    "QlessWorker": "waits for its server",
    "add_relay": "of workers",
}


def name(entry: Entry) -> str:
    return f"{entry.kind}.{entry.method}"


async def outcome(call: Awaitable[object]) -> str:
    try:
        return f"returned {await asyncio.wait_for(call, LONG_S / 20)!r}"
    except TransportError as error:
        return "" if "\n" not in str(error) else f"several lines: {error}"
    except Exception as error:
        return repr(error)  # a TimeoutError of the wait, too


async def outcomes(calls: Mapping[str, Callable[[], Awaitable[object]]]) -> dict[str, str]:
    """Make all calls at a time; return what came instead of the error."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * len(calls)))
    ended = await asyncio.gather(*(outcome(call()) for call in calls.values()))
    return {name: what for name, what in zip(calls, ended, strict=True) if what}


@pytest.mark.parametrize("face", ["sync", "async"])
async def test_a_new_client_of_a_silent_server_fails_in_time(silent: Server, face: str) -> None:
    with silent.stopped():
        made = [(entry, entry.make(face, silent.url())) for entry in ENTRIES]
        calls = {name(entry): partial(entry.call, face, one) for entry, one in made}
        assert await outcomes(calls) == {}


@pytest.mark.parametrize("face", ["sync", "async"])
async def test_a_connected_client_of_a_silent_server_fails_in_time(silent: Server, face: str) -> None:
    url = silent.url(timeout=2, connect_timeout=10)  # a busy machine takes a part of them
    made = [(entry, entry.make(face, url)) for entry in ENTRIES]
    for entry, one in made:
        if entry.method in ("next", "read"):  # it would wait
            await Entry(*entry[:2], "start" if hasattr(one, "start") else "read").call(face, one)
        elif entry.method not in ("add_and_wait", "take"):
            await entry.call(face, one)
        else:
            await Entry(*entry[:2], "counts").call(face, one)
    calls = {name(entry): partial(entry.call, face, one) for entry, one in made}
    with silent.stopped():
        assert await outcomes(calls) == {}
    for _, one in made:
        await (one.aclose() if face == "async" else asyncio.to_thread(one.close))


async def test_waits_for_an_outcome_fail_in_time(silent: Server) -> None:
    """A job's wait survives outages that end before its own timeout."""
    url = silent.url(timeout=2, connect_timeout=10)
    async with client.AsyncQueue("q", url=url) as queue, client.AsyncFlowProducer(url=url) as flows:
        job, flow = await queue.add("work"), await flows.submit(FLOW)
        waits = [asyncio.ensure_future(outcome(wait)) for wait in (job.wait(5), flow.wait(LONG_S))]
        with redis.Redis(unix_socket_path=str(silent.path)) as raw:
            await wait_until(lambda: raw.info("clients")["blocked_clients"] == len(waits), "all to wait")
        with silent.stopped():
            assert await asyncio.gather(*waits) == ["", ""]


def move_chasquimq(url: str) -> object:
    with chasquimq.ChasquiMove("q", "own", url=url) as move:
        return move.to_ours()


def move_qless(url: str) -> object:
    with qless.QlessMove("q", "own", url=url) as move:
        return move.to_ours()


def add_task(url: str) -> object:
    tasks = Tasks(url=url)

    @tasks.task(queue="q")
    def work() -> None: ...

    return work.add()


def check(url: str) -> object:
    return list(run_checks(url))


async def test_moves_tasks_and_checks_of_a_silent_server_fail_in_time(silent: Server) -> None:
    with silent.stopped():
        calls: Any = {
            act.__name__: partial(asyncio.to_thread, act, silent.url())
            for act in (move_chasquimq, move_qless, add_task, check)
        }
        assert await outcomes(calls) == {}


async def test_the_http_server_of_a_silent_server_says_so_in_time(
    silent: Server, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(silent.url())
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", timeout=60) as http:
            with silent.stopped():
                replies = [await http.get("/queues/q/counts"), await http.post("/queues/q/jobs", json={"name": "work"})]
        assert [reply.status_code for reply in replies] == [500, 500]
        assert caplog.text.count("Cannot reach the server") == 2
    finally:
        await app.aclose()


MORE: list[tuple[str, ...]] = [
    *(("qless", verb) for verb in ("failed", "events", "workers", "check")),
    *(("chasqui", verb, "c") for verb in ("inspect", "events")),
    *(("chasqui", *verb, "c") for verb in (("dead", "ls"), ("scheduler", "ls"))),
    *(("chasqui", "dead", verb, "c", "1-1") for verb in ("show", "replay")),
    *(("library", verb) for verb in ("status", "load")),
    *(("alert", "silence", "r"), ("alert", "test", "r"), ("alert", "rm", "r")),
    ("alert", "add", "r", "--kind", "backlog", "--to", "ops"),
    ("usage", "q"),
    ("server", "bench"),
    ("flow", "keep", "q"),
]
OFFLINE = {
    "alert run",
    *("flow submit", "flow explain"),  # the hostile table's file does not exist; the client is in this file's table
    *("worker run", "qless worker", "chasqui worker", "dagster worker", "dagster dev", "dagster daemon"),
    "airflow worker",
    *("library dump", "qless script", "token", "spark archive", "serve", "ui", "dagster sweep"),
    *("server start", "server stop", "server status"),
}
"""Commands that need no server to start, or wait for theirs."""


def test_every_command_of_a_silent_server_ends_in_time_with_one_sentence(silent: Server) -> None:
    oq = Oq(silent.url(timeout=0.1, connect_timeout=0.1))
    ended, wrong = set(), []
    verbs = [tuple(command) for command in commands()]
    with silent.stopped():
        for words in (*SHOWN, *MORE):
            result = oq(*words, answer="y\n")
            if result.exit_code == 4 and "Cannot reach the server" in result.stderr:
                ended |= {" ".join(verb) for verb in verbs if words[: len(verb)] == verb}
            elif result.exit_code != 2 and words[0] != "token":
                wrong.append((words, result.exit_code, result.stdout, result.stderr))
    assert wrong == []
    assert {" ".join(verb) for verb in verbs} - ended == OFFLINE


def test_every_client_that_connects_has_a_case() -> None:
    found = set()
    for package in PACKAGES:
        module = importlib.import_module(f"orchestration_queue.{package}")
        for name in module.__all__:
            with suppress(TypeError, ValueError):
                if {"url", "connection"} & inspect.signature(getattr(module, name)).parameters.keys():
                    found.add(name.removeprefix("Async").removesuffix("_async"))
    assert found == {entry.kind for entry in ENTRIES} | PARTS | OTHERWISE.keys()


def test_only_the_layer_that_limits_connections_makes_them() -> None:
    root = Path(client.__file__).parents[2]
    makers = set()
    for path in root.glob("*orchestration_queue*/**/*.py"):
        code = path.read_text("utf-8")
        makes_link = ".link import" in code and re.search(r"\b(Async)?Link\(", code)
        if makes_link or re.search(r"redis\.(Redis|from_url)\b", code):
            makers.add(str(path.relative_to(root / "orchestration_queue")))
    limited = ("cluster", "node", "sentinel")
    faces = {f"server/_{face}/{module}.py" for face in ("async", "sync") for module in limited}
    assert makers == faces | {"dagster/pipes/writer.py"}
