"""Natural mistakes in values: each is a package error in one sentence, where the value is made."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from orchestration_queue import (
    Backoff,
    Batch,
    Budget,
    Cron,
    Dag,
    DagBuilder,
    Deduplication,
    Every,
    Fallback,
    FlowOptions,
    JobOptions,
    MissedRuns,
    Node,
    OrchestrationQueueError,
    RateLimit,
    RepeatAfterComplete,
    Retention,
    SharedSlots,
    StepOptions,
    Tasks,
    TokenBucket,
    TokenLimit,
    Usage,
    WorkerOptions,
    chain,
    chord,
    group,
    register_codec,
    tree,
)

NAIVE = datetime.fromisoformat("2024-01-01")


def each(make: Any, argument: str, /, *values: object, **others: object) -> list[tuple[Any, dict[str, Any]]]:
    """Return a case for each wrong value of one argument."""
    return [(make, {**others, argument: value}) for value in values]


TASKS = Tasks(queue="q", url="unix:///nonexistent/server.sock")
BUILDER = DagBuilder("d", queue="q")


@TASKS.task
def load(day: int) -> int:
    return day


LOAD: Any = load


def unnamed(value: Any) -> JobOptions:
    make: Any = JobOptions
    options: JobOptions = make(value)
    return options


def parts_of(part: Any) -> Any:
    return chain(Node("first"), group(part))


def task_of(function: Any) -> Any:
    return TASKS.task(function)


CASES: list[tuple[Any, dict[str, Any]]] = [
    *each(JobOptions, "delay", "soon", -1, float("nan"), [], NAIVE),
    *each(JobOptions, "timeout", "5 minutes", 0, -1, {}),
    *each(JobOptions, "ttl", "x", -1, float("inf")),
    *each(JobOptions, "attempts", -1, 1.5, "many", []),
    *each(JobOptions, "priority", -1, 2049, "high"),
    *each(JobOptions, "job_id", "", "a:b", "a{b", "x" * 257, 5),
    *each(JobOptions, "backoff", 5, "fixed", {"typ": "fixed"}, {"type": "exponental"}),
    *each(JobOptions, "remove_on_complete", True, 5, {"cout": 5}, {"count": -1}),
    *each(JobOptions, "ordering", "key", {}, {"key": ""}, {"key": "k", "concurency": 2}),
    *[(JobOptions, {name: 1}) for name in ("dealy", "atempts", "removeOnComplete", "lockDuration", "retries")],
    *each(JobOptions, "headers", "x", {"a": 5}, [1]),
    *each(JobOptions, "fallbacks", "x", [{}], [5]),
    *each(JobOptions, "tags", "x", 5, None, [5], [""], ["a\n"], ["x" * 101]),
    *each(Backoff, "type", "exponental", "Fixed", "", None, 5),
    *each(Backoff, "jitter", -0.1, 1.1, "some"),
    *[(Deduplication, values) for values in ({}, {"id": ""}, {"id": "d", "mode": "simpel"}, {"id": "d", "ttl": -1})],
    *[(RateLimit, values) for values in ({}, {"max": 0, "duration": 1}, {"max": 1, "duration": "minute"})],
    *[(TokenBucket, values) for values in ({}, {"capacity": 0, "refill_rate": 1}, {"capacity": 1, "refil_rate": 1})],
    *[(Retention, values) for values in ({"count": -1}, {"age": 0}, {"days": 1})],
    *[(TokenLimit, values) for values in ({}, {"max_tokens": 0}, {"max_tokens": 1, "scope": "all"})],
    *[(Batch, values) for values in ({}, {"size": 0}, {"size": 5, "timeout": -1})],
    *[(Budget, values) for values in ({"max_tokens": -1}, {"max_token": 5}, {"on_exceeded": "stop"})],
    *[(Usage, values) for values in ({"tokens": 5}, {"total_tokens": -1}, {"modell": "x"})],
    *[(Fallback, values) for values in ({}, {"model": ""}, {"model": 5})],
    *each(StepOptions, "attempts", 0, -1, "many", 1.5),
    *each(StepOptions, "timeout", 0, -1, "long"),
    *each(StepOptions, "codec", 5, None),
    *each(StepOptions, "store_errors", ValueError, "ValueError", [5], [KeyboardInterrupt]),
    *[(StepOptions, {name: 1}) for name in ("atempts", "retries", "time_out")],
    *each(WorkerOptions, "concurrency", 0, -1, "all"),
    *each(WorkerOptions, "lease", 0, "long", timedelta(days=2)),
    *[(WorkerOptions, {name: 1}) for name in ("concurency", "lockDuration", "threads")],
    *each(Cron, "pattern", "", "* * *", "61 * * * *", "@dialy", "* * * * FOO", "0 0 1 * 1", 5, None),
    *each(Cron, "tz", "Berlin", "", 5, pattern="0 0 * * *"),
    *each(Cron, "start", "2024-01-01", NAIVE, 5, pattern="0 0 * * *"),
    *each(Every, "interval", 0, -1, "hour", None, float("nan")),
    *each(Every, "limit", 0, -1, True, "2", interval=5),
    *each(RepeatAfterComplete, "interval", 0, "x"),
    *each(MissedRuns, "mode", "fire_all", "al", 5),
    *each(Node, "name", "", "a:b", "x" * 257, 5, None),
    *each(Node, "deps", "a", 5, [5], [None], name="n"),
    *each(Node, "trigger_rule", "all_sucess", 5, None, "", name="n", deps=["a"]),
    *each(Node, "options", 5, "x", {"dealy": 1}, {"job_id": "own"}, name="n"),
    *[(FlowOptions, {name: -1}) for name in ("timeout", "concurrency", "priority")],
    *each(FlowOptions, "failfast", True),
    *each(FlowOptions, "on_success", "node"),
    *[(Dag, {"name": "d", "nodes": nodes, "queue": "q"}) for nodes in ([], [Node("a"), Node("a")])],
    (Dag, {"name": "d", "nodes": [Node("a", deps=["b"])], "queue": "q"}),
    (Dag, {"name": "d", "nodes": [Node("a", deps=["b"]), Node("b", deps=["a"])], "queue": "q"}),
    (Dag, {"name": "d", "nodes": [Node("a")], "queue": "a:b"}),
    *each(Dag, "nodes", 5, "a", None, Node("a"), ["a"], {"a": []}, [LOAD.node("a")], name="d", queue="q"),
    *each(Dag, "options", 5, "x", {"timout": 5}, {"timeout": -1}, name="d", nodes=[Node("a")], queue="q"),
    *each(Dag, "name", "", 5, None, nodes=[Node("a")], queue="q"),
    *each(DagBuilder, "options", 5, {"timout": 5}, name="d", queue="q"),
    *each(BUILDER.add, "node", "a", None, LOAD, LOAD.job(1), LOAD.node("a")),
    *each(BUILDER.node, "task", 5, LOAD, name="a"),
    *each(BUILDER.include, "dag", "d", [Node("a")], None, BUILDER, as_="d"),
    *each(Node, "task", 5, LOAD, ["a"], name="n"),
    *[(make, {}) for make in (chain, group)],
    (chord, {"parts": [], "callback": Node("c")}),
    *each(chord, "parts", 5, "ab", Node("a"), ["a"], callback=Node("c")),
    *each(chord, "callback", "c", None, [Node("c")], parts=[Node("a")]),
    *each(tree, "job", "a", None, [Node("a")]),
    *each(tree, "children", 5, "ab", Node("b"), ["b"], job=Node("a")),
    *each(parts_of, "part", "a", 5, [Node("a")], LOAD),
    *each(unnamed, "value", 5, "delay", {"delay": 5}, None),
    *each(Tasks, "middleware", 5, "trace", unnamed, ["trace"], None),
    *each(Tasks, "logs", "yes", 1, None),
    *each(TASKS.task, "options", 5, "x", {"atempts": 3}, {"attempts": "many"}),
    *each(TASKS.task, "isolation", "thread", "", 5),
    *each(TASKS.task, "name", "", 5, "a:b"),
    *each(task_of, "function", "send", 5, Tasks, []),
    *each(LOAD.with_options, "options", 5, "x", {"dealy": 5}, {"delay": "soon"}),
    *each(LOAD.with_queue, "queue", "", 5, None, "a:b"),
    *each(LOAD.track, "job", "1", 5, None, LOAD.job(1)),
    *each(LOAD.add_bulk, "jobs", 5, "load", None, [1], ["load"], [{"day": 1}], [(1,)], LOAD.job(1)),
    *each(SharedSlots, "count", 0, "8", 1.5, True, None),
    *each(register_codec, "codec", 5, "zip", None),
]


@pytest.mark.parametrize(
    ("make", "values"), CASES, ids=[re.sub(r" at 0x\w+", "", f"{m.__name__}-{v}")[:70] for m, v in CASES]
)
def test_a_mistake_is_refused_in_one_sentence(make: Any, values: dict[str, Any]) -> None:
    with pytest.raises(OrchestrationQueueError) as caught:
        make(**values)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 250


def test_nodes_and_names_are_dependencies_alike() -> None:
    first = Node("first")
    assert Node("then", deps=[first, "other", first]).deps == ("first", "other")
    assert DagBuilder("d", queue="q").node("n", deps=[first]).deps == ("first",)
    assert Node("n", options={"attempts": 3}).options == JobOptions(attempts=3)  # type: ignore[arg-type]  # a dict
