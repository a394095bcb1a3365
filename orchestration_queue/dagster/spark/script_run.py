"""The program that runs a step's script in a job's session. Only workers start it.

It writes the progress of the script's queries, which only a session's own client receives, to a file for the worker.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

__all__ = ["PROGRESS_FILE", "main", "read_progress"]

PROGRESS_FILE = "OQ_SPARK_PROGRESS_FILE"
"""The variable that names the file."""


def main(script: Path, file: Path) -> Any:
    """Run a script whose words are in ``sys.argv``; returns what it leaves in ``result``.

    Args:
        script: The script.
        file: Where to tell.
    """
    from pyspark.sql import SparkSession

    from orchestration_queue.spark.connect.session import QueryProgress

    def tell(percent: int, text: str) -> None:
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps([percent, text]), "utf-8")
        draft.replace(file)

    session: Any = SparkSession.builder.getOrCreate()  # the script's own will be this one
    session.registerProgressHandler(QueryProgress(tell))
    return runpy.run_path(str(script), run_name="__main__").get("result")


def read_progress(file: Path) -> tuple[int, str] | None:
    """Read the last percentage and text; None before the first."""
    try:
        percent, text = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return int(percent), str(text)


if __name__ == "__main__":
    sys.argv[:] = sys.argv[1:]
    # Instead of our own directory, whose modules have everybody's names.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    result = main(Path(sys.argv[0]), Path(os.environ.pop(PROGRESS_FILE)))
