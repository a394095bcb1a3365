"""Spark's classes as an archive that Java maps into memory, in place of reading, checking and linking 15,000 of them.

`oq spark archive` makes it once, for this Spark on this Java; from then on all who start Spark find it.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestration_queue.spark.java import cache_directory

__all__ = ["ARCHIVE_QUIETLY", "class_archive"]

ARCHIVE_QUIETLY = "-Xlog:cds*=off"
"""An archive that does not fit, as for a class path of the user's own, is left aside without a word."""


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
