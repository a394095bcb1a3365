"""A job whose steps write to their outputs, in all the ways there are."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import os
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg


@dg.op
def write(context: dg.OpExecutionContext) -> None:
    """Write by Python, below it, and from a child."""
    print("by print")  # noqa: T201
    print("by print to stderr", file=sys.stderr)  # noqa: T201
    os.write(1, b"below Python\n")
    subprocess.run(["echo", "from a child"], check=True, timeout=100)  # noqa: S607


@dg.op
def write_and_wait(context: dg.OpExecutionContext) -> None:
    """Write, and wait for a file."""
    scratch = Path(os.environ["TEST_SCRATCH"])
    print("before the break", flush=True)  # noqa: T201
    (scratch / "pid").write_text(str(os.getpid()))
    deadline = time.monotonic() + 120
    while not (scratch / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    print("after the break", flush=True)  # noqa: T201


@dg.job(executor_def=dg.in_process_executor)
def writing() -> None:
    """Write all there is."""
    write()


@dg.job(executor_def=dg.multiprocess_executor)
def waiting() -> None:
    """Write, wait, write."""
    write_and_wait()
