"""Spark's classes as an archive that Java maps into memory, in place of reading, checking and linking 15,000 of them.

Whoever wants shorter starts makes it once, for this Spark on this Java; from then on all who start Spark find it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestration_queue.errors import SparkFailedError
from orchestration_queue.spark.java import cache_directory, java_home

__all__ = ["ARCHIVE_QUIETLY", "class_archive", "make_class_archive"]

ARCHIVE_QUIETLY = "-Xlog:cds*=off"
"""An archive that does not fit, as for a class path of the user's own, is left aside without a word."""

_TRAINING = Path(__file__).with_name("training.py")
_LONGEST = timedelta(minutes=15)


def class_archive(java: Path, spark: str) -> Path:
    """Where the archive is, if there is one: of these jars, for this Java, of which another would refuse it.

    Args:
        java: The home of Java.
        spark: The home of Spark.
    """
    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        installed = ""
    release = java / "release"
    about = [installed, spark, str(java), release.read_text("utf-8", "replace") if release.exists() else ""]
    key = hashlib.sha256("\0".join(about).encode()).hexdigest()[:16]
    return cache_directory() / "spark" / f"classes-{installed or 'own'}-{key}.jsa"


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
    from orchestration_queue.spark.environment import spark_home  # which looks here for what is made
    from orchestration_queue.spark.submit.options import SparkSubmit
    from orchestration_queue.spark.submit.run import run_submit

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


if __name__ == "__main__":
    print(make_class_archive())  # noqa: T201 (it is a command)
