"""The server's trigger rules, run here without a server: outcomes of graphs do not depend on timing."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations_with_replacement, permutations
from pathlib import Path
from typing import Any

import pytest
from lupa.lua51 import LuaRuntime

from orchestration_queue import TriggerRule

RULES = Path(__file__).parents[2] / "lua" / "orchestration_queue_1" / "lib" / "rules.lua"
OUTCOMES = ("success", "failed", "skipped")
OPTIONAL = "optional"


@cache
def lua() -> Any:
    return LuaRuntime()


@cache
def rules() -> Any:
    return lua().execute(RULES.read_text())


def first_verdict(rule: str, arrivals: tuple[str, ...]) -> str | None:
    """Return the first verdict while dependencies end in this order."""
    seen = Counter[str]()
    total = sum(outcome != OPTIONAL for outcome in arrivals)
    for ended, outcome in enumerate(("", *arrivals)):
        seen[outcome] += 1
        left = sum(each == OPTIONAL for each in arrivals[ended:])
        counts = lua().table_from({"total": total, "pending": left, **{name: seen[name] for name in OUTCOMES}})
        if verdict := rules().decide(rule, counts):
            return str(verdict)
    return None


def expected(rule: str, outcomes: tuple[str, ...]) -> str:
    """Return the outcome as the table of docs/explanation/flows.md has it, of ``deps`` alone."""
    seen = Counter(outcome for outcome in outcomes if outcome != OPTIONAL)
    failed, skipped, good = seen["failed"], seen["skipped"], seen["success"]
    runs, otherwise = {
        "all_success": (not failed and not skipped, "upstream_failed" if failed else "skipped"),
        "all_failed": (not good and not skipped, "skipped"),
        "all_done": (True, ""),
        "one_success": (good > 0, "upstream_failed" if failed else "skipped"),
        "one_failed": (failed > 0, "skipped"),
        "none_failed": (not failed, "upstream_failed"),
        "none_failed_min_one_success": (not failed and good > 0, "upstream_failed" if failed else "skipped"),
        "always": (True, ""),
    }[rule]
    return "run" if runs else otherwise


@pytest.mark.parametrize("rule", list(TriggerRule))
def test_every_order_of_up_to_five_dependencies_gives_one_outcome(rule: TriggerRule) -> None:
    for count in range(1, 6):
        for outcomes in combinations_with_replacement(OUTCOMES, count):
            for arrivals in set(permutations(outcomes)):
                assert first_verdict(rule, arrivals) == expected(rule, outcomes), arrivals


@pytest.mark.parametrize("rule", sorted({"all_failed", "one_success", "one_failed", "none_failed_min_one_success"}))
def test_optional_dependencies_are_waited_for_and_not_counted(rule: str) -> None:
    assert rules().SINGLE_OUT_OPTIONAL[rule]
    for count in range(1, 4):
        for outcomes in combinations_with_replacement(OUTCOMES, count):
            for arrivals in set(permutations((*outcomes, OPTIONAL))):
                assert first_verdict(rule, arrivals) == expected(rule, outcomes), arrivals


@pytest.mark.parametrize("rule", ["one_success", "one_failed"])
def test_a_run_waits_for_the_last_optional_dependency(rule: str) -> None:
    counts = {"total": 1, "success": 1, "failed": 0, "skipped": 0}
    if rule == "one_failed":
        counts |= {"success": 0, "failed": 1}
    table = lua().table_from
    assert not rules().decide(rule, table({**counts, "pending": 1}))
    assert rules().decide(rule, table({**counts, "pending": 0})) == "run"
