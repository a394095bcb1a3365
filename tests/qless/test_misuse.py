"""The natural mistakes with qless's clients and worker: each is refused in one sentence, before anything is sent.

The server does not exist: a call that tried to reach it would fail with a TransportError instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from orchestration_queue.errors import UsageError
from orchestration_queue.wires import qless
from tests.misuse import Case, call, name_case, run_case

NOWHERE = "redis://127.0.0.1:1"
JOB = qless.QlessJob("j", "K", "q", "running", {})
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  what is tested
NAMES: list[Any] = ["", 5, None, b"q", ["q"]]
IDS: list[Any] = ["", 5, None, b"j"]
COUNTS: list[Any] = [0, -1, 1.5, "2", True, None]
OFFSETS: list[Any] = [-1, "0", None, True]
DURATIONS: list[Any] = [-1, "5", float("nan"), float("inf"), True, [5], None]
NO_JOBS: list[Any] = ["j", None, 5, {"jid": "j"}]
NO_TEXTS: list[Any] = ["t", 5, [5], [""], None]

NO_WORDS: list[Any] = [None, ["j"], {}, True]


def _client(method: str, *arguments: Any, **options: Any) -> Case:
    return call("client", method, *arguments, **options)


CASES: list[Case] = [
    # Constructors.
    *(call("QlessClient", "", worker=name) for name in ("", 5, b"w")),
    *(call(kind, "", url=url) for kind in ("QlessClient", "QlessEvents") for url in ("http://x", 5)),
    *(call("QlessEvents", "", channel) for channel in ("", 5, None)),
    *(call("QlessMove", "", name) for name in NAMES),
    *(call("QlessMove", "", "q", name) for name in ("", "a:b", 5)),
    *(call("QlessMove", "", "q", prefix=prefix) for prefix in ("", "a:b", 5)),
    # What makes and changes jobs.
    *(_client("put", name, "K") for name in NAMES),
    *(_client("put", "q", name) for name in NAMES),
    *(_client("put", "q", "K", data) for data in (False, object(), float("nan"), {"a": float("inf")})),
    *(_client("put", "q", "K", jid=jid) for jid in ("", 5, b"j")),
    *(_client("put", "q", "K", delay=delay) for delay in DURATIONS),
    *(_client("put", "q", "K", priority=value) for value in ("high", True, float("nan"), float("inf"))),
    *(_client("put", "q", "K", retries=value) for value in (-1, 1.5, "2", True)),
    *(_client("put", "q", "K", **{name: value}) for name in ("tags", "depends") for value in NO_TEXTS[:-1]),
    *(_client("requeue", value, "q") for value in NO_JOBS),
    *(_client("requeue", JOB, name) for name in NAMES),
    *(_client("requeue", JOB, "q", delay=delay) for delay in DURATIONS),
    *(_client(method, jid) for method in ("get", "track", "untrack", "recurring", "unrecur") for jid in IDS),
    *(_client("get_many", jids) for jids in ("j", 5, [5], [""], None)),
    *(_client(method, name) for method in ("pop", "peek", "counts", "length", "stats") for name in NAMES),
    *(_client(method, "q", count) for method in ("pop", "peek") for count in COUNTS),
    *(_client(method, value) for method in ("complete", "retry", "heartbeat") for value in NO_JOBS),
    *(_client("complete", JOB, next_queue=name) for name in ("", 5)),
    *(_client("complete", JOB, next_queue="r", delay=delay) for delay in DURATIONS),
    *(_client("complete", JOB, next_queue="r", depends=value) for value in ("t", 5, [5])),
    *(_client("complete", JOB, **options) for options in ({"delay": 5}, {"depends": ["j"]})),
    *(_client(method, JOB, data) for method in ("complete", "heartbeat") for data in (False, object())),
    *(_client("complete_many", value) for value in ("j", 5, None, ["j"], [JOB, None])),
    *(_client("fail", value, "g", "m") for value in NO_JOBS),
    *(_client("fail", JOB, name, "m") for name in NAMES),
    *(_client("fail", JOB, "g", message) for message in (5, None, b"m")),
    _client("fail", JOB, "g", "m", False),
    *(_client("retry", JOB, delay=delay) for delay in DURATIONS),
    *(_client("retry", JOB, **options) for options in ({"group": "g"}, {"message": "m"})),
    *(_client("retry", JOB, group=group, message="m") for group in ("", 5)),
    *(_client("retry", JOB, group="g", message=message) for message in (5, b"m")),
    *(_client(method, jid) for method in ("timeout", "cancel") for jid in IDS),
    *(_client(method) for method in ("timeout", "cancel", "pause", "unpause", "forget_queue", "deregister")),
    *(_client(method, jid, "j") for method in ("depend", "undepend", "tag", "untag") for jid in IDS),
    *(_client(method, "j", other) for method in ("depend", "undepend", "tag", "untag") for other in IDS),
    *(_client(method, "j") for method in ("depend", "tag", "untag", "tag_recurring", "untag_recurring")),
    *(_client("set_priority", jid, 1) for jid in IDS),
    *(_client("set_priority", "j", value) for value in ("high", True, None, float("nan"))),
    *(_client("log", jid, "m") for jid in IDS),
    *(_client("log", "j", message) for message in NAMES),
    *(_client("log", "j", "m", data) for data in ([1], "text", 5, {"a": object()})),
    # Queues, failures, tags, options, statistics.
    *(
        _client(method, name)
        for method in ("pause", "unpause", "forget_queue", "deregister", "jobs_of_worker", "get_config", "unset_config")
        for name in NAMES
    ),
    *(_client("jobs", name, "running") for name in NAMES),
    *(_client("jobs", "q", state) for state in ("waiting", "", 5, None)),
    *(_client("jobs", "q", "running", offset) for offset in OFFSETS),
    *(_client("jobs", "q", "running", 0, count) for count in COUNTS),
    *(_client(method, offset) for method in ("completed", "top_tags") for offset in OFFSETS),
    *(_client(method, 0, count) for method in ("completed", "top_tags") for count in COUNTS),
    *(_client(method, name) for method in ("failed", "tagged") for name in NAMES),
    *(_client(method, "g", offset) for method in ("failed", "tagged") for offset in OFFSETS),
    *(_client(method, "g", 0, count) for method in ("failed", "tagged") for count in COUNTS),
    *(_client("unfail", name, "g") for name in NAMES),
    *(_client("unfail", "q", name) for name in NAMES),
    *(_client("unfail", "q", "g", count) for count in COUNTS),
    *(_client("stats", "q", day) for day in (NAIVE, "today", 5)),
    *(_client("set_config", name, 5) for name in NAMES),
    *(_client("set_config", "heartbeat", value) for value in (None, True, [5], float("nan"))),
    *(_client("check", repair=value) for value in ("yes", 1, None)),
    _client("check", on_progress="loud"),
    *(_client("command", name) for name in NAMES),
    *(_client("command", "get", word) for word in NO_WORDS),
    # Recurring jobs.
    *(_client("recur", name, "K", interval=5) for name in NAMES),
    *(_client("recur", "q", name, interval=5) for name in NAMES),
    *(_client("recur", "q", "K", interval=value) for value in (0, *DURATIONS)),
    *(_client("recur", "q", "K", interval=5, offset=value) for value in DURATIONS),
    *(_client("recur", "q", "K", interval=5, jid=jid) for jid in ("", 5)),
    *(_client("recur", "q", "K", interval=5, backlog=value) for value in (-1, "2", 1.5)),
    *(_client("recur", "q", "K", interval=5, tags=value) for value in ("t", [5])),
    *(_client("update_recurring", jid, priority=1) for jid in IDS),
    *(
        _client("update_recurring", "j", **changes)
        for changes in ({}, {"flavor": "k"}, {"interval": 0}, {"priority": None}, {"retries": -1}, {"queue": ""})
    ),
    *(_client("update_recurring", "j", **changes) for changes in ({"klass": 5}, {"data": False}, {"backlog": "2"})),
    *(_client(method, jid, "t") for method in ("tag_recurring", "untag_recurring") for jid in IDS),
    *(_client(method, "j", tag) for method in ("tag_recurring", "untag_recurring") for tag in IDS),
    # Messages.
    *(call("events", "read", timeout) for timeout in DURATIONS),
    *(call("events", "read", 0, limit) for limit in COUNTS),
]


def _kind(face: str, name: str) -> Any:
    return getattr(qless, f"Async{name}" if face == "async" else name)


def _make(face: str, owner: str) -> Any:
    if owner[0].isupper():
        return _kind(face, owner)
    return _kind(face, {"client": "QlessClient", "events": "QlessEvents"}[owner])(url=NOWHERE)


def _check(error: UsageError) -> None:
    message = str(error)
    assert message.endswith("."), message
    assert "\n" not in message, message


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("case", CASES, ids=name_case)
async def test_a_mistake_is_refused_in_one_sentence_and_nothing_is_sent(case: Case, face: str) -> None:
    target = _make(face, case[0])
    with pytest.raises(UsageError) as caught:
        await run_case(target, case)
    _check(caught.value)


def test_every_public_method_with_an_argument_has_a_case() -> None:
    covered = {(owner, method) for owner, method, *_ in CASES}
    for owner, kind in {"client": qless.AsyncQlessClient, "events": qless.AsyncQlessEvents}.items():
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if (
                not name.startswith("_")
                and (owner, name) != ("events", "command")
                and len(inspect.signature(method).parameters) > 1
            ):
                assert (owner, name) in covered, f"{owner}.{name}"


def handle(job: Any) -> None: ...


def takes_nothing() -> None: ...


def takes_two(job: Any, other: Any) -> None: ...


def generate(job: Any) -> Iterator[int]:
    yield 1


Worker: Any = qless.QlessWorker
Options: Any = qless.QlessWorkerOptions
NO_HANDLERS: list[Any] = [5, "app:handler", [], {}, b""]
NO_OPTIONS: list[Any] = [5, "fast", []]
WRONG: dict[str, Callable[..., Any]] = {
    **{f"queues {value!r}": lambda value=value: Worker(value) for value in ("", 5, None, [], [5], ["q", ""], b"q")},
    **{f"handler {value!r}": lambda value=value: Worker("q", value) for value in NO_HANDLERS},
    **{
        f"handler {function.__name__}": lambda function=function: Worker("q", function)
        for function in (takes_nothing, takes_two, generate)
    },
    **{f"name {value!r}": lambda value=value: Worker("q", handle, name=value) for value in ("", 5, b"w")},
    **{f"url {value!r}": lambda value=value: Worker("q", handle, url=value) for value in ("http://x", 5)},
    **{f"options {value!r}": lambda value=value: Worker("q", handle, options=value) for value in NO_OPTIONS},
    **{f"middleware {value!r}": lambda value=value: Worker("q", handle, middleware=value) for value in (5, "log", [5])},
    "an unknown option": lambda: Worker("q", handle, options={"concurency": 3}),
    **{
        f"concurrency {value!r}": lambda value=value: Options(concurrency=value) for value in (0, -1, 1.5, None, 10_001)
    },
    **{f"order {value!r}": lambda value=value: Options(order=value) for value in ("random", None, 5)},
    **{f"interval {value!r}": lambda value=value: Options(interval=value) for value in (0, -1, "soon", None)},
    **{f"retry_delay {value!r}": lambda value=value: Options(retry_delay=value) for value in (-1, "soon")},
    **{f"shutdown {value!r}": lambda value=value: Options(shutdown_timeout=value) for value in (-1, "soon", None)},
    **{f"rate {value!r}": lambda value=value: Options(rate_limit=value) for value in (5, {"max": 1}, {"max": 0})},
    "a limit of tokens": lambda: Options(token_limit={"max_tokens": 5}),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_a_worker_that_cannot_work_is_not_made(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    _check(caught.value)


def test_a_worker_takes_a_dict_of_options() -> None:
    assert Worker("q", handle, options={"concurrency": 3}).running == 0
