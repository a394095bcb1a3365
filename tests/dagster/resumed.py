"""Jobs whose runs are resumed, and the program that executes such a run, or its rest."""

# No `from __future__ import annotations` here: Dagster reads the annotations of contexts, and strings fail.

import sys
import time
from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.reconstruct import reconstructable
from dagster._core.execution.api import execute_run_iterator

from orchestration_queue.dagster import queue_executor
from tests.dagster.steps import note, scratch


def wait(name: str) -> None:
    """Run until the test ends it."""
    note("waits", name)
    while not scratch("go").exists():
        time.sleep(0.01)


@dg.op(out=dg.Out(int), ins={"x": dg.In(int, default_value=0)})
def talks(x: int) -> Iterator[dg.Output[int] | dg.AssetObservation]:
    """Store many events."""
    for number in range(700):
        yield dg.AssetObservation("said", metadata={"number": number})
    yield dg.Output(x + 1)


@dg.op(out=dg.Out(int), ins={"x": dg.In(int, default_value=0)})
def waits(context: dg.OpExecutionContext, x: int) -> int:
    """End when the test says so."""
    wait(context.op_handle.name)
    return x


@dg.op
def after(x: int) -> int:
    """Come after another."""
    return x


@dg.op
def first() -> int:
    """Come first."""
    return 1


@dg.op(pool="narrow", ins={"x": dg.In(int)})
def narrow(x: int) -> int:
    """Hold the only slot; all but the first of them wait for the test."""
    note("waits", x)
    while len(scratch("waits").read_text().splitlines()) > 1 and not scratch("go").exists():
        time.sleep(0.01)
    return x


@dg.op(out={"some": dg.Out(int, is_required=False), "none": dg.Out(int, is_required=False)})
def chooses() -> Iterator[dg.Output[int]]:
    """Give out one of two."""
    yield dg.Output(1, "some")


@dg.op(out=dg.DynamicOut(int))
def parts(x: int) -> Iterator[dg.DynamicOutput[int]]:
    """Three parts."""
    for number in range(3):
        yield dg.DynamicOutput(number + x, mapping_key=f"p{number}")


@dg.op
def total(found: list[int]) -> int:
    """All parts."""
    return sum(found)


@dg.op(retry_policy=dg.RetryPolicy(max_retries=1, delay=1))
def flaky(context: dg.OpExecutionContext) -> int:
    """Fail once, and be tried again a second later."""
    if context.retry_number == 0:
        raise RuntimeError("not yet")
    return 1


@dg.op(retry_policy=dg.RetryPolicy(max_retries=1, delay=20))
def tries() -> None:
    """Fail, to be tried again 20 s later."""
    raise RuntimeError("not yet")


@dg.op(out=dg.Out(int))
def together(context: dg.OpExecutionContext) -> int:
    """End when both of them have begun."""
    note("together", context.op_handle.name)
    while len(scratch("together").read_text().splitlines()) < 2:
        time.sleep(0.01)
    return 1


@dg.job(executor_def=queue_executor)
def chatty() -> None:
    """Steps with a long log, and one that waits."""
    waits(talks.alias("third")(talks.alias("second")(talks.alias("first")())))


@dg.job(executor_def=queue_executor)
def fan() -> None:
    """A step, and twelve after it."""
    x = waits()
    for number in range(12):
        after.alias(f"after_{number}")(x)


@dg.job(executor_def=queue_executor)
def pooled() -> None:
    """Three steps of a pool with one slot."""
    x = first()
    for number in range(3):
        narrow.alias(f"narrow_{number}")(x)


@dg.job(executor_def=queue_executor)
def mixed() -> None:
    """Optional and dynamic outputs, and a step that fails once."""
    some, none = chooses()
    after.alias("unneeded")(none)
    waits(total(parts(after.alias("needed")(some)).map(after.alias("mapped")).collect()))
    flaky()


@dg.job(executor_def=queue_executor)
def slowly_retried() -> None:
    """A step that is tried again later."""
    tries()


@dg.job(executor_def=queue_executor)
def urgent_late() -> None:
    """Two steps, one that waits for its turn, and two that precede it when the first two have ended."""
    one, two = together.alias("one")(), together.alias("two")()
    after.alias("later").tag({"dagster/priority": "-5"})(first.alias("idle").tag({"dagster/priority": "-9"})())
    for name, x in (("urgent_1", one), ("urgent_2", two)):
        waits.alias(name).tag({"dagster/priority": "5"})(x)


defs = dg.Definitions(jobs=[chatty, fan, pooled, mixed, slowly_retried, urgent_late])


def main(run_id: str, *rest: str) -> None:
    """Execute a run, or its rest, in the instance of ``DAGSTER_HOME``."""
    with dg.DagsterInstance.get() as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        job = reconstructable(globals()[run.job_name])
        for _ in execute_run_iterator(job, run, instance, resume_from_failure=bool(rest)):
            pass


if __name__ == "__main__":
    from tests.dagster import resumed  # not `__main__`, which no other process can import

    resumed.main(*sys.argv[1:])
