"""`oq1_version`, and what the library registers."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.library import LIBRARIES
from tests.lua.oq1 import LIBRARY, Own
from tests.lua.wire import Wire

OURS = next(library for library in LIBRARIES if library.name == "orchestration_queue_1")


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def test_answers_its_revision_as_text(own: Own) -> None:
    with own.wire.unchanged():
        assert own.wire.ask("FCALL", "oq1_version", 0) == OURS.version


def test_lives_beside_the_wire_s_library(own: Own) -> None:
    libraries = {row[1] for row in own.wire.client.function_list()}
    assert libraries == {"glidemq", "orchestration_queue_1", "chasquimq"}
    assert own.wire.fcall("version", [], []) == "93"


def test_every_function_has_the_prefix_of_its_abi() -> None:
    names = [line.split('"')[1] for line in LIBRARY.read_text().splitlines() if "redis.register_function(" in line]
    assert names
    assert {name.partition("_")[0] for name in names} == {"oq1"}
