"""The natural mistakes in calls of the client: each is refused in one sentence of ours, before anything is sent.

The clients' server does not exist: a call that tried to reach it would fail with a TransportError instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue import client
from orchestration_queue.errors import UsageError
from orchestration_queue.flows import Dag, Node, compile  # noqa: A004
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from tests.misuse import Case, call, name_case, run_case

NOWHERE = "redis://127.0.0.1:1"
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  what is tested
NO_DAGS: list[Any] = [None, "g", [Node("a")], {"a": []}]
GRAPH = Dag("g", [Node("a")], queue="q")

CLIENTS = ("Queue", "Producer", "QueueEvents", "JobSchedulers", "Broadcast")
ADDERS = ("queue", "producer")
IDS: list[Any] = ["", 5, None, b"1"]
"""What is not the id of anything."""
BY_ID = ("get", "find", "suspend_info", "logs", "remove", "cancel")
LIMITS: list[dict[str, Any]] = [
    {"limit": -1},
    {"limit": "5"},
    {"limit": True},
    {"limit": 1.5},
    {"offset": -1},
    {"offset": "0"},
    {"offset": None},
]
RULE_NAMES: list[Any] = ["", 5, None, "a b", "x" * 101]
DURATIONS: list[Any] = [-1, "5", float("nan"), True, [5]]

CASES: list[Case] = [
    # Constructors.
    *(
        call(kind, "", name)
        for kind in ("Queue", "Producer", "QueueEvents", "JobSchedulers")
        for name in ("", "a:b", 5)
    ),
    *(
        call(kind, "", "q", **options)
        for kind in CLIENTS
        for options in (
            {"url": 5},
            {"url": "localhost"},
            {"url": "redis://h:x"},
            {"url": NOWHERE, "connection": object()},
            {"connection": "redis://localhost"},
            {"prefix": 5},
            {"prefix": ""},
        )
    ),
    *(call(kind, "", "q", codec=codec) for kind in ("Queue", "Producer") for codec in ("zip", 5, None)),
    call("Queue", "", "q", dead_letter_queue="q"),
    call("Queue", "", "q", dead_letter_queue=5),
    call("Queue", "", "q", emit_events="no"),
    *(call("FlowProducer", "", url=url) for url in (5, "", " ")),
    *(call(kind, "", "q", url=url) for kind in ("Queue", "Producer", "QueueEvents") for url in (5, "", " ")),
    call("FlowProducer", "", prefix=5),
    call("FlowProducer", "", carrier="bull"),
    call("QueueEvents", "", "q", after="new"),
    call("QueueEvents", "", "q", after=None),
    # Adding.
    *(call("queue", "add", name) for name in IDS),
    *(call(owner, "add", "work", data) for owner in ("queue", "producer") for data in (object(), {("a", 1): 1})),
    *(call(owner, "add_bulk", [client.NewJob("work", [{("a", 1): 1}])]) for owner in ("queue", "producer")),
    *(
        call(owner, "add", "work", options=options)
        for owner in ("queue", "producer")
        for options in (5, "delay", [1], {"dealy": 5}, {"delay": -1}, {"priority": "high"}, {1: 2})
    ),
    *(call("queue", "add", "work", parent=parent) for parent in ("1", 1, {"id": "1"})),
    *(
        call(owner, "add_bulk", jobs)
        for owner in ("queue", "producer")
        for jobs in ("work", 5, None, ["work"], {"a": 1})
    ),
    *(call("queue", "add_and_wait", "work", timeout=timeout) for timeout in DURATIONS),
    # Reading.
    *(
        call("queue", method, job_id)
        for method in ("get", "find", "suspend_info", "logs", "remove", "cancel")
        for job_id in IDS
    ),
    *(call("queue", "jobs", state) for state in ("lost", None, 5, "waiting-children")),
    *(call("queue", "jobs", "waiting", **page) for page in LIMITS),
    *(call("queue", "suspended_jobs", **page) for page in LIMITS),
    *(call("queue", "logs", "1", **page) for page in LIMITS),
    *(call("queue", "last_logs", "1", count) for count in (-1, "5", None, True)),
    call("queue", "search", 5),
    call("queue", "search", state="lost"),
    call("queue", "search", data=[1]),
    *(call("queue", "search", limit=limit) for limit in (-1, "5", True)),
    *(
        call("queue", "metrics", **options)
        for options in ({"kind": "waiting"}, {"start": NAIVE}, {"end": "now"}, {"start": 5})
    ),
    *(call("queue", "read_stream", "1", after) for after in ("new", None, -1)),
    *(call("queue", "read_stream", "1", count=count) for count in (0, "5", None)),
    call("queue", "events", "new"),
    # Taking.
    *(call("queue", "take", count) for count in (0, 101, -1, "1", True, 1.5, None)),
    *(call("queue", "take", lease=lease) for lease in (*DURATIONS, 0, 0.5, 86_401)),
    *(call("queue", "take", wait=wait) for wait in (*DURATIONS, None)),
    *(call("queue", "taken", "1", token) for token in (None, 5, "", "x", "1.2", "1.2.3", "-1.0.1-1", "1.0.1-1\n")),
    *(call("queue", "taken", job_id, "1.0.1-1") for job_id in (None, 5, "")),
    *(call("queue", "taken", "1", "1.0.1-1", lease=lease) for lease in (*DURATIONS, 0, 86_401)),
    # Upkeep.
    *(call("queue", "set_global_concurrency", limit) for limit in (0, -1, "5", True, 1.5)),
    *(call("queue", "set_global_rate_limit", limit) for limit in (5, "5/s", (5, 1))),
    *(
        call("queue", "configure", **settings)
        for settings in ({"attempts": 0}, {"attempts": "3"}, {"attempts": True}, {"timeout": -1}, {"timeout": "x"})
    ),
    *(
        call("queue", "configure", **settings)
        for settings in ({"backoff": 5}, {"backoff": {"type": ""}}, {"remove_on_fail": -1}, {"atempts": 3})
    ),
    *(call("queue", "configure", lease=lease) for lease in (0, 0.5, 86_401, "x")),
    *(call("queue", "configure", dead_letter_queue=name) for name in ("", "a:b", 5, ["q"])),
    *(call("queue", "configure", concurrency=limit) for limit in (0, -1, "5", True, 1.5)),
    *(call("queue", "configure", rate_limit=limit) for limit in (5, "5/s", {"max": 0, "duration": 1})),
    *(call("queue", "rate_limit_group", key, 5) for key in IDS),
    *(call("queue", "rate_limit_group", "k", duration) for duration in DURATIONS),
    *(call("queue", "control_workers", verb) for verb in ("kill", "", None, 5)),
    *(call("queue", "control_workers", "ping", workers) for workers in ("w", 5, [5], [""], {"w": 1})),
    *(call("queue", "control_workers", "ping", timeout=timeout) for timeout in DURATIONS),
    *(
        call("queue", "control_workers", "concurrency", concurrency=count)
        for count in (None, 0, 10_001, "4", True, 1.5)
    ),
    call("queue", "control_workers", "pause", concurrency=4),
    *(call("queue", "signal", job_id, "go") for job_id in IDS),
    *(call("queue", "signal", "1", name) for name in IDS),
    call("queue", "signal", "1", "go", object()),
    *(call("queue", "search", kind=kind) for kind in ("", 5, ["timeout"])),
    call("queue", "search", state="completed", kind="timeout"),
    *(call("queue", "search", state=state, since=datetime(2026, 1, 31, tzinfo=UTC)) for state in (None, "active")),
    *(call("queue", "search", state="failed", until=until) for until in (5, "today", datetime(2026, 1, 31))),  # noqa: DTZ001
    *(call("queue", "retry_jobs", limit) for limit in (-1, "5", True)),
    *(call("queue", "move_jobs", ids, "other") for ids in ("a", None, 5, [5], [""], b"a")),
    *(call("queue", "move_jobs", ["a"], name) for name in ("", "a:b", 5, None)),
    *(call("queue", "move_jobs", ["a"], "other", delay=delay) for delay in (-1, "x")),
    *(call("queue", "retry_jobs", kind=kind) for kind in ("", 5, b"timeout")),
    *(call("queue", "clean", 5, state="failed", kind=kind) for kind in ("", 5)),
    call("queue", "clean", 5, kind="timeout"),
    *(call("queue", "clean", grace) for grace in DURATIONS),
    *(call("queue", "clean", 5, limit) for limit in (-1, "5")),
    call("queue", "clean", 5, state="waiting"),
    *(call("queue", "statistics", day) for day in (5, "2026-01-31", NAIVE)),
    call("queue", "drain", delayed="no"),
    call("queue", "obliterate", force="no"),
    # Jobs.
    *(call("job", "wait", timeout) for timeout in DURATIONS),
    call("job", "update_progress", object()),
    *(call("job", "log", line) for line in (5, None, b"x")),
    *(call("job", "report_usage", used) for used in (5, {"tokens": 5})),
    *(call("job", "report_tokens", tokens) for tokens in (-1, "5", None)),
    *(call("job", "signal", name) for name in IDS),
    *(call("job", "forget_step", name) for name in ("", "a\n", "x" * 257, 5, None)),
    call("job", "forget_step", "a", following="yes"),
    *(call("job", "retry", from_step=name) for name in ("", 5)),
    *(call("job", "depends", on=ids) for ids in ("2", 5, [""], [5], ["1"], [str(n) for n in range(2, 103)])),
    *(call("job", "depends", off=ids) for ids in ("2", 5, [""], [None])),
    *(call("job", "move", name) for name in ("", "a:b", 5, None)),
    *(call("job", "move", "other", delay=delay) for delay in (-1, "x")),
    *(call("job", "remove", force=force) for force in ("no", 1, None)),
    *(call("queue", "remove", "1", force=force) for force in ("no", 1, None)),
    *(call("job", "change_priority", priority) for priority in (-1, 2049, "high", None)),
    *(call("job", "change_delay", delay) for delay in (-1, "x", None)),
    call("job", "update_data", object()),
    *(call("job", method, *tags) for method in ("tag", "untag") for tags in (("",), (5,), ("a", None), ("x\n",))),
    *(call("job", "logs", **page) for page in LIMITS),
    *(call("job", "read_stream", after) for after in ("new", None)),
    call("job", "stream", "new"),
    # Schedulers.
    *(
        call("schedulers", method, name)
        for method in ("get", "find", "remove", "pause", "resume", "run_now", "next_runs", "history")
        for name in IDS
    ),
    *(call("schedulers", "histories", names) for names in ("s", 5, None, *([name] for name in IDS))),
    *(call("schedulers", "upsert", name, 5) for name in IDS),
    *(call("schedulers", "upsert", "s", schedule) for schedule in (None, 5, object(), "not a pattern")),
    *(call("schedulers", "upsert", "s", "* * * * *", template) for template in (5, "work")),
    *(call("schedulers", "next_runs", "s", count) for count in (0, 1001, "5", None)),
    *(call("schedulers", "run_now", "s", at=at) for at in (NAIVE, 5, "now")),
    # Flows.
    *(call("flows", method, flow_id) for method in ("get", "find") for flow_id in IDS),
    *(call("flows", "list", **page) for page in LIMITS),
    *(call("flows", "list", state) for state in ("lost", 5)),
    call("flow_producer", "submit", Dag("d", [Node("a", data={("a", 1): 1})], queue="q")),
    *(call("flow_producer", "submit", dag) for dag in NO_DAGS),
    *(call("flow_producer", "submit", GRAPH, flow_id=flow_id) for flow_id in ("", "a.b", 5)),
    *(call("flow_producer", "submit_bulk", dags) for dags in (GRAPH, None, ["g"])),
    *(call("flow_producer", "submit_bulk", [GRAPH], flow_ids=ids) for ids in ("a", [], 5, [5])),
    *(call("flow_producer", "tree", queue, "f") for queue in ("", "a:b", 5)),
    *(call("flow_producer", "tree", "q", flow_id) for flow_id in IDS),
    *(call("flow", "wait", timeout) for timeout in DURATIONS),
    # Events, dead letters, usage, broadcasts.
    *(call("events", "read", timeout) for timeout in DURATIONS),
    *(call("dead_letters", method, letter) for method in ("get", "find", "remove", "replay") for letter in IDS),
    *(call("dead_letters", "list", **page) for page in LIMITS),
    *(call("dead_letters", "groups", by) for by in ("name", "", None, 5)),
    *(call("dead_letters", "groups", limit=limit) for limit in (-1, "5", True)),
    *(call("dead_letters", "replay_all", limit) for limit in (-1, "5", True)),
    *(call("tags", method, tag) for method in ("jobs", "cancel", "retry", "remove") for tag in ("", 5, None, "a\0")),
    *(call("tags", "move", tag, "other") for tag in ("", 5, None, "a\0")),
    *(call("tags", "move", "t", name) for name in ("", "a:b", 5, None)),
    *(call("tags", "jobs", "t", **page) for page in LIMITS),
    *(call("tags", "list", **page) for page in LIMITS),
    *(call("pools", method, pool) for method in ("find", "remove") for pool in ("", 5, None, "a:b", "x" * 101)),
    *(call("pools", "set", "p", slots) for slots in (-1, 1001, "8", True, None, 1.5)),
    *(call("pools", "set", pool, 8) for pool in ("", 5, None, "a:b", "x" * 101)),
    *(call("queue", "add", "j", None, {"pools": pools}) for pools in ("p", ["p"], {"p": 0}, {"p": 1001}, {"": 1})),
    *(call("queue", "add", "j", None, {"pools": pools}) for pools in ({"p": True}, {"p": "2"}, {"a:b": 1}, {5: 1})),
    call("queue", "add", "j", None, {"pools": {str(number): 1 for number in range(9)}}),
    *(call("alerts", method, name) for method in ("get", "find", "remove", "test") for name in RULE_NAMES),
    *(call("alerts", "set", name, {"kind": "backlog", "to": ["ops"]}) for name in RULE_NAMES),
    *(call("alerts", "set", "r", rule) for rule in (None, 5, "backlog", {}, {"kind": "backlog", "too": ["ops"]})),
    *(call("alerts", "silence", name, 60) for name in RULE_NAMES),
    *(call("alerts", "silence", "r", duration) for duration in (-1, "soon", None, timedelta(days=31))),
    call("alerts", "silence", "r", 60, by=5),
    *(call("alerts", "history", name) for name in RULE_NAMES if name is not None),
    *(call("alerts", "history", limit=limit) for limit in (-1, 10_001, "5", True)),
    *(call("alerts", "test", "r", timeout=timeout) for timeout in (-1, "soon")),
    *(call("shares", "remove", share) for share in ("", 5, None, "a:b", "x" * 101)),
    *(call("shares", "set", share, 2) for share in ("", 5, None, "a:b", "x" * 101)),
    *(call("shares", "set", "a", weight) for weight in (0, -1, 1001, "8", True, None, 1.5)),
    *(call("queue", "add", "j", None, {"share": share}) for share in ("", 5, "a:b", "x" * 101, ["a"])),
    call("queue", "add", "j", None, {"share": "a", "lifo": True}),
    call("queue", "add", "j", None, {"share": "a", "ordering": {"key": "k"}}),
    call("broadcast", "publish", "a", None, {"share": "a"}),
    *(call("usage", "of_flow", flow_id) for flow_id in IDS),
    *(call("usage", "budget", flow_id) for flow_id in IDS),
    *(call("usage", "set_budget", "f", budget) for budget in (None, 5, {"max_tokens": 5})),
    *(call("usage", "summary", queues) for queues in ("q", 5, [5])),
    *(call("usage", "summary", start=start) for start in (NAIVE, 5)),
    *(call("broadcast", "publish", subject) for subject in ("", 5, None, "a..b")),
    *(call("broadcast", "publish", "a", None, options) for options in (5, {"lifo": True}, {"dealy": 5})),
    *(call("broadcast", method, name) for method in ("subscribe", "unsubscribe") for name in ("", 5, None, "a:b")),
    *(call("broadcast", "subscribe", "s", start) for start in ("new", 5, None)),
]


def _make(face: str, owner: str) -> Any:
    """Return a client, or what one gives out, without asking a server."""

    def kind(name: str) -> Any:
        return getattr(client, f"Async{name}" if face == "async" else name)

    if owner[0].isupper():
        return kind(owner)
    queue = kind("Queue")("q", url=NOWHERE)
    made: dict[str, Callable[[], Any]] = {
        "queue": lambda: queue,
        "producer": lambda: kind("Producer")("q", url=NOWHERE),
        "events": lambda: kind("QueueEvents")("q", url=NOWHERE),
        "broadcast": lambda: kind("Broadcast")("q", url=NOWHERE),
        "alerts": lambda: kind("Alerts")(url=NOWHERE),
        "flow_producer": lambda: kind("FlowProducer")(url=NOWHERE),
        "job": lambda: kind("Job")(queue._connection, QueueKeys("q"), "1", JobRecord("1", {"name": "work"})),
        "flow": lambda: kind("Flow")(queue._connection, compile(GRAPH, "f")),
    }
    return made[owner]() if owner in made else getattr(queue, owner)


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("case", CASES, ids=name_case)
async def test_a_mistake_is_refused_in_one_sentence_and_nothing_is_sent(case: Case, face: str) -> None:
    target = _make(face, case[0])
    with pytest.raises(UsageError) as caught:
        await run_case(target, case)
    message = str(caught.value)
    assert message.endswith("."), message
    assert "\n" not in message, message
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, UsageError)


def test_every_public_method_with_an_argument_has_a_case() -> None:
    owners = {
        "queue": client.AsyncQueue,
        "producer": client.AsyncProducer,
        "job": client.AsyncJob,
        "schedulers": client.AsyncJobSchedulers,
        "flow_producer": client.AsyncFlowProducer,
        "events": client.AsyncQueueEvents,
        "alerts": client.AsyncAlerts,
    }
    covered = {(owner, method) for owner, method, *_ in CASES}
    for owner, kind in owners.items():
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            takes = [p for p in list(inspect.signature(method).parameters)[1:] if p not in ("arguments", "options")]
            if not name.startswith("_") and takes:
                assert (owner, name) in covered, f"{owner}.{name}({', '.join(takes)})"
