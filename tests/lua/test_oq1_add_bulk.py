"""`oq1_addBulk`: many jobs in one call are what as many calls of glidemq_addJob would have made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lua.oq1 import Own, new_job
from tests.lua.oq1_reference import same_but_for_entries
from tests.lua.wire import NOW, Wire, Word, due, event

WIRE_NAMES = {
    "delay_ms": "delay",
    "parent_id": "parentId",
    "parent_queue": "parentQueue",
    "max_attempts": "maxAttempts",
    "ordering_key": "orderingKey",
    "group_concurrency": "groupConcurrency",
    "group_rate_max": "groupRateMax",
    "group_rate_duration_ms": "groupRateDuration",
    "tb_capacity": "tbCapacity",
    "tb_refill_rate": "tbRefillRate",
    "ttl_ms": "ttl",
    "custom_id": "customJobId",
    "scheduler_name": "schedulerName",
}


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def test_jobs_are_added_in_order(own: Own) -> None:
    assert own.add(new_job("a"), new_job("b", delay_ms=500), new_job("c", priority=2), new_job("d", lifo=True)) == [
        *("1", "2", "3", "4")
    ]
    assert own.wire.stream() == [("jobId", "1", "name", "a")]
    assert own.wire.zset("scheduled") == {"2": due(NOW + 500), "3": due(0, 2)}
    assert own.wire.elements("lifo") == ["4"]
    assert own.wire.events() == [event("added", n, name=name) for n, name in enumerate("abcd", 1)]


def test_no_job_is_no_work(own: Own) -> None:
    with own.wire.unchanged():
        assert own.add() == []


def test_events_can_be_left_out(own: Own) -> None:
    own.add(new_job(), new_job(), skip_events=True)
    assert own.wire.names() == {"id", "stream", "job:1", "job:2"}


def test_each_job_keeps_its_own_options_as_they_were_written(own: Own) -> None:
    written = ["{}", "", '{"jobId":"x"}', "", "{}", "{ }"]
    own.add(*(new_job(opts=text, custom_id=f"j{n}") for n, text in enumerate(written)))
    assert [own.wire.job(f"j{n}")["opts"] for n in range(len(written))] == written


def test_ids_in_use_are_stepped_over(own: Own) -> None:
    own.add(new_job("first"), new_job("second"))
    own.wire.ask("SET", own.wire.key("id"), 0)
    own.wire.make_job("4", name="in use")
    assert own.add(new_job(), new_job(), new_job()) == ["3", "5", "6"]
    assert [own.wire.job(n)["name"] for n in ("1", "2", "4")] == ["first", "second", "in use"]


def test_a_job_that_cannot_be_added_leaves_the_others_alone(own: Own) -> None:
    dear: dict[str, Any] = {"ordering_key": "g", "tb_capacity": 100, "cost": 200}
    assert own.add(new_job(), new_job(**dear), new_job()) == ["1", "ERR:COST_EXCEEDS_CAPACITY", "2"]
    own.wire.make_job("mine", name="there")
    assert own.add(new_job(custom_id="mine"), new_job(custom_id="x"), new_job(custom_id="x"), new_job()) == [
        *("duplicate", "x", "duplicate", "3")
    ]
    assert own.wire.stream_ids() == ["1", "2", "x", "3"]


def test_a_parent_of_the_same_queue_waits_for_the_new_jobs(own: Own) -> None:
    (parent,) = own.wire.flow_ids()
    here, there = {"parent_id": parent, "parent_queue": "q"}, {"parent_id": parent, "parent_queue": "elsewhere"}
    own.add(new_job(**here), new_job(**there))
    assert own.wire.members(f"deps:{parent}") == {own.wire.key("2")}
    assert not own.wire.sibling("elsewhere").names()


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "delay_ms": st.sampled_from([0, 0, 30]),
    "priority": st.sampled_from([0, 0, 3]),
    "max_attempts": st.sampled_from([0, 3]),
    "ordering_key": st.sampled_from(["", "", "g", "h"]),
    "group_concurrency": st.sampled_from([0, 2]),
    "group_rate_max": st.sampled_from([0, 5]),
    "group_rate_duration_ms": st.sampled_from([0, 1000]),
    "tb_capacity": st.sampled_from([0, 0, 1500]),
    "tb_refill_rate": st.sampled_from([0, 100]),
    "cost": st.sampled_from([0, 1000, 2000]),
    "ttl_ms": st.sampled_from([0, 70]),
    "custom_id": st.sampled_from(["", "", "", "x", "2", "7"]),
    "lifo": st.booleans(),
    "parent_id": st.sampled_from(["", "", "p"]),
    "parent_queue": st.sampled_from(["", "elsewhere"]),
    "scheduler_name": st.sampled_from(["", "nightly"]),
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.lists(st.fixed_dictionaries({}, optional=VALUES), max_size=8), skip_events=st.booleans())
def test_random_jobs_are_added_alike(own: Own, jobs: list[dict[str, Any]], skip_events: bool) -> None:
    own.wire.client.flushall()
    ours, theirs = own.wire.sibling("left"), own.wire.sibling("right")
    added = Own(ours).add(*(new_job(**job) for job in jobs), skip_events=skip_events)
    one_by_one = [
        theirs.call(
            "addJob",
            skipEvents=int(skip_events),
            **{WIRE_NAMES.get(name, name): int(word) if name == "lifo" else word for name, word in job.items()},
        )
        for job in jobs
    ]
    assert added == one_by_one
    assert same_but_for_entries(ours) == same_but_for_entries(theirs)


FORM: list[Word] = ["task", "{}", NOW, 0, 0, "", 0, "", 0, 0, 0, 0, 0, 0, 0, 0, "", ""]
JOB: list[Word] = [0, "{}", "", ""]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "'skip_events' is neither 0 nor 1"),
        ([0], "'form_count' is not a whole number"),
        ([0, 1], "'job_count' is not a whole number"),
        (["no", 0, 0], "'skip_events' is neither 0 nor 1"),
        ([0, 1, 0, *FORM[:-1]], "takes 4 keys and 21 arguments, not 4 and 20"),
        ([0, 1, 1, *FORM, *JOB, *JOB], "takes 4 keys and 25 arguments, not 4 and 29"),
        ([0, 1, 1, *FORM[:2], "later", *FORM[3:], *JOB], "'timestamp_ms' is not a whole number"),
        ([0, 1, 1, *FORM[:3], -5, *FORM[4:], *JOB], "'delay_ms' is not a whole number"),
        ([0, 1, 1, *FORM[:15], "true", *FORM[16:], *JOB], "'lifo' is neither 0 nor 1"),
        ([0, 1, 1, *FORM, "x", *JOB[1:]], "'form' is not a whole number"),
        ([0, 1, 2, *FORM, *JOB, 1, *JOB[1:]], "there is no form 1"),
        ([0, 0, 1, *JOB], "there is no form 0"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[Word], why: str) -> None:
    keys = [own.wire.key(name) for name in ("id", "stream", "scheduled", "events")]
    own.refused("addBulk", keys, args, why)


def test_another_key_than_the_counter_is_refused(own: Own) -> None:
    keys = [own.wire.key(name) for name in ("ids", "stream", "scheduled", "events")]
    own.refused("addBulk", keys, [0, 0, 0], "does not end in ':id'")
