"""What the start of Spark costs with and without the archive of its classes: an application, and a Connect server.

Run as ``python -m tests.bench.spark_submit``; prints JSON. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyspark

from orchestration_queue.spark import ConnectServer, SparkOptions, SparkSubmit, java_home, run_submit
from orchestration_queue.spark.build_archive import make_class_archive
from tests.bench.spark import started, timed

_APPLICATION = Path(__file__).parents[1] / "spark" / "app.py"


@contextmanager
def _cache() -> Iterator[Path]:
    """An empty cache in place of the user's."""
    before = os.environ.get("XDG_CACHE_HOME")
    java = java_home()  # one of the wheel is linked into the cache
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"XDG_CACHE_HOME": directory, "JAVA_HOME": str(java)}
        yield Path(directory)
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


def _server_start(options: SparkOptions) -> dict[str, float]:
    server = ConnectServer(options, linger=timedelta(0))
    took, _ = started(server)
    server.close()
    return {"wall_s": round(took, 3)}


def _starts(runs: int) -> dict[str, dict[str, float]]:
    """An application that counts to three, compiled quickly and well; and a server until it answers."""
    figures = {
        f"application_{name}": timed(
            runs,
            lambda quick=quick: run_submit(  # type: ignore[misc]  # mypy infers no lambda with defaults
                _APPLICATION, ["count", "3"], SparkSubmit(master="local[2]", quick_start=quick)
            ),
        )
        for name, quick in (("compiled_quickly", True), ("compiled_well", False))
    }
    return figures | {
        "connect_server_start": _server_start(SparkOptions(master="local[2]", env={"RUN": os.urandom(4).hex()}))
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark_submit", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default 3)")
    arguments = parser.parse_args()
    with _cache():
        without = _starts(arguments.runs)
        making = timed(1, make_class_archive)
        with_it = _starts(arguments.runs)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "pyspark": pyspark.__version__}
    medians = {"without_archive": without, "making_it": making, "with_archive": with_it}
    print(json.dumps({"machine": machine, "runs": arguments.runs, "medians": medians}, indent=2))


if __name__ == "__main__":
    main()
