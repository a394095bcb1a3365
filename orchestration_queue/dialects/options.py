"""The base of the options of all dialects' workers."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import Options

__all__ = ["DialectOptions"]


class DialectOptions(Options):
    """Refuses limits of :class:`~orchestration_queue.WorkerOptions` that another protocol can't enforce."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_tokens(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("token_limit") is not None:
            raise InvalidOptionError(
                f"{cls.__name__} has no `token_limit`, since jobs of this wire report no tokens; "
                "limit their starts with `rate_limit`."
            )
        return values
