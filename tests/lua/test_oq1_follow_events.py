"""`oq1_followEvents`: what a registered reader has not read stays, within bounds, and only while it is registered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestration_queue.protocol.functions import oq1
from tests.lua.oq1 import Own, new_job
from tests.lua.wire import Wire, event
from tests.waiting import wait_until_sync

KEPT = 1000
SLACK = 300
"""A node of the stream, and what is added between two trims: one of 97 events of each library."""
LEASE = 3_600_000


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def follow(own: Own, reader: str = "r", after: str = "$", lease_ms: int = LEASE) -> str:
    return str(own.send(oq1.follow_events(own.keys, reader=reader, after=after, lease_ms=lease_ms)))


def ours(own: Own, count: int) -> None:
    """This number of events from our own functions."""
    for first in range(0, count, 100):
        own.add(*(new_job() for _ in range(min(100, count - first))))


def node(own: Own, count: int) -> None:
    """This number of events from the frozen functions alone, through which a fleet of Node adds and settles."""
    line = own.wire.client.pipeline(transaction=False)
    first = int(own.wire.ask("XLEN", own.keys.events))
    for number in range(count // 2):
        job_id = f"n{first}-{number}"
        for function, values in (("addJob", {"customJobId": job_id}), ("complete", {"jobId": job_id, "entryId": ""})):
            keys, args = own.wire.words(function, **values)
            line.execute_command("FCALL", f"glidemq_{function}", len(keys), *keys, *args)  # type: ignore[no-untyped-call]
    assert not [reply for reply in line.execute(raise_on_error=False) if isinstance(reply, Exception)]


def length(own: Own) -> int:
    return int(own.wire.ask("XLEN", own.keys.events))


WAYS = pytest.mark.parametrize("happen", [ours, node])


@WAYS
def test_without_readers_about_a_thousand_events_stay(own: Own, happen: Callable[[Own, int], None]) -> None:
    happen(own, 3000)
    assert KEPT <= length(own) <= KEPT + SLACK


@WAYS
def test_a_reader_finds_all_that_happened_since_it_registered(own: Own, happen: Callable[[Own, int], None]) -> None:
    happen(own, 300)
    at = follow(own)
    happen(own, 4000)
    assert len(own.wire.ask("XRANGE", own.keys.events, f"({at}", "+")) == 4000


def test_what_all_readers_have_read_goes_but_the_last_thousand(own: Own) -> None:
    follow(own, "slow")
    ours(own, 3000)
    half = own.wire.ask("XRANGE", own.keys.events, "-", "+", "COUNT", 1500)[-1][0]
    follow(own, "fast")
    ours(own, 200)
    assert length(own) == 3200
    follow(own, "slow", half)
    ours(own, 200)
    assert 1900 <= length(own) <= 1900 + SLACK
    follow(own, "slow")
    ours(own, 200)
    assert KEPT <= length(own) <= KEPT + SLACK


def test_a_reader_that_is_gone_for_good_keeps_nothing(own: Own) -> None:
    follow(own, "gone", lease_ms=1)
    follow(own, "stays")
    ours(own, 3000)
    follow(own, "stays")
    ours(own, 200)
    assert length(own) <= KEPT + SLACK
    assert set(own.wire.hash("events:readers")) == {"stays", ""}


def test_the_registration_expires_with_the_last_lease(own: Own) -> None:
    follow(own, "long", lease_ms=60_000)
    follow(own, "short", lease_ms=1000)
    assert 59_000 < own.wire.client.pttl(own.keys.events_readers) <= 60_000
    follow(own, "long", lease_ms=1)
    ours(own, 3000)
    wait_until_sync(lambda: not own.wire.exists("events:readers"), "the end of the leases")
    ours(own, 200)
    assert length(own) <= KEPT + SLACK


def test_a_position_before_all_events_keeps_all_of_them(own: Own) -> None:
    assert follow(own) == "0-0"
    assert follow(own, after="0") == "0"
    ours(own, 3000)
    assert length(own) == 3000


def test_memory_is_bounded_by_a_million_events(own: Own) -> None:
    follow(own, after="0-0")
    add = "for i = 1, 50000 do redis.call('XADD', KEYS[1], '*', 'event', 'progress', 'jobId', i) end"
    for _ in range(21):
        own.wire.ask("EVAL", add, 1, own.keys.events)
    ours(own, 200)
    assert 1_000_000 <= length(own) <= 1_000_000 + SLACK


def test_memory_is_bounded_by_size(own: Own) -> None:
    follow(own, after="0-0")
    add = "local s = ('x'):rep(2^18) for i = 1, 100 do redis.call('XADD', KEYS[1], '*', 'event', 'x', 'jobId', s) end"
    for _ in range(15):
        own.wire.ask("EVAL", add, 1, own.keys.events)
    ours(own, 200)
    assert KEPT <= length(own) <= KEPT + 2 * SLACK
    assert int(own.wire.ask("MEMORY", "USAGE", own.keys.events, "SAMPLES", 0)) <= 300 * 2**20


def test_a_registration_of_another_type_stops_no_job(own: Own) -> None:
    own.wire.ask("SET", own.keys.events_readers, "mine")
    ours(own, 3000)
    assert length(own) <= KEPT + SLACK


def test_a_user_who_may_not_trim_ends_jobs_all_the_same(own: Own) -> None:
    rules = ("on", "nopass", "allkeys", "+@all", "-xtrim", "-hget", "-memory")
    own.wire.ask("ACL", "SETUSER", "narrow", *rules)
    try:
        own.wire.ask("AUTH", "narrow", "")
        ours(own, 300)
        node(own, 300)
    finally:
        own.wire.ask("AUTH", "default", "")
        own.wire.ask("ACL", "DELUSER", "narrow")
    assert length(own) == 600


def test_a_full_server_still_registers_readers(own: Own) -> None:
    ours(own, 10)
    own.wire.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        assert follow(own) == own.wire.ask("XREVRANGE", own.keys.events, "+", "-", "COUNT", 1)[0][0]
    finally:
        own.wire.ask("CONFIG", "SET", "maxmemory", 0)
    assert own.wire.exists("events:readers")


def test_progress_is_on_the_job_and_among_the_events(own: Own) -> None:
    own.wire.make_job("1", name="ask")
    assert own.send(oq1.report_progress(own.keys, job_id="1", progress="50")) == 1
    assert own.wire.hash("job:1")["progress"] == "50"
    assert own.wire.events() == [event("progress", "1", data="50")]


@pytest.mark.parametrize(
    ("reader", "after", "lease_ms", "why"),
    [
        ("", "$", 1, "'reader' is empty"),
        ("r", "soon", 1, "'after' is no event's id"),
        ("r", "", 1, "'after' is no event's id"),
        ("r", "$", 0, "'lease_ms' is not from 1 to a week"),
        ("r", "$", 8 * 86_400_000, "'lease_ms' is not from 1 to a week"),
    ],
)
def test_malformed_registrations_are_refused(own: Own, reader: str, after: str, lease_ms: int, why: str) -> None:
    own.refused("followEvents", [own.keys.events], [reader, after, lease_ms], why)


@pytest.mark.parametrize(("happen", "base"), [(ours, 2), (node, 1.5)])  # with entries of the jobs' stream
def test_events_cost_no_command_more_than_their_entry(
    own: Own, happen: Callable[[Own, int], None], base: float
) -> None:
    """Trimming is shared by about a hundred events, with readers and without."""

    names = ("xadd", "hget", "xlen", "xtrim", "memory|usage")

    def commands() -> int:
        stats = own.wire.client.info("commandstats")
        return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in names)

    ours(own, 2000)
    before = commands()
    happen(own, 2000)
    without = commands()
    follow(own)
    registered = commands()
    happen(own, 2000)
    of_each = commands() - registered, without - before
    assert max(of_each) <= (base + 0.06) * 2000, of_each
    assert min(of_each) >= base * 2000
