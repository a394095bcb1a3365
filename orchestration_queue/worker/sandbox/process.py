"""One sandbox process, as its worker sees it: started, given jobs one by one, ended."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from typing import Any

from orchestration_queue.errors import SandboxDiedError
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.outcome import JobTimeoutError
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.job import AsyncActiveJob
from orchestration_queue.worker.sandbox import endings
from orchestration_queue.worker.sandbox.frames import Frame, pack, receive
from orchestration_queue.worker.sandbox.handler import Sandboxed
from orchestration_queue.worker.sandbox.remote import answer
from orchestration_queue.worker.sandbox.supervised import ChildOutput, ChildProcess, Line

__all__ = ["SandboxProcess"]

_READY_S = 60.0
"""How long a process may take to start and to import its handler. A job's timeout starts after that."""


class SandboxProcess(ChildProcess):
    """A child process that runs sandboxed handlers.

    Attributes:
        jobs: How many it has run.
        memory_bytes: Memory used after the last one.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, output: ChildOutput, line: Line) -> None:
        super().__init__(transport, output, line)
        self.jobs = 0
        self.memory_bytes = 0
        self._current: tuple[Lease, AsyncActiveJob] | None = None
        self._calls: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls) -> SandboxProcess:
        """Start one, as :meth:`launch` does."""
        return await cls.launch("orchestration_queue.worker.sandbox.child", {})

    async def run(self, handler: Sandboxed, lease: Lease, job: AsyncActiveJob, timeout_s: float | None) -> Any:
        """Run a job.

        Returns:
            How it ended, as :mod:`~orchestration_queue.worker.sandbox.child` reports it.

        Raises:
            TimeoutError: Its timeout expired.
            SandboxDiedError: The process died, or sent an invalid message.
            asyncio.CancelledError: The worker gave the job up.
        """
        self.jobs += 1
        self._output.begin(f"Job {job.id}")
        self._current = lease, job
        is_started = False
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_READY_S) as limit:
                self._writer.write(pack(self._request(handler, lease, job)))
                while (frame := await receive(self._reader))["kind"] != "ended":
                    if frame["kind"] == "started":
                        is_started = True
                        limit.reschedule(None if timeout_s is None else loop.time() + timeout_s)
                    else:
                        self._heed(frame, lease, job)
                self.memory_bytes = int(frame["memory_bytes"])
                self._over()
                return frame
        except TimeoutError:
            if is_started:
                raise JobTimeoutError from None
            raise SandboxDiedError(
                f"The sandbox process was not ready after {_READY_S:.0f} s; see what importing its handler does."
            ) from None
        except (asyncio.IncompleteReadError, OSError):
            raise await self.death() from None
        except (KeyError, TypeError, ValueError) as error:
            raise SandboxDiedError(f"The sandbox process sent no message of ours ({error!r}), and was ended.") from None

    def _request(self, handler: Sandboxed, lease: Lease, job: AsyncActiveJob) -> Frame:
        return {
            "kind": "run",
            "run": self.jobs,
            "address": asdict(handler.address),
            "id": lease.job_id,
            "fields": dict(lease.record.fields),
            "entry_id": lease.entry_id,
            "queue": job.queue,
            "prefix": job.ref.keys.prefix,
        }

    def _heed(self, frame: Frame, lease: Lease, job: AsyncActiveJob) -> None:
        """Serve the requests of a running handler."""
        if frame["run"] != self.jobs:
            return  # from a thread that an earlier handler left running
        if frame["kind"] == "discard":
            job.discard()
            return
        task = asyncio.create_task(self._answer(frame, lease, job))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _heed_to_the_end(self) -> None:
        """Serve a handler that was asked to end: it may still log its cleanup."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, SandboxDiedError, LookupError, TypeError):
            while self._current is not None:
                self._heed(await receive(self._reader), *self._current)

    def _over(self) -> None:
        """Stop answering requests."""
        self._current = None
        for call in self._calls:
            call.cancel()

    async def _answer(self, call: Frame, lease: Lease, job: AsyncActiveJob) -> None:
        """Call the method of the job that the handler requested."""
        reply: Frame = {"kind": "reply", "number": call.get("number")}
        before = job.record
        try:
            reply["result"] = await answer(job, call["method"], call["args"], call["kwargs"])
            if job.record is not before:
                reply["fields"] = dict(job.record.fields)
            packed = pack(reply)
        except (Exception, JobInterrupt) as error:
            packed = pack({**reply, "error": endings.dump(error, lease)})
        self._writer.write(packed)

    async def end(self, grace_s: float) -> None:
        """End it and everything it has started: ask, wait, kill. Returns once it is gone."""
        heeding = asyncio.create_task(self._heed_to_the_end()) if grace_s else None
        await super().end(grace_s)
        if heeding is not None:
            heeding.cancel()
        self._over()
