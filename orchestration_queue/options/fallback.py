"""What a job's retries are to use instead of what failed."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field, JsonValue

from orchestration_queue.options.base import Options

__all__ = ["Fallback"]


class Fallback(Options):
    """What one retry of a job is to use instead, such as another model. The wire carries it; the handler heeds it."""

    model: Annotated[str, Field(min_length=1)]
    """What to use."""
    provider: Annotated[str, Field(min_length=1)] | None = None
    """Whose it is."""
    metadata: dict[str, JsonValue] | None = None
    """Anything else that the handler has to know."""

    def __hash__(self) -> int:
        # By the text: 1 and True are equal, but not on the wire.
        return hash((self.model, self.provider, json.dumps(self.metadata)))

    def wire(self) -> dict[str, Any]:
        """As every client of this wire stores it."""
        wire = {"model": self.model, "provider": self.provider, "metadata": self.metadata}
        return {name: value for name, value in wire.items() if value is not None}
