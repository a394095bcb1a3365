"""Budgets of flows: stored beside the root job, named by each job, and checked before and after each attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orchestration_queue.options import Budget
from orchestration_queue.protocol.call import Call, Operation, Reply, optional_text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.usage import by_category, read_amounts
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import pairs, stored_number

__all__ = [
    "BudgetState",
    "apply_budget",
    "budget",
    "budget_calls",
    "charge",
    "is_spent",
    "pauses_when_spent",
    "usage_calls",
]

_LIMITS = ("maxTotalTokens", "maxTokens", "tokenWeights", "maxTotalCost", "maxCosts", "costUnit")

_REPORTED = ("usage:tokens", "usage:costs", "usage:totalTokens", "usage:totalCost")


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A flow's budget, and how much of it is used.

    Attributes:
        budget: What the flow may use.
        tokens: Tokens used, weighted.
        cost: Cost so far.
        tokens_by: Tokens by category, unweighted.
        cost_by: Costs by category.
        is_exceeded: Whether its jobs fail or wait instead of starting.
    """

    budget: Budget
    tokens: float = 0
    cost: float = 0
    tokens_by: Mapping[str, float] = field(default_factory=dict)
    cost_by: Mapping[str, float] = field(default_factory=dict)
    is_exceeded: bool = False

    def exceeds(self, budget: Budget) -> bool:
        """Whether the usage exceeds a budget."""
        return (
            (budget.max_tokens is not None and self.tokens > budget.max_tokens)
            or (budget.max_cost is not None and self.cost > budget.max_cost)
            or any(self.tokens_by.get(name, 0) > most for name, most in budget.max_tokens_by.items())
            or any(self.cost_by.get(name, 0) > most for name, most in budget.max_cost_by.items())
        )


def budget(keys: QueueKeys, flow_id: str) -> Operation[BudgetState | None]:
    """Read a flow's budget; None without one."""

    def read(reply: Reply) -> BudgetState | None:
        return _read_state(pairs(reply)) if reply else None

    return Operation(Call("HGETALL", (keys.budget(flow_id),)), read)


def _read_state(fields: Mapping[str, str]) -> BudgetState:
    def bounds(name: str) -> dict[str, float]:
        return {category: most for category, most in read_amounts(fields.get(name)).items() if most > 0}

    return BudgetState(
        budget=Budget(
            max_tokens=stored_number(fields.get("maxTotalTokens")) or None,
            max_tokens_by=bounds("maxTokens"),
            token_weights=read_amounts(fields.get("tokenWeights")),
            max_cost=stored_number(fields.get("maxTotalCost")) or None,
            max_cost_by=bounds("maxCosts"),
            cost_unit=fields.get("costUnit") or None,
            on_exceeded="pause" if fields.get("onExceeded") == "pause" else "fail",
        ),
        tokens=stored_number(fields.get("usedTokens")),
        cost=stored_number(fields.get("usedCost")),
        tokens_by=by_category(fields, "usedTokens:"),
        cost_by=by_category(fields, "usedCost:"),
        is_exceeded=fields.get("exceeded") == "1",
    )


def budget_calls(keys: QueueKeys, flow_id: str, budget: Budget, so_far: BudgetState | None = None) -> list[Call]:
    """Set or replace a flow's budget. Send the calls as one transaction, before :func:`apply_budget`.

    The usage ``so_far`` stays counted, and decides whether the new budget is exceeded.
    """
    key = keys.budget(flow_id)
    limits = {
        "maxTotalTokens": budget.max_tokens,
        "maxTokens": budget.max_tokens_by and dump_json(dict(budget.max_tokens_by)),
        "tokenWeights": budget.token_weights and dump_json(dict(budget.token_weights)),
        "maxTotalCost": budget.max_cost,
        "maxCosts": budget.max_cost_by and dump_json(dict(budget.max_cost_by)),
        "costUnit": budget.cost_unit,
    }
    kept = {name: value for name, value in limits.items() if value}
    state = {"onExceeded": budget.on_exceeded, "exceeded": int(so_far is not None and so_far.exceeds(budget))}
    return [
        Call("HDEL", (key,), _LIMITS),
        Call("HSET", (key,), tuple(word for pair in {**state, **kept}.items() for word in pair)),
        Call("HSETNX", (key,), ("usedTokens", 0)),
        Call("HSETNX", (key,), ("usedCost", 0)),
    ]


def apply_budget(keys: QueueKeys, flow_id: str, jobs: Iterable[ParentRef]) -> list[Call]:
    """Apply the flow's budget to existing jobs, which then start only while it lasts."""
    return [Call("HSET", (ref.keys.job(ref.job_id),), ("budgetKey", keys.budget(flow_id))) for ref in jobs]


def is_spent(budget_key: str) -> Operation[bool]:
    """Read whether a flow's budget is exceeded; False without a budget."""
    return Operation(glidemq.check_budget(budget_key=budget_key), _is_exceeded)


def _is_exceeded(reply: Reply) -> bool:
    return optional_text(reply) == "exceeded"


def pauses_when_spent(budget_key: str) -> Operation[bool]:
    """Read whether jobs wait instead of failing when the budget is exceeded."""
    return Operation(Call("HGET", (budget_key,), ("onExceeded",)), lambda reply: reply == b"pause")


def usage_calls(keys: QueueKeys, job_id: str, budget_key: str) -> list[Call]:
    """Return calls that read what a job reported and how its budget counts it; :func:`charge` takes their replies."""
    return [
        Call("HMGET", (keys.job(job_id),), _REPORTED),
        Call("HMGET", (budget_key,), ("tokenWeights", "maxTokens", "maxCosts")),
    ]


def charge(budget_key: str, replies: list[Reply]) -> Operation[bool] | None:
    """Charge what a job used; read whether the budget is exceeded. None if the job reported nothing."""
    (tokens, costs, total_tokens, total_cost), (weights, max_tokens, max_costs) = (
        tuple(map(optional_text, reply)) for reply in replies
    )
    if tokens is costs is total_tokens is total_cost is None:
        return None
    weight = read_amounts(weights, otherwise=1)
    weighted = sum(amount * weight.get(name, 1) for name, amount in read_amounts(tokens).items())
    call = glidemq.record_usage_and_check_budget(
        budget_key=budget_key,
        tokens=tokens or "{}",
        costs=costs or "{}",
        weighted_tokens=weighted or stored_number(total_tokens),
        total_cost=stored_number(total_cost),
        max_tokens=max_tokens or "{}",
        max_costs=max_costs or "{}",
    )
    return Operation(call, _is_exceeded)
