"""`glidemq_recordUsageAndCheckBudget`: add what a job used and say whether it was too much."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire, Word


def record(wire: Wire, **values: Word) -> object:
    return wire.call("recordUsageAndCheckBudget", flowId="f", **values)


def test_without_a_budget_nothing_is_recorded(wire: Wire) -> None:
    with wire.unchanged():
        assert record(wire, tokens='{"input":5}', weightedTotal=5) == "no_budget"


def test_usage_adds_up_by_total_and_category(wire: Wire) -> None:
    wire.set_fields("budget:f", usedTokens=0, usedCost=0, exceeded=0)
    for _ in range(2):
        reply = record(
            wire,
            tokens='{"input":5,"output":2.5,"none":0,"less":-1}',
            costs='{"input":0.25}',
            weightedTotal=10,
            totalCost="0.25",
        )
        assert reply == "ok"
    used = {name: float(value) for name, value in wire.hash("budget:f").items()}
    assert used == {
        "usedTokens": 20,
        "usedCost": 0.5,
        "exceeded": 0,
        "usedTokens:input": 10,
        "usedTokens:output": 5,
        "usedCost:input": 0.5,
    }


@pytest.mark.parametrize(
    ("limits", "values", "reply"),
    [
        ({"maxTotalTokens": 10}, {"weightedTotal": 10}, "ok"),
        ({"maxTotalTokens": 10}, {"weightedTotal": 11}, "exceeded"),
        ({"maxTotalTokens": 0}, {"weightedTotal": 11}, "ok"),
        ({"maxTotalCost": "0.5"}, {"totalCost": "0.5"}, "ok"),
        ({"maxTotalCost": "0.5"}, {"totalCost": "0.75"}, "exceeded"),
        ({}, {"tokens": '{"in":4}', "maxTokens": '{"in":4}'}, "ok"),
        ({}, {"tokens": '{"in":5}', "maxTokens": '{"in":4}'}, "exceeded"),
        ({}, {"tokens": '{"in":5}', "maxTokens": '{"in":0,"out":1}'}, "ok"),
        ({}, {"costs": '{"in":5}', "maxCosts": '{"in":4}'}, "exceeded"),
        ({}, {"costs": '{"in":4}', "maxCosts": '{"in":4}'}, "ok"),
        ({"usedTokens:in": 4}, {"maxTokens": '{"in":3}'}, "exceeded"),
        ({"usedTokens": 9, "maxTotalTokens": 10}, {"weightedTotal": 2}, "exceeded"),
    ],
)
def test_more_than_a_limit_exceeds_the_budget(
    wire: Wire, limits: dict[str, Word], values: dict[str, Word], reply: str
) -> None:
    wire.set_fields("budget:f", exceeded=0, **limits)
    assert record(wire, **values) == reply
    assert wire.hash("budget:f")["exceeded"] == str(int(reply == "exceeded"))
    assert wire.call("checkBudget", flowId="f") == reply


def test_nothing_resets_the_flag(wire: Wire) -> None:
    wire.set_fields("budget:f", exceeded=1)
    assert record(wire) == "ok"
    assert wire.hash("budget:f") == {"exceeded": "1"}


@pytest.mark.parametrize("junk", ["", "{", "null", '"x"', "5"])
def test_categories_that_are_no_json_object_are_ignored(wire: Wire, junk: str) -> None:
    wire.set_fields("budget:f", exceeded=0)
    assert record(wire, tokens=junk, costs=junk, weightedTotal=3, maxTokens=junk, maxCosts=junk) == "ok"
    assert wire.hash("budget:f") == {"exceeded": "0", "usedTokens": "3"}
