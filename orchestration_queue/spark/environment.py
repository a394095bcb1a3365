"""The environment variables of a process that starts Spark, and the location of the archive of Spark's classes.

Java maps the archive into memory instead of reading, checking and linking 15,000 classes. `oq spark archive` makes it
once, for this Spark on this Java; every later start of Spark finds it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from orchestration_queue.errors import UsageError
from orchestration_queue.spark.java import cache_directory, java_home
from orchestration_queue.spark.options import SparkOptions

__all__ = ["ARCHIVE_QUIETLY", "class_archive", "spark_environment", "spark_home", "spark_python"]

_ELSEWHERE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "PYSPARK_GATEWAY_PORT")
"""Variables by which an outer Spark would take over the inner one."""


def spark_environment(options: SparkOptions, scratch: Path) -> dict[str, str]:
    """Return the environment of a process that starts Spark.

    Args:
        options: How Spark runs.
        scratch: A directory for this run alone.

    Raises:
        JavaNotFoundError: No suitable Java was found.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    if options.is_local:
        # Otherwise Spark listens on every interface, and warns when the host's name means loopback.
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if "spark.local.dir" not in options.conf:
            environment.setdefault("SPARK_LOCAL_DIRS", str(scratch / "local"))
        environment["PYSPARK_PYTHON"] = spark_python(options, scratch)
    if options.python is None:
        # What is importable here is importable there, and in Spark's own Python workers.
        paths = [str(Path(entry).absolute()) for entry in sys.path]
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    java = options.java_home or java_home()
    if (archive := class_archive(java, spark_home(environment))).exists():
        # Spark gives this variable to the driver's Java, before what the properties say.
        known = environment.get("SPARK_SUBMIT_OPTS", "")
        environment["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={archive} {ARCHIVE_QUIETLY} {known}".rstrip()
    environment |= {"JAVA_HOME": str(java), "PYTHONUNBUFFERED": "1"}
    return environment | dict(options.env)


def spark_python(options: SparkOptions, scratch: Path) -> str:
    """Return the path of the Python that Spark starts: the options' interpreter, or a script that starts this one.

    Spark puts its own copy of PySpark, an archive of sources, before the installed one. Every Python process would
    compile what it imports from it: 0.5 seconds of a core instead of 0.1.

    Args:
        options: How Spark runs.
        scratch: A directory for this run alone; the script is written there.
    """
    if options.python is not None:
        return str(options.python)
    if spark_home(os.environ | dict(options.env)) != spark_home({}):
        return sys.executable  # another Spark, whose PySpark is in its archive alone
    script = scratch / "python"
    script.write_text(
        f'#!/bin/sh\nPYTHONPATH=${{PYTHONPATH##*/pyspark.zip:*-src.zip:}} exec {shlex.quote(sys.executable)} "$@"\n'
    )
    script.chmod(0o700)
    return str(script) if os.access(script, os.X_OK) else sys.executable  # a file system may forbid programs


def spark_home(environment: Mapping[str, str]) -> str:
    """Return the home of Spark for a process with these variables: ``SPARK_HOME``, or else the installed PySpark.

    Raises:
        UsageError: PySpark is not installed.
    """
    if home := environment.get("SPARK_HOME"):
        return home
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise UsageError(
            "Spark work needs PySpark, which is not installed; run `pip install 'orchestration-queue[spark]'`."
        )
    return str(Path(spec.origin).parent)


ARCHIVE_QUIETLY = "-Xlog:cds*=off"
"""Ignore an archive that does not match, as with a user's class path, without a warning."""


def class_archive(java: Path, spark: str) -> Path:
    """Return the path of the class archive for these jars and this Java, whether it exists or not.

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
