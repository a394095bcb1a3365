"""Runs of 200 Airflow tasks during which its programs, workers and servers are killed: what went wrong, as a table.

``.venv-airflow/bin/python -m tests.airflow.campaign [--postgres] [--schedulers 2] [--seed 1] [FAULT...]``. It fails
when a number is not 0 that docs/how-to/airflow-executor.md says is.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.airflow.deployment import ENDED, EXECUTOR, Airflow
from tests.dagster.stores import Database, QueueServer, postgres, queue_server

__all__ = ["FAULTS", "Rig", "rig"]

FAULTS: Final = (
    "nothing",
    "worker",
    "task",
    "supervisor",
    "fork server",
    "scheduler",
    "api-server",
    "queue",
    "database",
)
LEASE_S: Final = 10
_LEVELS: Final = {"fork server": 1, "supervisor": 2, "task": 3}
"""How many processes below the worker's one that is killed is."""
_WORKERS: Final = ("worker-1", "worker-2")
_MAY_RUN_TWICE: Final = frozenset({"worker", "task", "supervisor", "fork server", "api-server"})
"""A task that was killed after its work, or could not report it, is a failed one."""


@dataclass
class Rig:
    """A deployment whose parts can be killed.

    Attributes:
        airflow: The deployment.
        queue: The queue's server.
        database: Airflow's PostgreSQL, if it uses that.
        schedulers: The names of the schedulers.
        faults: How often what was killed.
    """

    airflow: Airflow
    queue: QueueServer
    database: Database | None
    schedulers: list[str]
    random: random.Random
    faults: Counter[str] = field(default_factory=Counter)

    def keep_alive(self) -> None:
        """Start again what has ended, as systemd or Kubernetes does."""
        for name, process in list(self.airflow.programs.items()):
            if process.poll() is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                self.airflow.restart(name)

    def bring_about(self, fault: str) -> None:
        """Kill one thing."""
        match fault:
            case "nothing":
                return
            case "queue":
                self.queue.kill()
                time.sleep(self.random.uniform(0, 3))
                self.queue.start()
            case "database":
                assert self.database is not None
                self.database.kill()
                time.sleep(self.random.uniform(0, 3))
                self.database.start()
            case "worker":
                self.airflow.programs[self.random.choice(_WORKERS)].kill()
            case "scheduler":
                self._kill_group(self.random.choice(self.schedulers))
            case "api-server":
                self._kill_group(fault)
            case _:
                if not self._kill_below_worker(_LEVELS[fault]):
                    return
        self.faults[fault] += 1

    def _kill_group(self, name: str) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.airflow.programs[name].pid, signal.SIGKILL)

    def _kill_below_worker(self, level: int) -> bool:
        found = [self.airflow.programs[name].pid for name in _WORKERS]
        for _ in range(level):
            found = [child for pid in found for child in _children(pid)]
        if not found:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(found), signal.SIGKILL)
        return True

    def run(self, fault: str, kills: int, seconds: float) -> dict[str, object]:
        """Run the DAG, bring a fault about while it does, and return what came to pass."""
        run_id, began = self.airflow.trigger("campaign"), time.monotonic()
        trace = self.airflow.marks / f"trace-{run_id}"
        self.faults.clear()
        while time.monotonic() < began + seconds:
            self.keep_alive()
            lines = len(trace.read_text().splitlines()) if trace.exists() else 0
            # Spread over the run, by how far it has come.
            if self.faults[fault] < kills and lines > (self.faults[fault] + 1) * 400 // (kills + 2):
                self.bring_about(fault)
            with suppress(Exception):  # the database may be away
                if self.airflow.state(run_id) in ENDED:
                    break
            time.sleep(0.5)
        return {"fault": fault, "times": self.faults[fault], **self.audit(run_id), "s": round(time.monotonic() - began)}

    def audit(self, run_id: str) -> dict[str, int | str]:
        """Count what went wrong in a run."""
        outcomes = self.airflow.outcomes(run_id)
        events = [line.split() for line in self.airflow.lines(f"trace-{run_id}")]
        begun = Counter((task, number) for event, task, number, _ in events if event == "begin")
        ended = Counter(task for event, task, _, _ in events if event == "end")
        open_: dict[str, set[str]] = {}
        beside = 0
        for event, task, _, pid in events:
            running = open_.setdefault(task, set())
            if event == "begin":
                beside += any(Path(f"/proc/{one}").exists() for one in running)
                running.add(pid)
            running -= {pid} if event == "end" else set()
        states = Counter(state for state, _ in outcomes.values())
        return {
            "run": self.airflow.state(run_id),
            "tasks": len(outcomes),
            "right": states["success"],
            "stuck": sum(states[name] for name in ("queued", "running", "scheduled", "up_for_retry", "restarting")),
            "retried": sum(tries > 1 for _, tries in outcomes.values()),
            "tries": sum(tries for _, tries in outcomes.values()) - len(outcomes),
            "try begun twice": sum(count > 1 for count in begun.values()),
            "ended twice": sum(count > 1 for count in ended.values()),
            "beside itself": beside,
        }


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


@contextmanager
def rig(home: Path, *, with_postgres: bool, schedulers: int, seed: int) -> Iterator[Rig]:
    """A deployment with two workers of four slots each."""
    settings = {
        "CORE__EXECUTOR": EXECUTOR,
        "CORE__PARALLELISM": "8",
        "ORCHESTRATION_QUEUE__LEASE": str(LEASE_S),
        "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
        "SCHEDULER__MAX_TIS_PER_QUERY": "16",
    }
    with queue_server(home) as queue, postgres() as database:
        used = database if with_postgres else None
        airflow = Airflow(home / "airflow", queue.url, used.url if used else "", settings)
        airflow.add_dags("campaign.py")
        with airflow.running():
            names = ["scheduler"] + [f"scheduler-{number}" for number in range(2, schedulers + 1)]
            for name in names[1:]:
                airflow.start_scheduler(name)
            for name in _WORKERS:
                airflow.start_worker(name, "default", "--concurrency", "4", "--lease", str(LEASE_S))
            yield Rig(airflow, queue, used, names, random.Random(seed))


def wrongs(row: dict[str, object]) -> list[str]:
    """Return the names of the numbers in a row that must be 0 and are not."""
    names = ["stuck", "try begun twice", "beside itself"]
    names += [] if row["fault"] in _MAY_RUN_TWICE else ["ended twice"]
    return [name for name in names if row[name]] + (["run"] if row["run"] != "success" else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", default=FAULTS, help=", ".join(FAULTS))
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--schedulers", type=int, default=1)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--keep", type=Path, help="a directory for logs that stays")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="oq-kills-", dir=given.keep))
    failed = False
    with rig(home, with_postgres=given.postgres, schedulers=given.schedulers, seed=given.seed) as deployment:
        for fault in given.faults:
            row = deployment.run(fault, given.kills, given.seconds)
            failed |= bool(wrong := wrongs(row))
            print(row, *wrong, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
