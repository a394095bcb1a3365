"""Outages: when a worker takes the silence of others for one, and what it waits for."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from orchestration_queue.errors import OrchestrationQueueError, ServerError, TransportError, UsageError
from orchestration_queue.server.clock import Pauses
from orchestration_queue.worker.outages import Outages, is_passing, until_available

LEASE_S = 8.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outages(clock: Clock) -> Outages:
    return Outages(LEASE_S, clock)


def test_a_new_worker_looks_at_once_and_quick_calls_change_nothing(outages: Outages, clock: Clock) -> None:
    assert not outages.is_recent
    with outages.watch():
        clock.now += LEASE_S / 4
        assert not outages.is_recent
    assert not outages.is_recent


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_took_long_gives_everybody_half_a_lease(outages: Outages, clock: Clock, fails: bool) -> None:
    with suppress(OSError), outages.watch():
        clock.now += LEASE_S / 3
        if fails:
            raise OSError
    assert outages.is_recent
    clock.now += LEASE_S / 2 - 0.1
    assert outages.is_recent
    clock.now += 0.1
    assert not outages.is_recent


def test_an_outage_is_known_before_it_is_over(outages: Outages, clock: Clock) -> None:
    with outages.watch():
        clock.now += 1
        with outages.watch():
            clock.now += LEASE_S / 4 - 0.5
            assert outages.is_recent
        assert outages.is_recent


AWAY = TransportError("away", maybe_applied=False)


def test_pauses_double_up_to_the_longest_and_begin_anew() -> None:
    pauses = Pauses(first_s=1, longest_s=5)
    assert [pauses.next_s() for _ in range(5)] == [1, 2, 4, 5, 5]
    pauses.reset()
    assert pauses.next_s() == 1


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (AWAY, True),
        (ServerError("full", code="OOM"), True),
        (ServerError("starting", code="LOADING"), True),
        (ServerError("a replica", code="READONLY"), True),
        (ServerError("no right", code="NOPERM"), False),
        (ServerError("no password", code="NOAUTH"), False),
        (UsageError("no such URL"), False),
    ],
)
def test_only_what_passes_by_itself_is_waited_for(error: OrchestrationQueueError, passes: bool) -> None:
    assert is_passing(error) is passes


async def test_it_tries_until_the_server_answers_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "orchestration_queue")
    errors: list[OrchestrationQueueError] = [AWAY, ServerError("full", code="OOM")]

    async def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    assert await until_available(attempt, asyncio.Event(), "The worker") == "answer"
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "The worker reached its server after" in caplog.text


async def test_it_gives_up_when_it_is_to_stop_and_at_other_errors() -> None:
    stopping = asyncio.Event()

    async def attempt() -> str:
        stopping.set()
        raise AWAY

    async def refuse() -> None:
        raise UsageError("no such URL")

    assert await until_available(attempt, stopping, "The worker") is None
    with pytest.raises(UsageError):
        await until_available(refuse, asyncio.Event(), "The worker")
