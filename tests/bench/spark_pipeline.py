"""A pipeline of fourteen steps through the queue, beside the same functions in one plain session.

Run as ``python -m tests.bench.spark_pipeline [--rows 2000000]``; prints JSON: for each the seconds, and the processor
seconds of Spark (Java, and its Python), of what orchestrates (worker, supervisor, Valkey), and of who asks for it.
Java's are given by kind of thread, too: ``java_other_s`` is planning, calls, and threads that have ended. Each runs the
pipeline several times in one Java; the first run, in which Java compiles, is told apart from the median of the others.
Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pyspark

from orchestration_queue.client import FlowProducer
from orchestration_queue.spark import ConnectServer, SparkOptions
from tests.bench.server import server
from tests.bench.spark import started
from tests.bench.spark_pipeline_work import QUEUE, RESULTS, pipeline, run_plainly
from tests.processes import worker_process

__all__ = ["main"]

_MARK = "BENCH_RUN"
_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LONGEST = timedelta(hours=1)
_TICKS = os.sysconf("SC_CLK_TCK")
_THREADS = {
    "tasks": ("Executor task",),
    "compiler": ("C1 Compiler", "C2 Compiler"),
    "garbage": ("GC Thread", "G1 "),
}
"""Kinds of Java's threads, by the beginnings of their names, of which the kernel keeps 15 letters."""

Round: TypeAlias = dict[str, float]


def read_processor_seconds(mark: str) -> Round:
    """Return what all processes with a mark in their environment have used: Spark's, ours, and this one."""
    used = dict.fromkeys(("spark", "orchestration", "asking"), 0.0)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        is_this = int(entry.name) == os.getpid()  # its environment is told as it was when it began, without the mark
        try:
            if not is_this and f"{_MARK}={mark}".encode() not in (entry / "environ").read_bytes():
                continue
            command = (entry / "cmdline").read_bytes()
            # After the command, in brackets: user and system time, its own and that of children that have ended.
            ticks = (entry / "stat").read_text().rpartition(")")[2].split()[11:15]
        except OSError:  # it has just ended
            continue
        is_spark = b"java" in command.partition(b"\0")[0] or b"pyspark.daemon" in command
        kind = "asking" if is_this else "spark" if is_spark else "orchestration"
        used[kind] += sum(map(int, ticks)) / _TICKS
    return used


def read_java_seconds(mark: str) -> Round:
    """Return what the threads of Java have used, by kind."""
    used = {f"java_{kind}_s": 0.0 for kind in (*_THREADS, "other")}
    for entry in Path("/proc").iterdir():
        try:
            is_java = entry.name.isdecimal() and b"java" in (entry / "cmdline").read_bytes().partition(b"\0")[0]
            if not is_java or f"{_MARK}={mark}".encode() not in (entry / "environ").read_bytes():
                continue
            rest = _own_seconds(entry)
            for thread in (entry / "task").iterdir():
                name = (thread / "comm").read_text()
                for kind, beginnings in _THREADS.items():
                    if name.startswith(beginnings):
                        used[f"java_{kind}_s"] += (seconds := _own_seconds(thread))
                        rest -= seconds
        except OSError:  # it has just ended
            continue
        used["java_other_s"] += rest
    return used


def _own_seconds(entry: Path) -> float:
    return sum(map(int, (entry / "stat").read_text().rpartition(")")[2].split()[11:13])) / _TICKS


def measure(mark: str, runs: int, work: Callable[[], object]) -> list[Round]:
    """Return the seconds of each run, and the processor seconds by kind of process."""
    found = []
    for run in range(runs):
        before, java, began = read_processor_seconds(mark), read_java_seconds(mark), time.perf_counter()
        work()
        wall, after, java_after = time.perf_counter() - began, read_processor_seconds(mark), read_java_seconds(mark)
        threads = {kind: java_after[kind] - java[kind] for kind in java}
        found.append({"wall_s": wall} | {f"{kind}_cpu_s": after[kind] - before[kind] for kind in after} | threads)
        print(f"run {run + 1} of {runs}: {wall:.1f} s", file=sys.stderr)
    return found


def run_plain(rows: int, runs: int) -> list[Round]:
    """Run all steps in one classic session of this process."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session = builder.master("local[2]").config(map=_SETTINGS).getOrCreate()

    def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            run_plainly(session, rows, directory)

    found = measure(os.environ[_MARK], runs, run)
    session.stop()
    for each in found:
        each["spark_cpu_s"] += each.pop("asking_cpu_s")
        del each["orchestration_cpu_s"]
    return found


def run_through_queue(rows: int, runs: int) -> list[Round]:
    """Submit the steps as a flow, to one worker with one slot and a Connect server that was started before."""
    with tempfile.TemporaryDirectory() as directory, server() as url:
        os.environ[RESULTS] = directory
        connect = ConnectServer(SparkOptions(master="local[2]", memory="2g", conf=_SETTINGS), linger=timedelta(0))
        _, state = started(connect)
        os.environ["SPARK_REMOTE"] = state.url
        try:
            with (
                worker_process("tests.bench.spark_pipeline_work:tasks", QUEUE, url, "--concurrency", "1"),
                FlowProducer(url=url) as producer,
            ):

                def run() -> None:
                    producer.submit(pipeline(rows)).wait(_LONGEST)
                    shutil.rmtree(Path(directory, QUEUE))

                return measure(os.environ[_MARK], runs, run)
        finally:
            del os.environ["SPARK_REMOTE"]
            connect.close()


def _run_plain_apart(rows: int, runs: int) -> list[Round]:
    words = ["--rows", str(rows), "--runs", str(runs), "--plain"]
    child = [sys.executable, "-m", __spec__.name if __spec__ else "tests.bench.spark_pipeline", *words]
    found: list[Round] = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE).stdout)
    return found


def summarize(found: Sequence[Round]) -> dict[str, Round]:
    """Return the first run, and the medians of the others."""
    first, *others = found
    medians = {name: statistics.median(each.get(name, 0.0) for each in others or [first]) for name in first}
    rounded = [{name: round(value, 2) for name, value in each.items()} for each in (first, medians)]
    return {"first": rounded[0], "then": rounded[1]}


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark_pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the largest table (default 2000000)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, the first included (default 3)")
    parser.add_argument("--plain", action="store_true", help="only the plain session, whose runs are printed")
    arguments = parser.parse_args()
    if arguments.plain:
        print(json.dumps(run_plain(arguments.rows, arguments.runs)))
        return
    os.environ[_MARK] = uuid.uuid4().hex
    load = os.getloadavg()[0]
    plain = summarize(_run_plain_apart(arguments.rows, arguments.runs))
    queue = summarize(run_through_queue(arguments.rows, arguments.runs))
    then = queue["then"]
    whole = sum(seconds for name, seconds in then.items() if name.endswith("_cpu_s"))
    report = {
        "machine": {"cpus": os.cpu_count(), "load": load, "python": platform.python_version()},
        "pyspark": pyspark.__version__,
        "runs": vars(arguments),
        "plain": plain,
        "queue": queue,
        "queue_to_plain_cpu": round(whole / plain["then"]["spark_cpu_s"], 3),
        "orchestration_share": round((then["orchestration_cpu_s"] + then["asking_cpu_s"]) / whole, 3),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
