"""When a fork server can't fork, and what its forks do after their first work item."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.options.isolation import Isolation
from orchestration_queue.worker.forks.fork_pool import ForkPool, Recycling
from orchestration_queue.worker.forks.fork_server import FAILED, ForkServer
from orchestration_queue.worker.forks.fork_server_process import ForkServerProcess
from orchestration_queue.worker.forks.write_fence import FenceSlot, WriteFence, WriteFences, now
from orchestration_queue.worker.sandbox.frames import take
from tests.unit.reusing_server import MOST_ITEMS
from tests.waiting import wait_until


def test_a_fork_that_fails_ends_its_work_item_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with too many processes. The server's other work items must not end with it."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr(ForkServer, "most_items", MOST_ITEMS)
    fences = WriteFences(1)
    ours, theirs = socket.socketpair()
    server = ForkServer.__new__(ForkServer)  # its constructor is for a process of its own
    server._fence, server._line, server._children = fences.descriptor, theirs, {}
    with ours, theirs, fences.slot(now() + 60) as slot:
        server._fork({"number": 7, "slot": slot.index}, WriteFence(fences.descriptor, slot.index))
        assert take(bytearray(ours.recv(65_536))) == {"kind": "ended", "number": 7, "code": FAILED}
        assert "Resource temporarily unavailable" in slot.note["reason"]
    fences.close()


class Reusing:
    """A fork server whose forks run several work items."""

    def __init__(self, server: ForkServerProcess, fences: WriteFences) -> None:
        self.server = server
        self._fences = fences
        self._slots: list[FenceSlot] = []

    async def run(self, **asked: Any) -> tuple[int, int, str]:
        """Run a work item; return its process, its exit code, and a random number that it has drawn."""
        with self._fences.slot(now() + 60) as slot:
            self._slots.append(slot)
            code = await self.server.begin(asked, slot).ended
            return int(slot.note["pid"]), code, slot.note.get("number", "")

    async def begin(self, mark: Path) -> asyncio.Task[tuple[int, int, str]]:
        """Start a work item that runs until a file exists; return when it has begun."""
        running = asyncio.create_task(self.run(until=str(mark)))
        count = len(self._slots)
        await wait_until(lambda: len(self._slots) > count and "pid" in self._slots[-1].note, "it has begun")
        return running


@pytest.fixture
async def reusing() -> AsyncIterator[Reusing]:
    fences = WriteFences(4)
    server = await ForkServerProcess.start("tests.unit.reusing_server", fences, None)
    yield Reusing(server, fences)
    await server.end(5)
    fences.close()


async def test_a_fork_runs_so_many_work_items_one_after_another(reusing: Reusing) -> None:
    found = [await reusing.run() for _ in range(MOST_ITEMS + 1)]
    pids = [pid for pid, _, _ in found]
    assert len(set(pids[:MOST_ITEMS])) == 1
    assert pids[MOST_ITEMS] != pids[0]
    assert len({number for _, _, number in found}) == len(found), "each draws other random numbers"


@pytest.mark.parametrize(
    ("asked", "code"), [({"is_reusable": False}, 0), ({"code": 3}, 3), ({"is_killed": True}, -signal.SIGKILL)]
)
async def test_a_fork_ends_after_a_work_item_that_has_changed_it(
    reusing: Reusing, asked: dict[str, Any], code: int
) -> None:
    first, ended, _ = await reusing.run(**asked)
    assert ended == code
    second, ended, _ = await reusing.run()
    assert (second != first, ended) == (True, 0)


async def test_work_items_that_run_at_once_have_forks_of_their_own(reusing: Reusing, tmp_path: Path) -> None:
    mark = tmp_path / "end"
    both = [await reusing.begin(mark) for _ in range(2)]
    mark.touch()
    pids = {pid for pid, _, _ in await asyncio.gather(*both)}
    assert len(pids) == 2
    assert (await reusing.run())[0] in pids


async def test_no_fork_of_a_server_that_has_changed_runs_another_work_item(reusing: Reusing, tmp_path: Path) -> None:
    idle, _, _ = await reusing.run()
    mark = tmp_path / "end"
    busy = await reusing.begin(mark)
    reusing.server.tell("change")
    await wait_until(lambda: reusing.server.facts.get("left") == 0, "it has changed")
    mark.touch()
    pid, code, _ = await busy
    assert (pid, code) == (idle, 0)
    assert (await reusing.run())[0] != pid
    await wait_until(lambda: not is_alive(pid), "the old one has ended")


async def test_a_work_item_runs_although_an_idle_fork_was_killed(reusing: Reusing) -> None:
    first, _, _ = await reusing.run()
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: not is_alive(first), "it has ended")
    second, code, _ = await reusing.run()
    assert (second != first, code) == (True, 0)


async def test_a_long_message_reaches_a_work_item(reusing: Reusing) -> None:
    """It exceeds what the socket to an idle fork holds."""
    await reusing.run()
    assert (await reusing.run(text="x" * 4_000_000))[1] == 0


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGKILL])
async def test_idle_forks_end_with_their_server(reusing: Reusing, which: signal.Signals) -> None:
    pid, _, _ = await reusing.run()
    os.kill(reusing.server.pid, which)
    await wait_until(lambda: not is_alive(pid), "it has ended")


async def test_a_pool_keeps_no_lock_of_code_that_it_has_started() -> None:
    class Code:
        name = label = "code"

        def settings(self) -> dict[str, str]:
            return {}

    fences = WriteFences(1)
    pool = ForkPool("tests.unit.reusing_server", fences, Recycling())
    async with pool.lend(Code(), Isolation.AUTO) as loan, pool.lend(Code(), Isolation.AUTO) as other:
        assert loan.server is other.server
    assert not pool._starting
    await pool.aclose()
    fences.close()


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
