"""The process in which sandboxed handlers run, one job at a time. Only a worker starts it.

The main thread runs the handlers, so that signals reach them. A second thread reads what the worker sends, and ends the
process and everything it has started once the worker is gone. A third one has the event loop on which plain handlers'
calls run.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import FrameType
from typing import Any

from orchestration_queue._process import die_with_parent, memory_bytes, report_crashes
from orchestration_queue.errors import PayloadError, UnrecoverableError, UsageError
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker.sandbox.frames import Frame, dump_error, load_error_in_handler, pack, take
from orchestration_queue.worker.sandbox.handler import Address, find
from orchestration_queue.worker.sandbox.remote import PlainRemoteJob, RemoteJob

__all__ = ["main"]

_READ_BYTES = 65_536
_LEAVE_S = 5.0
"""How long the process may take to exit by itself once its worker is gone."""


def main(descriptor: int, parent: int, log_level: int) -> None:
    """Run jobs until the worker ends this process."""
    die_with_parent(parent)
    # Programs that a handler starts must not keep the connection open after this process.
    os.set_inheritable(descriptor, False)
    report_crashes()
    # Python buffers a pipe in blocks, of which a killed process would lose the last one.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a pipe's text wrapper has it
    logging.basicConfig(level=log_level, format="%(levelname)s %(name)s: %(message)s")
    worker = _WorkerConnection(socket.socket(fileno=descriptor))
    signal.signal(signal.SIGTERM, worker.terminate)
    with suppress(_TerminatedError):
        while (request := worker.requests.get()) is not None:
            _work(worker, request)


class _TerminatedError(SystemExit):
    """The worker ends this process: clean up and exit. A :class:`SystemExit`, which every event loop lets pass."""


class _WorkerConnection:
    """The connection to the worker. Any thread may send; one reads.

    Attributes:
        requests: Jobs to run; None once the worker is gone.
        loop: An event loop in a thread of its own.
        job: The running job, or None.
    """

    def __init__(self, ours: socket.socket) -> None:
        self.requests: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self.loop = asyncio.new_event_loop()
        self.job: RemoteJob | None = None
        self._socket = ours
        self._sending = threading.Lock()
        self._asked: dict[int, Future[Frame]] = {}
        self._numbers = itertools.count()
        for name, work in (("oq-sandbox-loop", self.loop.run_forever), ("oq-sandbox-worker", self._read)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def send(self, frame: Frame) -> None:
        """Send a message. Thread-safe."""
        self._send(pack(frame))

    def _send(self, packed: bytes) -> None:
        # The worker always reads, whatever its handlers do, so this does not wait for long.
        with self._sending, suppress(OSError):  # the thread that reads finds out that the worker is gone
            self._socket.sendall(packed)

    async def ask(self, job: RemoteJob, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Have the worker call a method of the job. Works from any event loop."""
        if job is not self.job:
            raise UsageError(f"This run of job {job.id!r} is over; its sandbox process may run another job now.")
        number = next(self._numbers)
        call = {"kind": "call", "run": job.run, "number": number, "method": name, "args": args, "kwargs": kwargs}
        try:
            question = pack(call)
        except (TypeError, ValueError, RecursionError) as error:
            raise PayloadError(
                f"The arguments of job.{name}() can't be written as JSON ({error}); pass plain values."
            ) from None
        reply = await self._exchange(number, question)
        if "error" in reply:
            raise load_error_in_handler(reply["error"], Lease(job.record, ""))
        if "fields" in reply:
            job.follow(JobRecord(job.id, reply["fields"]))
        return reply["result"]

    def discard(self, job: RemoteJob) -> None:
        """Have the worker use no further attempts of the job."""
        self.send({"kind": "discard", "run": job.run})

    async def _exchange(self, number: int, question: bytes) -> Frame:
        reply: Future[Frame] = Future()
        self._asked[number] = reply
        try:
            self._send(question)
            return await asyncio.wrap_future(reply)
        finally:
            self._asked.pop(number, None)

    def _read(self) -> None:
        received = bytearray()
        with suppress(OSError):
            while data := self._socket.recv(_READ_BYTES):
                received += data
                while (frame := take(received)) is not None:
                    self._receive(frame)
        self._end_orphan()

    def _receive(self, frame: Frame) -> None:
        if frame["kind"] == "run":
            self.requests.put(frame)
        elif (asked := self._asked.get(frame["number"])) and asked.set_running_or_notify_cancel():
            asked.set_result(frame)

    def terminate(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt the handler, once: the worker asks this process to end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.job is not None:
            self.job.request_stop()
        raise _TerminatedError

    def _end_orphan(self) -> None:
        """End with everything that was started here: the worker is gone."""
        if self.job is None:
            self.requests.put(None)
            time.sleep(_LEAVE_S)
        os.killpg(0, signal.SIGKILL)


_found: dict[Address, Callable[[Any], Any]] = {}


def _work(worker: _WorkerConnection, request: Frame) -> None:
    """Run one job and report how it ended."""
    lease = Lease(JobRecord(request["id"], request["fields"]), request["entry_id"])
    keys = QueueKeys(request["queue"], request["prefix"])
    job = worker.job = RemoteJob(lease.record, keys, worker, request["run"])
    try:
        handler = _find(worker, Address(*request["address"]))
        ending: Frame = {"result": _encode_result(_run(handler, job, worker.loop))}
    except _TerminatedError:
        raise
    except BaseException as error:
        ending = {"error": dump_error(error, lease)}
    worker.job = None
    # Before the report: later output belongs to no job, or to the next one.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    worker.send({"kind": "ended", "memory_bytes": memory_bytes() if request["measures"] else 0, **ending})


def _find(worker: _WorkerConnection, address: Address) -> Callable[[Any], Any]:
    """Return the handler at an address. The first time, report that it is imported: a timeout starts then."""
    if (found := _found.get(address)) is None:
        found = _found[address] = find(address)
        worker.send({"kind": "started"})
    return found


def _run(handler: Callable[[Any], Any], job: RemoteJob, loop: asyncio.AbstractEventLoop) -> Any:
    if inspect.iscoroutinefunction(handler):
        return asyncio.run(handler(job))
    return handler(PlainRemoteJob(job, loop))


def _encode_result(result: Any) -> str:
    try:
        return codec.encode(result, "Return value")
    except PayloadError as error:
        raise UnrecoverableError(str(error)) from None
