"""The process in which sandboxed handlers of other wires' jobs run, one at a time. Only a worker starts it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from orchestration_queue._process import die_with_parent, memory_bytes, report_crashes
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.wires.handling import JobForm
from orchestration_queue.worker.sandbox.frames import Frame, dump_error, pack, take
from orchestration_queue.worker.sandbox.handler import Address, find

__all__ = ["main"]

_READ_BYTES = 65_536


def main(home: str, descriptor: int, parent: int, log_level: int) -> None:
    """Run jobs until the worker ends this process."""
    die_with_parent(parent)
    os.set_inheritable(descriptor, False)
    report_crashes()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a pipe's text wrapper has it
    logging.basicConfig(level=log_level, format="%(levelname)s %(name)s: %(message)s")
    # Asked to end, a handler cleans up.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    sys.path[:] = [str(Path(path).resolve()) for path in sys.path]  # '' is where the worker started, also in a job
    form: JobForm[Any] = import_module(home).FORM
    directory = Path.cwd()
    with socket.socket(fileno=descriptor) as line:
        received = bytearray()
        while data := line.recv(_READ_BYTES):
            received += data
            while (request := take(received)) is not None:
                line.sendall(pack(_work(form, request, directory)))


def _work(form: JobForm[Any], request: Frame, home: Path) -> Frame:
    """Run one job. Return how it ended."""
    job = form.load(request["job"])
    lease = Lease(JobRecord(form.id_of(job), {}), "")
    try:
        handler = find(Address(*request["address"]))
        os.chdir(request["directory"])
        ending: Frame = {"result": codec.encode(form.dump_result(_run(handler, job)), "Return value")}
    except SystemExit as error:
        if error.code == 128 + signal.SIGTERM:
            raise
        ending = {"error": dump_error(error, lease)}
    except BaseException as error:
        ending = {"error": dump_error(error, lease)}
    finally:
        os.chdir(home)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return {"memory_bytes": memory_bytes(), **ending}


def _run(handler: Any, job: Any) -> Any:
    returned = handler(job)
    return asyncio.run(_await(returned)) if inspect.isawaitable(returned) else returned


async def _await(returned: Any) -> Any:
    return await returned
