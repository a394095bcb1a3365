"""Workers serve until signalled, in one process or several, whether or not their server is there when they start."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestration_queue import Queue, Worker, run_workers
from orchestration_queue.worker.signals import stopping_on_signals
from tests.waiting import wait_until, wait_until_sync

PROGRAM = """
import os, sys
from orchestration_queue import Worker, run_workers
url, queue, processes = sys.argv[1:]
def handle(job): return os.getpid()
print("given up" if run_workers(Worker(queue, handle, url=url), processes=int(processes)) else "done")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_workers_of_a_loop_and_its_handlers_come_back(
    server_url: str, queue_name: str, number: signal.Signals
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    workers = [Worker(f"{queue_name}-{index}", lambda job: None, url=server_url) for index in range(2)]
    running = asyncio.gather(*(worker.run() for worker in workers))
    await wait_until(lambda: all(worker.is_ready for worker in workers), "both workers to take jobs")
    os.kill(os.getpid(), number)
    await asyncio.wait_for(running, 30)
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


async def test_a_program_with_handlers_of_its_own_keeps_them(server_url: str, queue_name: str) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        worker = Worker(queue_name, lambda job: None, url=server_url)
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: worker.is_ready, "the worker to take jobs")
        os.kill(os.getpid(), signal.SIGTERM)
        await wait_until(lambda: bool(received), "the program's own handler to be called")
        assert worker.is_ready
        worker.stop()
        await asyncio.wait_for(running, 30)
    finally:
        signal.signal(signal.SIGTERM, before)


async def test_signals_at_once_are_one_request_and_a_later_one_is_another() -> None:
    loop, calls = asyncio.get_running_loop(), list[str]()
    with stopping_on_signals(lambda: calls.append("stop"), lambda: calls.append("kill")):
        os.kill(os.getpid(), signal.SIGTERM)  # as `timeout` signals its command, and then the group of its command
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        await wait_until(lambda: bool(calls), "the first signal to arrive")
        received_at = loop.time()
        assert calls == ["stop"]
        await wait_until(lambda: loop.time() - received_at > 0.3, "another request to be possible")
        assert calls == ["stop"]
        os.kill(os.getpid(), signal.SIGTERM)
        await wait_until(lambda: len(calls) > 1, "the second request to arrive")
    assert calls == ["stop", "kill"]


def test_another_thread_stops_a_worker(server_url: str, queue_name: str) -> None:
    worker = Worker(queue_name, lambda job: None, url=server_url)
    thread = threading.Thread(target=run_workers, args=(worker,))
    thread.start()
    wait_until_sync(lambda: worker.is_ready, "the worker to take jobs")
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_full_collections_skip_what_was_there_before_the_workers(server_url: str, queue_name: str) -> None:
    frozen = gc.get_freeze_count()
    worker = Worker(queue_name, lambda job: gc.get_freeze_count(), url=server_url)
    thread = threading.Thread(target=run_workers, args=(worker,))
    thread.start()
    with Queue(queue_name, url=server_url) as queue:
        assert queue.add("count").wait(timeout=60) > frozen + 10_000
    worker.stop()
    thread.join(30)
    assert gc.get_freeze_count() == 0


def test_several_processes_share_a_queue_and_a_dead_one_is_replaced(
    server_url: str, queue_name: str, tmp_path: Path
) -> None:
    program = tmp_path / "serve.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), server_url, queue_name, "2"]
    with (
        Queue(queue_name, url=server_url) as queue,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as served,
    ):
        try:
            wait_until_sync(lambda: len(queue.workers()) == 2, "both processes to take jobs", seconds=60)
            pid = queue.add("who").wait(timeout=30)
            assert pid != served.pid
            before = {worker.pid for worker in queue.workers()}
            os.kill(pid, signal.SIGKILL)
            wait_until_sync(lambda: {worker.pid for worker in queue.workers()} - before, "the dead one to be replaced")
            assert queue.add("who").wait(timeout=60) != pid
            served.send_signal(signal.SIGTERM)
            printed, _ = served.communicate(timeout=60)
        finally:
            served.kill()
    assert printed == "done\n"
    assert served.returncode == 0
