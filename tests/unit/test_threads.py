"""Plain functions run in as few threads as they need, and each result arrives, whatever the other functions do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from orchestration_queue.worker.threads import Threads
from tests.waiting import wait_until

MOST_S = 60


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Ends functions that wait for it, at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(4)
    yield threads
    threads.shutdown()


async def test_every_function_returns_its_own_result(threads: Threads) -> None:
    calls = [threads.call(lambda number=number: number) for number in range(1000)]  # type: ignore[misc]
    assert await asyncio.wait_for(asyncio.gather(*(call.ended for call in calls)), MOST_S) == list(range(1000))


async def test_as_many_functions_run_at_a_time_as_there_are_threads(threads: Threads) -> None:
    barrier = threading.Barrier(4)
    calls = [threads.call(lambda: barrier.wait(MOST_S)) for _ in range(8)]
    assert sorted([await asyncio.wait_for(call.ended, MOST_S) for call in calls]) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_result_does_not_wait_for_the_next_function_of_its_thread(release: threading.Event) -> None:
    threads = Threads(1)
    calls = threads.call(lambda: "short"), threads.call(lambda: release.wait(MOST_S))
    assert await asyncio.wait_for(calls[0].ended, MOST_S) == "short"
    assert not calls[1].ended.done()
    release.set()
    assert await asyncio.wait_for(calls[1].ended, MOST_S)
    threads.shutdown()


async def test_short_functions_neither_wake_all_threads_nor_the_loop_for_each_result(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken, wake = 0, asyncio.get_running_loop().call_soon_threadsafe

    def count(*arguments: object) -> object:
        nonlocal woken
        woken += 1
        return wake(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", count)
    calls = [threads.call(lambda: None) for _ in range(1000)]
    await asyncio.wait_for(asyncio.gather(*(call.ended for call in calls)), MOST_S)
    assert woken < 500


async def test_errors_arrive_and_none_of_them_ends_a_thread(threads: Threads) -> None:
    def fail(error: BaseException) -> None:
        raise error

    for error in (ValueError("no good"), SystemExit(3), asyncio.CancelledError("by itself")):
        with pytest.raises(type(error), match=str(error)):
            await asyncio.wait_for(threads.call(lambda error=error: fail(error)).ended, MOST_S)  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="the handler raised StopIteration"):
        await asyncio.wait_for(threads.call(lambda: fail(StopIteration())).ended, MOST_S)
    assert await asyncio.wait_for(threads.call(lambda: "fine").ended, MOST_S) == "fine"


@pytest.mark.parametrize("is_over", [True, False], ids=["it has returned", "it still runs"])
async def test_a_cancelled_waiter_can_wait_for_the_end_of_the_function(
    threads: Threads, release: threading.Event, is_over: bool
) -> None:
    call = threads.call(lambda: release.wait(MOST_S))
    call.ended.cancel()
    if is_over:
        release.set()
        await wait_until(lambda: call._is_over, "the function to end")
    waiter = call.outlive_waiter()
    assert waiter.done() == is_over
    release.set()
    await asyncio.wait_for(waiter, MOST_S)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
async def test_the_number_of_threads_can_change_while_functions_run(
    release: threading.Event, before: int, after: int
) -> None:
    threads = Threads(before)
    held = [threads.call(lambda: release.wait(MOST_S)) for _ in range(before)]
    waiting = [threads.call(threading.current_thread) for _ in range(20)]
    threads.resize(after)
    assert len({await asyncio.wait_for(call.ended, MOST_S) for call in waiting}) <= after
    assert not any(call.ended.done() for call in held)
    release.set()
    assert all([await asyncio.wait_for(call.ended, MOST_S) for call in held])
    threads.shutdown()


async def test_functions_that_have_not_begun_at_the_end_never_do(release: threading.Event) -> None:
    threads, begun = Threads(1), threading.Event()
    held = threads.call(lambda: release.wait(MOST_S))
    never = threads.call(begun.set)
    threads.shutdown()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(never.ended, MOST_S)
    assert never.outlive_waiter().done()
    release.set()
    await asyncio.wait_for(held.ended, MOST_S)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        threads.call(begun.set)
    assert not begun.is_set()
