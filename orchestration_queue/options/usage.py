"""Usage reported by jobs, and budgets of flows: tokens and costs, by category."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import NonNegative, as_timedelta

__all__ = ["Budget", "Usage", "plain_number"]


def plain_number(amount: float) -> float:
    """Return an integral amount as an int, as other languages write it."""
    return int(amount) if amount == int(amount) else amount


_MOST = 2**53
"""All languages that use this wire count exactly up to here."""

Amount = Annotated[float, Field(ge=0, le=_MOST), AfterValidator(plain_number)]
Bound = Annotated[float, Field(gt=0, le=_MOST), AfterValidator(plain_number)]
Name = Annotated[str, Field(min_length=1)]
Amounts = Mapping[Name, Amount]

_EMPTY: Mapping[str, float] = {}


class Usage(Options):
    """What one job used of a language model, or of anything else that is counted and paid for."""

    model: Name | None = None
    """The model that was used."""
    provider: Name | None = None
    """The provider of the model."""
    tokens: Amounts = _EMPTY
    """Tokens by category, such as ``input`` and ``output``."""
    total_tokens: Amount | None = None
    """Total tokens; None for the sum of the categories."""
    costs: Amounts = _EMPTY
    """Costs by category."""
    total_cost: Amount | None = None
    """Total cost; None for the sum of the categories."""
    cost_unit: Name | None = None
    """The unit of costs, such as ``usd``."""
    latency: NonNegative | None = None
    """How long the response took."""
    cached: bool | None = None
    """Whether the response came from a cache."""

    @property
    def all_tokens(self) -> float | None:
        """Total tokens; None if none were reported."""
        return _total(self.total_tokens, self.tokens)

    @property
    def all_costs(self) -> float | None:
        """Total cost; None if none was reported."""
        return _total(self.total_cost, self.costs)

    def wire(self) -> dict[str, Any]:
        """Return the report as it is stored on the wire, without fields that were not set."""
        latency = as_timedelta(self.latency)
        wire = {
            "model": self.model,
            "provider": self.provider,
            "tokens": dict(self.tokens) or None,
            "totalTokens": self.all_tokens,
            "costs": dict(self.costs) or None,
            "totalCost": self.all_costs,
            "costUnit": self.cost_unit,
            "latencyMs": None if latency is None else plain_number(latency / timedelta(milliseconds=1)),
            "cached": self.cached,
        }
        return {name: value for name, value in wire.items() if value is not None}


def _total(given: float | None, parts: Mapping[str, float]) -> float | None:
    return plain_number(math.fsum(parts.values())) if given is None and parts else given


class Budget(Options):
    """What the jobs of one flow may use together.

    Jobs report usage after the fact. So jobs that are running can exceed the budget; it applies to those that start
    afterwards.
    """

    max_tokens: Bound | None = None
    """Maximum tokens, weighted; None sets no limit."""
    max_tokens_by: Mapping[Name, Bound] = _EMPTY
    """Maximum tokens by category, unweighted."""
    token_weights: Amounts = _EMPTY
    """How much a token of a category counts towards ``max_tokens``; default 1."""
    max_cost: Bound | None = None
    """Maximum cost; None sets no limit."""
    max_cost_by: Mapping[Name, Bound] = _EMPTY
    """Maximum cost by category."""
    cost_unit: Name | None = None
    """The unit of costs, such as ``usd``."""
    on_exceeded: Literal["fail", "pause"] = "fail"
    """What happens to jobs once it is exceeded: they fail, or are postponed for a day, repeatedly."""
