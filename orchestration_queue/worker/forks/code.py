"""What a fork server loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Code"]


class Code(Protocol):
    """Code that a fork server loads: one server each."""

    @property
    def name(self) -> str:
        """Its name among the code of a worker."""

    @property
    def label(self) -> str:
        """What it is called in logs and errors."""

    def settings(self) -> Mapping[str, str]:
        """Return what the fork server needs to load it, as JSON."""
