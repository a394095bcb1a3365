"""The code of docs/how-to/schedule-work.md does what the page says, from top to bottom."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from orchestration_queue import AsyncQueue
from orchestration_queue.cli.main import app
from orchestration_queue.worker import AsyncActiveJob
from tests.docs.page import Page
from tests.waiting import wait_until
from tests.workers import working

PAGE = Page("how-to/schedule-work.md")


async def test_the_page_runs_and_workers_do_what_it_scheduled(
    server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    assert len(PAGE.blocks()) == 7
    await PAGE.run_in_thread()
    told = capsys.readouterr().out.splitlines()
    # In the night of March that has no 02:30, it is later.
    assert re.fullmatch(r"\[('0[23]:[03]0 CES?T'(, )?){3}\]", told[0])
    assert re.fullmatch(r"\[\d+(, \d+){7}\]", told[1])
    assert told[2:] == ["etl 0 False", "hourly 0 False", "nightly 0 False", "probe 0 False", "fired True"]

    done: list[tuple[str, Any]] = []
    hourly = ("report", {"region": "all"})  # whose time may just come

    async def work(job: AsyncActiveJob) -> None:
        if (job.name, job.data) != hourly:
            done.append((job.name, job.data))

    async with AsyncQueue("reports") as queue:
        assert await queue.schedulers.run_now("etl") is not None
        async with working(queue, work, server_url):
            await wait_until(lambda: len(done) == 3, "the report and the flow", 60)
    assert done[0] == ("report", {"region": "north"})
    assert [name for name, _ in done[1:]] == ["extract", "load"]


def test_the_commands_of_the_page_run(server_url: str, raw: redis.Redis) -> None:
    commands = re.findall(r"^\$ oq (.*)$", PAGE.text, re.MULTILINE)
    assert len(commands) == 6
    first = "scheduler add reports nightly --cron '30 2 * * *' --tz Europe/Berlin"
    for command in (first, *commands):
        result = CliRunner().invoke(app, shlex.split(command), env={"OQ_URL": server_url, "COLUMNS": "200"})
        assert result.exit_code == 0, result.stderr
