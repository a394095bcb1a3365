"""What the operations of limits, usage and budgets send and read: no server needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orchestration_queue.errors import UsageError
from orchestration_queue.options import Budget, Usage
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import budgets, queue_settings, usage
from orchestration_queue.protocol.operations.budgets import BudgetState
from orchestration_queue.protocol.operations.usage import UsageTotals
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import stored_number
from tests.conversations import talk

KEYS = QueueKeys("q")


@pytest.mark.parametrize(
    ("stored", "number"),
    [(None, 0), ("", 0), ("7", 7), ("0.5", 0.5), ("1e3", 1000), ("-1", 0), ("x", 0), ("nan", 0), ("inf", 2**53)],
)
def test_a_stored_number_is_read_without_failing(stored: str | None, number: float) -> None:
    assert stored_number(stored) == number


@pytest.mark.parametrize(
    ("reply", "tokens"), [([None, None], 0), ([b"10", b"7"], 10), ([b"1.2", b"7"], 7), ([b"7.2", None], 8)]
)
def test_the_greater_of_both_reports_counts(reply: list[bytes | None], tokens: int) -> None:
    assert queue_settings.reported_tokens(KEYS, "1").read(reply) == tokens


@pytest.mark.parametrize(
    ("stored", "amounts"),
    [
        (None, {}),
        ("{", {}),
        ("[1]", {}),
        ('{"a":1,"b":0.5}', {"a": 1, "b": 0.5}),
        ('{"a":-1,"b":"2","c":null,"d":true,"e":0,"":4}', {"a": 7, "b": 7, "c": 7, "d": 7, "e": 0}),
    ],
)
def test_stored_amounts_are_read_without_failing(stored: str | None, amounts: Mapping[str, float]) -> None:
    assert usage.read_amounts(stored, otherwise=7) == amounts


@pytest.mark.parametrize(
    ("used", "wire"),
    [
        (Usage(), {}),
        (Usage(tokens={"a": 1.5, "b": 2.5}), {"tokens": {"a": 1.5, "b": 2.5}, "totalTokens": 4}),
        (Usage(tokens={"a": 1}, total_tokens=9), {"tokens": {"a": 1}, "totalTokens": 9}),
        (Usage(total_cost=0), {"totalCost": 0}),
        (Usage(latency=0.0015, cached=True), {"latencyMs": 1.5, "cached": True}),
    ],
)
def test_a_report_says_what_was_said_and_the_totals(used: Usage, wire: dict[str, Any]) -> None:
    assert used.wire() == wire


def test_totals_add_up_without_rounding_and_without_what_came_to_nothing() -> None:
    tenth = UsageTotals(jobs=1, cost=0.1, cost_by={"all": 0.1, "none": 0}, models={"m": 1})
    assert UsageTotals.of([tenth] * 10) == UsageTotals(jobs=10, cost=1, cost_by={"all": 1}, models={"m": 10})


def charge_of(tokens: str | None, weights: str | None, total: str | None = None) -> tuple[object, ...] | None:
    words = [word and word.encode() for word in (tokens, None, total, None)]
    operation = budgets.charge("b", [words, [weights and weights.encode(), None, None]])
    return None if operation is None else operation.call.args


@pytest.mark.parametrize(
    ("tokens", "weights", "total", "weighted"),
    [
        ('{"in":10,"out":4}', None, "14", 14),
        ('{"in":10,"out":4}', '{"out":2.5}', "14", 20),
        ('{"in":10,"out":4}', '{"out":0}', "14", 10),
        ('{"in":10,"out":4}', '{"in":-1,"out":"x"}', "14", 14),
        ('{"in":10}', '{"in":0}', "10", 10),
        (None, '{"in":3}', "5", 5),
    ],
)
def test_tokens_are_weighted_as_every_client_does(
    tokens: str | None, weights: str | None, total: str | None, weighted: float
) -> None:
    args = charge_of(tokens, weights, total)
    assert args is not None
    assert args[2] == weighted


def test_a_job_that_reported_nothing_is_charged_nothing() -> None:
    assert charge_of(None, '{"in":3}') is None


def test_a_strange_budget_is_read_without_failing() -> None:
    fields = {"maxTotalTokens": "many", "maxTokens": '{"a":-1,"b":2}', "onExceeded": "explode", "usedCost:all": "0.5"}
    flat = [word.encode() for pair in fields.items() for word in pair]
    assert budgets.budget(KEYS, "f").read(flat) == BudgetState(Budget(max_tokens_by={"b": 2}), cost_by={"all": 0.5})
    assert budgets.budget(KEYS, "f").read([]) is None


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "minutes"),
    [
        (60_000, 60_000, [1]),
        (60_001, 119_999, [1]),
        (60_000, 120_000, [1, 2]),
        (0, 59_999, [0]),
    ],
)
def test_usage_is_summed_by_the_minute(start_ms: int, end_ms: int, minutes: list[int]) -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Reply:
        calls.append(call)
        return [b"jobCount", b"2", b"totalTokens", b"5"] if call.keys[0] == KEYS.usage(60_000) else []

    found = talk(usage.summary("glide", ["q", "q"], start_ms, end_ms), answer)
    assert [call.keys[0] for call in calls] == [KEYS.usage(60_000 * minute) for minute in minutes]
    has_used = 1 in minutes
    assert (found.total.jobs, list(found.queues)) == ((2, ["q"]) if has_used else (0, []))


def test_a_summary_that_ends_before_it_starts_or_takes_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="end before it starts"):
        next(usage.summary("glide", ["q"], 120_000, 60_000))
    most = [f"q{number}" for number in range(usage._MOST_READS)]
    next(usage.summary("glide", most, 60_000, 60_000))
    with pytest.raises(UsageError, match="choose fewer queues"):
        next(usage.summary("glide", [*most, "more"], 60_000, 60_000))


def test_the_jobs_of_a_flow_are_found_level_by_level_and_once_each() -> None:
    waits_for = {"1": ["2", "3"], "2": ["4"], "3": ["4", "1"], "4": []}

    def answer(call: Call) -> Reply:
        (job_id,) = [job_id for job_id in waits_for if call.keys[0] == KEYS.deps(job_id)]
        return [*[KEYS.member(each).encode() for each in waits_for[job_id]], b"odd"]

    found = talk(usage.flow_jobs(ParentRef(KEYS, "1")), answer)
    assert [ref.job_id for ref in found] == ["1", "2", "3", "4"]
