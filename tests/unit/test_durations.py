"""Every public parameter that is a duration takes a timedelta or seconds, and says so."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.options import Options, as_timedelta, milliseconds, seconds

_MODULES = ("", ".dagster", ".wires.chasquimq", ".server", ".spark", ".tasks", ".telemetry", ".testing")
_IN_SECONDS = re.compile(r"(_s|_seconds)$")
_DURATIONS = re.compile(r"(^|_)(timeout|ttl|grace|lease|interval|delay|duration|age|wait|every|period)$", re.IGNORECASE)
_TYPES = ("Duration", "timedelta | float", "DurationField", "NonNegative", "Positive")


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield the public functions, constructors and methods of the package, by name."""
    for suffix in _MODULES:
        module = importlib.import_module(f"orchestration_queue{suffix}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                yield name, value
            if not inspect.isclass(value):
                continue
            for member, function in inspect.getmembers(value, inspect.isfunction):
                is_ours = function.__module__.startswith("orchestration_queue")
                if is_ours and (member == "__init__" or not member.startswith("_")):
                    yield f"{name}.{member}", function


def wrong_annotations() -> Iterator[str]:
    for name, function in public_functions():
        for parameter, annotation in inspect.get_annotations(function).items():
            text = str(annotation)
            if parameter == "return" or any(each in text for each in _TYPES):
                continue
            if "timedelta" in text or (_DURATIONS.search(parameter) and "float" in text):
                yield f"{name}({parameter}: {text})"


def wrong_fields() -> Iterator[str]:
    pending = [Options]
    while pending:
        owner = pending.pop()
        pending += owner.__subclasses__()
        for field, annotation in inspect.get_annotations(owner).items():
            text = str(annotation)
            if "timedelta" in text and not any(each in text for each in _TYPES):
                yield f"{owner.__name__}.{field}: {text}"


@pytest.mark.parametrize("find", [wrong_annotations, wrong_fields])
def test_every_duration_of_the_public_api_is_annotated_as_one(find: Any) -> None:
    assert sorted(set(find())) == []


def test_the_public_api_has_durations() -> None:
    takers = {name for name, function in public_functions() if "Duration" in str(inspect.get_annotations(function))}
    assert {"Job.wait", "AsyncJob.wait", "Queue.add_and_wait", "Every.__init__"} <= takers


@pytest.mark.parametrize(("given", "expected_ms"), [(1.5, 1500), (2, 2000), (timedelta(milliseconds=7), 7), (0, 0)])
def test_a_duration_is_read_in_any_unit(given: float | timedelta, expected_ms: int) -> None:
    assert milliseconds(given) == expected_ms
    assert seconds(given) == expected_ms / 1000
    assert as_timedelta(given) == timedelta(milliseconds=expected_ms)


def test_no_duration_stays_none() -> None:
    assert as_timedelta(None) is None
