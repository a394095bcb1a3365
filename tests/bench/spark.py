"""What a small Spark job costs: in a process of its own, and on a Connect server from a fresh process and a warm one.

Run as ``python -m tests.bench.spark``; prints JSON. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyspark

from orchestration_queue.client import Queue
from orchestration_queue.spark import ConnectServer, SparkOptions, run_spark
from orchestration_queue.spark.connect.address import ServerState, read_state
from tests.bench.server import server
from tests.bench.spark_work import smallest
from tests.processes import worker_process

__all__ = ["started", "timed"]

_PATIENCE_S = 100.0
_FRESH = "from tests.bench.spark_work import smallest; assert smallest.function() == 1"


def timed(runs: int, work: Callable[[], object]) -> dict[str, float]:
    """Medians in seconds: wall time, and processor time of the children that were waited for, if there were any."""
    wall, processor = [], []
    for _ in range(runs):
        used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        work()
        wall.append(time.perf_counter() - began)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
    figures = {"wall_s": statistics.median(wall), "children_cpu_s": statistics.median(processor)}
    return {name: round(figure, 3) for name, figure in figures.items() if figure}


def started(connect: ConnectServer) -> tuple[float, ServerState]:
    """Seconds until a server answers, and where."""
    began = time.perf_counter()
    connect.start()
    while (state := read_state(connect.directory)) is None or not state.port:
        if time.perf_counter() - began > _PATIENCE_S or (state and state.problem):
            raise SystemExit(f"The Connect server did not start; see {connect.directory}.")
        time.sleep(0.01)
    return time.perf_counter() - began, state


def _as_jobs(runs: int) -> dict[str, float]:
    """A job from its adding to its result, on a worker that has done one before."""
    with (
        server() as url,
        Queue("bench", url=url) as queue,
        worker_process("tests.bench.spark_work:tasks", "bench", url),
    ):
        queue.add("smallest").wait(timedelta(seconds=_PATIENCE_S))
        return timed(runs, lambda: queue.add("smallest").wait(timedelta(seconds=_PATIENCE_S)))


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs of what starts a process (default 5)")
    parser.add_argument("--warm-runs", type=int, default=50, help="runs of what does not (default 50)")
    arguments = parser.parse_args()
    options = SparkOptions(master="local[2]")
    figures: dict[str, object] = {
        "process": timed(arguments.runs, lambda: run_spark("tests.bench.spark_work:smallest", {}, options)),
    }
    connect = ConnectServer(options, linger=timedelta(0))
    start_s, state = started(connect)
    os.environ["SPARK_REMOTE"] = state.url
    fresh = [sys.executable, "-c", _FRESH]
    began = time.perf_counter()
    smallest.function()
    first_s = time.perf_counter() - began
    figures |= {
        "connect_server_start": {"wall_s": round(start_s, 3)},
        "connect_first_call_ever": {"wall_s": round(first_s, 3)},
        "connect_fresh_process": timed(
            arguments.runs, lambda: subprocess.run(fresh, check=True, cwd=Path(__file__).parents[2])
        ),
        "connect_warm_call": timed(arguments.warm_runs, smallest.function),
        "connect_warm_job": _as_jobs(arguments.warm_runs),
    }
    connect.close()
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "pyspark": pyspark.__version__}
    print(json.dumps({"machine": machine, "runs": vars(arguments), "medians": figures}, indent=2))


if __name__ == "__main__":
    main()
