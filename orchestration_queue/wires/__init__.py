"""The wires of other systems: one folder each, with its clients and workers, and what it brings to other packages.

Packages such as the console and ``oq doctor`` ask for :data:`WIRES` and name none: without its folder a wire is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from orchestration_queue.errors import UsageError

__all__ = ["WIRES", "Wire", "wire_queues"]


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire, by the name of its folder, which is also that of its function library.

    Modules of its folder that other packages ask for:

    - ``cli``: ``app``, its commands, and ``NAME``, their noun
    - ``doctor``: ``CHECKS`` by what they inspect, and ``find``, which runs them
    - ``http``: ``ROUTES``, ``BODIES`` and ``QUERIES`` of OpenAPI, and ``Served``, the clients of an app
    - ``console``: ``Pages``, and ``KEY``, which opens them
    - ``metrics``: ``METRICS``, what its workers count
    """

    name: str

    @property
    def title(self) -> str:
        """Its name in texts."""
        return str(import_module(f"{__name__}.{self.name}").TITLE)

    def load(self, module: str) -> Any:
        """Import a module of its folder."""
        return import_module(f"{__name__}.{self.name}.{module}")


WIRES: Final = tuple(Wire(found.name) for found in iter_modules(__path__) if found.ispkg)
"""The wires that are installed, by name."""


def wire_queues(named: Mapping[str, Sequence[str]]) -> dict[Wire, tuple[str, ...]]:
    """Return the queues of every wire, of which those are named that a user wants to see.

    Raises:
        UsageError: A wire is unknown, or its queues are not a list of names.
    """
    known = [wire.name for wire in WIRES]
    for name, queues in named.items():
        if name not in known:
            raise UsageError(f"There is no wire {name!r}; use one of {', '.join(known)}.")
        if isinstance(queues, str) or not all(isinstance(queue, str) and queue for queue in queues):
            raise UsageError(f'Queues of {name} must be a list of names, got {queues!r}; pass ["emails"], for example.')
    return {wire: tuple(dict.fromkeys(named.get(wire.name, ()))) for wire in WIRES}
