"""How jobs are sent: a job's arguments by position, what a bulk shares, and a graph, whose nodes count from 1."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Deduplication, JobOptions, Ordering, RateLimit, TokenBucket
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.additions import EncodedData, NewJob, add_many
from orchestration_queue.protocol.operations.graphs import (
    Edge,
    Graph,
    GraphNode,
    OutsideDependency,
    OutsideDependent,
    submit_graph,
)
from orchestration_queue.protocol.placement import ParentRef, add_job, add_jobs, new_job

KEYS = QueueKeys("ingest")
NOW = 1_700_000_000_000

FULL = JobOptions(
    job_id="mine",
    delay=timedelta(milliseconds=1500),
    priority=7,
    attempts=3,
    ttl=timedelta(minutes=1),
    cost=2.5,
    ordering=Ordering(
        key="customer-1",
        concurrency=2,
        rate_limit=RateLimit(max=5, duration=timedelta(seconds=10)),
        token_bucket=TokenBucket(capacity=50, refill_rate=0.0015),
    ),
)
FULL_OPTS = (
    '{"jobId":"mine","delay":1500,"priority":7,"attempts":3,"ttl":60000,"cost":2.5,'
    '"ordering":{"key":"customer-1","concurrency":2,"rateLimit":{"max":5,"duration":10000},'
    '"tokenBucket":{"capacity":50.0,"refillRate":0.0015}}}'
)
SHARED = (JobOptions(), JobOptions(priority=3), JobOptions(delay=5, attempts=2))
options = st.one_of(st.sampled_from(SHARED), st.builds(JobOptions, priority=st.integers(0, 3)), st.none())
jobs = st.builds(
    NewJob,
    st.sampled_from("ab"),
    st.sampled_from("12").map(EncodedData),
    options,
    options_text=st.sampled_from([None, "", "{}", '{"priority":3}']),
)


def test_plain_job() -> None:
    call = add_job(KEYS, "load", '{"day":1}', JobOptions(), NOW)
    assert call.is_function
    assert call.name == "glidemq_addJob"
    assert call.keys == (
        "glide:{ingest}:id",
        "glide:{ingest}:stream",
        "glide:{ingest}:scheduled",
        "glide:{ingest}:events",
    )
    assert call.args == ("load", '{"day":1}', "{}", NOW)  # all that follows has its default


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(),
        JobOptions(delay=5),
        JobOptions(attempts=3),
        JobOptions(ordering=Ordering(key="a")),
        JobOptions(ttl=1, cost=0.5),
        JobOptions(job_id="0"),
        JobOptions(lifo=True),
        FULL,
    ],
)
def test_only_trailing_defaults_are_left_out(options: JobOptions) -> None:
    call = add_job(KEYS, "load", "{}", options, NOW)
    every_word = add_job(KEYS, "load", "{}", options, NOW, skip_events=True)
    assert call._replace(args=()) == every_word._replace(args=())
    assert len(every_word.args) == 21
    assert call.args == every_word.args[: len(call.args)]
    assert all(word in ("", 0) for word in every_word.args[len(call.args) : 20])
    assert len(call.args) == 4 or call.args[-1] not in ("", 0)


def test_every_option_has_its_place() -> None:
    call = add_job(KEYS, "load", "{}", FULL, NOW)
    assert call.args == (
        *("load", "{}", FULL_OPTS, NOW, 1500, 7, "", 3),
        *("customer-1", 2, 5, 10_000, 50_000, 2),  # half a millitoken is rounded up
        *(2500, 60_000, "mine"),  # LIFO, parent queue, scheduler and silence have their defaults
    )


def test_lifo_scheduler_and_silence() -> None:
    call = add_job(KEYS, "load", "{}", JobOptions(lifo=True), NOW, scheduler_name="nightly", skip_events=True)
    assert call.args[17:] == (1, "", "nightly", 1)


def test_foreign_options_are_stored_as_written() -> None:
    call = add_job(KEYS, "load", "{}", JobOptions(priority=2), NOW, options_text='{"priority":2,"fallbacks":[]}')
    assert call.args[2] == '{"priority":2,"fallbacks":[]}'
    assert call.args[5] == 2


def test_deduplicated_job_takes_the_same_record_three_places_later() -> None:
    dedup = Deduplication(id="day-1", mode="throttle", ttl=timedelta(seconds=5))
    plain = add_job(KEYS, "load", "{}", FULL, NOW, skip_events=True)
    call = add_job(KEYS, "load", "{}", FULL.model_copy(update={"deduplication": dedup}), NOW, skip_events=True)
    assert call.name == "glidemq_dedup"
    assert call.keys == ("glide:{ingest}:dedup", *plain.keys)
    assert call.args[:3] == ("day-1", 5000, "throttle")
    assert call.args[5] == FULL_OPTS[:-1] + ',"deduplication":{"id":"day-1","mode":"throttle","ttl":5000}}'
    # All but the options text and the scheduler's name, which deduplicated jobs cannot have.
    assert call.args[3:5] + call.args[6:] == plain.args[:2] + plain.args[3:19] + plain.args[20:]
    assert len(call.args) == 23


def test_parent_in_the_same_queue_is_told_in_the_call() -> None:
    parent = ParentRef(KEYS, "flow.report")
    call = add_job(KEYS, "load", "{}", JobOptions(), NOW, parent=parent)
    assert call.keys[4:] == ("glide:{ingest}:deps:flow.report",)
    assert (call.args[6], call.args[18]) == ("flow.report", "ingest")

    dedup = add_job(KEYS, "load", "{}", JobOptions(deduplication=Deduplication(id="x")), NOW, parent=parent)
    assert dedup.keys[5:] == ("glide:{ingest}:deps:flow.report",)
    assert (dedup.args[9], dedup.args[21]) == ("flow.report", "ingest")


@pytest.mark.parametrize("other", [QueueKeys("reports"), QueueKeys("ingest", prefix="other")])
def test_parent_elsewhere_is_named_but_not_touched(other: QueueKeys) -> None:
    call = add_job(KEYS, "load", "{}", JobOptions(), NOW, parent=ParentRef(other, "7"))
    assert all(key.startswith("glide:{ingest}:") for key in call.keys)
    assert len(call.keys) == 4
    assert (call.args[6], call.args[18]) == ("7", other.queue)


def test_scheduled_job_cannot_be_deduplicated() -> None:
    with pytest.raises(InvalidOptionError, match="cannot have deduplication"):
        add_job(
            KEYS, "load", "{}", JobOptions(deduplication=Deduplication(id="x")), NOW, scheduler_name="after-each-other"
        )


@given(st.lists(jobs, max_size=12))
def test_options_found_by_identity_are_those_found_by_comparison(new: list[NewJob]) -> None:
    compared = [new_job(job.name, job.data, job.options, 1, options_text=job.options_text) for job in new]
    assert add_many(KEYS, new, 1).call == add_jobs(KEYS, compared)


def test_places_are_counted_from_one() -> None:
    jobs = [new_job("work", "{}", JobOptions(job_id=f"f.{name}"), NOW) for name in "abc"]
    outside = ParentRef(QueueKeys("other"), "x")
    graph = Graph(
        [GraphNode(jobs[0], "all_done"), GraphNode(jobs[1]), GraphNode(jobs[2])],
        [Edge(0, 1), Edge(1, 2, is_weak=True)],
        [OutsideDependency(2, outside)],
        [OutsideDependent(0, outside)],
    )
    assert submit_graph(KEYS, graph, NOW, flow_id="f", record="r", held=True).call == oq1.submit_graph(
        KEYS,
        flow_key=KEYS.flow("f"),
        nodes=jobs,
        edges=[
            oq1.GraphEdge(dependent=1, dependency=2, weak=False),
            oq1.GraphEdge(dependent=2, dependency=3, weak=True),
        ],
        foreign=[oq1.ForeignDependency(dependent=3, member=outside.member, weak=False)],
        outside=[oq1.ForeignDependent(dependency=1, queue_name="other", job_id="x")],
        rules=[oq1.NodeRule(place=1, rule="all_done")],
        now_ms=NOW,
        held=True,
        flow_id="f",
        record="r",
    )
