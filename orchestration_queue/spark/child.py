"""The process that runs Spark work. :func:`~orchestration_queue.spark.run.run_spark` starts it.

It reads its request as JSON from standard input, and writes its reply as JSON to a separate pipe, so that only what the
work prints goes to the job's log.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from orchestration_queue._process import die_with_parent
from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.protocol import codec
from orchestration_queue.spark.dataframes import dataframe_parameters
from orchestration_queue.spark.failure import SparkFailure, describe_exit
from orchestration_queue.spark.functions import registered
from orchestration_queue.spark.result_files import ResultLocation, call_with_frames

_JAVA_LEAVES_S = 5.0
"""How long Spark's Java process may take to exit after it was asked to."""


def main(parent: int, channel: int) -> int:
    """Run one request, and return the exit code."""
    die_with_parent(parent)
    # Java must not keep the reply open after this process.
    os.set_inheritable(channel, False)
    request = json.load(sys.stdin)
    with os.fdopen(channel, "w", encoding="utf-8") as reply:
        try:
            answer, code = _run(request), 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1 if error.code else 0
            answer = json.dumps({"exit_code": code, "said": error.code if isinstance(error.code, str) else ""})
        except BaseException as error:
            answer, code = _describe_failure(error), 1
        # First: after the reply, the worker waits only for the grace period.
        _stop_spark()
        reply.write(answer)
    return code


def _run(request: dict[str, Any]) -> str:
    if "script" in request:
        result = _run_script(Path(request["script"]), request["arguments"])
    else:
        result = _run_function(request["function"], request["arguments"], request.get("results"))
    said = codec.encode(result, "The result of the Spark work")
    return f'{{"application":{json.dumps(_application())},"result":{said}}}'


def _application() -> str | None:
    """Return the application's id; None when it has ended."""
    with contextlib.suppress(Exception):  # Java may have died after the work was done
        context = sys.modules["pyspark.core.context"].SparkContext._active_spark_context
        return str(context.applicationId) if context else None
    return None


def _run_function(name: str, arguments: dict[str, Any], results: dict[str, Any] | None) -> Any:
    module_name, _, qualified = name.partition(":")
    function: Any = importlib.import_module(module_name)
    for part in qualified.split("."):
        function = getattr(function, part)
    # The name may now refer to a task of the worker; run the function that was decorated.
    function = registered(name) or function
    frames = {key: value for key, value in arguments.items() if key in dataframe_parameters(function)}
    typed = frames | _convert(function, {key: value for key, value in arguments.items() if key not in frames})

    from pyspark.sql import SparkSession

    kept = ResultLocation.from_json(results) if results else None
    return call_with_frames(function, SparkSession.builder.getOrCreate(), typed, kept)


def _convert(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Convert JSON to the types that the function declares: text to dates and paths."""
    bare = functools.wraps(function)(lambda: None)
    # Without the session's type, which may be imported for type checkers only.
    bare.__annotations__ = {name: hint for name, hint in bare.__annotations__.items() if name in arguments}
    hints = get_type_hints(bare, include_extras=True)
    return {
        name: TypeAdapter(hints[name]).validate_python(value) if name in hints else value
        for name, value in arguments.items()
    }


def _run_script(script: Path, arguments: list[str]) -> Any:
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    return runpy.run_path(str(script), run_name="__main__").get("result")


def _describe_failure(error: BaseException) -> str:
    failure = SparkFailure.of(error)
    if (java := _java()) and (code := java.poll()) is not None:
        failure = SparkFailure("SparkError", f"Spark's Java process {describe_exit(code)} while the work ran")
    print(failure, *(f"  at {frame}" for frame in reversed(failure.frames)), sep="\n", flush=True)  # noqa: T201
    return json.dumps(
        {"kind": failure.kind, "reason": str(failure), "unrecoverable": isinstance(error, UnrecoverableError)}
    )


def _java() -> subprocess.Popen[bytes] | None:
    """Return Spark's Java process; None when none was started."""
    if (context := sys.modules.get("pyspark.core.context")) is None:
        return None
    process: subprocess.Popen[bytes] | None = getattr(context.SparkContext._gateway, "proc", None)
    return process


def _stop_spark() -> None:
    """Stop the application and wait for its Java process, which would otherwise exit about a second after this one."""
    if (java := _java()) is None:
        return
    with contextlib.suppress(Exception):  # the work is over; how Spark exits is not part of it
        if java.poll() is None and (active := sys.modules["pyspark.core.context"].SparkContext._active_spark_context):
            active.stop()
    # py4j's garbage collection may still talk to the exiting Java, and would log that as an error of the work.
    logging.disable()
    if java.stdin:
        java.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        java.wait(_JAVA_LEAVES_S)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[-2]), int(sys.argv[-1])))
