"""The thread that renews leases, on a real server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations.exchanges import Renewal
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker.heartbeat import Heartbeat
from tests.waiting import wait_until_sync

LATE, FRESH = (Lease(JobRecord(job_id, {}), f"{job_id}-1") for job_id in "12")


def test_a_lease_whose_grant_came_late_is_renewed_by_when_it_was_asked_for(server_url: str) -> None:
    renewed: list[Lease] = []

    def renew(_: Connection, leases: Sequence[Lease], at_ms: int) -> list[Renewal]:
        assert at_ms <= now_ms()
        renewed.extend(leases)
        return [Renewal.RENEWED] * len(leases)

    connection = Connection(server_url)
    heartbeat = Heartbeat(renew, now_ms, connection, 0.8, lambda *_: None)
    with connection, closing(heartbeat):
        heartbeat.keep(FRESH, 800, time.monotonic())
        heartbeat.keep(LATE, 800, time.monotonic() - 400)
        assert not heartbeat.is_behind
        wait_until_sync(lambda: renewed, "a renewal")
    assert renewed == [LATE]


def test_it_is_behind_when_a_renewal_is_overdue(server_url: str) -> None:
    connection = Connection(server_url)
    heartbeat = Heartbeat(lambda *_: [], now_ms, connection, 8000, lambda *_: None)
    with connection, closing(heartbeat):
        heartbeat.keep(FRESH, 800, time.monotonic() - 601)
        assert heartbeat.is_behind
        heartbeat.drop(FRESH)
        assert not heartbeat.is_behind


def test_a_check_during_a_renewal_is_not_lost(server_url: str) -> None:
    """The renewal may have reached the server before what the check is about."""
    answers: list[Renewal] = [Renewal.RENEWED, Renewal.LOST]
    ended: list[Lease] = []

    def renew(*_: object) -> list[Renewal]:
        if len(answers) == 2:
            heartbeat.check(FRESH.job_id)
        return [answers.pop(0)]

    connection = Connection(server_url)
    heartbeat = Heartbeat(renew, now_ms, connection, 8000, lambda lease, _: ended.append(lease))
    with connection, closing(heartbeat):
        heartbeat.keep(FRESH, 8000, time.monotonic())
        heartbeat.check(FRESH.job_id)
        wait_until_sync(lambda: ended, "the second renewal")
    assert ended == [FRESH]


def test_a_check_that_fails_is_repeated_soon_however_long_the_lease(server_url: str) -> None:
    answers: list[Renewal] = []
    ended: list[Lease] = []

    def renew(*_: object) -> list[Renewal]:
        answers.append(Renewal.LOST)
        if len(answers) == 1:
            raise TransportError("The server did not reply.", maybe_applied=True)
        return [Renewal.LOST]

    connection = Connection(server_url)
    heartbeat = Heartbeat(renew, now_ms, connection, 3600, lambda lease, _: ended.append(lease))
    with connection, closing(heartbeat):
        heartbeat.keep(FRESH, 3600, time.monotonic())
        heartbeat.check(FRESH.job_id)
        wait_until_sync(lambda: ended, "the second renewal")
    assert (ended, len(answers)) == ([FRESH], 2)
