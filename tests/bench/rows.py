"""The rows of the table in docs/explanation/performance.md: what is measured, in whom, with how many jobs.

``python -m tests.bench.rows ROW CONTENDER URL JOBS`` measures once, and prints JSON: to run under a profiler.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tests.bench import flows, limits, own, scenarios
from tests.bench.contenders import PEERS
from tests.bench.scenarios import Figures

__all__ = ["LIMIT", "ROWS", "Row", "measure"]

Measure = Callable[[str, int], Figures]
"""URL and number of jobs in; figures out."""

LIMIT = "limit"


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        title: What the docs call it.
        measures: How each contender that takes part is measured.
        limit: What the figure of the contender "limit" is of.
        jobs: Jobs a run, for us and the limit.
        peers: The same for peers: as many as take each about a second.
        others: The same for those that differ from that.
    """

    title: str
    measures: Mapping[str, Measure]
    limit: str
    jobs: int
    peers: int = 0
    others: Mapping[str, int] | None = None

    def jobs_of(self, contender: str) -> int:
        """Return how many jobs a run of this contender takes."""
        return (self.others or {}).get(contender, self.peers if contender in PEERS else self.jobs)


def _everyone(scenario: Callable[[str, str, int], Figures], **others: str) -> dict[str, Measure]:
    """Measure a scenario in all contenders, and some by another name."""
    names = {name: name for name in ("ours", *PEERS, LIMIT)} | others
    return {title: partial(scenario, name) for title, name in names.items()}


_THREE_WRITES = "the job's three writes, HSET, XADD and XADD, {}, packed by hiredis"
_COMMANDS = "a job's own commands, sent one batch at a time without Lua: two exchanges"
_FAST = {"taskiq": 4_000, "dramatiq": 5_000, "bullmq": 3_000, "chasquimq": 10_000}
_SLOW = {"dramatiq": 500, "bullmq": 100}
_BY_HAND = {"redis-py": "limit:ByHand"}

ROWS: dict[str, Row] = {
    "enqueue_one_by_one": Row(
        "Add one by one, each confirmed",
        _everyone(scenarios.enqueue_one_by_one, **_BY_HAND),
        _THREE_WRITES.format("in one exchange"),
        jobs=10_000,
        peers=2_000,
        others={"redis-py": 3_000},
    ),
    "enqueue_bulk": Row(
        "Add in bulk",
        _everyone(scenarios.enqueue_bulk, **_BY_HAND),
        _THREE_WRITES.format("of 1,000 jobs in one exchange"),
        jobs=50_000,
        peers=5_000,
        others={"chasquimq": 50_000, "bullmq": 20_000, "redis-py": 20_000},
    ),
    "drain_1": Row("Drain, 1 slot", _everyone(scenarios.drain_1), _COMMANDS, 4_000, 1_000, _SLOW),
    "drain_10": Row("Drain, 10 slots", _everyone(scenarios.drain_10), _COMMANDS, 20_000, 2_000, _FAST),
    "drain_32": Row("Drain, 32 slots", _everyone(scenarios.drain_32), _COMMANDS, 20_000, 2_000, _FAST),
    "drain_100": Row("Drain, 100 slots", _everyone(scenarios.drain_100), _COMMANDS, 20_000, 2_000, _FAST),
    "processes": Row(
        "Drain, `run_workers(processes=2)`, 100 slots each",
        {"ours": own.processes, LIMIT: partial(scenarios.drain_100, LIMIT)},
        f"{_COMMANDS}, by one process of 100 slots",
        jobs=30_000,
    ),
    "batches": Row(
        "Drain, batches of 100",
        {"ours": partial(scenarios.drain_1, "ours:Batched"), LIMIT: partial(scenarios.drain_100, LIMIT)},
        _COMMANDS,
        jobs=20_000,
    ),
    "threads": Row(
        "Drain, 32 threads",
        {
            "ours": partial(scenarios.drain_32, "ours:Threads"),
            "dramatiq": partial(scenarios.drain_32, "dramatiq"),
            LIMIT: limits.threads,
        },
        "a pool's call of a no-op, awaited by an event loop",
        jobs=10_000,
        peers=5_000,
    ),
    "sandboxes": Row(
        "Drain, 2 sandboxed processes",
        {"ours": own.sandboxes, LIMIT: limits.pipes},
        "a round trip through a pipe to a forked process",
        jobs=3_000,
    ),
    "latency": Row(
        "Enqueue to start, idle worker, 200/s",
        _everyone(scenarios.latency),
        "a job's own commands until its handler starts: three exchanges",
        jobs=400,
        peers=400,
    ),
    "latency_1000": Row(
        "The same, 1,000/s",
        _everyone(partial(scenarios.latency, rate=1_000)),
        "a job's own commands until its handler starts: three exchanges",
        jobs=1_000,
        peers=1_000,
    ),
    "latency_5000": Row(
        "The same, 5,000/s",
        _everyone(partial(scenarios.latency, rate=5_000)),
        "a job's own commands until its handler starts: three exchanges",
        jobs=3_000,
        peers=3_000,
    ),
    "offered": Row(
        "Enqueue to start, 10,000/s offered",
        {name: partial(scenarios.offered, name) for name in ("ours", LIMIT)},
        "the same with a job's own commands",
        jobs=15_000,
    ),
    "flow": Row(
        "A flow of 1,000 nodes and 4,000 edges, nodes/s",
        {"ours": flows.run_flow, LIMIT: limits.plain_jobs},
        "as many plain jobs, added in bulk and drained",
        jobs=1_000,
    ),
    "map": Row(
        "A map over 10,000 elements, elements/s",
        {"ours": flows.run_map, LIMIT: limits.plain_jobs},
        "as many plain jobs, added in bulk and drained",
        jobs=10_000,
    ),
}


def measure(row: str, contender: str, url: str, jobs: int) -> Figures:
    """Measure once, in this process."""
    gc.collect()
    gc.freeze()  # as run_workers() does; no contender pays for what the measuring has imported
    return ROWS[row].measures[contender](url, jobs)


def main() -> None:
    """Measure once, print."""
    row, contender, url, jobs = sys.argv[1:]
    print(json.dumps(measure(row, contender, url, int(jobs))))


if __name__ == "__main__":
    main()
