"""Both faces offer the same: names, arguments, defaults and results agree, modulo await."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from orchestration_queue import client, server
from orchestration_queue.wires import chasquimq, qless

PAIRS = [
    (getattr(module, name), getattr(module, name.removeprefix("Async")))
    for module in (client, server, chasquimq, qless)
    for name in module.__all__
    if name.startswith("Async")
]

_RENAMED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
}


def _members(face: type) -> dict[str, str]:
    """Everything a class offers, as text in the sync face's words."""
    members = {}
    for name, value in inspect.getmembers_static(face):
        if name.startswith("_") and name not in {"__init__", *_RENAMED, *_RENAMED.values()}:
            continue
        if _is_refusal(value):
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        signature = str(inspect.signature(function)) if inspect.isfunction(function) else type(value).__name__
        members[_RENAMED.get(name, name)] = re.sub(r"\bAsync(?=[A-Z])", "", signature)
    return members


def _is_refusal(method: object) -> bool:
    """Whether a method only says that its class needs the other kind of `with`."""
    return getattr(method, "__module__", "") == "orchestration_queue.client.entering"


def test_every_async_client_has_a_sync_twin() -> None:
    assert {face.__name__ for face, _ in PAIRS} == {
        "AsyncAlerts",
        "AsyncBroadcast",
        "AsyncChasquiEvents",
        "AsyncChasquiMove",
        "AsyncChasquiQueue",
        "AsyncConnection",
        "AsyncDeadLetters",
        "AsyncEventReader",
        "AsyncFlow",
        "AsyncFlowProducer",
        "AsyncFlows",
        "AsyncJob",
        "AsyncJobSchedulers",
        "AsyncLogTail",
        "AsyncPools",
        "AsyncProducer",
        "AsyncQlessClient",
        "AsyncQlessEvents",
        "AsyncQlessMove",
        "AsyncQueue",
        "AsyncShardedEvents",
        "AsyncShardedQueue",
        "AsyncTakenJob",
        "AsyncQueueEvents",
        "AsyncRegistration",
        "AsyncShares",
        "AsyncSubscription",
        "AsyncTags",
        "AsyncUsageLedger",
    }


@pytest.mark.parametrize(("async_face", "sync_face"), PAIRS, ids=[sync.__name__ for _, sync in PAIRS])
def test_names_and_signatures_agree(async_face: type, sync_face: type) -> None:
    members = _members(sync_face)
    assert members == _members(async_face)
    assert "__init__" in members


@pytest.mark.parametrize(("async_face", "sync_face"), PAIRS, ids=[sync.__name__ for _, sync in PAIRS])
def test_no_method_of_a_sync_face_returns_something_to_await(async_face: type, sync_face: type) -> None:
    members = inspect.getmembers(sync_face)
    awaited = [name for name, value in members if inspect.iscoroutinefunction(value) and not _is_refusal(value)]
    assert awaited == []
    assert any(inspect.iscoroutinefunction(value) for _, value in inspect.getmembers(async_face))


def test_all_names_of_the_package_can_be_loaded() -> None:
    package = importlib.import_module("orchestration_queue")
    for name in package.__all__:
        assert getattr(package, name) is not None, name
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'Quueue'"):
        _ = package.Quueue
