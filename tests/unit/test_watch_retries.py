"""Which outcomes have a worker watch for the jobs that they postpone."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Completion, Failure, Lease, Postponement, Settlement, Suspension
from orchestration_queue.protocol.operations import worker_signals
from orchestration_queue.protocol.record import JobRecord

NOW, UNTIL = 1_000, 6_000
LEASE = Lease(JobRecord("7", {"attemptsMade": "2"}), "1-0")


def watches(*settle: Settlement) -> bool:
    watch = worker_signals.watch_retries(QueueKeys("q"), "w", NOW, UNTIL, settle)
    if watch is None:
        return False
    assert watch.call == worker_signals.watch(QueueKeys("q"), "w", NOW, UNTIL, fires=False).call
    return True


@pytest.mark.parametrize(
    ("settlement", "is_watched"),
    [
        (Completion(LEASE, "1"), False),
        (Suspension(LEASE, timeout_ms=10), False),
        (Failure(LEASE, "failed"), False),
        (Failure(LEASE, "failed", max_attempts=3), False),
        (Failure(LEASE, "failed", max_attempts=4), True),
        (Failure(LEASE, "failed", max_attempts=4, backoff_ms=5_000), True),
        (Failure(LEASE, "failed", max_attempts=4, backoff_ms=5_001), False),
        (Postponement(LEASE, 6_000), True),
        (Postponement(LEASE, 6_001), False),
    ],
)
def test_only_what_is_due_before_the_usual_tick_is_watched(settlement: Settlement, *, is_watched: bool) -> None:
    assert watches(settlement) is is_watched
    assert watches(Completion(LEASE, "1"), settlement) is is_watched


def test_an_exchange_that_settles_nothing_watches_nothing() -> None:
    assert not watches()
