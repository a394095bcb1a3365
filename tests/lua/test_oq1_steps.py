"""`oq1_storeStep`, `oq1_forgetSteps` and `oq1_moveSteps`: what their clients cannot show."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import worker_signals
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire


@pytest.fixture
def own(wire: Wire) -> Own:
    """A queue with job 7, which runs."""
    own = Own(wire)
    wire.ask("HSET", wire.key("job:7"), "state", "active", "processedOn", NOW, "name", "n")
    return own


def store(own: Own, name: str, kind: str = "r", **values: Any) -> Any:
    step: dict[str, Any] = {"attempt": 1, "ended_ms": NOW + 5, "duration_ms": 5, "until_ms": 0, "result": "1", **values}
    claim = {"job_id": "7", "taken_ms": step.pop("taken_ms", NOW), "stalled_count": step.pop("stalled_count", 0)}
    return own.send(oq1.store_step(QueueKeys(own.wire.queue), name=name, kind=kind, **claim, **step))


def forget(own: Own, *names: str) -> Any:
    return own.send(oq1.forget_steps(QueueKeys(own.wire.queue), job_id="7", names=names))


def test_the_first_outcome_counts(own: Own) -> None:
    header = f"r 1 1 {NOW + 5} 5 0 1"
    assert store(own, "a") == [header]
    assert store(own, "a", result="2", attempt=2) == [header, "1"]
    assert store(own, "a", "s", until_ms=NOW) == [header, "1"]
    assert own.wire.ask("HGETALL", own.wire.key("steps:7")) == {"h:a": header, "r:a": "1"}
    assert own.wire.job("7")["steps"] == "1"


def test_an_event_says_that_an_outcome_was_stored_and_not_that_it_was_known(own: Own) -> None:
    for _ in range(2):
        store(own, "a", event_kind="returned")
        store(own, "b", taken_ms=NOW + 1, event_kind="returned")
        store(own, "c")
    kept = own.wire.ask("XRANGE", own.wire.key("events"), "-", "+")
    assert [fields for _, fields in kept] == [
        {"event": "step", "jobId": "7", "step": "a", "kind": "returned", "attempt": "1", "duration": "5"}
    ]


@pytest.mark.parametrize("kind", ["r", "t"])
def test_only_a_wait_is_replaced_and_keeps_its_number(own: Own, kind: str) -> None:
    store(own, "wait", "w", result="")
    store(own, "b")
    assert store(own, "wait", "w", result="", ended_ms=NOW + 9) == [f"w 1 1 {NOW + 9} 5 0 0"]
    assert store(own, "wait", kind) == [f"{kind} 1 1 {NOW + 5} 5 0 1"]
    assert store(own, "wait", "w", result="") == [f"{kind} 1 1 {NOW + 5} 5 0 1", "1"]


@pytest.mark.parametrize(
    "claim", [{"taken_ms": NOW - 1}, {"taken_ms": NOW + 1}, {"stalled_count": 1}], ids=["earlier", "later", "stalled"]
)
def test_only_the_holder_of_the_lease_stores(own: Own, claim: dict[str, Any]) -> None:
    assert store(own, "a", **claim) == "lost"
    assert not own.wire.exists("steps:7")
    assert "steps" not in own.wire.job("7")


@pytest.mark.parametrize("state", ["waiting", "completed", "failed", "delayed", "suspended"])
def test_only_a_running_job_stores(own: Own, state: str) -> None:
    own.wire.ask("HSET", own.wire.key("job:7"), "state", state)
    assert store(own, "a") == "lost"
    own.wire.ask("DEL", own.wire.key("job:7"))
    assert store(own, "a") == "lost"
    assert not own.wire.exists("steps:7")
    assert not own.wire.exists("job:7")


def test_another_kind_is_refused(own: Own) -> None:
    with pytest.raises(redis.ResponseError, match="OQ_BAD_ARGUMENT oq1_storeStep: 'z' is no kind of outcome"):
        store(own, "a", "z")


def test_a_key_of_another_type_is_set_aside(own: Own) -> None:
    store(own, "a")
    own.wire.ask("DEL", own.wire.key("steps:7"))
    own.wire.ask("SET", own.wire.key("steps:7"), "x")
    assert store(own, "b") == [f"r 2 1 {NOW + 5} 5 0 1"]
    assert own.wire.ask("GET", own.wire.key("damaged:steps:7")) == "x"


def test_a_count_that_is_no_number_starts_again(own: Own) -> None:
    own.wire.ask("HSET", own.wire.key("job:7"), "steps", "x")
    assert store(own, "a") == [f"r 1 1 {NOW + 5} 5 0 1"]


def test_forgetting_leaves_the_numbers_of_the_others(own: Own) -> None:
    for name in "abcd":
        store(own, name)
    assert forget(own, "b") == -2  # it runs
    own.wire.ask("HSET", own.wire.key("job:7"), "state", "failed")
    assert forget(own, "b") == 1
    assert forget(own, "b") == 0
    assert forget(own, "c", "d", "x") == 2
    assert own.wire.ask("HKEYS", own.wire.key("steps:7")) == ["h:a", "r:a"]
    own.wire.ask("HSET", own.wire.key("job:7"), "state", "active")
    assert store(own, "b") == [f"r 5 1 {NOW + 5} 5 0 1"]


@pytest.mark.parametrize("count", [0, 501])
def test_a_call_forgets_1_to_500_steps(own: Own, count: int) -> None:
    with pytest.raises(redis.ResponseError, match="OQ_BAD_ARGUMENT oq1_forgetSteps"):
        forget(own, *map(str, range(count)))


@pytest.mark.parametrize("field", ["movingTo", "movedBy"])
def test_a_job_on_the_move_forgets_nothing(own: Own, field: str) -> None:
    store(own, "a")
    own.wire.ask("HSET", own.wire.key("job:7"), "state", "waiting-children", field, "x")
    assert forget(own, "a") == -2
    own.wire.ask("DEL", own.wire.key("job:7"))
    assert forget(own, "a") == -1


def test_only_the_move_that_holds_a_job_writes_its_steps(own: Own) -> None:
    keys = QueueKeys(own.wire.queue)
    fields = [oq1.StepField("h:a", "r 1 1 1 1 0 1"), oq1.StepField("r:a", "1")]
    assert own.send(oq1.move_steps(keys, job_id="7", token="t", fields=fields)) == 0
    own.wire.ask("HSET", own.wire.key("job:7"), "movedBy", "t")
    assert own.send(oq1.move_steps(keys, job_id="7", token="other", fields=fields)) == 0
    assert not own.wire.exists("steps:7")
    assert own.send(oq1.move_steps(keys, job_id="7", token="t", fields=fields)) == 1
    assert own.wire.ask("HGET", own.wire.key("steps:7"), "r:a") == "1"


def tick(own: Own, now: int) -> tuple[int, int]:
    """Tick; return how many jobs are ready again, and when the next one is due."""
    moved, due_ms, *_ = own.send(worker_signals.tick(own.keys, now).call)
    return moved, due_ms


def wait(own: Own, timeout_ms: int) -> str:
    """Settle job 7: it waits for a signal; return the verdict."""
    settled = oq1.Settled("n", "7", "", NOW, 0, "why", timeout_ms, 0, False, "0", 0, 0)
    return own.exchange(settled, now=NOW).outcomes


def test_a_wait_ends_with_its_time_and_not_before(own: Own) -> None:
    assert wait(own, 500) == "s"
    assert own.wire.job("7")["state"] == "suspended"
    assert own.wire.job("7")["suspendTimeout"] == "500"
    assert tick(own, NOW + 499) == (0, NOW + 500)
    assert own.wire.job("7")["state"] == "suspended"
    assert tick(own, NOW + 500) == (1, -1)
    assert own.wire.job("7")["state"] == "waiting"
    assert own.wire.zset("suspended") == {}
    assert own.wire.stream_ids() == ["7"]


def test_no_other_library_fails_a_wait(own: Own) -> None:
    wait(own, 500)
    assert own.wire.call("sweepSuspended", now=NOW + 10**12) == 0
    assert own.wire.call("signal", jobId="7", now=NOW) == "ok"
    assert tick(own, NOW + 500) == (0, -1)


def test_a_wait_without_an_end_is_never_over(own: Own) -> None:
    own.wire.ask("HSET", own.wire.key("job:7"), "suspendTimeout", 9)
    wait(own, 0)
    assert "suspendTimeout" not in own.wire.job("7")
    assert tick(own, NOW + 10**12) == (0, -1)


def test_a_job_that_was_removed_while_it_waited_is_not_resumed(own: Own) -> None:
    wait(own, 500)
    own.wire.ask("DEL", own.wire.key("job:7"))
    assert tick(own, NOW + 500) == (0, -1)
    assert own.wire.zset("suspended") == {}


def call(own: Own, *calls: tuple[str, str, int], **values: Any) -> Any:
    """Store that steps call jobs: name, the job's full name, and the number of the call that this one replaces."""
    claim = {"job_id": "7", "taken_ms": NOW, "stalled_count": 0, "attempt": 1, "now_ms": NOW + 5, **values}
    steps = [oq1.StepCall(*one) for one in calls]
    return own.send(oq1.store_calls(QueueKeys(own.wire.queue), calls=steps, check_ms=NOW + 9, **claim))


def test_a_call_is_stored_once_and_makes_the_job_wait(own: Own) -> None:
    first, second = (f"c 1 1 {NOW + 5} 0 0 10", f"c 2 1 {NOW + 5} 0 0 10")
    assert call(own, ("a", "oq:{q}:7-a", 0), ("b", "oq:{r}:7-b", 0)) == [[first], [second]]
    assert own.wire.members("deps:7") == {"oq:{q}:7-a", "oq:{r}:7-b"}
    assert own.wire.job("7")["triggerRule"] == "children_ended"
    assert own.wire.ask("ZSCORE", own.wire.key("flows:due"), "call:7") == NOW + 9
    assert call(own, ("a", "oq:{q}:7-x", 0), now_ms=NOW + 8) == [[first, "oq:{q}:7-a"]]
    assert own.wire.members("deps:7") == {"oq:{q}:7-a", "oq:{r}:7-b"}
    assert store(own, "a", "k") == [f"k 1 1 {NOW + 5} 5 0 1"]
    assert call(own, ("a", "oq:{q}:7-x", 1)) == [[f"k 1 1 {NOW + 5} 5 0 1", "1"]]
    assert store(own, "b", "x") == [f"x 2 1 {NOW + 5} 5 0 1"]


def test_only_the_call_to_replace_is_replaced(own: Own) -> None:
    call(own, ("a", "oq:{q}:7-a", 0))
    replaced = f"c 2 1 {NOW + 5} 0 0 10"
    assert call(own, ("a", "oq:{q}:7-b", 1)) == [[replaced]]
    assert call(own, ("a", "oq:{q}:7-c", 1)) == [[replaced, "oq:{q}:7-b"]]
    assert own.wire.members("deps:7") == {"oq:{q}:7-a", "oq:{q}:7-b"}


@pytest.mark.parametrize(
    "claim", [{"taken_ms": NOW - 1}, {"taken_ms": NOW + 1}, {"stalled_count": 1}], ids=["earlier", "later", "stalled"]
)
def test_only_the_holder_of_the_lease_calls(own: Own, claim: dict[str, Any]) -> None:
    with own.wire.unchanged():
        assert call(own, ("a", "oq:{q}:7-a", 0), **claim) == "lost"
        own.wire.ask("HSET", own.wire.key("job:7"), "state", "failed")
        assert call(own, ("a", "oq:{q}:7-a", 0)) == "lost"
        own.wire.ask("HSET", own.wire.key("job:7"), "state", "active")


def test_calls_are_bounded(own: Own) -> None:
    with pytest.raises(redis.ResponseError, match="OQ_BAD_ARGUMENT oq1_storeCalls: at most 100 calls at once, got 101"):
        call(own, *((str(n), f"oq:{{q}}:{n}", 0) for n in range(101)))
    own.wire.ask("HSET", own.wire.key("job:7"), "steps", 1)
    own.wire.ask("HSET", own.wire.key("steps:7"), *(word for n in range(20_000) for word in (f"x{n}", "")))
    assert call(own, ("a", "oq:{q}:7-a", 0)) == "full"


def test_calls_beyond_the_limit_are_all_refused(own: Own) -> None:
    assert call(own, ("a", "oq:{q}:7-a", 0)) != "full"
    own.wire.ask("HSET", own.wire.key("steps:7"), *(word for n in range(19_996) for word in (f"x{n}", "")))
    with own.wire.unchanged():
        assert call(own, ("b", "oq:{q}:7-b", 0), ("c", "oq:{q}:7-c", 0)) == "full"
    assert call(own, ("a", "oq:{q}:7-a", 0), ("b", "oq:{q}:7-b", 0)) != "full"
    assert call(own, ("a", "oq:{q}:7-a2", 1), ("b", "oq:{q}:7-b", 0)) != "full", "a replaced call needs no room"


def test_forgetting_a_wait_forgets_its_signals(own: Own) -> None:
    signals = ['{"name":"a","data":"1"}', '{"name":"b","data":"2"}', "?", '{"name":"a","data":"3"}']
    own.wire.ask("RPUSH", own.wire.key("signals:7"), *signals)
    for name, kind in (("a", "g"), ("b", "r")):
        store(own, name, kind)
    own.wire.ask("HSET", own.wire.key("job:7"), "state", "failed")
    assert forget(own, "b") == 1
    assert own.wire.ask("LRANGE", own.wire.key("signals:7"), 0, -1) == signals
    assert forget(own, "a") == 1
    assert own.wire.ask("LRANGE", own.wire.key("signals:7"), 0, -1) == signals[1:3]
    assert own.wire.job("7")["signals"] == f"[{signals[1]},?]"
