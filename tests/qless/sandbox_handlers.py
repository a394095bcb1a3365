"""Handlers that run in sandbox processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from orchestration_queue.wires.qless import QlessJob, QlessNext


def _report() -> QlessNext:
    seen: dict[str, Any] = {
        "directory": str(Path.cwd()),
        "found": [*map(str, Path().iterdir())],
        "process": os.getpid(),
    }
    Path("trace").write_text("what a job leaves", encoding="utf-8")
    return QlessNext("seen", seen)


def report(job: QlessJob) -> QlessNext:
    return _report()


async def report_later(job: QlessJob) -> QlessNext:
    await asyncio.sleep(0)
    return _report()


def break_down(job: QlessJob) -> None:
    if job.klass == "Dies":
        os.kill(os.getpid(), signal.SIGKILL)
    raise KeyError("column")


def hang(job: QlessJob) -> None:
    """Write where and in which process it runs, and hang until it is stopped."""
    target = Path(job.data["file"])
    target.with_suffix(".new").write_text(f"{Path.cwd()}\n{os.getpid()}", encoding="utf-8")
    target.with_suffix(".new").rename(target)
    time.sleep(600)


class Nightly:
    @staticmethod
    def process(job: QlessJob) -> QlessNext:
        return _report()
