"""The server's clock as a worker carries it on."""

from __future__ import annotations

import pytest

from orchestration_queue.server import clock as module
from orchestration_queue.server.clock import ServerClock

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Machine:
    """A machine's two clocks: the one that shows the time, and may be set, and the one that only runs on."""

    def __init__(self) -> None:
        self.shown_s = START_MS / 1000
        self.since_boot_s = 5000.0

    def pass_by(self, seconds: float) -> None:
        self.shown_s += seconds
        self.since_boot_s += seconds

    def time(self) -> float:
        return self.shown_s

    def monotonic(self) -> float:
        return self.since_boot_s


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(module, "time", machine)
    return machine


def test_until_the_first_look_it_is_the_machines_clock(machine: Machine) -> None:
    clock = ServerClock()
    machine.pass_by(7)
    assert clock.now_ms() == pytest.approx(START_MS + 7000, abs=1)


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS])
def test_it_follows_a_server_whose_clock_is_another(machine: Machine, off_ms: int) -> None:
    clock = ServerClock()
    clock.set(START_MS + off_ms, machine.monotonic(), machine.monotonic())
    machine.pass_by(7)
    assert clock.now_ms() == pytest.approx(START_MS + off_ms + 7000, abs=1)


def test_it_does_not_follow_a_machine_whose_clock_jumps(machine: Machine) -> None:
    clock = ServerClock()
    machine.shown_s = 0.0
    machine.since_boot_s += 7
    assert clock.now_ms() == pytest.approx(START_MS + 7000, abs=1)


def test_an_answer_that_took_long_moves_it_only_as_far_as_it_must(machine: Machine) -> None:
    clock = ServerClock()
    now = machine.monotonic()
    clock.set(START_MS - 400, asked=now - 1, answered=now)
    assert clock.now_ms() == pytest.approx(START_MS, abs=1)
    clock.set(START_MS - 5000, asked=now - 1, answered=now)
    assert clock.now_ms() == pytest.approx(START_MS - 4000, abs=1)
