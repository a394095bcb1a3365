"""Tasks for the workers of these tests. Files in ``scratch`` let a test see and control them."""

from __future__ import annotations

import time
from pathlib import Path

from orchestration_queue.errors import Failed, UnrecoverableError
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

tasks = Tasks()


@tasks.task
def produce(job: ActiveJob, scratch: str, name: str, rows: int = 1) -> dict[str, object]:
    """Write a file, and a line to another for each time this runs."""
    job.log(f"making {name}")
    job.log(f"made {rows} rows")
    with Path(scratch, f"{name}.runs").open("a") as runs:
        runs.write(f"{job.id}\n")
    return {"rows": rows, "path": str(Path(scratch, name)), "ratio": 0.5, "parts": [1, 2], "owner": "tests"}


@tasks.task
def total(job: ActiveJob) -> int:
    """Add up the rows of what came before."""
    return sum(result["rows"] for result in job.upstream_results().values())


@tasks.task
def echo(result: object = None) -> object:
    """Return what was given."""
    return result


@tasks.task
def fail() -> None:
    """Fail for good."""
    raise UnrecoverableError("the source is gone")


@tasks.task
def fail_in_three_ways(job: ActiveJob) -> None:
    """Fail in another way each time."""
    job.log(f"attempt {job.attempt} connects")
    if job.attempt == 1:
        raise ConnectionResetError("warehouse went away")
    if job.attempt == 2:
        raise Failed("bucket is read-only", kind="upload error")
    raise KeyError("missing column")


@tasks.task
def fail_until(scratch: str, name: str, attempts: int) -> str:
    """Fail until it has been tried so often."""
    path = Path(scratch, f"{name}.tries")
    tries = len(path.read_text()) + 1 if path.exists() else 1
    path.write_text("x" * tries)
    if tries < attempts:
        raise RuntimeError(f"try {tries} is too early")
    return f"try {tries}"


@tasks.task
def wait_for(job: ActiveJob, scratch: str, name: str) -> None:
    """Run until a file appears."""
    Path(scratch, f"{name}.started").touch()
    while not Path(scratch, name).exists() and not job.should_stop:
        time.sleep(0.01)
