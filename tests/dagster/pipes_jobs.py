"""Tasks whose handlers report through Pipes. Files in ``scratch`` let a test see and control them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from orchestration_queue.dagster.pipes import open_job_pipes, pipes_environment
from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

tasks = Tasks()


def _started(scratch: str, job: ActiveJob) -> int:
    """Note that the job runs, and count how often any has."""
    with Path(scratch, "launches").open("a") as launches:
        launches.write(f"{job.id}\n")
    return len(Path(scratch, "launches").read_text().splitlines())


def _wait(scratch: str, name: str, job: ActiveJob) -> None:
    while not Path(scratch, name).exists() and not job.should_stop:
        time.sleep(0.01)


@tasks.task
def report(job: ActiveJob, scratch: str, rows: int) -> int:
    """Report a table, a check and a word of our own."""
    _started(scratch, job)
    with open_job_pipes(job) as pipes:
        pipes.log.info(f"loading {rows} rows for {pipes.asset_key}, {pipes.get_extra('shift')} shift")
        pipes.report_asset_materialization(metadata={"rows": rows}, data_version="v1")
        pipes.report_asset_check("not_empty", passed=rows > 0)
        pipes.report_custom_message({"run": pipes.run_id})
    return rows


@tasks.task
def report_often(job: ActiveJob, scratch: str, rows: int) -> None:
    """Report each row by a log line and a message of its own."""
    _started(scratch, job)
    with open_job_pipes(job) as pipes:
        for row in range(rows):
            pipes.log.info(f"row {row}")
            pipes.report_custom_message(row)


@tasks.task
def report_slowly(job: ActiveJob, scratch: str) -> None:
    """Report, wait for a file, and report again."""
    _started(scratch, job)
    with open_job_pipes(job) as pipes:
        pipes.log.info("before the break")
        pipes.report_custom_message("first")
        Path(scratch, "waiting").touch()
        _wait(scratch, "go", job)
        if job.should_stop:
            Path(scratch, "stopped").touch()
            return
        pipes.log.info("after the break")
        pipes.report_custom_message("second")
        pipes.report_asset_materialization(metadata={"rows": 2})


@tasks.task
def report_and_fail(job: ActiveJob, scratch: str) -> None:
    """Fail for good at the first launch, with a report made; do well at the next."""
    launch = _started(scratch, job)
    with open_job_pipes(job) as pipes:
        pipes.report_asset_materialization(metadata={"launch": launch})
        if launch == 1:
            raise UnrecoverableError("the source is gone")


@tasks.task
def report_and_die(job: ActiveJob, scratch: str) -> None:
    """Kill this worker at the first run, with a report made; do well at the next."""
    run = _started(scratch, job)
    with open_job_pipes(job) as pipes:
        pipes.log.info(f"run {run}")
        pipes.report_asset_materialization(metadata={"run": run})
        pipes.report_custom_message(run)
        if run == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@tasks.task
def report_from_a_program(job: ActiveJob, program: str) -> None:
    """Let another program do the reporting."""
    environment = {**os.environ, **pipes_environment(job)}
    subprocess.run([sys.executable, program], env=environment, check=True, timeout=280)


def _fetch(scratch: str, page: int) -> int:
    with Path(scratch, "fetched").open("a") as fetched:
        fetched.write(f"{page}\n")
    return page * 10


@tasks.task
def report_in_steps(job: ActiveJob, scratch: str) -> None:
    """Fetch pages as durable steps; pause after the first, and fail once after the second."""
    _started(scratch, job)
    with open_job_pipes(job) as pipes:
        rows = job.step("page-0", _fetch, scratch, 0)
        job.sleep("pause", 0.05)
        rows += job.step("page-1", _fetch, scratch, 1)
        if job.attempt == 1:
            raise OSError("the source is gone")
        rows += job.step("page-2", _fetch, scratch, 2)
        pipes.log.info(f"fetched {rows} rows in attempt {job.attempt}")
        pipes.report_asset_materialization(metadata={"rows": rows})
