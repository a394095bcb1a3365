"""What jobs report to have used, and what a flow may use: tokens and costs, by category."""

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
    """Return a whole amount as a whole number, as every other language writes it."""
    return int(amount) if amount == int(amount) else amount


_MOST = 2**53
"""Up to here every language of this wire counts exactly."""

Amount = Annotated[float, Field(ge=0, le=_MOST), AfterValidator(plain_number)]
Bound = Annotated[float, Field(gt=0, le=_MOST), AfterValidator(plain_number)]
Name = Annotated[str, Field(min_length=1)]
Amounts = Mapping[Name, Amount]

_EMPTY: Mapping[str, float] = {}


class Usage(Options):
    """What one job used, of a language model or of anything else that is counted and paid."""

    model: Name | None = None
    """The model that was asked."""
    provider: Name | None = None
    """Who runs it."""
    tokens: Amounts = _EMPTY
    """Tokens by category, such as ``input`` and ``output``."""
    total_tokens: Amount | None = None
    """All tokens; None takes the sum of the categories."""
    costs: Amounts = _EMPTY
    """Costs by category."""
    total_cost: Amount | None = None
    """All costs; None takes the sum of the categories."""
    cost_unit: Name | None = None
    """What costs are counted in, such as ``usd``."""
    latency: NonNegative | None = None
    """How long the answer took."""
    cached: bool | None = None
    """Whether it came from a cache."""

    @property
    def all_tokens(self) -> float | None:
        """All tokens; None when none were reported."""
        return _total(self.total_tokens, self.tokens)

    @property
    def all_costs(self) -> float | None:
        """All costs; None when none were reported."""
        return _total(self.total_cost, self.costs)

    def wire(self) -> dict[str, Any]:
        """Return the report as every client of this wire tells and reads it; what was not said is left out."""
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

    Jobs report what they used when they have used it. So the budget is exceeded by those jobs that run at that moment,
    and holds for those that start after it.
    """

    max_tokens: Bound | None = None
    """Most tokens, weighted; None sets no bound."""
    max_tokens_by: Mapping[Name, Bound] = _EMPTY
    """Most tokens of single categories, unweighted."""
    token_weights: Amounts = _EMPTY
    """How much a token of a category counts towards ``max_tokens``; 1 where nothing is said."""
    max_cost: Bound | None = None
    """Highest cost; None sets no bound."""
    max_cost_by: Mapping[Name, Bound] = _EMPTY
    """Highest cost of single categories."""
    cost_unit: Name | None = None
    """What costs are counted in, such as ``usd``."""
    on_exceeded: Literal["fail", "pause"] = "fail"
    """What becomes of jobs that start then: they fail, or are postponed for a day, again and again."""
