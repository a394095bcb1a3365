"""Of several workers two watch for what is due next. If one of them dies, leaves, or is busy, no job is late.

The server's functions are the real ones; the workers' rounds are a model, and so is time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestration_queue.client import NewJob
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.call import Call, Operation, Reply, all_good, text
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.lease import Failure
from orchestration_queue.protocol.operations import additions, exchanges, worker_registry, worker_signals
from orchestration_queue.server import Connection, parse_url

NOW = 1_700_000_000_000
INTERVAL_MS = 5_000
"""Between two rounds of a worker at which nothing is due."""


@pytest.fixture(scope="module")
def connection(server_url: str) -> Iterator[Connection]:
    connection = Connection.open(parse_url(server_url))
    yield connection
    connection.close()


def read_signals(reply: Reply) -> tuple[list[str], list[str]]:
    """Sort the entries by what they say."""
    found: dict[bytes, list[str]] = {b"ready": [], b"due": []}
    for _, entries in reply or ():
        for entry_id, fields in entries:
            found[fields[0]].append(text(entry_id))
    return found[b"ready"], found[b"due"]


@dataclass(eq=False)
class Member:
    """A worker, as far as due times go."""

    name: str
    alarm: int
    """When it makes its next round, epoch ms."""
    is_busy: bool = False
    is_early: bool = False
    """Whether that is sooner than usual."""


class Fleet:
    """Workers of one queue, and its delayed jobs."""

    def __init__(self, connection: Connection, keys: QueueKeys, members: int) -> None:
        self.connection = connection
        self.keys = keys
        self.now = NOW
        self.due: list[int] = []
        self.late: list[int] = []
        self.early_rounds = 0
        connection.execute(worker_registry.create_group(keys))
        connection.execute(worker_signals.create_signal_group(keys))
        # Their usual rounds are spread over the interval.
        for n in range(members):
            connection.execute(worker_signals.join_signal_group(keys, f"w{n}"))
        self.members = [Member(f"w{n}", NOW + 1 + n * INTERVAL_MS // members) for n in range(members)]

    def tick(self, member: Member, heard: list[str]) -> None:
        """Make a round: what is due becomes ready, and the worker sets its alarm."""
        self.connection.run(worker_signals.tick(self.keys, self.now))
        self.late += [self.now - due for due in self.due if due <= self.now]
        self.due = [due for due in self.due if due > self.now]
        until = self.now + INTERVAL_MS
        at = self.connection.run(worker_signals.watch(self.keys, member.name, self.now, until, fires=True))
        self.early_rounds += bool(heard) or (member.is_early and member.alarm <= self.now)
        member.is_early = at >= 0
        member.alarm = max(at, self.now + 1) if at >= 0 else until
        if heard:
            self.connection.pipeline(worker_signals.drop_signals(self.keys, heard))

    def deliver(self) -> None:
        """Give the signal there may be to the worker that has waited longest, which obeys it."""
        while idle := [member for member in self.members if not member.is_busy]:
            member = idle[0]
            read = ("GROUP", GROUP, member.name, "STREAMS", self.keys.wake_one, ">")
            ready, due = self.connection.run(Operation(Call("XREADGROUP", args=read), read_signals))
            if not (ready or due):
                return
            self.wait_last(member)
            if due:
                self.tick(member, due)
            else:
                self.connection.pipeline(worker_signals.drop_signals(self.keys, ready))

    def add(self, delay_ms: int) -> None:
        job = NewJob("task", b"{}", JobOptions(delay=delay_ms / 1000))
        self.connection.run(additions.add(self.keys, job, self.now))
        self.connection.pipeline(additions.waking(self.keys, [job], self.now))
        self.due.append(self.now + delay_ms)
        self.deliver()

    def fail(self, member: Member, backoff_ms: int) -> None:
        """Run a job that fails, and is retried after this time."""
        self.connection.run(additions.add(self.keys, NewJob("task", b"{}"), self.now))
        start = exchanges.exchange(self.keys, member.name, self.now, want=1)
        settle = [
            Failure(lease, "failed", max_attempts=99, backoff_ms=backoff_ms)
            for lease in self.connection.run(start).started
        ]
        if not settle:
            return
        until = self.now + INTERVAL_MS
        watch = worker_signals.watch_retries(self.keys, member.name, self.now, until, settle)
        calls = [exchanges.exchange(self.keys, member.name, self.now, settle=settle).call]
        *_, at = all_good(self.connection.pipeline([*calls, *([watch.call] if watch else [])]))
        self.due.append(self.now + backoff_ms)
        alarms = [self.now + backoff_ms, *([at] if watch and at >= 0 else [])]
        if (alarm := max(min(alarms), self.now + 1)) < member.alarm:
            member.alarm, member.is_early = alarm, True
        self.wait_last(member)
        self.deliver()

    def wait_last(self, member: Member) -> None:
        """Have the others wait longer than this worker, which has just done something."""
        self.members.remove(member)
        self.members.append(member)

    def pass_time(self, duration_ms: int) -> None:
        end = self.now + duration_ms
        while self.members and (member := min(self.members, key=lambda one: one.alarm)).alarm <= end:
            self.now = max(self.now, member.alarm)
            self.tick(member, [])
            self.deliver()
        self.now = end

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        self.connection.run(worker_signals.watch(self.keys, member.name, self.now, 0, fires=True))
        self.connection.execute(worker_signals.leave_signal_group(self.keys, member.name))
        self.deliver()

    def act(self, action: str, number: int) -> None:
        member = self.members[number % len(self.members)]
        match action:
            case "add":
                self.add(number)
            case "fail":
                self.fail(self.members[number // 3 % len(self.members)], number)
            case "pass":
                self.pass_time(number)
            case "busy" if any(other is not member and not other.is_busy for other in self.members):
                member.is_busy = True
            case "idle":
                member.is_busy = False
                self.deliver()
            case "kill" if len(self.members) > 1:
                self.members.remove(member)
            case "leave" if len(self.members) > 1:
                self.leave(member)


def act_all(connection: Connection, members: int, actions: list[tuple[str, int]]) -> Fleet:
    """Return a fleet after these actions, and after all jobs were due."""
    connection.execute(Call("FLUSHALL"))
    fleet = Fleet(connection, QueueKeys("q"), members)
    for action, number in actions:
        fleet.act(action, number)
    fleet.pass_time(20_000)
    connection.execute(Call("FLUSHALL"))
    assert not fleet.due
    return fleet


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from([1, 50, 400, 4_000, 4_999, 5_001, 12_000])),
    st.tuples(st.just("fail"), st.sampled_from([1, 50, 401, 2_999, 4_999, 5_001])),
    st.tuples(st.just("pass"), st.sampled_from([0, 10, 200, 399, 1_000, 4_990, 6_000])),
)
WHO = st.integers(0, 3)
LEAVES = st.tuples(st.just("leave"), WHO)
TURNS = st.tuples(st.sampled_from(["busy", "idle"]), WHO)
KILLS = st.tuples(st.just("kill"), WHO)


@given(
    members=st.integers(2, 4),
    actions=st.lists(STEPS | LEAVES, max_size=15),
    kill=st.tuples(st.integers(0, 15), KILLS),
)
# The one that died watched for a time that has just passed.
@example(members=2, actions=[("add", 1), ("pass", 10), ("add", 1)], kill=(1, ("kill", 0)))
def test_no_job_is_late_when_one_worker_dies(
    connection: Connection, members: int, actions: list[tuple[str, int]], kill: tuple[int, tuple[str, int]]
) -> None:
    when, act = kill
    actions.insert(when, act)
    assert set(act_all(connection, members, actions).late) <= {0}


@given(members=st.integers(1, 4), actions=st.lists(STEPS | LEAVES | TURNS | KILLS, max_size=25))
def test_no_job_is_later_than_one_interval_however_many_die(
    connection: Connection, members: int, actions: list[tuple[str, int]]
) -> None:
    assert max(act_all(connection, members, actions).late, default=0) <= INTERVAL_MS


@given(members=st.sampled_from([1, 3, 20]), actions=st.lists(STEPS | TURNS, max_size=15))
def test_a_job_costs_no_more_rounds_the_more_workers_there_are(
    connection: Connection, members: int, actions: list[tuple[str, int]]
) -> None:
    fleet = act_all(connection, members, actions)
    assert set(fleet.late) <= {0}
    assert fleet.early_rounds <= 4 * len(fleet.late)
