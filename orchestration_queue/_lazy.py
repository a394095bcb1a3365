"""Load the names of a package when they are first used, so that importing the package costs next to nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, home_of: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its name.
        home_of: By name, the module that defines it, relative to ``orchestration_queue``.
    """
    names = vars(sys.modules[package])

    def find(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        # With the first name only: pytest imports this module in every project.
        from orchestration_queue._extras import named_extra

        with named_extra():
            names[name] = value = getattr(import_module(f"{__package__}.{home_of[name]}"), name)
        return value

    return find, lambda: sorted({*names, *home_of})
