"""Tasks for workers that will be killed, stopped and misled."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob, AsyncActiveJob

tasks = Tasks()


@tasks.task
def work(seconds: float, job: ActiveJob) -> dict[str, object]:
    """Take some time, and say who did it."""
    job.log(f"attempt in process {os.getpid()}")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not job.should_stop:
        time.sleep(0.01)
    return {"pid": os.getpid()}


@tasks.task
def hold(sign: str, job: ActiveJob) -> dict[str, object]:
    """Run until this process is signaled: by a file whose name ends in its id."""
    job.log(f"attempt in process {os.getpid()}")
    while not Path(f"{sign}-{os.getpid()}").exists() and not job.should_stop:
        time.sleep(0.01)
    return {"pid": os.getpid()}


@tasks.task
def stumble(sign: str, job: ActiveJob) -> dict[str, object]:
    """Run until the signal, then fail, unless the job was taken over from another worker."""
    result = hold(sign, job)
    if not job.record.stalled_count:
        raise ValueError("stumbled")
    return result


@tasks.task
def falter(job: ActiveJob) -> dict[str, object]:
    """Fail at the first attempt."""
    result = work(0, job)
    if not job.record.attempts_made:
        raise ValueError("faltered")
    return result


@tasks.task
def linger(seconds: float, job: ActiveJob) -> dict[str, object]:
    """Take some time, unless the job was taken over from another worker."""
    return work(0 if job.record.stalled_count else seconds, job)


@tasks.task
def dismiss(job: ActiveJob) -> dict[str, object]:
    """Stop the worker, as an operator would."""
    result = work(0, job)
    os.kill(os.getpid(), signal.SIGTERM)
    return result


@tasks.task
async def block(seconds: float, job: AsyncActiveJob) -> dict[str, object]:
    """Block the event loop."""
    await job.log(f"attempt in process {os.getpid()}")
    time.sleep(seconds)  # noqa: ASYNC251  what must not be done, and is
    return {"pid": os.getpid()}


@tasks.task
def hold_gil(seconds: float, job: ActiveJob) -> dict[str, object]:
    """Call C code that lets no other thread of this process run."""
    job.log(f"attempt in process {os.getpid()}")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))  # unlike CDLL, it keeps the GIL
    return {"pid": os.getpid()}


@tasks.task(isolation="process")
def hold_gil_in_sandbox(seconds: float, job: ActiveJob) -> dict[str, object]:
    """Do the same in another process."""
    return hold_gil(seconds, job)


@tasks.task
def poison(job: ActiveJob) -> None:
    """Take the process along."""
    job.log(f"attempt in process {os.getpid()}")
    os.kill(os.getpid(), signal.SIGKILL)


@tasks.task
def read_pages(pages: int, job: ActiveJob) -> list[int]:
    """Read page by page, and say which process read which."""

    def read(page: int) -> int:
        job.log(str(page))
        time.sleep(0.02)
        return os.getpid()

    return [int(job.step(f"page-{page}", read, page)) for page in range(pages)]
