"""The natural mistakes in calls on ChasquiMQ's queues: each is refused in one sentence, before anything is sent.

The clients' server does not exist: a call that tried to reach it would fail with a TransportError instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestration_queue.errors import UsageError
from orchestration_queue.wires import chasquimq
from orchestration_queue.wires.chasquimq import (
    BackoffSpec,
    ChasquiRef,
    ChasquiWorker,
    ChasquiWorkerOptions,
    NewChasquiJob,
    add_relay,
)
from tests.misuse import Case, call, name_case, run_case

NOWHERE = "redis://127.0.0.1:1"
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001  what is tested
DURATIONS: list[Any] = [-1, "5", float("nan"), float("inf"), True, [5]]
POLICIES: list[Any] = ["all", None, 5, []]
COUNTS: list[Any] = [-1, "5", True, 1.5]
IDS: list[Any] = ["", " ", 5, None, b"1"]
QUEUES: list[Any] = ["", 5, None, b"q"]
URLS: list[Any] = [5, "", "localhost", "redis://h:x", b"redis://h"]

JOBS: list[dict[str, Any]] = [
    {"name": 5},
    {"name": None},
    {"name": b"a"},
    {"name": "n" * 257},
    {"name": "\ud800"},
    {"name": "a", "data": object()},
    {"name": "a", "data": 2**64},
    {"name": "a", "data": "\ud800"},
    *({"name": "a", "delay": delay} for delay in DURATIONS),
    *({"name": "a", "delay_until": until} for until in (NAIVE, "tomorrow", 5)),
    {"name": "a", "delay": 1, "delay_until": datetime(2030, 1, 1, tzinfo=UTC)},
    *({"name": "a", "attempts": attempts} for attempts in (-1, "3", True, 1.5, 2**32)),
    *(
        {"name": "a", "backoff": backoff}
        for backoff in (-1, "fixed", BackoffSpec("weird", 1), BackoffSpec("fixed", -1))
    ),
    *({"name": "a", "job_id": job_id} for job_id in ("", " ", 7, b"x", "\ud800")),
]
SCHEDULES: list[dict[str, Any]] = [
    {},
    {"every": 60, "cron": "* * * * *"},
    *({"every": every} for every in (*DURATIONS, 0, "1m")),
    *({"cron": cron} for cron in (5, "", "* * *", "0 0 30 2 *", "99 * * * *", b"* * * * *")),
    *({"cron": "* * * * *", "tz": tz} for tz in (5, "Mars/X", "../etc")),
    *({"every": 60, "key": key} for key in (3, b"k", None, "\ud800")),
    *({"every": 60, "limit": limit} for limit in (0, -1, "5", True)),
    *({"every": 60, "missed_fires": policy} for policy in POLICIES),
    *({"every": 60, "missed_fires": "fire_all", "max_catchup": most} for most in (0, "5", None, True)),
    *({"every": 60, "start": start} for start in (12, NAIVE, "now")),
    *({"every": 60, "end": end} for end in (12, NAIVE, datetime(2020, 1, 1, tzinfo=UTC))),
    {"every": 60, "data": object()},
]

CASES: list[Case] = [
    # Constructors.
    *(call(kind, "", name) for kind in ("ChasquiQueue", "ChasquiEvents") for name in QUEUES),
    *(call(kind, "", "q", url=url) for kind in ("ChasquiQueue", "ChasquiEvents") for url in URLS),
    *(call("ChasquiQueue", "", "q", max_length=length) for length in (0, *COUNTS, None)),
    *(call("ChasquiEvents", "", "q", after=after) for after in ("new", None, 5, "-1", "")),
    *(call("ChasquiMove", "", name, "ours") for name in QUEUES),
    *(call("ChasquiMove", "", "theirs", name) for name in (*QUEUES, "a:b")),
    *(call("ChasquiMove", "", "a", "b", **{option: url}) for option in ("url", "our_url") for url in URLS),
    *(call("ChasquiMove", "", "a", "b", prefix=prefix) for prefix in ("", 5)),
    # Adding.
    *(call("queue", "add", **mistake) for mistake in JOBS),
    *(call("queue", "add_bulk", [NewChasquiJob("fine"), NewChasquiJob(**mistake)]) for mistake in JOBS),
    *(call("queue", "add_bulk", jobs) for jobs in ("work", 5, None, ["work"], [{"name": "a"}])),
    *(call("queue", "add_and_wait", "a", timeout=timeout) for timeout in (*DURATIONS, None)),
    *(
        call("queue", "add_and_wait", **mistake)
        for mistake in JOBS
        if not mistake.keys() & {"delay", "delay_until", "job_id"}
    ),
    *(call("queue", "wait", job_id, after="0") for job_id in IDS),
    *(call("queue", "wait", "a", after=after) for after in ("new", None, 5)),
    *(call("queue", "wait", "a", after="0", timeout=timeout) for timeout in DURATIONS),
    # Reading.
    *(call("queue", method, job_id) for method in ("cancel", "find_result") for job_id in IDS),
    *(call("queue", "find_results", ids) for ids in ("abc", 5, None, ["a", 5], [""])),
    *(call("queue", method, limit) for method in ("list_jobs", "list_delayed") for limit in (0, *COUNTS, None)),
    # Dead letters.
    *(call("queue", "dead_letters", limit) for limit in (0, *COUNTS, None)),
    *(call("queue", "dead_letters", after=after) for after in ("new", 5, "$", "")),
    *(call("queue", "find_dead_letter", letter_id) for letter_id in ("new", 5, "$", "", None)),
    *(call("queue", "replay_dead_letters", limit) for limit in COUNTS),
    *(call("queue", "replay_dead_letters", ids=ids) for ids in ("1-1", 5, ["a"], [5])),
    *(call("queue", "replay_dead_letters", reason=reason) for reason in (5, b"malformed")),
    # Schedules.
    *(call("queue", "put_schedule", "tick", **mistake) for mistake in SCHEDULES),
    *(call("queue", "put_schedule", name, every=60) for name in (5, None, "n" * 257, "\ud800")),
    *(call("queue", "schedules", limit) for limit in (0, *COUNTS, None)),
    *(call("queue", "remove_schedule", key) for key in (5, None, b"k", "\ud800")),
    # Events.
    *(call("events", "read", timeout) for timeout in (*DURATIONS, None)),
    *(call("events", "read", 0, limit) for limit in (0, *COUNTS, None)),
]


def _make(face: str, owner: str) -> Any:
    def kind(name: str) -> Any:
        return getattr(chasquimq, f"Async{name}" if face == "async" else name)

    if owner[0].isupper():
        return kind(owner)
    return kind({"queue": "ChasquiQueue", "events": "ChasquiEvents"}[owner])("q", url=NOWHERE)


def _is_one_sentence(error: UsageError) -> bool:
    message = str(error)
    return message.endswith(".") and "\n" not in message and (error.__cause__ is None)


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("case", CASES, ids=name_case)
async def test_a_mistake_is_refused_in_one_sentence_and_nothing_is_sent(case: Case, face: str) -> None:
    target = _make(face, case[0])
    with pytest.raises(UsageError) as caught:
        await run_case(target, case)
    assert _is_one_sentence(caught.value), caught.value


def test_every_public_method_with_an_argument_has_a_case() -> None:
    covered = {(owner, method) for owner, method, *_ in CASES}
    owners = {"queue": chasquimq.AsyncChasquiQueue, "events": chasquimq.AsyncChasquiEvents}
    for owner, kind in owners.items():
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
                assert (owner, name) in covered, f"{owner}.{name}"


def _handle(job: object) -> None:
    """A handler."""


OPTIONS: list[dict[str, Any]] = [
    *({"concurrency": count} for count in (0, -1, "x", 1.5, 10_001, None)),
    *({"attempts": count} for count in (-1, "x", 1.5, 2**32, None)),
    *({"lease": lease} for lease in (0, -1, "5 s", float("nan"), None)),
    *({"max_payload_bytes": size} for size in (0, "x", None)),
    *({"result_ttl": ttl} for ttl in (0, -1, "x", None)),
    *({"group": group} for group in ("", 5, None)),
    *({"max_length": length} for length in (0, "x")),
    *({"max_dead_letters": length} for length in (0, "x")),
    *({"shutdown_timeout": timeout} for timeout in (-1, "x", None)),
    *({flag: "perhaps"} for flag in ("store_results", "emit_events", "run_promoter", "run_schedulers")),
    *({"rate_limit": limit} for limit in (5, {"max": 0, "duration": 1}, {"max": 1, "duration": 0}, {"max": 1})),
    {"token_limit": {"max_tokens": 5}},
    {"concurency": 5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_of_a_worker_outside_their_limits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        ChasquiWorkerOptions(**options)
    assert _is_one_sentence(caught.value), caught.value


@pytest.mark.parametrize(
    "make",
    [
        *(lambda name=name: ChasquiWorker(name, _handle) for name in QUEUES),
        *(lambda handler=handler: ChasquiWorker("q", handler) for handler in (5, None, "handler", {"a": _handle})),
        *(lambda url=url: ChasquiWorker("q", _handle, url=url) for url in URLS),
        *(lambda given=given: ChasquiWorker("q", _handle, options=given) for given in (5, {"concurrency": 5})),
        *(lambda given=given: ChasquiWorker("q", _handle, observer=given) for given in (5, _handle)),
        *(lambda given=given: ChasquiWorker("q", _handle, middleware=given) for given in (5, _handle, [5], "log")),
        *(lambda ms=ms: BackoffSpec.fixed(ms) for ms in (-1, "5", 1.5, None, True, 2**64)),
        *(lambda ms=ms: BackoffSpec.fixed(5, jitter_ms=ms) for ms in (-1, "5", 1.5, True)),
        *(lambda by=by: BackoffSpec.exponential(5, multiplier=by) for by in ("2", float("nan"), float("inf"), True)),
        *(lambda ms=ms: BackoffSpec.exponential(5, max_ms=ms) for ms in (-1, "5", True)),
        *(lambda name=name: ChasquiRef(name) for name in QUEUES),
        *(lambda count=count: ChasquiRef("q", attempts=count) for count in (-1, "5", True)),
        lambda: ChasquiRef("q", backoff="soon"),  # type: ignore[arg-type]  # the mistake under test
        lambda: ChasquiRef("q", results_as=5),  # type: ignore[arg-type]
        lambda: add_relay(5),  # type: ignore[arg-type]
    ],
)
def test_mistakes_of_other_values_are_refused_in_one_sentence(make: Callable[[], Any]) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert _is_one_sentence(caught.value), caught.value
