"""Making the archive of Spark's classes, by starting Spark once and letting Java write down what it loaded."""

from __future__ import annotations

import fcntl
import os
import secrets
from datetime import timedelta
from pathlib import Path

from orchestration_queue.errors import SparkFailedError
from orchestration_queue.spark.archive import ARCHIVE_QUIETLY, class_archive
from orchestration_queue.spark.environment import spark_home
from orchestration_queue.spark.java import java_home
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.run import run_submit

__all__ = ["make_class_archive"]

_TRAINING = Path(__file__).with_name("training.py")
_LONGEST = timedelta(minutes=15)


def make_class_archive(java: Path | None = None, spark: str | None = None) -> Path:
    """Make the archive, unless it is there; takes half a minute and 150 MB.

    Args:
        java: The home of Java; default what :func:`~orchestration_queue.spark.java.java_home` finds.
        spark: The home of Spark; default that of the installed PySpark.

    Returns:
        Where it is.

    Raises:
        SparkFailedError: Java does not make it: its own archive may be missing, as in trimmed runtimes.
        JavaNotFoundError: There is no Java for it.
        UsageError: PySpark is not installed.
    """
    java = java or java_home()
    path = class_archive(java, spark or spark_home(os.environ))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path
        for abandoned in path.parent.glob(f".{path.stem}-*"):  # by a maker that was killed
            abandoned.unlink()
        draft = path.with_name(f".{path.stem}-{secrets.token_hex(4)}")
        flags = f"-XX:ArchiveClassesAtExit={draft} {ARCHIVE_QUIETLY}"
        env = {"SPARK_SUBMIT_OPTS": flags} | ({"SPARK_HOME": spark} if spark else {})
        try:
            run_submit(
                _TRAINING,
                (),
                SparkSubmit(master="local[2]", java_home=java, env=env, timeout=_LONGEST),
                log=lambda _: None,
            )
            if not draft.exists():
                raise SparkFailedError(
                    f"The Java in {java} makes no class archive; Spark starts without one, as before."
                )
            draft.rename(path)
        finally:
            draft.unlink(missing_ok=True)
    return path
