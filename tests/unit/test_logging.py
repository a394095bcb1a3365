"""No text of a job forges a line of a log or drives a terminal, whatever formats the records."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orchestration_queue
from orchestration_queue._logging import Lines, get_logger
from orchestration_queue._text import UNSAFE, clean
from orchestration_queue.worker.observability import JsonFormatter

PACKAGE = Path(orchestration_queue.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = {"log", "_log", "_logger"}
HOSTILE = "a\x1b[2J\x9b31m\r\n2026-01-01 00:00:00 ERROR forged\u2028\u2029\u202eb\x85"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What a plain handler writes of the records of one logger."""
    logger, written = get_logger("orchestration_queue.tested"), io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


@pytest.mark.parametrize("value", [HOSTILE, HOSTILE.encode(), [HOSTILE], {"k": HOSTILE}, ValueError(HOSTILE)], ids=type)
@pytest.mark.parametrize("spec", ["%s", "%r", "%.500s"])
def test_an_argument_stays_on_one_line_without_unsafe_characters(spec: str, value: object, stream: io.StringIO) -> None:
    get_logger("orchestration_queue.tested").warning(
        f"Job {spec} of queue %s failed %d times in %.1f s", value, "q", 2, 0.5
    )
    text = stream.getvalue()
    assert text.endswith(" of queue q failed 2 times in 0.5 s\n")
    assert not UNSAFE.search(text.removesuffix("\n"))


def test_named_arguments_are_escaped(stream: io.StringIO) -> None:
    get_logger("orchestration_queue.tested").warning("%(job)s", {"job": HOSTILE})
    assert stream.getvalue() == f"WARNING: {clean(HOSTILE)}\n"


def test_lines_are_kept_and_none_begins_a_record(stream: io.StringIO) -> None:
    get_logger("orchestration_queue.tested").error("failed:\n%s", Lines(f"Traceback\n\tat x\n{HOSTILE}"))
    first, *rest = stream.getvalue().split("\n")[:-1]
    assert first == "ERROR: failed:"
    assert rest[:2] == ["  Traceback", "  \tat x"]
    assert all(line.startswith("  ") and not UNSAFE.search(line.replace("\t", "")) for line in rest)


def test_the_traceback_of_an_exception_is_escaped_and_readable(stream: io.StringIO) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        get_logger("orchestration_queue.tested").exception("Job %s", HOSTILE)
    first, *rest = stream.getvalue().split("\n")[:-1]
    assert first == f"ERROR: Job {clean(HOSTILE)}"
    assert rest[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and not UNSAFE.search(line) for line in rest)


@given(st.text(), st.text())
def test_no_text_escapes(value: str, lines: str) -> None:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "%s and %r\n%s", (value, value, Lines(lines)), None)
    assert get_logger("orchestration_queue.tested").filter(record)
    first, *rest = record.getMessage().split("\n")
    assert not UNSAFE.search(first)
    assert all(line.startswith("  ") and not UNSAFE.search(line.replace("\t", "")) for line in rest)


@given(st.text())
def test_a_record_in_json_is_one_line_and_its_fields_are_unchanged(value: str) -> None:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "failed: %s\n%s", (value, Lines(value)), None)
    record.oq = {"traceback": value, "error": value}
    assert get_logger("orchestration_queue.tested").filter(record)
    line = JsonFormatter().format(record)
    assert not UNSAFE.search(line)
    read = json.loads(line)
    assert (read["traceback"], read["error"]) == (value, value)
    assert read["message"] == f"failed: {clean(value)}" + ("" if value else "\n  ")


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def test_every_logger_of_the_package_escapes() -> None:
    others = [
        where
        for where, call in calls()
        if ast.unparse(call.func) == "logging.getLogger"
        and call.args
        and ast.unparse(call.args[0]) != "'alembic'"
        and not where.startswith("_logging.py")
    ]
    assert others == [], "pass get_logger() the name"


def test_every_template_is_a_constant() -> None:
    """Only arguments are escaped."""
    others = [
        where
        for where, call in calls()
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in LOGGERS
        and not (call.args and isinstance(call.args[0], ast.Constant))
    ]
    assert [where for where in others if not where.startswith("telemetry/server.py")] == []
