"""Dagster runs whose processes, daemon, workers and server are killed at random points: what went wrong, as a table.

Run it with ``python -m tests.chaos.dagster_kills --runs 40 --seed 1``, with ``--postgres`` for Dagster's storage in
PostgreSQL. It fails when a number is not 0 that docs/explanation/guarantees.md says is.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.monitoring import execute_run_monitoring_iteration

from tests.dagster import kill_jobs
from tests.dagster.launches import launcher_of
from tests.dagster.step_workers import READY
from tests.dagster.stores import QueueServer, postgres, queue_server
from tests.processes import OQ, parent_of
from tests.waiting import wait_until_sync

__all__ = ["FAULTS", "Rig", "audit", "campaign", "rig"]

LOCATION = "tests.dagster.kill_jobs"
ROOT = Path(__file__).parents[2]
FAULTS = ("run", "daemon", "step worker", "run worker", "server")
LEASE_S = 10.0
_WORKERS = {"run worker": "kill-runs", "step worker 1": "kill-steps", "step worker 2": "kill-steps"}
_LAST_S = 300.0
"""How long runs may take to end after the last fault."""
_LOST = ("StepWorkerLost", "StepProcessCrashed")
_ENDS = ("STEP_SUCCESS", "STEP_FAILURE")
_RUN_ENDS = ("PIPELINE_SUCCESS", "PIPELINE_FAILURE", "PIPELINE_CANCELED")
_BEGINS = ("STEP_WORKER_STARTED", "STEP_START", "STEP_RESTARTED")


@dataclass
class Rig:
    """All processes of a deployment, which can be killed.

    Attributes:
        instance: Dagster's instance.
        context: The code location.
        server: The queue's server.
        home: The logs, and the traces of steps.
        killed: The fork servers of killed workers, and the processes of their steps.
        faults: How often what was killed.
    """

    instance: dg.DagsterInstance
    context: WorkspaceProcessContext
    server: QueueServer
    home: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: set[int] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)
    _begins: dict[str, int] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a process."""
        if name == "daemon":
            command = [str(Path(sys.executable).parent / "dagster-daemon"), "run", "-m", LOCATION, "-d", str(ROOT)]
        else:
            options = ("--concurrency", "4", "--stalled-interval", "0.5", "--lease", str(LEASE_S))
            command = [OQ, "dagster", "worker", "-m", LOCATION, "-q", _WORKERS[name], *options]
        environment = {**os.environ, "DAGSTER_HOME": self.instance.root_directory, "OQ_URL": self.server.url}
        with (self.home / f"{name}.log").open("ab") as log:
            self._begins[name] = log.tell()
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT
            )

    def is_ready(self, name: str) -> bool:
        """Return whether a process has come so far, since it was started, that killing it matters."""
        with (self.home / f"{name}.log").open("rb") as log:
            log.seek(self._begins[name])
            return (b"Checking run" if name == "daemon" else READY.encode()) in log.read()

    def restart(self, name: str) -> None:
        """Kill a process, and start it again."""
        process = self.processes[name]
        process.send_signal(signal.SIGSTOP)
        servers = _children(process.pid)
        self.killed |= servers.union(*map(_children, servers))
        process.kill()
        process.wait(60)
        if name == "daemon":  # and the server of code that it has started
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self.start(name)

    def submit(self, parts: int, **config: Any) -> str:
        """Launch a run with this many dynamic outputs; its id."""
        workspace = self.context.create_request_context()
        remote = workspace.get_code_location(LOCATION).get_repository("__repository__").get_full_job("everything")
        options = {"url": self.server.url, "queue": "kill-steps", "lease": LEASE_S, "env": {"SCRATCH": str(self.home)}}
        run = self.instance.create_run_for_job(
            kill_jobs.everything,
            run_config={"execution": {"config": {**options, **config}}, "ops": {"parts": {"config": parts}}},
            remote_job_origin=remote.get_remote_origin(),
            job_code_origin=remote.get_python_origin(),
        )
        self.instance.launch_run(run.run_id, workspace)
        return str(run.run_id)

    def monitor(self) -> None:
        """Do what Dagster's daemon does every now and then."""
        for error in execute_run_monitoring_iteration(self.context, logging.getLogger("monitor")):
            assert error is None, error

    def open_runs(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that have not ended."""
        found = self.instance.get_runs(dg.RunsFilter(run_ids=list(run_ids)))
        return [run.run_id for run in found if not run.is_finished]

    def kill_run(self, run_id: str) -> bool:
        """Kill the process that executes a run, if there is one now."""
        pids = [
            int(entry.message.partition("(pid: ")[2].partition(")")[0])
            for entry in self.instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
            if "Started process for" in entry.message
        ]
        with suppress(OSError, IndexError):
            if parent_of(parent_of(pids[-1])) == self.processes["run worker"].pid:
                os.kill(pids[-1], signal.SIGKILL)
                return True
        return False

    def fault(self, chance: random.Random, kinds: Sequence[str], run_ids: Sequence[str]) -> None:
        """Kill one thing."""
        kind = chance.choice(kinds)
        if kind == "run":
            if not ((open_runs := self.open_runs(run_ids)) and self.kill_run(chance.choice(sorted(open_runs)))):
                return
        elif kind == "server":
            self.server.kill()
            time.sleep(chance.uniform(0, 1))
            self.server.start()
        else:
            name = f"step worker {chance.choice((1, 2))}" if kind == "step worker" else kind
            if not self.is_ready(name):
                return
            self.restart(name)
        self.faults[kind] += 1


def _children(pid: int) -> set[int]:
    with suppress(OSError):
        return {
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        }
    return set()


@contextmanager
def rig(home: Path, storage: dict[str, Any] | None = None, *, daemon: bool = True) -> Iterator[Rig]:
    """A deployment whose workers are ready."""
    overrides: dict[str, Any] = {
        "run_monitoring": {
            "enabled": True,
            "poll_interval_seconds": 2,
            "max_resume_run_attempts": 1_000,
            "start_timeout_seconds": 3_600,
            "free_slots_after_run_end_seconds": 5,
        },
        "concurrency": {"pools": {"default_limit": 1}},
        "telemetry": {"enabled": False},
        **({"storage": storage} if storage else {}),
    }
    target = ModuleTarget(LOCATION, None, str(ROOT), LOCATION)
    with ExitStack() as stack:
        server = stack.enter_context(queue_server(home))
        launcher = launcher_of(url=server.url, queue="kill-runs", lease=LEASE_S, env={"SCRATCH": str(home)})
        instance = stack.enter_context(dg.instance_for_test(overrides={**overrides, "run_launcher": launcher}))
        context = stack.enter_context(WorkspaceProcessContext(instance, target))
        made = Rig(instance, context, server, home)
        stack.callback(_end, made)
        for name in (*_WORKERS, *(["daemon"] if daemon else [])):
            made.start(name)
        for name in _WORKERS:
            wait_until_sync(partial(made.is_ready, name), f"{name}, see {home}", 300)
        yield made


def _end(made: Rig) -> None:
    for process in made.processes.values():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def audit(made: Rig, run_id: str, retries: int, parts: int = kill_jobs.PARTS) -> Counter[str]:
    """Count what happened to a run, and what should not have.

    A retry or failure of a lost attempt is needed if its step had started and the worker that ran it was killed. A
    retry that the step's own policy grants is none of `worker_lost_retries`.
    """
    run = made.instance.get_run_by_id(run_id)
    assert run is not None
    traces = made.home / run_id
    lines = traces.read_text().splitlines() if traces.exists() else []
    parents = {int(pid): int(parent) for _, pid, parent in (line.rsplit(" ", 2) for line in lines)}
    found: Counter[str] = Counter(runs=1)
    started: dict[str, int] = {}
    ended: Counter[str] = Counter()
    needed: Counter[str] = Counter()
    is_over = False
    for entry in made.instance.all_logs(run_id, of_type=set(dg.DagsterEventType)):
        event = entry.dagster_event
        assert event is not None
        kind, key = event.event_type_value, event.step_key or ""
        is_over = is_over or kind in _RUN_ENDS
        if kind in _BEGINS:
            found["ran again"] += ended[key] > 0 and kind == "STEP_WORKER_STARTED"
            started[key] = event.pid or -1
        error = getattr(event.event_specific_data, "error", None)
        is_counted = error is not None and (error.cls_name or "") in _LOST
        is_lost = is_counted or (error is not None and "failed health check" in error.message)
        if is_lost and kind in ("STEP_UP_FOR_RETRY", "STEP_FAILURE"):
            needed[key] += is_counted or kind == "STEP_FAILURE"
            pid = started.get(key, 0)
            was_killed = pid in made.killed or parents.get(pid) in made.killed
            if not pid:
                found["lost unstarted"] += 1
            elif not was_killed:
                found["lost without a kill"] += 1
            else:
                found["lost"] += 1
        if kind in _ENDS:
            ended[key] += 1
            found["ended after the run"] += is_over
        if kind in (*_ENDS, "STEP_UP_FOR_RETRY"):
            started.pop(key, None)
    found["steps"] = len(ended)
    found["without one end"] = len(started) + sum(count > 1 for count in ended.values())
    may_fail = any(count > retries for count in needed.values())
    status = run.status.value
    found[status] += 1
    found["hung"] += not run.is_finished
    found["other outcome"] += run.is_finished and status != ("FAILURE" if may_fail else "SUCCESS")
    found["other outcome"] += status == "SUCCESS" and len(ended) != kill_jobs.OTHER_STEPS + parts
    return found


BAD = (
    "ran again",
    "lost unstarted",
    "lost without a kill",
    "without one end",
    "ended after the run",
    "hung",
    "other outcome",
)


def campaign(
    made: Rig,
    chance: random.Random,
    runs: int,
    retries: int,
    *,
    parts: int = kill_jobs.PARTS,
    kinds: Sequence[str] = FAULTS,
    most_faults: float = math.inf,
    together: int = 4,
    pause_s: tuple[float, float] = (0.5, 4.0),
    limit_s: float = 900.0,
    meanwhile: Callable[[], object] = lambda: None,
) -> tuple[Counter[str], list[str]]:
    """Run jobs while things are killed; return what was counted, and the runs with which something is wrong."""
    run_ids: list[str] = []
    ends_at = time.monotonic() + limit_s
    limit = made.faults.total() + most_faults
    while time.monotonic() < ends_at + _LAST_S:
        while (
            len(run_ids) < runs
            and time.monotonic() < ends_at
            and len(made.open_runs(run_ids) if run_ids else []) < together
        ):
            config: dict[str, Any] = {"worker_lost_retries": retries}
            if chance.random() < 0.5:
                config["step_dependency_config"] = {"require_upstream_step_success": False}
            if chance.random() < 0.5:
                config["max_concurrent"] = chance.choice((2, 5))
            run_ids.append(made.submit(parts, **config))
        if (len(run_ids) == runs or time.monotonic() > ends_at) and not made.open_runs(run_ids):
            break
        time.sleep(chance.uniform(*pause_s))
        if made.faults.total() < limit and time.monotonic() < ends_at:
            made.fault(chance, kinds, run_ids)
        meanwhile()
    counted: Counter[str] = Counter()
    wrong = []
    for run_id in run_ids:
        found = audit(made, run_id, retries, parts)
        counted += found
        wrong += [f"{run_id}: {', '.join(name for name in BAD if found[name])}"] * any(found[name] for name in BAD)
    return counted, wrong


def main() -> int:
    """Parse the arguments, run, print; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.dagster_kills", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="runs for each setting (default 20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--retries", type=int, nargs="+", default=[0, 2], help="values of worker_lost_retries")
    parser.add_argument("--limit", type=float, default=1_200, help="seconds of faults for each setting (default 1200)")
    parser.add_argument("--postgres", action="store_true", help="Dagster's storage in PostgreSQL")
    parser.add_argument("--parts", type=int, default=kill_jobs.PARTS, help="dynamic outputs, beside 14 other steps")
    given = parser.parse_args()
    rows: list[tuple[str, Counter[str]]] = []
    with ExitStack() as stack:
        database = stack.enter_context(postgres()) if given.postgres else None
        if given.postgres and database is None:
            raise SystemExit("PostgreSQL is not installed.")
        storage = {"postgres": {"postgres_url": database.url}} if database else None
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oq-kills-")))
        made = stack.enter_context(rig(home, storage))
        for retries in given.retries:
            chance = random.Random(f"{given.seed} {retries}")
            faults = Counter(made.faults)
            counted, wrong = campaign(made, chance, given.runs, retries, parts=given.parts, limit_s=given.limit)
            counted.update({f"{kind} killed": made.faults[kind] - faults[kind] for kind in FAULTS})
            rows.append((f"worker_lost_retries {retries}", counted))
            for line in wrong:
                print(line)
                run_id = line.partition(":")[0]
                for entry in made.instance.all_logs(run_id):
                    print(
                        "   ",
                        round(entry.timestamp, 2),
                        entry.step_key,
                        entry.dagster_event_type,
                        entry.user_message[:300],
                    )
    names = ["runs", *(f"{kind} killed" for kind in FAULTS), "steps", "SUCCESS", "FAILURE", "lost", *BAD]
    for name in names:
        print(f"{name:24}", *(f"{counted[name]:>24}" for _, counted in rows))
    print(f"{'':24}", *(f"{title:>24}" for title, _ in rows))
    return int(any(counted[name] for _, counted in rows for name in BAD))


if __name__ == "__main__":
    sys.exit(main())
