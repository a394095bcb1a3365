"""Dagster's work as a job: the same on both sides of the queue, small, and refused when it is something else."""

from __future__ import annotations

import base64
import json
import zlib
from datetime import timedelta

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import reconstructable
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs, ResumeRunArgs

from orchestration_queue.dagster.steps.work_item import WorkItem, WorkKind, perform
from orchestration_queue.errors import PayloadError, StateError
from orchestration_queue.options import JobOptions
from orchestration_queue.options.isolation import Isolation


@dg.op
def nothing() -> None:
    """Do nothing."""


@dg.job
def idle() -> None:
    """A job of nothing."""
    nothing()


ORIGIN = reconstructable(idle).get_python_origin()


def a_step(key: str = "nothing", **more: object) -> WorkItem:
    """A step's work."""
    return WorkItem(ExecuteStepArgs(ORIGIN, "run-1", [key]), **more)  # type: ignore[arg-type]  # varied by the tests


def test_what_arrives_is_what_was_sent() -> None:
    work = a_step(
        location="etl",
        attempt=3,
        isolation=Isolation.SPAWN,
        timeout=timedelta(seconds=90),
        env={"A": "b"},
        code_version="v7",
    )
    assert WorkItem.from_data(json.loads(json.dumps(work.data()))) == work


@pytest.mark.parametrize(
    ("work", "kind", "job_id"),
    [
        (a_step(), WorkKind.STEP, "dagster.run-1.nothing.1"),
        (WorkItem(ExecuteRunArgs(ORIGIN, "run-1", None)), WorkKind.RUN, "dagster.run-1.-run"),
        (WorkItem(ResumeRunArgs(ORIGIN, "run-1", None), resume_attempt=2), WorkKind.RESUME, "dagster.run-1.-resume.2"),
    ],
)
def test_kind_and_id_say_what_it_is(work: WorkItem, kind: WorkKind, job_id: str) -> None:
    assert (work.kind, work.job_id) == (kind, job_id)
    assert WorkItem.from_data(work.data()) == work


def test_every_step_key_makes_an_id_that_the_wire_carries_and_no_two_the_same() -> None:
    keys = ["a", "a[x]", "a[y]", "a-x-", "a.b", "a" * 400, "a" * 401, "ä", "a:{}"]
    ids = {a_step(key).job_id for key in keys} | {a_step("a", attempt=2).job_id}
    assert len(ids) == len(keys) + 1
    for job_id in ids:
        JobOptions(job_id=job_id)


def test_the_instance_stays_at_home() -> None:
    with dg.instance_for_test() as instance:
        work = WorkItem(ExecuteStepArgs(ORIGIN, "run-1", ["nothing"], instance_ref=instance.get_ref()))
        arrived = WorkItem.from_data(work.data())
    assert isinstance(arrived.args, ExecuteStepArgs)
    assert arrived.args.instance_ref is None


def packed(content: bytes) -> dict[str, str]:
    """A payload around any content."""
    return {"args": base64.b85encode(zlib.compress(content)).decode()}


BAD_DATA = [
    None,
    {},
    {"args": "no base 85 \x00"},
    {"args": base64.b85encode(b"no zlib").decode()},
    {"args": base64.b85encode(zlib.compress(b"0" * 1000)[:-9]).decode()},
    packed(b"no json"),
    packed(b'{"__class__": "NoSuchThing"}'),
    packed(b'"just text"'),
    packed(dg.serialize_value(ORIGIN).encode()),
    packed(b"0" * (65 << 20)),
    {**a_step().data(), "isolation": "jail"},
    {**a_step().data(), "env": ["A"]},
]


@pytest.mark.parametrize("data", BAD_DATA, ids=range(len(BAD_DATA)))
def test_what_is_no_work_is_refused(data: object) -> None:
    with pytest.raises(PayloadError, match="contains no Dagster work item"):
        WorkItem.from_data(data)


def test_a_run_of_another_instance_is_refused(instance: dg.DagsterInstance) -> None:
    with pytest.raises(StateError, match="'run-1' does not exist in this worker's instance"):
        perform(a_step(), instance)
