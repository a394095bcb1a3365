"""A program that runs a step's script in a job's session; workers start it.

It writes the progress of the script's queries, which only the session's client receives, to a file for the worker.
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
    """Run a script with the arguments in ``sys.argv``; return its variable ``result``.

    Args:
        script: The script.
        file: The file to write progress to.
    """
    from pyspark.sql import SparkSession

    from orchestration_queue.spark.connect.session import QueryProgress

    def report(percent: int, text: str) -> None:
        # Replaced at once, so that a reader never finds half a text.
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps([percent, text]), "utf-8")
        draft.replace(file)

    session: Any = SparkSession.builder.getOrCreate()  # the script gets the same session
    session.registerProgressHandler(QueryProgress(report))
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
    # Replace this file's directory, whose modules would shadow others.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    result = main(Path(sys.argv[0]), Path(os.environ.pop(PROGRESS_FILE)))
