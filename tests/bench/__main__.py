"""Run the measurements and print JSON: for each row the medians of several runs, how we compare, and the limit.

The same goes to standard error as tables in Markdown; ``--render FILE`` prints the tables of an earlier run's JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import redis

from orchestration_queue import __version__
from tests.bench.contenders import PEERS
from tests.bench.functions import costs
from tests.bench.report import tables
from tests.bench.rows import ROWS, measure
from tests.bench.scenarios import Figures
from tests.bench.server import Meter, server

_FORKING = multiprocessing.get_context("fork")  # importing takes as long as many a run
_MOST_S = 60
_NEEDS_REDIS86 = "chasquimq"


class RunError(Exception):
    """A run failed, or did not end in time."""


def _measure_once(row: str, contender: str, url: str) -> Figures:
    """Measure in a forked process, which is killed with all of its children if it does not end."""
    jobs = ROWS[row].jobs_of(contender)
    receiving, sending = _FORKING.Pipe(duplex=False)
    with receiving, tempfile.TemporaryFile() as errors:
        process = _FORKING.Process(target=_send_figures, args=(sending, errors.fileno(), row, contender, url, jobs))
        process.start()
        sending.close()
        try:
            if not receiving.poll(_MOST_S):
                raise RunError(f"{jobs} jobs did not end within {_MOST_S} s")
            figures: Figures = receiving.recv()
        except EOFError:
            process.join()
            errors.seek(0)
            message = errors.read().decode(errors="replace")[-2000:]
            raise RunError(f"exit status {process.exitcode}: {message}") from None
        else:
            process.join(_MOST_S)
        finally:
            with suppress(ProcessLookupError):
                assert process.pid
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
    return figures


def _send_figures(to: Connection, errors: int, *arguments: Any) -> None:
    os.setsid()
    os.dup2(errors, sys.stderr.fileno())
    to.send(measure(*arguments))


def _compare(name: str, url: str, meter: Meter, runs: int, contenders: Iterable[str]) -> dict[str, object]:
    """Measure each contender in turn, several times; medians, and ours divided by each other's."""
    row = ROWS[name]
    figures: dict[str, list[Figures]] = {who: [] for who in contenders if who in row.measures}
    failed: dict[str, str] = {}
    for run in range(runs):
        for who in [who for who in figures if who not in failed]:
            print(f"{name}: {who}, run {run + 1} of {runs}", file=sys.stderr)
            meter.reset()
            try:
                figures[who].append(_measure_once(name, who, url))
            except RunError as error:
                failed[who] = str(error)
                print(f"{name}: {who} FAILED: {error}", file=sys.stderr)
    medians = {
        who: {figure: statistics.median(run[figure] for run in measured) for figure in measured[0]}
        for who, measured in figures.items()
        if who not in failed
    }
    ours = medians.get("ours", {})
    ratios = {
        who: {figure: round(ours[figure] / value, 2) for figure, value in theirs.items() if value and figure in ours}
        for who, theirs in medians.items()
        if who != "ours"
    }
    jobs = {who: row.jobs_of(who) for who in figures}
    report: dict[str, object] = {
        "what": row.title,
        "limit": row.limit,
        "jobs": jobs,
        "median": medians,
        "ours_to": ratios,
    }
    return report | {"runs": figures} | ({"failed": failed} if failed else {})


@contextmanager
def _redis86() -> Iterator[str]:
    """The server that ChasquiMQ needs, by TCP, since its wheel knows no unix sockets; all are measured on it."""
    url = os.environ["OQ_TEST_REDIS86"]
    with redis.Redis.from_url(url, decode_responses=True) as client:
        kept = {"appendonly": "yes", "appendfsync": "no", "auto-aof-rewrite-percentage": "0"}
        client.config_set(*itertools.chain.from_iterable(kept.items()))
        port = client.config_get("port")["port"]
    if url.startswith("unix:") and port == "0":
        sys.exit(
            f"ChasquiMQ's own wheel knows no unix sockets, and {url} has no port; start that server with `--port`."
        )
    yield f"redis://127.0.0.1:{port}" if url.startswith("unix:") else url


def _measure(rows: list[str], peers: list[str], runs: int) -> dict[str, Any]:
    began = time.monotonic()
    with _redis86() if _NEEDS_REDIS86 in peers else server() as url, Meter(url) as meter:
        contenders = ["ours", *peers, "redis-py", "limit"]
        measured = {name: _compare(name, url, meter, runs, contenders) for name in rows}
        functions = costs(url)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    report = {"version": __version__, "at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine}
    report |= {"peers": peers, "rows": measured, "functions": functions}
    return report | {"seconds": round(time.monotonic() - began)}


def main() -> None:
    """Parse the arguments, measure, print; the exit status says whether a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each row and contender (default 3)")
    parser.add_argument("--only", nargs="*", choices=list(ROWS), default=list(ROWS), help="these rows (default all)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=["taskiq", "saq", "dramatiq"])
    parser.add_argument("--render", type=Path, metavar="FILE", help="measure nothing; print this JSON's tables")
    arguments = parser.parse_args()
    if arguments.render:
        print(tables(json.loads(arguments.render.read_text())))
        return
    report = _measure(arguments.only, arguments.peers, arguments.runs)
    print(json.dumps(report, indent=2))
    print(tables(report), file=sys.stderr)
    failures = [f"{name}: {who}" for name, row in report["rows"].items() for who in row.get("failed", {})]
    if failures:
        sys.exit(f"Runs failed: {', '.join(failures)}.")


if __name__ == "__main__":
    main()
