"""The server's clock as a worker carries it on."""

from __future__ import annotations

import time

import pytest

from orchestration_queue.worker.clock import ServerClock

HOUR_MS = 3_600_000


def machine_ms() -> float:
    return time.time() * 1000


def test_until_the_first_look_it_is_the_machines_clock() -> None:
    assert ServerClock().now_ms() == pytest.approx(machine_ms(), abs=50)


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS])
def test_it_follows_a_server_whose_clock_is_another(off_ms: int) -> None:
    clock = ServerClock()
    asked = time.monotonic()
    clock.set(round(machine_ms()) + off_ms, asked, time.monotonic())
    assert clock.now_ms() == pytest.approx(machine_ms() + off_ms, abs=50)


def test_it_does_not_follow_a_machine_whose_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    before, clock = machine_ms(), ServerClock()
    with monkeypatch.context() as jump:
        jump.setattr(time, "time_ns", lambda: 0)
        jump.setattr(time, "time", lambda: 0.0)
        now = clock.now_ms()
    assert now == pytest.approx(before, abs=50)


def test_an_answer_that_took_long_moves_it_only_as_far_as_it_must() -> None:
    clock = ServerClock()
    now, right = time.monotonic(), clock.now_ms()
    clock.set(right - 400, asked=now - 1, answered=now)
    assert clock.now_ms() == pytest.approx(right, abs=50)
    clock.set(right - 5000, asked=now - 1, answered=now)
    assert clock.now_ms() == pytest.approx(right - 4000, abs=50)
