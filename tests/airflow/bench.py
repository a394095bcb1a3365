"""What a small task costs with each executor: ``.venv-airflow/bin/python -m tests.airflow.bench [EXECUTOR...]``; JSON.

One deployment with SQLite for all executors, and one run before those that count. Processor time is that of all of
Airflow's programs and what they started, between the start and the end of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.airflow.deployment import AIRFLOW, EXECUTOR, Airflow
from tests.conftest import start_server

NAMES: Final = {"queue": EXECUTOR, "local": "LocalExecutor", "celery": "CeleryExecutor"}
SLOTS: Final = 8
_HERTZ: Final = os.sysconf("SC_CLK_TCK")


class Measured(Airflow):
    """A deployment with the DAGs that are measured."""

    executors: tuple[str, ...] = ()

    @property
    def dags(self) -> Path:
        return self.home / "dags"

    @property
    def environment(self) -> dict[str, str]:
        names = ",".join(NAMES[name] for name in self.executors)
        socket = self.url.removeprefix("unix://")
        own = {
            "CORE__EXECUTOR": names,
            "CORE__PARALLELISM": str(SLOTS),
            "CELERY__BROKER_URL": f"redis+socket://{socket}",
            "CELERY__RESULT_BACKEND": f"redis+socket://{socket}",
            "CELERY__WORKER_CONCURRENCY": str(SLOTS),
            "ORCHESTRATION_QUEUE__LEASE": "30",
            "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "60",
        }
        return {
            **super().environment,
            **{f"AIRFLOW__{name}": value for name, value in own.items()},
            "OQ_BENCH_EXECUTORS": names,
        }

    def processor_s(self) -> dict[str, float]:
        """The processor time so far, by program, with all that it has started."""
        facts: dict[int, tuple[int, float]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            facts[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _HERTZ
        roots = {process.pid: name.split("-default")[0] for name, process in self.programs.items()}
        found = dict.fromkeys(roots.values(), 0.0)
        for pid, (_, used) in facts.items():
            at = pid
            while at in facts and at not in roots:
                at = facts[at][0]
            if at in roots:
                found[roots[at]] += used
        return found

    def measure(self, dag_id: str) -> dict[str, Any]:
        before = self.processor_s()
        run = self.trigger(dag_id)
        assert self.wait(run, 900) == "success", self.outcomes(run)
        used = {name: now - before.get(name, 0.0) for name, now in self.processor_s().items()}
        rows = self.query(
            "select (julianday(start_date) - julianday(queued_dttm)) * 86400, "
            "(julianday(end_date) - julianday(start_date)) * 86400 from task_instance where run_id = ?",
            run,
        )
        ((wall_s,),) = self.query(
            "select (julianday(max(end_date)) - julianday(min(queued_dttm))) * 86400 "
            "from task_instance where run_id = ?",
            run,
        )
        waits = sorted(row[0] for row in rows)
        return {
            "tasks": len(rows),
            "wall_ms_a_task": round(wall_s / len(rows) * 1000),
            "queued_to_running_p50_ms": round(statistics.median(waits) * 1000),
            "queued_to_running_max_ms": round(waits[-1] * 1000),
            "running_p50_ms": round(statistics.median(row[1] for row in rows) * 1000),
            "processor_ms_a_task": {name: round(value / len(rows) * 1000) for name, value in used.items()},
        }

    @contextmanager
    def serving(self, name: str) -> Iterator[None]:
        """Run the worker of an executor, if it has any."""
        if name == "queue":
            with self.worker("default", "--concurrency", str(SLOTS), "--lease", "30"):
                yield
            return
        if name == "celery":
            self.start("worker-celery", AIRFLOW, "celery", "worker", "--skip-serve-logs")
        yield
        if name == "celery":
            self.stop("worker-celery")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("executors", nargs="*", default=["queue", "local"], help=f"of {', '.join(NAMES)}")
    Measured.executors = tuple(parser.parse_args().executors)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="oq-bench-") as home:
        server = start_server(Path(home) / "valkey.sock")
        deployment = Measured(Path(home) / "airflow", f"unix://{home}/valkey.sock")
        deployment.dags.mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("bench_dags.py"), deployment.dags)
        with deployment.running():
            for name in Measured.executors:
                kind = NAMES[name].rpartition(".")[2]
                with deployment.serving(name):
                    deployment.measure(f"at_once_{kind}")
                    found[name] = {dag: deployment.measure(f"{dag}_{kind}") for dag in ("chain", "at_once")}
                    found[name]["load"] = round(os.getloadavg()[0], 1)
        server.terminate()
        server.wait(60)
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
