"""`glidemq_version`: who the library is."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.functions import REVISIONS
from tests.lua.signatures import SIGNATURES
from tests.lua.wire import Wire


@pytest.mark.parametrize("keys", [[], ["{glidemq}:_"]], ids=["no key", "one dummy key, as cluster clients send"])
def test_answers_93_as_text_and_touches_nothing(wire: Wire, keys: list[str]) -> None:
    with wire.unchanged():
        assert wire.fcall("version", keys, []) == "93"


def test_says_the_number_of_its_text_only_when_asked(wire: Wire) -> None:
    with wire.unchanged():
        assert wire.fcall("version", [], ["revision"]) == f"93.{REVISIONS['glidemq']}"
        assert wire.fcall("version", ["{glidemq}:_"], ["revision"]) == f"93.{REVISIONS['glidemq']}"
        assert wire.fcall("version", [], ["another"]) == "93"


def test_registers_exactly_the_45_functions_without_flags(wire: Wire) -> None:
    (library,) = wire.client.function_list(library="glidemq")
    fields = dict(zip(library[::2], library[1::2], strict=True))
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in fields["functions"]]
    functions = [row for row in rows if row["name"] != "coverage_glidemq"]  # only there when --lua-coverage measures
    assert fields["library_name"] == "glidemq"
    assert {row["name"] for row in functions} == {f"glidemq_{name}" for name in SIGNATURES}
    assert len(functions) == 45
    assert {row["name"]: list(row["flags"]) for row in functions if row["flags"]} == {}
