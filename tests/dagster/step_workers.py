"""An instance, a queue and real workers for its steps, as the tests of executor and worker use them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from tests.processes import OQ, running_process

READY = "takes jobs of queue"


@dataclass(frozen=True)
class Fleet:
    """Where a test's runs happen.

    Attributes:
        instance: The instance.
        url: The server.
        queue: The queue.
        scratch: Where steps leave traces.
    """

    instance: dg.DagsterInstance
    url: str
    queue: str
    scratch: Path

    def run(
        self,
        job: Callable[..., dg.JobDefinition] | dg.JobDefinition,
        *,
        tags: Mapping[str, str] | None = None,
        ops: Mapping[str, Any] | None = None,
        asset_selection: Sequence[dg.AssetKey] | None = None,
        **config: Any,
    ) -> dg.ExecuteJobResult:
        """Run a job of :mod:`tests.dagster.steps` here, its steps on the workers, to its end."""
        return dg.execute_job(
            dg.reconstructable(job),
            self.instance,
            run_config={"execution": {"config": {**self.config, **config}}, "ops": dict(ops or {})},
            tags=dict(tags or {}),
            asset_selection=asset_selection,
            raise_on_error=False,
        )

    @property
    def config(self) -> dict[str, object]:
        """What an executor needs to find the workers. No busy machine stops one for as long as its lease."""
        return {"url": self.url, "queue": self.queue, "lease": 30.0, "env": {"SCRATCH": str(self.scratch)}}

    def lines(self, name: str) -> list[str]:
        """The lines of a trace; none before it is there."""
        path = self.scratch / name
        return path.read_text().splitlines() if path.exists() else []

    def types(self, run_id: str, step: str | None = None) -> list[str]:
        """The types of a run's events, or of one step's, as Dagster's log has them."""
        entries = self.instance.all_logs(run_id)
        return [
            str(entry.dagster_event.event_type_value)
            for entry in entries
            if entry.dagster_event and (step is None or entry.step_key == step)
        ]

    @contextmanager
    def worker(
        self, *arguments: str, log: Path | None = None, module: str = "tests.dagster.steps"
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A worker for the steps."""
        command = [OQ, "dagster", "worker", "-m", module, "-q", self.queue, *QUICK, *arguments]
        home = self.instance.root_directory
        with home_is(home), running_process(command, self.url, log) as process:
            yield process


QUICK = ("--concurrency", "4", "--stalled-interval", "0.5")


@contextmanager
def home_is(directory: str) -> Iterator[None]:
    """Processes that are started here find this instance."""
    before = os.environ.get("DAGSTER_HOME")
    os.environ["DAGSTER_HOME"] = directory
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("DAGSTER_HOME", None)
        else:
            os.environ["DAGSTER_HOME"] = before
