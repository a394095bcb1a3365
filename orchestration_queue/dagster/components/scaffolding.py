"""What ``dg scaffold defs`` writes: a component that loads as written, for the user to edit."""

from __future__ import annotations

from typing import Any, ClassVar

import dagster as dg
from pydantic import BaseModel, Field

__all__ = ["QueueScaffolder", "ScaffoldParams"]


class ScaffoldParams(BaseModel):
    """What may be said on the command line."""

    queue: str = Field(default="default", description="The queue.")
    name: str | None = Field(default=None, description="What it is called; default after the directory.")


class QueueScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes the attributes of an example, with the queue and the name in place."""

    example: ClassVar[dict[str, Any]] = {}
    """The attributes; ``{queue}`` and ``{name}`` stand for what is said."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        """Options of the command."""
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        """Write the file."""
        name = request.params.name or request.target_path.stem.replace("-", "_")
        dg.scaffold_component(request, _filled(self.example, {"queue": request.params.queue, "name": name}))


def _filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, names) for item in value]
    return value.format(**names) if isinstance(value, str) else value
