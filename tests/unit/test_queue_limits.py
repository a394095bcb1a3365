"""What bounds a queue's jobs, as the server keeps it: pools, budgets, and the queue's settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.errors import ServerError, StateError
from orchestration_queue.options import Budget, QueueSettings, RateLimit
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import budgets, pools, queue_settings
from orchestration_queue.protocol.operations.budgets import BudgetState
from orchestration_queue.protocol.operations.pools import Grant, Holding, Pool, PoolHolder
from orchestration_queue.protocol.placement import ParentRef
from tests.conversations import hold, named

KEYS = QueueKeys("q")
NOW = 1_700_000_000_000
HOLDING = Holding(KEYS, "7", NOW, 30_000, {"warehouse": 2, "gpu": 1})


@pytest.mark.parametrize(
    ("reply", "grant"),
    [
        ([b"held", 0, [b"x"]], Grant(is_held=True, sleep_ms=0, unknown=None, woken=["x"])),
        ([b"wait", 500, []], Grant(is_held=False, sleep_ms=500, unknown=None, woken=[])),
        ([b"unknown", b"gpu", []], Grant(is_held=False, sleep_ms=0, unknown="gpu", woken=[])),
    ],
)
def test_a_grant_says_what_came_of_asking(reply: Reply, grant: Grant) -> None:
    assert pools.acquire(HOLDING, NOW).read(reply) == grant


def test_leases_on_slots_are_renewed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_RENEWALS", 2)
    calls = pools.renew(KEYS, [HOLDING, HOLDING], NOW)
    assert [sum(word in ("warehouse", "gpu") for word in call.args) for call in calls] == [2, 2]
    assert pools.renew(KEYS, [], NOW) == []


@pytest.mark.parametrize(("reply", "was_there"), [(b"removed", True), (b"absent", False)])
def test_a_pool_is_removed_unless_it_is_in_use(reply: bytes, was_there: bool) -> None:
    assert pools.remove(KEYS, "gpu", NOW).read(reply) is was_there
    with pytest.raises(StateError, match="gpu"):
        pools.remove(KEYS, "gpu", NOW).read(b"in_use")


def start(letters: Any, tokens: list[str], *, is_last: bool) -> tuple[list[str], list[Call]]:
    """Start woken jobs, which the queue answers with these letters; return those still active, and the calls."""

    def answer(call: Call) -> Reply:
        return letters if call.name == "oq1_startParked" else []

    return hold(pools.start_woken(KEYS, tokens, NOW, is_last=is_last), {}, answer)


def skipped(calls: list[Call]) -> list[tuple[object, object]]:
    """Return the waiters that others went before, and whether they are gone."""
    words = [word for call in named(calls, "oq1_skipWaiters") for word in call.args]
    places = [place for place, word in enumerate(words) if str(word).startswith(KEYS.base)]
    return [(words[place], words[place + 1]) for place in places]


def test_woken_jobs_start_and_those_that_cannot_are_gone_before() -> None:
    a, b, c = (KEYS.member(name) for name in "abc")
    active, calls = start(b"rag", [a, b, c], is_last=False)
    assert active == [b]
    assert skipped(calls) == [(c, 1)]
    active, calls = start(b"rag", [a, b, c], is_last=True)
    assert active == []
    assert skipped(calls) == [(b, 0), (c, 1)]
    active, calls = start(b"r", [a], is_last=True)
    assert (active, skipped(calls)) == ([], [])


def test_a_queue_that_refuses_holds_up_no_other() -> None:
    other = QueueKeys("other")
    asked: list[Call] = []

    def answer(call: Call) -> Reply:
        asked.append(call)
        if call.name == "oq1_startParked":
            return ServerError("full", code="OOM") if len(named(asked, "oq1_startParked")) == 1 else b"r"
        return []

    tokens = [KEYS.member("a"), other.member("b"), "no member"]
    active, calls = hold(pools.start_woken(KEYS, tokens, NOW, is_last=False), {}, answer)
    assert active == []
    assert len(named(calls, "oq1_startParked")) == 2
    assert skipped(calls) == [(KEYS.member("a"), 0)]
    assert any("no member" in call.args for call in named(calls, "oq1_skipWaiters"))


def test_pools_are_read_with_those_who_hold_them_now() -> None:
    holders = {
        KEYS.member("b"): f"{NOW + 1} 2 5",
        KEYS.member("a"): f"{NOW + 1} 1 5",
        KEYS.member("late"): f"{NOW} 1 5",
        KEYS.member("odd"): "x 1 5",
        "no member": f"{NOW + 1} 1 5",
    }
    words = [word.encode() for pair in holders.items() for word in pair]
    replies: dict[str, Reply] = {"HGETALL": words, "ZCARD": 3}

    def answer(call: Call) -> Reply:
        return [b"gpu", b"2", b"cpu", b"x"] if call.keys == (KEYS.pool_slots,) else replies[call.name]

    found, _ = hold(pools.states(KEYS, NOW, ["gpu", "none"]), {}, answer)
    assert found == [Pool("gpu", 2, (PoolHolder("q", "a", 1, NOW + 1), PoolHolder("q", "b", 2, NOW + 1)), 3)]
    assert [pool.name for pool in hold(pools.states(KEYS, NOW), {}, answer)[0]] == ["cpu", "gpu"]


@pytest.mark.parametrize("stored", [None, b"x", b"[]", b"{}", b'{"pools":5}', b'{"pools":{"a":"x"}}'])
def test_a_job_that_waits_for_no_pool_waits_for_none(stored: bytes | None) -> None:
    assert pools.wait_of(KEYS, "7").read(stored) == {}
    assert pools.wait_of(KEYS, "7").read(b'{"pools":{"gpu":2}}') == {"gpu": 2}


@pytest.mark.parametrize(
    ("used", "passes"),
    [
        (BudgetState(Budget(max_tokens=1), tokens=10), True),
        (BudgetState(Budget(max_tokens=1), tokens=9), False),
        (BudgetState(Budget(max_tokens=1), cost=5.5), True),
        (BudgetState(Budget(max_tokens=1), cost=5), False),
        (BudgetState(Budget(max_tokens=1), tokens_by={"in": 4}), True),
        (BudgetState(Budget(max_tokens=1), tokens_by={"in": 3, "out": 99}), False),
        (BudgetState(Budget(max_tokens=1), cost_by={"gpu": 3}), True),
        (BudgetState(Budget(max_tokens=1), cost_by={"gpu": 2}), False),
    ],
)
def test_another_budget_counts_what_was_used(used: BudgetState, passes: bool) -> None:
    budget = Budget(max_tokens=9, max_cost=5, max_tokens_by={"in": 3}, max_cost_by={"gpu": 2})
    assert used.exceeds(budget) is passes
    state = budgets.budget_calls(KEYS, "f", budget, used)[1].args
    assert state[state.index("exceeded") + 1] == int(passes)
    assert not BudgetState(budget, tokens=99).exceeds(Budget(max_cost=1))


def test_a_budget_is_stored_with_its_bounds_alone() -> None:
    drop, fields, *counts = budgets.budget_calls(KEYS, "f", Budget(max_cost=2, on_exceeded="pause"))
    assert fields.args == ("onExceeded", "pause", "exceeded", 0, "maxTotalCost", 2)
    assert (drop.name, [call.args for call in counts]) == ("HDEL", [("usedTokens", 0), ("usedCost", 0)])
    (held,) = budgets.apply_budget(KEYS, "f", [ParentRef(KEYS, "7")])
    assert held == Call("HSET", (KEYS.job("7"),), ("budgetKey", KEYS.budget("f")))


def test_a_budget_is_read_as_any_client_stored_it() -> None:
    stored = {"maxTotalTokens": "9", "maxTokens": '{"in":3,"out":0}', "onExceeded": "pause", "usedTokens": "4",
              "usedTokens:in": "4", "exceeded": "1"}  # fmt: skip
    words = [word.encode() for pair in stored.items() for word in pair]
    state = budgets.budget(KEYS, "f").read(words)
    assert state is not None
    assert state.budget == Budget(max_tokens=9, max_tokens_by={"in": 3}, on_exceeded="pause")
    assert (state.tokens, state.cost, state.tokens_by, state.is_exceeded) == (4, 0, {"in": 4}, True)
    assert budgets.budget(KEYS, "f").read([]) is None
    (other,) = [budgets.budget(KEYS, "f").read([b"maxTotalCost", b"1", b"exceeded", b"0", b"costUnit", b"usd"])]
    assert other is not None
    assert (state.budget.cost_unit, other.budget.cost_unit) == (None, "usd")
    assert (other.budget.on_exceeded, other.budget.max_tokens, other.is_exceeded) == ("fail", None, False)


@pytest.mark.parametrize(("reply", "is_spent"), [(b"exceeded", True), (b"ok", False), (None, False)])
def test_whether_a_budget_is_spent(reply: bytes | None, is_spent: bool) -> None:
    assert budgets.is_spent("key").read(reply) is is_spent


@pytest.mark.parametrize(("reply", "pauses"), [(b"pause", True), (b"fail", False), (None, False)])
def test_whether_jobs_wait_when_it_is(reply: bytes | None, pauses: bool) -> None:
    assert budgets.pauses_when_spent("key").read(reply) is pauses


def test_what_a_job_used_is_weighed_before_it_is_counted() -> None:
    nothing: list[Reply] = [[None] * 4, [None] * 3]
    assert budgets.charge("key", nothing) is None
    for place in range(4):
        assert budgets.charge("key", [[b"1" if at == place else None for at in range(4)], [None] * 3]) is not None
    weighed = budgets.charge("key", [[b'{"in":3,"out":2}', None, b"9", b"0.5"], [b'{"out":4}', None, None]])
    assert weighed is not None
    assert {11.0, 0.5} <= {word for word in weighed.call.args if isinstance(word, (int, float))}
    total = budgets.charge("key", [[None, None, b"9", None], [None] * 3])
    assert total is not None
    assert 9 in total.call.args
    assert total.call.args.count("{}") == 4, "what was not reported or limited"
    bounds = b'{"in":5}', b'{"gpu":6}'
    every = budgets.charge("key", [[b'{"in":3}', b'{"gpu":1}', None, None], [None, *bounds]])
    assert every is not None
    assert every.call.args[:2] == ('{"in":3}', '{"gpu":1}')
    assert {'{"in":5}', '{"gpu":6}'} <= set(every.call.args)


@pytest.mark.parametrize(
    ("stored", "limit"),
    [
        ([b"5", b"1000"], RateLimit(max=5, duration=1)),
        ([b"0", b"1000"], None),
        ([b"5", b"0"], None),
        ([b"5", None], None),
        ([b"-5", b"1000"], None),
        ([b"5", b"1" * 16], None),
    ],
)
def test_a_stored_rate_limit_is_one_whose_parts_are_positive(stored: list[Any], limit: RateLimit | None) -> None:
    assert queue_settings.global_rate_limit(KEYS).read(stored) == limit


def test_a_stored_number_has_at_most_fifteen_digits() -> None:
    read = queue_settings.global_concurrency(KEYS).read
    assert [read(stored) for stored in (b"9" * 15, b"9" * 16, b"0", b"x", None)] == [
        int("9" * 15),
        None,
        None,
        None,
        None,
    ]


def test_settings_change_what_was_given_and_remove_what_was_none() -> None:
    changes = QueueSettings(attempts=3, timeout=None, concurrency=None, dead_letter_queue="dead")
    calls = [(call.name, call.args) for call in queue_settings.set_settings(KEYS, changes)]
    assert calls == [
        ("HSET", ("default:attempts", "3")),
        ("HDEL", ("default:timeout",)),
        ("HSET", ("default:deadLetterQueue", "dead", "deadLetterQueueName", "dead")),
        ("HDEL", ("globalConcurrency",)),
    ]
    calls = [(call.name, call.args) for call in queue_settings.set_settings(KEYS, QueueSettings(concurrency=2))]
    assert calls == [("HSET", ("globalConcurrency", 2))]
    limit = RateLimit(max=5, duration=timedelta(milliseconds=1))
    (call,) = queue_settings.set_settings(KEYS, QueueSettings(rate_limit=limit))
    assert (call.args[1], call.args[3]) == (5, 1)


def test_stored_settings_leave_out_what_cannot_be_read() -> None:
    call = queue_settings.stored_settings(KEYS).call
    stored = {"default:attempts": b"3", "default:timeout": b"{", "default:lockDuration": b"5000"}

    def read(letters: bytes | None, **more: bytes) -> queue_settings.StoredSettings:
        known = {**stored, **more, "default:deadLetterQueue": letters}
        return queue_settings.stored_settings(KEYS).read([known.get(str(name)) for name in call.args])

    found = read(b"dead")
    assert (found.job_options, found.lease_ms, found.dead_letter_queue) == ({"attempts": 3}, 5000, "dead")
    assert [read(letters).dead_letter_queue for letters in (None, b"", b"q", b"a:b")] == [None] * 4
