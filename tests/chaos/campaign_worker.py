"""A worker process of the campaign: ``campaign_worker.py WITNESS LEASE QUEUE...``.

Its handler notes in the file WITNESS, a line each, which jobs it began and which it ran to their end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import AsyncActiveJob, Worker

LETTERS = "letters"


class Witness:
    """Runs jobs of every kind, and notes what it does in one write a line, which survives a SIGKILL."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _note(self, what: str, job: AsyncActiveJob) -> None:
        os.write(self._file, f"{what} {job.queue} {job.id}\n".encode())

    async def __call__(self, job: AsyncActiveJob) -> str:
        self._note("began", job)
        await asyncio.sleep(0.005)
        if job.name == "hopeless" or (job.name == "stumbling" and job.attempt == 1):
            raise ValueError(job.name)
        self._note("ended", job)
        return job.id


async def main(witness: str, lease: str, queues: list[str]) -> None:
    options = WorkerOptions(
        concurrency=8,
        lease=float(lease),
        stalled_interval=0.5,
        max_stalled=1000,
        promotion_interval=0.2,
        flow_interval=0.5,
        block=0.5,
        dead_letter_queue=LETTERS,
    )
    handle = Witness(witness)
    workers = [Worker(queue, handle, options=options) for queue in queues]

    def stop() -> None:
        for worker in workers:
            worker.stop()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await asyncio.gather(*(worker.run() for worker in workers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
