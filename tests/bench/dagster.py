"""Dagster's executors on the same graphs, machine and storage: how soon steps start, and what they cost. Prints JSON.

Run it with ``python -m tests.bench.dagster``. Of ``seconds`` and ``start_ms`` the medians are given. ``start_ms`` is
the time from a step's launch to its STEP_START; a run in one process launches nothing. ``cpu_s_a_step`` counts all that
work for the run, ``run_cpu_s_a_step`` what of it is the run's own process, which makes the run and orchestrates it.
"""

# No `from __future__ import annotations` here: Dagster looks at the types of contexts, and would find texts.

import argparse
import json
import os
import platform
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg

from orchestration_queue.client import Queue
from orchestration_queue.dagster import queue_executor
from tests.bench.server import server
from tests.dagster.step_workers import home_is
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
}


def _asset(name: str, *deps: str) -> dg.AssetsDefinition:
    @dg.asset(name=name, deps=list(deps))
    def made(context: dg.AssetExecutionContext) -> None:
        context.log.info("made")

    return made


_DIAMOND = [_asset("a"), _asset("b", "a"), _asset("c", "a"), _asset("d", "b", "c"), _asset("e", "d")]
_FAN = [_asset(f"f{number}") for number in range(20)]
_GRAPHS = {"diamond": _DIAMOND, "fan": _FAN}


defs = dg.Definitions(
    assets=[*_DIAMOND, *_FAN],
    jobs=[
        dg.define_asset_job(f"{graph}_{name}", dg.AssetSelection.assets(*assets), executor_def=executor)
        for graph, assets in _GRAPHS.items()
        for name, executor in _EXECUTORS.items()
    ],
)


def a_job(graph: str, executor: str) -> dg.JobDefinition:
    """One of the graphs, on one of the executors."""
    return defs.resolve_job_def(f"{graph}_{executor}")


def measure(instance: dg.DagsterInstance, graph: str, executor: str, config: dict[str, Any], rounds: int) -> Figures:
    """Run a graph so often, after once to warm up."""
    job = dg.build_reconstructable_job(_HERE, "a_job", reconstructable_kwargs={"graph": graph, "executor": executor})
    steps = len(_GRAPHS[graph])
    seconds: list[float] = []
    starts: list[float] = []

    def run() -> None:
        begun = time.perf_counter()
        result = dg.execute_job(job, instance, run_config={"execution": {"config": config}})
        seconds.append(time.perf_counter() - begun)
        if not result.success:
            raise RuntimeError(f"{graph} on {executor} failed")
        starts.extend(_starts_ms(instance, result.run_id))

    run()
    seconds.clear()
    starts.clear()
    before, own_before = _cpu_s(os.getpid()), time.process_time()
    for _ in range(rounds):
        run()
    return {
        "seconds": round(statistics.median(seconds), 3),
        "cpu_s_a_step": round((_cpu_s(os.getpid()) - before) / rounds / steps, 3),
        "run_cpu_s_a_step": round((time.process_time() - own_before) / rounds / steps, 3),
        "start_ms": round(statistics.median(starts)) if starts else None,
        "start_p95_ms": round(sorted(starts)[int(len(starts) * 0.95)]) if starts else None,
        "rounds": rounds,
    }


def _starts_ms(instance: dg.DagsterInstance, run_id: str) -> list[float]:
    at: dict[tuple[str, str], float] = {}
    for entry in instance.all_logs(run_id):
        if entry.dagster_event and entry.step_key:
            at.setdefault((str(entry.dagster_event.event_type_value), entry.step_key), entry.timestamp)
    launched = {key: when for (kind, key), when in at.items() if kind == "STEP_WORKER_STARTING"}
    return [(at["STEP_START", key] - when) * 1000 for key, when in launched.items()]


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


def _all(rounds: int, only: str, say: Callable[[str, Figures], None]) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(server())
        instance = stack.enter_context(dg.instance_for_test())
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        queue = f"bench-{uuid.uuid4().hex[:8]}"
        stack.enter_context(home_is(instance.root_directory))
        command = [OQ, "dagster", "worker", "-m", _HERE, "-q", queue, "--concurrency", str(_PLACES)]
        log = scratch / "worker.log"
        stack.enter_context(running_process(command, url, log))
        wait_until_sync(lambda: "takes jobs of queue" in log.read_text(), "the worker to be ready", 120)
        ours = {"url": url, "queue": queue, "max_concurrent": _PLACES}
        for graph in _GRAPHS:
            contenders: list[tuple[str, str, dict[str, Any], int]] = [
                ("queue, fork", "queue", ours, rounds),
                ("queue, in_process", "queue", {**ours, "isolation": "in_process"}, rounds),
                ("in_process", "in_process", {}, rounds),
                ("multiprocess", "multiprocess", {"max_concurrent": _PLACES}, 1),
            ]
            for name, executor, config, times in contenders:
                if only not in f"{graph}: {name}":
                    continue
                say(f"{graph}: {name}", measure(instance, graph, executor, config, times))
        with Queue(queue, url=url) as client:
            assert client.counts().waiting == 0


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each graph on each executor")
    parser.add_argument("--only", default="", help="only those whose name has this in it")
    given = parser.parse_args()
    found: dict[str, Figures] = {}
    load = os.getloadavg()[0]
    _all(given.rounds, given.only, found.__setitem__)
    machine = {"cpus": os.cpu_count(), "load": [load, os.getloadavg()[0]], "python": platform.python_version()}
    print(json.dumps({"dagster": dg.__version__, "machine": machine, "figures": found}, indent=2))


if __name__ == "__main__":
    main()
