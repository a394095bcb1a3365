"""A classic Spark session of this process, for tests of what runs in Spark's own Python workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestration_queue.spark import SparkOptions
from orchestration_queue.spark.environment import spark_environment

__all__ = ["classic_session"]

# PySpark takes a process in which one of these is set for one that speaks Connect.
_CONNECT_MODE = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")


@contextmanager
def classic_session(scratch: Path, master: str = "local[2,3]", conf: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session; its JVM ends with the block. Tasks are tried three times.

    Args:
        scratch: A directory for Spark's files.
        master: Where the work runs.
        conf: Further properties.
    """
    options = SparkOptions(master=master, conf={"spark.ui.showConsoleProgress": "false", **(conf or {})})
    before, path = dict(os.environ), list(sys.path)
    for name in _CONNECT_MODE:
        os.environ.pop(name, None)
    os.environ.update(spark_environment(options, scratch))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        from pyspark import java_gateway
        from pyspark.sql import SparkSession

        setattr(java_gateway, "Popen", _start_java)  # noqa: B010  not exported
        builder = SparkSession.builder
        for name, value in options.properties(scratch, "tests", None).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")  # what fails on purpose is said by exceptions
    finally:
        os.environ.clear()
        os.environ.update({name: value for name, value in before.items() if name not in _CONNECT_MODE})
        # PySpark puts a directory of its own first. It is part of a Connect server's identity, as the whole path is.
        sys.path[:] = path
    gateway: Any = session.sparkContext._gateway
    process = gateway.proc
    try:
        yield session
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of PySpark's own sockets
            session.stop()
            _forget_the_gateway()
            process.stdin.close()
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _start_java(command: list[str], *, preexec_fn: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start Spark's Java without PySpark's `preexec_fn`, and keep SIGINT from it by a process group instead.

    The hook runs Python between fork and exec. With threads around, gRPC's among them, it hangs now and then, and the
    parent waits for it without end.
    """
    del preexec_fn
    return subprocess.Popen(command, process_group=0, **options)


def _forget_the_gateway() -> None:
    """The next session of this process starts a JVM of its own."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
