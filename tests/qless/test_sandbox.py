"""Sandboxed handlers: a process of their own, and a working directory for each job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue import sandboxed
from orchestration_queue.wires.qless import AsyncQlessClient, run_class
from tests.qless import sandbox_handlers
from tests.qless.test_worker import qless as qless
from tests.qless.test_worker import state, working
from tests.waiting import wait_until


def _existing(*paths: str) -> list[str]:
    return [path for path in paths if Path(path).exists()]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


async def _seen(qless: AsyncQlessClient, server: redis.Redis, jids: list[str]) -> list[dict[str, Any]]:
    await wait_until(lambda: server.zcard("ql:q:seen-work") == len(jids), "all jobs to have run")
    return [job.data for job in await qless.get_many(jids)]


@pytest.mark.parametrize("handler", [sandbox_handlers.report, sandbox_handlers.report_later, run_class])
async def test_each_job_has_an_empty_directory_that_is_removed(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str, handler: Any
) -> None:
    for jid in ("a", "b"):
        await qless.put("q", "tests.qless.sandbox_handlers.Nightly", jid=jid)
    async with working(server_url, "q", sandboxed(handler), concurrency=1):
        first, second = await _seen(qless, server, ["a", "b"])
    assert first["found"] == second["found"] == []
    assert first["directory"] != second["directory"]
    assert first["process"] == second["process"] != os.getpid()
    assert not _existing(first["directory"], second["directory"], f"/proc/{first['process']}")


async def test_a_handler_that_raises_or_dies_fails_its_job_alone(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str
) -> None:
    for jid, klass in (("raises", "Raises"), ("dies", "Dies"), ("again", "Raises")):
        await qless.put("q", klass, jid=jid)
    async with working(server_url, "q", sandboxed(sandbox_handlers.break_down), concurrency=1):
        await wait_until(lambda: server.llen("ql:f:q-KeyError") == 2, "two jobs to fail")
    assert await qless.failures() == {"q-KeyError": 2, "q-SandboxDiedError": 1}
    raised, died = await qless.get_many(["raises", "dies"])
    assert raised.failure is not None
    assert "in break_down" in raised.failure.message
    assert died.failure is not None
    assert "SIGKILL" in died.failure.message


async def test_a_cancelled_job_ends_its_process_and_removes_its_directory(
    qless: AsyncQlessClient, server: redis.Redis, server_url: str, tmp_path: Path
) -> None:
    target = tmp_path / "where"
    await qless.put("q", "K", {"file": str(target)}, jid="j")
    async with working(server_url, "q", sandboxed(sandbox_handlers.hang)):
        await wait_until(target.exists, "the job to run")
        directory, process = _lines(target)
        assert _existing(directory)
        assert state(server, "j") == "running"
        await qless.cancel("j")
        await wait_until(lambda: not _existing(directory, f"/proc/{process}"), "its process and directory to be gone")
