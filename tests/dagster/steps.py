"""Definitions whose steps the queue's workers do. Files in ``SCRATCH`` let a test see and control them."""

# No `from __future__ import annotations` here: Dagster reads the annotations of contexts, and strings fail.

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from orchestration_queue.dagster import queue_executor
from tests.dagster.days import day_by_day, days_at_once


def scratch(name: str) -> Path:
    """A file of the test's."""
    return Path(os.environ["SCRATCH"], name)


def note(name: str, line: object) -> None:
    """Write a line for the test."""
    with scratch(name).open("a") as file:
        file.write(f"{line}\n")


@dg.asset
def source() -> list[int]:
    """The first of the diamond."""
    return [1, 2, 3]


@dg.asset
def left(source: list[int]) -> int:
    """A side of the diamond."""
    return sum(source)


@dg.asset
def right(source: list[int]) -> int:
    """The other side."""
    return len(source)


@dg.asset
def both(left: int, right: int) -> int:
    """The sides together."""
    return left * right


@dg.asset
def report(context: dg.AssetExecutionContext, both: int) -> dg.MaterializeResult[None]:
    """The last of the diamond; it prints, too."""
    print(f"both is {both}")  # noqa: T201  what compute logs are for
    print("to the error stream", file=sys.stderr)  # noqa: T201  the same
    subprocess.run(["echo", "from a child"], check=True, timeout=100)  # noqa: S607  any echo will do
    context.log.info("a line for the log")
    return dg.MaterializeResult(metadata={"both": both, "pid": os.getpid()})


def a_leaf(number: int) -> dg.AssetsDefinition:
    """One of many assets that need nothing."""

    @dg.asset(name=f"leaf_{number}", group_name="fan")
    def leaf() -> int:
        return number

    return leaf


LEAVES = [a_leaf(number) for number in range(10)]


@dg.op(retry_policy=dg.RetryPolicy(max_retries=2))
def flaky(context: dg.OpExecutionContext) -> int:
    """Fail twice."""
    note("flaky", context.retry_number)
    if context.retry_number < 2:
        raise RuntimeError("not yet")
    return context.retry_number


@dg.op(out=dg.DynamicOut(int))
def parts() -> Iterator[dg.DynamicOutput[int]]:
    """As many parts as are found."""
    for number in range(3):
        yield dg.DynamicOutput(number, mapping_key=f"part_{number}")


@dg.op
def squared(part: int) -> int:
    """One part."""
    return part * part


@dg.op
def total(found: list[int]) -> int:
    """All parts."""
    note("total", sum(found))
    return sum(found)


@dg.op(out={"early": dg.Out(int), "late": dg.Out(int)})
def slow_starter() -> Iterator[dg.Output[int]]:
    """Give out a part, and wait until another step has used it."""
    yield dg.Output(1, "early")
    while not scratch("go").exists():
        time.sleep(0.01)
    yield dg.Output(2, "late")


@dg.op
def early_bird(part: int) -> None:
    """Let the slow one continue."""
    scratch("go").write_text(str(part))


class Shelf(dg.ConfigurableResource["Shelf"]):
    """A resource."""

    name: str

    def put(self, line: str) -> None:
        """Keep a line."""
        note(self.name, line)


@dg.op(pool="narrow")
def pooled(shelf: Shelf) -> None:
    """One at a time, in all runs."""
    begun = time.monotonic()
    time.sleep(0.2)
    shelf.put(f"{begun} {time.monotonic()}")


@dg.op(tags={"kind": "heavy"})
def heavy(shelf: Shelf) -> None:
    """One at a time, by its tag; or as many as the test says, of whom each waits until all have begun."""
    begun = time.monotonic()
    note("begun", begun)
    together = int(os.environ.get("TOGETHER", "1"))
    while len(scratch("begun").read_text().splitlines()) < together and time.monotonic() < begun + 30:
        time.sleep(0.01)
    time.sleep(0.1)
    shelf.put(f"{begun} {time.monotonic()}")


@dg.op
def where(context: dg.OpExecutionContext) -> None:
    """Tell where this runs."""
    note("where", f"{context.op_handle.name} {os.getpid()} {os.getppid()} {os.environ.get('FLAVOUR', '')}")


@dg.op
def endless(context: dg.OpExecutionContext) -> None:
    """Run until the test ends it."""
    try:
        note("endless", f"{os.getpid()} {os.getppid()}")
        while not scratch("go").exists():
            time.sleep(0.01)
    finally:
        note("cleaned", os.getpid())
    context.log.info("ended by itself")


@dg.op
def deaf() -> None:
    """Run on whatever anybody says, with a child of its own."""
    child = subprocess.Popen(["sleep", "300"])  # noqa: S607  any sleep will do
    note("deaf", f"{os.getpid()} {child.pid}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(0.01)


@dg.op
def mortal() -> None:
    """Die once, with words; then live."""
    if not scratch("died").exists():
        scratch("died").touch()
        print("my last words", file=sys.stderr)  # noqa: T201  that they are found is the point
        os.kill(os.getpid(), signal.SIGSEGV)


@dg.op(retry_policy=dg.RetryPolicy(max_retries=1))
def fragile(context: dg.OpExecutionContext) -> None:
    """Be lost once, then fail once, then live."""
    note("fragile", context.retry_number)
    if len(scratch("fragile").read_text().splitlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if context.retry_number == 0:
        raise RuntimeError("its own fault")


SHELF = {"shelf": Shelf(name="shelf")}


@dg.job(executor_def=queue_executor, resource_defs=SHELF)
def pooled_job() -> None:
    """Three steps of one pool."""
    for number in range(3):
        pooled.alias(f"pooled_{number}")()


@dg.job(executor_def=queue_executor, resource_defs=SHELF)
def heavy_job() -> None:
    """Three steps of one tag."""
    for number in range(3):
        heavy.alias(f"heavy_{number}")()


@dg.job(executor_def=queue_executor)
def flaky_job() -> None:
    """A step that fails twice."""
    flaky()


@dg.job(executor_def=queue_executor)
def where_job() -> None:
    """Two steps that tell where they run."""
    for number in range(2):
        where.alias(f"where_{number}")()


@dg.job(executor_def=queue_executor)
def urgent_job() -> None:
    """A step that goes before others."""
    where.alias("where_0").tag({"dagster/priority": "7"})()


@dg.job(executor_def=queue_executor)
def endless_job() -> None:
    """A step without an end."""
    endless()


@dg.op(ins={"before": dg.In(dg.Nothing)})
def afterwards() -> None:
    """Record that this was reached."""
    note("where", "afterwards")


@dg.job(executor_def=queue_executor)
def then_job() -> None:
    """A step without an end, and one after it."""
    afterwards(endless())


@dg.job(executor_def=queue_executor)
def deaf_job() -> None:
    """A step that must be killed."""
    deaf()


@dg.job(executor_def=queue_executor)
def mortal_job() -> None:
    """A step that dies once."""
    mortal()


@dg.job(executor_def=queue_executor)
def fragile_job() -> None:
    """A step that is lost once, and fails once."""
    fragile()


@dg.op
def hungry(context: dg.OpExecutionContext) -> None:
    """Takes a gigabyte of memory."""
    note("hungry", os.environ.get("APPETITE", ""))
    bytearray(1 << 30)


@dg.job(executor_def=queue_executor)
def hungry_job() -> None:
    """One step that takes more memory than some allow."""
    hungry()


@dg.op
def hello(context: dg.OpExecutionContext) -> None:
    """Tell which run was here."""
    note("hello", context.run_id)


@dg.op(pool="narrow")
def held() -> None:
    """Hold a slot of a pool until the test ends it."""
    note("held", os.getpid())
    while not scratch("go").exists():
        time.sleep(0.01)


@dg.job(executor_def=dg.in_process_executor)
def hello_job() -> None:
    """A run that is done in the process of its worker."""
    hello()


@dg.job(executor_def=dg.in_process_executor)
def held_job() -> None:
    """A run in one process, without an end."""
    held()


@dg.job(executor_def=queue_executor)
def held_step_job() -> None:
    """A step without an end that holds a place of a pool."""
    held()


@dg.job(executor_def=queue_executor)
def early_job() -> None:
    """A step that starts when half of the one before is done."""
    early_bird(slow_starter().early)


@dg.job(executor_def=queue_executor)
def fan_out() -> None:
    """Dynamic outputs, mapped and collected."""
    total(parts().map(squared).collect())


defs = dg.Definitions(
    assets=[source, left, right, both, report, days_at_once, day_by_day, *LEAVES],
    jobs=[
        dg.define_asset_job("diamond_job", dg.AssetSelection.assets("report").upstream()),
        dg.define_asset_job("fan_job", dg.AssetSelection.groups("fan")),
        fan_out,
        pooled_job,
        heavy_job,
        flaky_job,
        where_job,
        endless_job,
        then_job,
        deaf_job,
        mortal_job,
        fragile_job,
        early_job,
        urgent_job,
        hello_job,
        held_job,
        held_step_job,
    ],
    executor=queue_executor,
)


def diamond() -> dg.JobDefinition:
    """Five assets, of which two wait for one, and one for the two."""
    return defs.resolve_job_def("diamond_job")


def fan() -> dg.JobDefinition:
    """Ten assets without dependencies."""
    return defs.resolve_job_def("fan_job")
