"""Measure Pipes over streams: how long a message takes from the external side to the step. Prints JSON.

Run as ``python -m tests.bench.dagster_pipes``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from typing import Any, cast

from dagster_pipes import PipesMessage

from orchestration_queue.dagster.pipes import PipesStreamMessageReader, PipesStreamMessageWriter
from tests.bench.server import server


class Arrivals:
    """Replaces Dagster's handler, and notes when each log message arrives."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self.came = threading.Condition()

    def handle_message(self, message: PipesMessage) -> None:
        """Note the time."""
        now = time.perf_counter()
        params: Any = message["params"]
        with self.came:
            self.at[int(params["message"])] = now
            self.came.notify()


def _log(number: int) -> PipesMessage:
    return cast(PipesMessage, {"method": "log", "params": {"message": str(number), "level": "INFO"}})


def latency(url: str, messages: int) -> dict[str, float]:
    """One message after the other, each when the one before has arrived; in milliseconds."""
    arrivals = Arrivals()
    sent: list[float] = []
    with (
        PipesStreamMessageReader(url).read_messages(arrivals) as params,
        PipesStreamMessageWriter(url).open(params) as channel,
    ):
        for number in range(messages):
            sent.append(time.perf_counter())
            channel.write_message(_log(number))
            with arrivals.came:
                arrivals.came.wait_for(lambda number=number: number in arrivals.at, 10)  # type: ignore[misc]
    took = sorted((arrivals.at[number] - at) * 1000 for number, at in enumerate(sent))
    return {
        "p50_ms": round(statistics.median(took), 3),
        "p99_ms": round(took[int(len(took) * 0.99)], 3),
        "max_ms": round(took[-1], 3),
    }


def throughput(url: str, messages: int) -> dict[str, float]:
    """As many as one writer can send, until the last has arrived; per second."""
    arrivals = Arrivals()
    started = time.perf_counter()
    with (
        PipesStreamMessageReader(url).read_messages(arrivals) as params,
        PipesStreamMessageWriter(url).open(params) as channel,
    ):
        for number in range(messages):
            channel.write_message(_log(number))
        written = time.perf_counter()
    return {
        "written_per_s": round(messages / (written - started)),
        "arrived_per_s": round(messages / (max(arrivals.at.values()) - started)),
        "arrived": len(arrivals.at),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dagster_pipes", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000, help="messages of a measurement (default 2000)")
    messages = parser.parse_args().messages
    with server() as url:
        report = {"messages": messages, "latency": latency(url, messages), "throughput": throughput(url, messages)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
