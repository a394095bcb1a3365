"""A job with every kind of step, for runs whose processes are killed at random points."""

# No `from __future__ import annotations` here: Dagster reads the annotations of contexts, and strings fail.

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from orchestration_queue.dagster import queue_executor
from tests.dagster.steps import note

PARTS = 4
"""How many dynamic outputs a run has by default."""


@contextmanager
def traced(context: dg.OpExecutionContext) -> Iterator[None]:
    """Leave a line with this step's process and its fork server's, and take some time."""
    key = context.get_step_execution_context().step.key
    note(context.run_id, f"{key} {os.getpid()} {os.getppid()}")
    yield
    time.sleep(random.uniform(0.05, 0.5))


@dg.op(out=dg.DynamicOut(int), config_schema=dg.Field(int, default_value=PARTS))
def parts(context: dg.OpExecutionContext) -> Iterator[dg.DynamicOutput[int]]:
    """Steps that are only known once it has run: as many as configured."""
    with traced(context):
        for number in range(context.op_config):
            yield dg.DynamicOutput(number, mapping_key=f"p{number}")


@dg.op
def one(context: dg.OpExecutionContext, x: int) -> int:
    """A step after another."""
    with traced(context):
        return x


@dg.op
def all_of(context: dg.OpExecutionContext, found: list[int]) -> int:
    """A step after several."""
    with traced(context):
        return sum(found)


@dg.op(pool="narrow")
def narrow(context: dg.OpExecutionContext, x: int) -> int:
    """A step of a pool."""
    with traced(context):
        return x


@dg.op(retry_policy=dg.RetryPolicy(max_retries=2, delay=0.5))
def flaky(context: dg.OpExecutionContext, x: int) -> int:
    """Fail the first time, and be tried again by its own policy."""
    with traced(context):
        if context.retry_number == 0:
            raise RuntimeError("not yet")
        return x


@dg.op(out={"some": dg.Out(int, is_required=False), "none": dg.Out(int, is_required=False)})
def chooses(context: dg.OpExecutionContext) -> Iterator[dg.Output[int]]:
    """Give out one of two."""
    with traced(context):
        yield dg.Output(1, "some")


@dg.op(out={"early": dg.Out(int), "late": dg.Out(int)})
def twice(context: dg.OpExecutionContext, x: int) -> Iterator[dg.Output[int]]:
    """Give out a part early."""
    with traced(context):
        yield dg.Output(x, "early")
        time.sleep(0.5)
        yield dg.Output(x, "late")


@dg.job(executor_def=queue_executor)
def everything() -> None:
    """Fan-out, dynamic and optional outputs, a pool, retries, and outputs before a step's end."""
    some, none = chooses()
    one.alias("unneeded")(none)
    total = all_of(parts().map(one.alias("mapped")).collect())
    early, late = twice(some)
    one.alias("after_early")(early)
    slots = [narrow.alias(f"narrow_{number}")(late) for number in range(3)]
    fan = [one.alias(f"fan_{number}")(total) for number in range(4)]
    all_of.alias("end")([*slots, *fan, flaky(total)])


OTHER_STEPS = 14
"""How many steps succeed beside one for each part; one is skipped."""

defs = dg.Definitions(jobs=[everything])
