"""Keeps one Spark Connect server alive while anybody uses it, and not longer.

A process of its own, started by :class:`~orchestration_queue.spark.connect.server.ConnectServer`. It starts the server
again when that was killed, replaces it when it is worn, and interrupts what a killed worker left running on it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orchestration_queue.server.keeper import Keeper, detach, say
from orchestration_queue.spark.connect.generation import Generation
from orchestration_queue.spark.connect.layout import State, write_state
from orchestration_queue.spark.options import SparkOptions

__all__ = ["ConnectKeeper", "main"]

_IDLE_S = 1.0
"""A server that nobody uses so soon after its start is warmed up."""
_TRY_AGAIN_S = 30.0
"""How long to leave a worn server in place after its successor did not start."""


class ConnectKeeper(Keeper):
    """Runs a Spark Connect server in the current directory.

    Args:
        request: What the starter asked for: ``options``, ``max_jobs``, ``max_memory``, ``grace_s``.
        keeper_lock: Descriptor of the locked ``keeper.lock``.
    """

    def __init__(self, request: dict[str, Any], keeper_lock: int) -> None:
        super().__init__(request["grace_s"], keeper_lock)
        self._options = SparkOptions.model_validate(request["options"])
        self._max_jobs: int | None = request["max_jobs"]
        self._max_memory: int | None = request["max_memory"]
        self._directory = Path.cwd()
        self._current: Generation | None = None
        self._next: Generation | None = None
        self._retired: list[Generation] = []
        self._errands: dict[str, subprocess.Popen[bytes]] = {}
        self._since = 0.0
        self._not_before = 0.0

    def tend(self) -> bool:
        """Look after the server that answers, the one that will, and those that have been replaced."""
        self._fence_orphans()
        self._end_the_deserted()
        if self._current and not self._current.lives():
            say(f"server {self._current.name} {self._current.ending()}")
            write_state(self._directory, None)
            self._current.end()
            self._current = None
        if self._next is None and self._needs_a_new_one():
            self._next = Generation(self._directory, self._options, self.keeper_lock)
            say(f"server {self._next.name} started")
        if self._next is not None and not self._see_to_the_next(self._next):
            return False
        self._warm_up_the_idle()
        return True

    def end(self) -> None:
        """End all servers and errands."""
        write_state(self._directory, State(problem=self._problem) if self._problem else None)
        for errand in self._errands.values():
            errand.kill()
            errand.wait()
        for generation in (self._current, self._next, *self._retired):
            if generation:
                generation.end()

    _problem = ""

    def _needs_a_new_one(self) -> bool:
        if self._current is None:
            return True
        jobs = self._current.jobs()
        if time.monotonic() < self._not_before or not jobs:  # its successor would be no better
            return False
        is_tired = self._max_jobs is not None and jobs >= self._max_jobs
        return is_tired or (self._max_memory is not None and self._current.memory() >= self._max_memory)

    def _see_to_the_next(self, coming: Generation) -> bool:
        """Let it take over once it can; False when there is no server and will be none."""
        if not coming.lives():
            problem = coming.last_words()
            say(f"server {coming.name} did not start: {problem}")
            coming.end()
            self._next = None
            self._not_before = time.monotonic() + _TRY_AGAIN_S
            if self._current is None:
                self._problem = problem
            return self._current is not None
        if not coming.answers():
            return True
        if self._current is not None:
            # There is time: the one in place serves on until the new one is warm.
            if not self._has_run(f"warm-{coming.name}", {"url": coming.state.url}):
                return True
            self._retired.append(self._current)
        self._current, self._next, self._since = coming, None, time.monotonic()
        write_state(self._directory, coming.state)
        say(f"server {coming.name} answers")
        return True

    def _warm_up_the_idle(self) -> None:
        if self._current and time.monotonic() - self._since > _IDLE_S:
            name = f"warm-{self._current.name}"
            if name in self._errands or not self._current.jobs():
                self._has_run(name, {"url": self._current.state.url})

    def _fence_orphans(self) -> None:
        """Interrupt what those who were killed left running, wherever their jobs go on."""
        for generation in (self._current, *self._retired):
            for run in generation.orphans() if generation else ():
                assert generation is not None  # noqa: S101 (or there were no orphans)
                url = generation.state.url
                if self._has_run(f"fence-{run.name}", {"url": url, "session": run.name}):
                    say(f"session {run.name} of a worker that has died was ended")
                    run.unlink(missing_ok=True)

    def _end_the_deserted(self) -> None:
        for generation in [worn for worn in self._retired if not worn.lives() or worn.is_deserted()]:
            say(f"server {generation.name} has done its part")
            self._retired.remove(generation)
            generation.end()

    def _has_run(self, name: str, request: dict[str, str]) -> bool:
        """Start an errand, unless it was; whether it is over."""
        if (errand := self._errands.get(name)) is None:
            errand = self._errands[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", "orchestration_queue.spark.connect.errand"], stdin=subprocess.PIPE
            )
            assert errand.stdin is not None  # noqa: S101 (it is a pipe, as asked for above)
            with contextlib.suppress(BrokenPipeError), errand.stdin as stdin:
                stdin.write(json.dumps(request).encode())
        return errand.poll() is not None


def main(directory: str, keeper_lock: str) -> int:
    """Detach, then keep."""
    request = json.load(sys.stdin)
    if not detach(directory, int(keeper_lock)):
        return 0
    for old in Path().iterdir():  # of a keeper that was killed
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
    return ConnectKeeper(request, int(keeper_lock)).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
