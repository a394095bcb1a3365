"""A worker on a machine whose clock is wrong: ``worker_main.py QUEUE OPTIONS AHEAD JUMP``.

The options are JSON; the clock is AHEAD seconds ahead, and jumps by JUMP more when the process is told SIGUSR1.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time

_true_ns = time.time_ns
_ahead_ns = 0


def set_clock(ahead_s: float) -> None:
    global _ahead_ns
    _ahead_ns += round(ahead_s * 1e9)


def _wrong_ns() -> int:
    return _true_ns() + _ahead_ns


def _wrong_s() -> float:
    return _wrong_ns() / 1e9


async def main(queue: str, options: str, jump_s: float) -> None:
    from orchestration_queue.options import WorkerOptions
    from orchestration_queue.worker import Worker
    from tests.chaos.jobs import tasks

    worker = Worker(queue, tasks, options=WorkerOptions(**json.loads(options)))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    loop.add_signal_handler(signal.SIGUSR1, set_clock, jump_s)
    await worker.run()


if __name__ == "__main__":
    set_clock(float(sys.argv[3]))
    time.time_ns, time.time = _wrong_ns, _wrong_s  # before anything that might keep the right ones is imported
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[4])))
