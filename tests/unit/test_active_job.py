"""The running job offers the same on both of its faces, and both speak of the same job."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, cast

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker import ActiveJob, AsyncActiveJob


def public(face: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(face) if not name.startswith("_")}


def test_both_faces_offer_the_same() -> None:
    plain, awaited = public(ActiveJob), public(AsyncActiveJob)
    assert plain.keys() == awaited.keys()
    functions = {name for name, value in awaited.items() if inspect.isfunction(value)}
    assert {name: inspect.signature(plain[name]).parameters for name in functions} == {
        name: inspect.signature(awaited[name]).parameters for name in functions
    }
    assert not [name for name in functions if inspect.iscoroutinefunction(plain[name])]
    assert all(plain[name].__doc__ for name in functions)


async def test_both_faces_speak_of_the_same_job() -> None:
    job = AsyncActiveJob(JobRecord("1", {"name": "work"}), QueueKeys("q"), cast(Any, None))
    plain = ActiveJob(job, asyncio.get_running_loop())
    assert (plain.id, plain.name, plain.queue, plain.ref) == (job.id, job.name, job.queue, job.ref)
    job.request_stop()
    plain.discard()
    assert plain.should_stop
    assert job.is_discarded


async def test_a_thread_s_call_runs_on_the_loop_in_the_job_s_own_way() -> None:
    class Echo(AsyncActiveJob):
        async def log(self, text: str, *more: str) -> None:
            said.append((text, *more, threading.current_thread()))

    said: list[tuple[Any, ...]] = []
    job = Echo(JobRecord("1", {}), QueueKeys("q"), cast(Any, None))
    plain = ActiveJob(job, asyncio.get_running_loop())
    await asyncio.to_thread(plain.log, "one", "two")
    assert said == [("one", "two", threading.current_thread())]
