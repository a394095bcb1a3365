"""Mistakes in definitions: each is refused where it is written, in one sentence, and nothing is sent to a server.

Configuration of the executor, the launcher, the coordinator and the components has tables in the tests of each.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from orchestration_queue import Cron, Every, JobOptions
from orchestration_queue.dagster import (
    AssetTask,
    CodeLocation,
    DagsterWorker,
    FlowResource,
    JobSchedulerResource,
    Limits,
    QueueResource,
    ReplayBudget,
    backlog_sensor,
    build_queue_definitions,
    dead_letter_sensor,
    flow_completed_sensor,
    flow_sensor,
    health_sensor,
    queue_event_sensor,
    queue_flow_assets,
    queue_health_checks,
    queue_schedules,
    queue_task_asset,
    request_run,
    scheduler_sensor,
    sweep_sensor,
)
from orchestration_queue.dagster.pipes import (
    PipesQueueClient,
    PipesStreamContextInjector,
    PipesStreamMessageReader,
)
from orchestration_queue.dagster.routing import JobRoute
from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.wires.chasquimq.dagster import (
    ChasquiResource,
    chasqui_dead_letter_sensor,
    chasqui_event_sensor,
)
from orchestration_queue.wires.qless.dagster import (
    QlessResource,
    qless_event_sensor,
    qless_failure_sensor,
    qless_stalled_sensor,
)
from orchestration_queue.worker.forks.fork_pool import Recycling

pytestmark = pytest.mark.dagster


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job(name="idle")
def JOB() -> None:  # noqa: N802  a constant
    """Do nothing."""
    nothing()


EVERY_MINUTE = Cron("* * * * *")
LOCATION = CodeLocation(module="m")
NOWHERE = "unix:///nowhere/at/all.sock"
"""A server that no mistake may reach."""


def open_queue(name: Any, **server: Any) -> object:
    """Ask a resource for a queue."""
    return QueueResource(**server).queue(name)


def read_events(name: Any) -> object:
    """Ask a resource for events."""
    return QueueResource(url=NOWHERE).events(name)


def open_flows(name: Any) -> object:
    """Ask a resource for flows."""
    return FlowResource(url=NOWHERE).of(name)


def open_schedulers(name: Any) -> object:
    """Ask a resource for schedulers."""
    return JobSchedulerResource(url=NOWHERE).of(name)


def run_by_pipes(**options: Any) -> object:
    """Run external work."""
    return PipesQueueClient(url=NOWHERE).run(context=dg.build_op_context(), queue="q", task="t", **options)


def route_step(tags: dict[str, str]) -> object:
    """Read the tags of a step."""
    return JobRoute("q", 0, Isolation.AUTO, None).with_tags(tags, {})


MISUSES: list[tuple[Callable[..., object], dict[str, Any], list[tuple[dict[str, Any], str]]]] = [
    (
        queue_event_sensor,
        {"react": request_run, "queue": "q", "job": JOB, "name": "s"},
        [
            ({"queue": 5}, "`queue` must be a list of str"),
            ({"queue": None}, "`queue` must be a list of str"),
            ({"queue": [5]}, "`queue[0]` must be of type str"),
            ({"react": 5}, "`react` must be a function"),
            ({"job": "j"}, "`job` must be a job or an asset selection"),
            ({"name": 5}, "`name` must be a non-empty string"),
            ({"name": "no name"}, "The name of the function, 'no name', can't be"),
            ({"name": ""}, "`name` must be a non-empty string"),
            ({"events": [5]}, "`events[0]` must be of type str"),
            ({"events": ["complete"]}, "`events[...]` must be a known word, got 'complete'; use 'completed'."),
            ({"events": ["completed", "shipped"]}, "`events[...]` must be a known word, got 'shipped'; pass one of"),
            ({"start": "newest"}, "Listening.start (given 'newest'): Input should be"),
            ({"start": "oldst"}, "Listening.start (given 'oldst'): Input should be 'now' or 'oldest'; use 'oldest'."),
            ({"on_gap": "wran"}, "Listening.on_gap (given 'wran'): Input should be"),
            ({"events": None}, "`events` and `job_names` must be lists of words"),
            ({"job_names": [5]}, "`job_names[0]` must be of type str"),
            ({"where": 5}, "`where` must be a function"),
            ({"partition": "p"}, "`partition` must be a function"),
            (
                {"partition": lambda e: "x", "dynamic_partitions": "p"},
                "`dynamic_partitions` must be of type DynamicPartitionsDefinition",
            ),
            ({"wait": "soon"}, "Listening.wait (given 'soon'): must be a"),
            ({"wait": -1}, "`wait` must be above 0 and at most 50 s, got -1 s"),
            ({"limit": "many"}, "Listening.limit (given 'many'): Input should be"),
            ({"resource_key": 5}, "Listening.resource_key (given 5): Input should"),
            ({"resource_key": ""}, "Listening.resource_key (given ''): String"),
            ({"wiat": 5}, "Listening has no option 'wiat'; use 'wait'."),
            ({"on_gap": "observe", "gap_asset": 5}, "Listening.gap_asset (given 5): Input should be"),
            ({"linger": 6}, "`linger` must be from 0 to 5 s, after which the"),
        ],
    ),
    (
        flow_completed_sensor,
        {"flow": "f", "last_nodes": ["a"], "name": "s", "queue": "q", "job": JOB},
        [
            ({"last_nodes": []}, "`last_nodes` of sensor 's' must not be empty"),
            ({"last_nodes": "abc"}, "`last_nodes` must be a list of str"),
            ({"last_nodes": 5}, "`last_nodes` must be a list of str"),
            ({"last_nodes": [5]}, "`last_nodes[0]` must be of type str"),
            ({"flow": ""}, "`flow` must be a non-empty string"),
            ({"flow": 5}, "`flow` must be a non-empty string"),
            ({"flow": "a:b"}, "`flow` must be the name of a flow, which has no ':'"),
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"job": None}, "`job` must be a job or an asset selection"),
        ],
    ),
    (
        flow_sensor,
        {"flow": "f", "queue": "q", "job": JOB},
        [
            ({"flow": 5}, "`flow` must be a non-empty string"),
            ({"flow": ""}, "`flow` must be a non-empty string"),
            ({"queue": 5}, "`queue[0]` must be of type str"),
            ({"queue": ""}, "Queue name '' is empty, which the wire cannot"),
            ({"on": []}, "`on` must list outcomes of flows, got []; use cancelled"),
            ({"on": ["done"]}, "`on` must list outcomes of flows, got ['done']; use cancelled"),
            ({"on": ["complete"]}, "got ['complete']; use 'completed'."),
            ({"on": "failed"}, "`on` must be a list of str"),
            ({"on": 5}, "`on` must be a list of str"),
            ({"react": 5}, "`react` must be a function"),
            ({"node_queues": 5}, "`node_queues` must be a list of str"),
            ({"node_queues": ["a{b"]}, "Queue name 'a{b' contains '{', which the wire"),
            ({"job": None}, "`job` must be a job or an asset selection"),
        ],
    ),
    (
        backlog_sensor,
        {"queue": "q", "job": JOB, "limits": Limits(depth=5)},
        [
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": ["q"]}, "Queue name ['q'] is not text, which the wire"),
            ({"job": None}, "`job` must be a job or an asset selection"),
            ({"limits": None}, "`limits` must be of type Limits"),
            ({"limits": 5}, "`limits` must be of type Limits"),
            ({"limits": {"depth": 5}}, "`limits` must be of type Limits"),
            ({"hold": -1}, "`hold` must be a timedelta or seconds >= 0"),
            ({"hold": "x"}, "`hold` must be a timedelta or seconds >= 0"),
            ({"interval": 0}, "`hold` must be >= 0 and `interval` >= 1 s"),
            ({"interval": "x"}, "`interval` must be a timedelta or seconds >= 0"),
            ({"name": "no name"}, '"no name" is not a valid name in Dagster. Names'),
            ({"wait": 5}, "Shown has no option 'wait'; check its spelling."),
        ],
    ),
    (
        Limits,
        {},
        [
            ({}, "`Limits` requires a depth, an age, or both"),
            ({"depth": "5"}, "`depth` must be a whole number"),
            ({"depth": 0}, "`depth` and `age` must be > 0, and"),
            ({"depth": 1.5}, "`depth` must be a whole number"),
            ({"depth": True}, "`depth` must be a whole number"),
            ({"age": "x"}, "`age` must be a timedelta or seconds >= 0"),
            ({"age": -1}, "`age` must be a timedelta or seconds >= 0"),
            ({"depth": 5, "clear_depth": 6}, "`depth` and `age` must be > 0, and"),
            ({"depth": 5, "clear_depth": "2"}, "`clear_depth` must be a whole number"),
            ({"depth": 5, "clear_age": 2}, "`depth` and `age` must be > 0, and"),
        ],
    ),
    (
        ReplayBudget,
        {"most": 1},
        [
            ({"most": 0}, "`most` and `window` must be > 0, got 0 and"),
            ({"most": "5"}, "`most` must be a whole number"),
            ({"most": None}, "`most` must be a whole number"),
            ({"most": 1.5}, "`most` must be a whole number"),
            ({"window": 0}, "`most` and `window` must be > 0, got 1 and"),
            ({"window": "x"}, "`window` must be a timedelta or seconds >= 0"),
            ({"where": 5}, "`where` must be a function"),
        ],
    ),
    (
        dead_letter_sensor,
        {"queue": "q"},
        [
            ({"queue": "a:b", "job": JOB}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": 5, "job": JOB}, "Queue name 5 is not text, which the wire cannot"),
            ({}, "Exactly one of `job` and `asset` must be given"),
            ({"job": JOB, "asset": "a"}, "Exactly one of `job` and `asset` must be given"),
            ({"asset": 5}, "`asset` must be an asset's key, or its name as 'part/part'"),
            ({"asset": ""}, "`asset` must be an asset's key, or its name as 'part/part'"),
            ({"job": "j"}, "`job` must be a job or an asset selection"),
            ({"job": JOB, "react": 5}, "`react` must be a function"),
            ({"job": JOB, "replay": 5}, "`replay` must be of type ReplayBudget"),
            ({"job": JOB, "dead_letter_queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"job": JOB, "start": "then"}, "`dead_letter_queue` must differ from 'q'"),
            ({"job": JOB, "interval": 0.1}, "`dead_letter_queue` must differ from 'q'"),
            ({"job": JOB, "limit": 5}, "Shown has no option 'limit'; check its spelling."),
        ],
    ),
    (
        health_sensor,
        {"queue": "q"},
        [
            ({"queue": "a:b", "job": JOB}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": [], "job": JOB}, "`queue` must be one queue or several"),
            ({"queue": 5, "job": JOB}, "`queue` must be a list of str"),
            ({}, "`job` or `asset` is required"),
            ({"job": "j"}, "`job` must be a job or an asset selection"),
            ({"asset": 5}, "`asset` must be an asset's key, or its name as 'part/part'"),
            ({"job": JOB, "interval": 0}, "`interval` must be at least 1 s"),
        ],
    ),
    (
        queue_health_checks,
        {"queue": "q", "asset": "a"},
        [
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": 5}, "Queue name 5 is not text, which the wire cannot"),
            ({"asset": None}, "`asset` must be an asset's key, or its name as 'part/part'"),
            ({"asset": ""}, "`asset` must be an asset's key, or its name as 'part/part'"),
            ({"resource_key": 5}, "`resource_key` must be a non-empty string"),
        ],
    ),
    (
        sweep_sensor,
        {},
        [
            ({"queue": []}, "`queue` must be one queue or several"),
            ({"queue": 5}, "`queue` must be a list of str"),
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"interval": 0.5}, "`interval` must be >= 1 s and `grace`"),
            ({"interval": "x"}, "`interval` must be a timedelta or seconds >= 0"),
            ({"grace": -1}, "`grace` must be a timedelta or seconds >= 0"),
            ({"grace": "x"}, "`grace` must be a timedelta or seconds >= 0"),
            ({"name": "no name"}, '"no name" is not a valid name in Dagster. Names'),
            ({"default_status": "RUNNING"}, "`default_status` must be of type DefaultSensorStatus"),
        ],
    ),
    (
        scheduler_sensor,
        {"queue": "q", "scheduler": "s", "job": JOB},
        [
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"scheduler": ""}, "`scheduler` must be a scheduler's name, got ''"),
            ({"scheduler": 5}, "`scheduler` must be a scheduler's name, got 5"),
            ({"on": "failed"}, "`on` must be a known word, got 'failed'; pass one of added, completed."),
            ({"on": "complete"}, "`on` must be a known word, got 'complete'; use 'completed'."),
            ({"job": None}, "`job` must be a job or an asset selection"),
            ({"partition": 5}, "`partition` must be a function"),
            ({"wait": 60}, "`wait` must be above 0 and at most 50 s, got 60 s"),
        ],
    ),
    (
        queue_schedules,
        {"queue": "q", "schedulers": {"s": EVERY_MINUTE}},
        [
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": 5}, "Queue name 5 is not text, which the wire cannot"),
            ({"schedulers": {}}, "`schedulers` of queue 'q' is empty"),
            ({"schedulers": [EVERY_MINUTE]}, "`schedulers` must be a dict"),
            ({"schedulers": {"s": "* * * * *"}}, "Scheduler 's' must be a Cron, or a tuple of it and a JobTemplate"),
            ({"schedulers": {"s": Every(timedelta(seconds=5))}}, "Dagster's schedules support only cron patterns"),
            ({"schedulers": {"no name": EVERY_MINUTE}}, "'no name' is not a valid name for a Dagster"),
            ({"schedulers": {5: EVERY_MINUTE}}, "`schedulers` must be a dict whose keys are names"),
            (
                {"schedulers": {"s": (EVERY_MINUTE,)}},
                "Scheduler 's' must be a Cron, or a tuple of it and a JobTemplate",
            ),
            (
                {"schedulers": {"s": (EVERY_MINUTE, 5)}},
                "Scheduler 's' must be a Cron, or a tuple of it and a JobTemplate",
            ),
            ({"default_status": "RUNNING"}, "`default_status` must be of type DefaultScheduleStatus"),
            ({"job_name": "no name"}, '"no name_op" is not a valid name in Dagster.'),
        ],
    ),
    (
        AssetTask,
        {"asset": "a"},
        [
            ({"asset": 5}, "`asset` must be an asset's key, or its name as 'part/part'"),
            ({"asset": ""}, "`asset` must be an asset's key, or its name as 'part/part'"),
            ({"task": 5}, "`task` must be a non-empty string"),
            ({"arguments": 5}, "`arguments` must be a dict"),
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"options": 5}, "`options` must be JobOptions or a dict of its fields"),
            ({"checks": 5}, "`checks` must be a list of AssetCheckSpec or str"),
            ({"checks": [5]}, "`checks[0]` must be of type AssetCheckSpec or str"),
            ({"partition_arguments": lambda k: {}}, "`partition_arguments` of asset 'a' requires partitions"),
        ],
    ),
    (
        queue_flow_assets,
        {"tasks": [AssetTask("a")], "name": "f", "queue": "q"},
        [
            ({"tasks": []}, "Flow 'f' has no node; a flow requires at least"),
            ({"tasks": [5]}, "`tasks[0]` must be of type AssetTask"),
            ({"tasks": "a"}, "`tasks` must be a list of AssetTask"),
            ({"name": "no name"}, '"no name" is not a valid name in Dagster. Names'),
            ({"name": 5}, "`name` must be a non-empty string"),
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": 5}, "Queue name 5 is not text, which the wire cannot"),
            ({"tasks": [AssetTask("a"), AssetTask("a")]}, "The flow has two nodes named 'a', but nodes"),
            ({"resource_key": 5}, "`resource_key` must be a non-empty string"),
            ({"retry_policy": 3}, "`retry_policy` must be of type RetryPolicy"),
            ({"partitions_def": "daily"}, "`partitions_def` must be of type PartitionsDefinition"),
        ],
    ),
    (
        queue_task_asset,
        {"task": AssetTask("a"), "queue": "q"},
        [
            ({"task": 5}, "`task` must be of type AssetTask"),
            ({"queue": ""}, "Queue name '' is empty, which the wire cannot"),
        ],
    ),
    (
        build_queue_definitions,
        {"queue": "q"},
        [
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": 5}, "Queue name 5 is not text, which the wire cannot"),
            ({"url": 5}, "`url` of QueueResource: Input should be a valid string"),
            ({"url": "http://x"}, "The server URL 'http://x' cannot be read,"),
            ({"prefix": "a{b"}, "Key prefix 'a{b' contains '{', which the wire"),
            ({"flows": [AssetTask("a")]}, "`flows` must be a dict"),
            ({"flows": {"f": AssetTask("a")}}, "`tasks` must be a list of AssetTask"),
            ({"schedules": {"s": Every(timedelta(seconds=1))}}, "Dagster's schedules support only cron patterns"),
            ({"on_events": ["completed"]}, "`on_events` must be a dict"),
            ({"on_events": {"completed": "j"}}, "`job` must be a job or an asset selection"),
            ({"replay": ReplayBudget(1)}, "`replay` needs `on_dead_letter`, which says what"),
            ({"on_backlog": Limits(depth=5)}, "`on_backlog` must be a tuple of Limits and what to run"),
            ({"sweep": 0}, "`interval` must be >= 1 s and `grace`"),
            ({"sweep": "x"}, "`interval` must be a timedelta or seconds >= 0"),
        ],
    ),
    (
        CodeLocation,
        {},
        [
            ({}, "A code location must be one module, file or package,"),
            ({"module": "a", "package": "b"}, "A code location must be one module, file or package,"),
            ({"file": "nix.py"}, "File 'nix.py' with definitions does not exist;"),
            ({"module": 5}, "`module` of a code location must be a string"),
        ],
    ),
    (
        DagsterWorker,
        {"queue": "q", "locations": [LOCATION], "url": NOWHERE},
        [
            ({"queue": "a:b"}, "Queue name 'a:b' contains ':', which the wire"),
            ({"queue": 5}, "Queue name 5 is not text, which the wire cannot"),
            ({"locations": []}, "A Dagster worker requires one or more code locations"),
            ({"locations": [LOCATION, LOCATION]}, "A Dagster worker requires one or more code locations"),
            ({"locations": ["m"]}, "`locations[0]` must be of type CodeLocation"),
            ({"locations": LOCATION}, "`locations` must be a list of CodeLocation"),
            ({"url": "http://x"}, "The server URL 'http://x' cannot be read,"),
            ({"options": 5}, "`options` must be WorkerOptions or a dict of its fields"),
            ({"prefix": "a{b"}, "Key prefix 'a{b' contains '{', which the wire"),
            ({"grace": "x"}, "`grace` must be a timedelta or seconds >= 0"),
            ({"grace": -1}, "`grace` must be a timedelta or seconds >= 0"),
            ({"first_sign": 0}, "`first_sign` must be > 0 s"),
            ({"first_sign": -1}, "`first_sign` must be a timedelta or seconds >= 0"),
            ({"code_version": 5}, "`code_version` must be a string"),
        ],
    ),
    (
        Recycling,
        {},
        [
            ({"max_items": 0}, "`max_items` must be a whole number >= 1"),
            ({"max_memory_bytes": -1}, "`max_memory_bytes` must be a whole number >= 1"),
        ],
    ),
    (
        QueueResource,
        {},
        [
            ({"carrier": "x"}, "`carrier` must be 'transaction' or 'packed'"),
            ({"url": 5}, "`url` of QueueResource: Input should be a valid string"),
            ({"quue": "x"}, "Unknown field 'quue' of QueueResource; use url,"),
        ],
    ),
    (
        ChasquiResource,
        {},
        [
            ({"url": 5}, "`url` of ChasquiResource: Input should be a valid string"),
            ({"url": "http://x"}, "The server URL 'http://x' cannot be read"),
            ({"prefix": "x"}, "Unknown field 'prefix' of ChasquiResource; use url."),
        ],
    ),
    (
        QlessResource,
        {},
        [
            ({"worker": 5}, "`worker` of QlessResource: Input should be a valid string"),
            ({"wroker": "me"}, "Unknown field 'wroker' of QlessResource; use url, worker."),
        ],
    ),
    (
        chasqui_event_sensor,
        {"queue": "q", "job": JOB},
        [
            ({"queue": ""}, "queue"),
            ({"job": "j"}, "`job` must be a job or an asset selection"),
            ({"react": 5}, "`react` must be a function"),
            ({"events": "completed"}, "`events` must be a list of str"),
            ({"events": []}, "`events` must not be empty; pass"),
            ({"events": None}, "`events` must be a list of str"),
            ({"job_names": [""]}, "`job_names[...]` must be a non-empty string"),
            ({"start": "then"}, "then"),
            ({"wait": 51}, "`wait` must be above 0 and at most 50 s, got 51"),
            ({"wait": "soon"}, "`wait` must be a timedelta or seconds >= 0"),
            ({"limit": True}, "`limit` must be a whole number >= 1"),
            ({"intervall": 5}, "Shown has no option 'intervall'"),
        ],
    ),
    (
        chasqui_dead_letter_sensor,
        {"queue": "q", "job": JOB},
        [
            ({"job": None}, "`job` must be a job or an asset selection"),
            ({"reasons": "malformed"}, "`reasons` must be a list of str"),
            ({"name": ""}, "`name` must be a non-empty string"),
            ({"interval": 0.5}, "`interval` must be >= 1 s, got"),
        ],
    ),
    (
        qless_event_sensor,
        {"job": JOB},
        [
            ({"queues": "q"}, "`queues` must be a list of str"),
            ({"events": [5]}, "`events[0]` must be of type str"),
            ({"wait": 0}, "`wait` must be above 0 and at most 50 s"),
            ({"resource_key": 5}, "Shown.resource_key (given 5)"),
        ],
    ),
    (
        qless_failure_sensor,
        {"job": JOB},
        [
            ({"groups": "g"}, "`groups` must be a list of str"),
            ({"interval": "often"}, "`interval` must be a timedelta or seconds >= 0"),
            ({"limit": 0}, "`limit` must be a whole number >= 1"),
        ],
    ),
    (
        qless_stalled_sensor,
        {"queue": "q", "job": JOB},
        [
            ({"queue": ""}, "`queue` must be a non-empty string"),
            ({"react": "x"}, "`react` must be a function"),
            ({"default_status": "on"}, "Shown.default_status (given 'on')"),
        ],
    ),
    (
        PipesQueueClient,
        {},
        [
            ({"ttl_seconds": 0}, "`ttl_seconds` of PipesQueueClient: Input should be greater than or equal to 1"),
            ({"ttl_seconds": "x"}, "`ttl_seconds` of PipesQueueClient: Input should"),
            ({"cancel_timeout_seconds": -1}, "`cancel_timeout_seconds` of PipesQueueClient:"),
        ],
    ),
    (
        PipesStreamMessageReader,
        {"url": NOWHERE},
        [
            ({"session": 5}, "Session name 5 is not text; use letters"),
            ({"limit": 0}, "`limit` must be >= 1, got 0"),
            ({"limit": "x"}, "`limit` must be a whole number"),
            ({"ttl": "x"}, "`ttl` must be a timedelta or seconds >= 0"),
        ],
    ),
    (
        PipesStreamContextInjector,
        {"url": NOWHERE},
        [
            ({"url": "http://x"}, "The server URL 'http://x' cannot be read,"),
        ],
    ),
    (
        open_queue,
        {"name": "q", "url": NOWHERE},
        [
            ({"name": "a:b"}, "Queue name 'a:b' contains ':'"),
            ({"name": 5}, "Queue name 5 is not text"),
            ({"url": "http://x"}, "The server URL 'http://x' cannot be read"),
            ({"prefix": "a{b"}, "Key prefix 'a{b' contains '{'"),
        ],
    ),
    (
        route_step,
        {"tags": {"orchestration_queue/isolation": "fork"}},
        [
            ({"tags": {"orchestration_queue/isolation": "forkk"}}, "got 'forkk'; use 'fork'."),
            (
                {"tags": {"orchestration_queue/isolation": "jail"}},
                "auto, fork, in_process or spawn, got 'jail'; correct",
            ),
            ({"tags": {"orchestration_queue/config": '{"isolation": "spwan"}'}}, "'spwan'): Input should be"),
        ],
    ),
    (read_events, {}, [({"name": ""}, "Queue name '' is empty")]),
    (open_flows, {}, [({"name": "a:b"}, "Queue name 'a:b' contains ':'")]),
    (open_schedulers, {}, [({"name": ""}, "Queue name '' is empty")]),
    (
        run_by_pipes,
        {},
        [
            ({"options": JobOptions(job_id="mine")}, "The client sets the job's id, by which a step"),
            ({"options": 5}, "`options` must be JobOptions or a dict of its fields"),
        ],
    ),
]
CASES = [
    pytest.param(function, {**usual, **wrong}, words, id=f"{function.__name__}-{'-'.join(wrong)}-{number}")
    for function, usual, cases in MISUSES
    for number, (wrong, words) in enumerate(cases)
]


@pytest.mark.parametrize(("function", "arguments", "words"), CASES)
def test_a_mistake_is_refused_in_one_sentence(
    function: Callable[..., object], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises((UsageError, dg.DagsterInvalidDefinitionError)) as caught:
        function(**arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, TransportError)


@pytest.mark.parametrize(("function", "usual"), [(function, usual) for function, usual, _ in MISUSES if usual])
def test_without_the_mistake_it_is_accepted(function: Callable[..., object], usual: dict[str, Any]) -> None:
    """Lest a case fails for another reason than its own."""
    if function is open_queue:
        return  # it connects
    usual = {**usual, "job": JOB} if function in (dead_letter_sensor, health_sensor) else usual
    assert function(**usual) is not None
