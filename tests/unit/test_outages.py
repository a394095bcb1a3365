"""When a worker takes the silence of others for an outage."""

from __future__ import annotations

from contextlib import suppress

import pytest

from orchestration_queue.worker.outages import Outages

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
