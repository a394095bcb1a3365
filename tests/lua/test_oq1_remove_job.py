"""`oq1_removeJob` and `oq1_clean`: as glide-mq's functions, on a full server too, and off the stream."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control
from orchestration_queue.states import JobState
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def remove(own: Own, job_id: str, group: str = "workers") -> bool:
    return bool(own.send(control.remove(QueueKeys(own.wire.queue), job_id, group).call))


@pytest.mark.parametrize("jobs", [3, 1500])
def test_the_entry_of_a_ready_job_goes_with_it(own: Own, jobs: int) -> None:
    ids = [own.wire.add(timestamp=NOW + number) for number in range(jobs)]
    assert remove(own, ids[jobs // 2])
    assert not remove(own, ids[jobs // 2])
    assert own.wire.ask("XLEN", own.wire.key("stream")) == jobs - 1
    assert own.wire.job(ids[jobs // 2]) == {}


def test_an_entry_is_left_to_the_caller_who_asks_for_it(own: Own) -> None:
    job_id = own.wire.add()
    assert remove(own, job_id, group="")
    assert own.wire.ask("XLEN", own.wire.key("stream")) == 1


def test_cleaning_removes_what_glidemq_removes(own: Own) -> None:
    own.wire.ask("ZADD", own.wire.key("failed"), NOW - 1, "a", NOW, "b", NOW + 1, "c")
    call = control.clean(QueueKeys(own.wire.queue), JobState.FAILED, NOW, 10).call
    assert own.send(call) == ["a", "b"]
    assert list(own.wire.zset("failed")) == ["c"]


def test_cleaning_by_id_leaves_what_is_not_finished(own: Own) -> None:
    keys = QueueKeys(own.wire.queue)
    ready = own.wire.add()
    own.wire.ask("ZADD", own.wire.key("failed"), NOW, "a", NOW, "b")
    call = control.remove_finished(keys, JobState.FAILED, ["b", ready, "gone"]).call
    assert own.send(call) == ["b"]
    assert own.send(call) == []
    assert list(own.wire.zset("failed")) == ["a"]
    assert own.wire.job(ready)["state"] == "waiting"


def test_malformed_arguments_are_refused(own: Own) -> None:
    names = [own.wire.key(name) for name in ("stream", "scheduled", "completed", "failed", "events")]
    own.refused("removeJob", ["other", *names[1:]], ["a", ""], "stream")
    names = [own.wire.key(name) for name in ("failed", "events", "id")]
    own.refused("cleanJobs", names, ["x", 1], "'job_count' is not a whole number")
    own.refused("cleanJobs", [*names[:2], "other"], [1, "a"], "id")
    own.refused("clean", names, ["x", 1], "'cutoff_ms' is not a whole number")
