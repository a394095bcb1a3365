"""Dagster's executors, launchers and daemons on the same graphs, machine and storage. Prints JSON.

Run it with ``python -m tests.bench.dagster``; with ``--part steps``, ``runs`` or ``events`` for one of its parts.
:mod:`tests.bench.dagster_runs` and :mod:`tests.bench.dagster_events` explain the figures of the last two.

Of steps, ``seconds`` and ``start_ms`` are medians. ``start_ms`` is the time from a step's launch to its STEP_START; a
run in one process launches nothing, and Celery's executor does not tell when it does. ``after_ms`` is the time from the
end of the last step that a step waits for to its STEP_START, for all of them. ``cpu_s_a_step`` counts all that work for
the run, ``run_cpu_s_a_step`` what of it is the run's own process, which makes the run and orchestrates it.
``connections_a_step`` are those to PostgreSQL of the processes that do the steps; the run's own is among them where it
does or starts the steps itself.
"""

# No `from __future__ import annotations` here: Dagster reads the types of contexts, and would find texts.

import argparse
import json
import os
import platform
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import yaml
from dagster_celery import celery_executor

from orchestration_queue.client import Queue
from orchestration_queue.dagster import queue_executor
from tests.bench.dagster_events import measure_events
from tests.bench.dagster_runs import measure_runs
from tests.bench.server import server
from tests.dagster.step_workers import home_is
from tests.dagster.stores import Database, postgres
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

__all__ = ["a_job", "defs", "measure"]

Figures = dict[str, float | int | None]

_HERE = "tests.bench.dagster"
_PLACES = 2
_EXECUTORS: dict[str, dg.ExecutorDefinition] = {
    "in_process": dg.in_process_executor,
    "multiprocess": dg.multiprocess_executor,
    "queue": queue_executor,
    "celery": celery_executor,
}


def _asset(name: str, *deps: str) -> dg.AssetsDefinition:
    @dg.asset(name=name, deps=list(deps))
    def made(context: dg.AssetExecutionContext) -> None:
        context.log.info("made")

    return made


_DIAMOND = [_asset("a"), _asset("b", "a"), _asset("c", "a"), _asset("d", "b", "c"), _asset("e", "d")]
_FAN = [_asset(f"f{number}") for number in range(20)]
_CHAIN = [_asset(f"c{number}", *([f"c{number - 1}"] if number else [])) for number in range(100)]
_GRAPHS = {"diamond": _DIAMOND, "fan": _FAN, "chain": _CHAIN}


defs = dg.Definitions(
    assets=[*_DIAMOND, *_FAN, *_CHAIN],
    jobs=[
        dg.define_asset_job(f"{graph}_{name}", dg.AssetSelection.assets(*assets), executor_def=executor)
        for graph, assets in _GRAPHS.items()
        for name, executor in _EXECUTORS.items()
    ],
)


def a_job(graph: str, executor: str) -> dg.JobDefinition:
    """One of the graphs, on one of the executors."""
    return defs.resolve_job_def(f"{graph}_{executor}")


def measure(
    instance: dg.DagsterInstance,
    graph: str,
    executor: str,
    config: dict[str, Any],
    rounds: int,
    connections: Callable[[], int] | None = None,
) -> Figures:
    """Run a graph so often, after once to warm up."""
    job = dg.build_reconstructable_job(_HERE, "a_job", reconstructable_kwargs={"graph": graph, "executor": executor})
    steps = len(_GRAPHS[graph])
    seconds: list[float] = []
    starts: list[float] = []
    waits: list[float] = []

    def run() -> None:
        begun = time.perf_counter()
        result = dg.execute_job(job, instance, run_config={"execution": {"config": config}})
        seconds.append(time.perf_counter() - begun)
        if not result.success:
            raise RuntimeError(f"{graph} on {executor} failed")
        at = _times(instance, result.run_id)
        starts.extend(_from_launch(at))
        waits.extend(_from_dependencies(at, graph))

    run()
    for figures in (seconds, starts, waits):
        figures.clear()
    opened = connections() if connections else 0
    before, own_before = _cpu_s(os.getpid()), time.process_time()
    for _ in range(rounds):
        run()
    return {
        "seconds": round(statistics.median(seconds), 3),
        "cpu_s_a_step": round((_cpu_s(os.getpid()) - before) / rounds / steps, 3),
        "run_cpu_s_a_step": round((time.process_time() - own_before) / rounds / steps, 3),
        "start_ms": round(statistics.median(starts)) if starts else None,
        "start_p95_ms": round(sorted(starts)[int(len(starts) * 0.95)]) if starts else None,
        "after_ms": round(statistics.median(waits)) if waits else None,
        "connections_a_step": round((connections() - opened) / rounds / steps, 1) if connections else None,
        "rounds": rounds,
    }


_Times = dict[tuple[str, str], float]
"""When an event of a step first happened, by its type and the step's key."""


def _times(instance: dg.DagsterInstance, run_id: str) -> _Times:
    at: _Times = {}
    for entry in instance.all_logs(run_id):
        if entry.dagster_event and entry.step_key:
            at.setdefault((str(entry.dagster_event.event_type_value), entry.step_key), entry.timestamp)
    return at


def _from_launch(at: _Times) -> list[float]:
    launched = {key: when for (kind, key), when in at.items() if kind == "STEP_WORKER_STARTING"}
    return [(at["STEP_START", key] - when) * 1000 for key, when in launched.items()]


def _from_dependencies(at: _Times, graph: str) -> list[float]:
    waits = []
    for asset in _GRAPHS[graph]:
        (spec,) = asset.specs
        ends = [at["STEP_SUCCESS", dep.asset_key.path[-1]] for dep in spec.deps]
        if ends:
            waits.append((at["STEP_START", spec.key.path[-1]] - max(ends)) * 1000)
    return waits


def _cpu_s(root: int) -> float:
    """What a process, its descendants, and those of them that have ended, have used by now."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid], used[pid] = int(fields[1]), sum(map(int, fields[11:15]))

    def belongs(pid: int) -> bool:
        return pid == root or (pid in parents and belongs(parents[pid]))

    return sum(ticks for pid, ticks in used.items() if belongs(pid)) / os.sysconf("SC_CLK_TCK")


_WORKERS = "steps"
"""What the processes of workers are called in PostgreSQL's log; the run's own has no name."""


def _steps(database: Database | None, given: argparse.Namespace) -> dict[str, Figures]:
    """Run each graph with each executor on one storage."""
    found: dict[str, Figures] = {}
    only, rounds, storage_name = given.only, given.rounds, "PostgreSQL" if database else "SQLite"
    with ExitStack() as stack:
        url = stack.enter_context(server())
        storage = {"storage": {"postgres": {"postgres_url": database.url}}} if database else {}
        instance = stack.enter_context(dg.instance_for_test(overrides=storage))
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        queue = f"bench-{uuid.uuid4().hex[:8]}"
        stack.enter_context(home_is(instance.root_directory))
        command = ["env", f"PGAPPNAME={_WORKERS}", OQ, "dagster", "worker", "-m", _HERE, "-q", queue]
        log = scratch / "worker.log"
        stack.enter_context(running_process([*command, "--concurrency", str(_PLACES)], url, log))
        wait_until_sync(lambda: "takes jobs of queue" in log.read_text(), "the worker to be ready", 120)
        ours = {"url": url, "queue": queue, "max_concurrent": _PLACES}
        theirs = dict.fromkeys(("broker", "backend"), url.replace("unix://", "redis+socket://"))
        if only in "celery":
            stack.enter_context(_celery(theirs, scratch, url))
        for graph in given.graph or list(_GRAPHS):
            contenders: list[tuple[str, str, dict[str, Any], int]] = [
                ("queue, fork", "queue", ours, rounds),
                ("queue, in_process", "queue", {**ours, "isolation": "in_process"}, rounds),
                ("in_process", "in_process", {}, rounds),
                ("celery", "celery", theirs, rounds),
                ("multiprocess", "multiprocess", {"max_concurrent": _PLACES}, 1),
            ]
            for name, executor, config, times in contenders:
                if only not in f"{graph}: {name}" or (graph == "chain" and executor in ("celery", "multiprocess")):
                    continue  # a hundred steps of theirs take minutes, and tell nothing new
                print(f"{storage_name}, {graph}: {name}", file=sys.stderr)
                by = _WORKERS if executor in ("queue", "celery") else None
                counted = partial(_connections, database, by) if database else None
                found[f"{graph}: {name}"] = measure(instance, graph, executor, config, times, counted)
        with Queue(queue, url=url) as client:
            assert client.counts().waiting == 0
    return found


def _connections(database: Database, name: str | None) -> int:
    """Return how many connections PostgreSQL has had from processes of that name; None for all."""
    wanted = f" application_name={name}" if name else ""
    lines = database.log.read_text().splitlines()
    return sum("connection authorized:" in line and line.endswith(wanted) for line in lines)


@contextmanager
def _celery(config: dict[str, str], scratch: Path, url: str) -> Iterator[None]:
    """Its workers, as its documentation starts them."""
    (scratch / "celery.yaml").write_text(yaml.safe_dump({"execution": {"config": config}}))
    log = scratch / "celery.log"
    binaries = Path(sys.executable).parent
    start = [
        "env",
        f"PATH={binaries}:{os.environ['PATH']}",
        f"PGAPPNAME={_WORKERS}",
        str(binaries / "dagster-celery"),
        "worker",
        "start",
        "-A",
        "dagster_celery.app",
    ]
    options = ["-y", str(scratch / "celery.yaml"), "--", "--concurrency", str(_PLACES), "--loglevel", "info"]
    with running_process([*start, *options], url, log):
        wait_until_sync(lambda: "ready." in log.read_text(), "Celery's worker to be ready", 120)
        yield


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dagster", description=__doc__)
    parser.add_argument("--part", choices=["steps", "runs", "events"], action="append", help="only these")
    parser.add_argument("--storage", choices=["sqlite", "postgres"], action="append", help="of steps; default both")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each graph on each executor; single runs")
    parser.add_argument("--only", default="", help="only the graphs and executors whose name has this in it")
    parser.add_argument("--graph", choices=_GRAPHS, action="append", help="only these; can be repeated")
    parser.add_argument("--runs", type=int, default=16, help="runs at once with each launcher (default 16)")
    parser.add_argument("--events", type=int, default=20, help="events under each daemon (default 20)")
    given = parser.parse_args()
    parts, storages = given.part or ["steps", "runs", "events"], given.storage or ["sqlite", "postgres"]
    load = os.getloadavg()[0]
    report: dict[str, object] = {"dagster": dg.__version__}
    if "steps" in parts and "sqlite" in storages:
        report["steps on SQLite"] = _steps(None, given)
    if "steps" in parts and "postgres" in storages:
        with postgres() as database:
            report["steps on PostgreSQL"] = _steps(database, given) if database else "PostgreSQL is not installed"
    if "runs" in parts:
        report["runs"] = measure_runs(given.rounds, given.runs)
    if "events" in parts:
        report["events"] = measure_events(given.events)
    report["machine"] = {
        "cpus": os.cpu_count(),
        "load": [load, os.getloadavg()[0]],
        "python": platform.python_version(),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
