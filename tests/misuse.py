"""Rows of the tables of mistakes: which method is called with what, on either face of a client."""

from __future__ import annotations

import inspect
import re
from typing import Any

Case = tuple[str, str, tuple[Any, ...], dict[str, Any]]
"""The owner, its method (empty for the constructor), and the arguments."""


def call(owner: str, method: str, *arguments: Any, **options: Any) -> Case:
    """Return a row."""
    return owner, method, arguments, options


def name_case(case: Case) -> str:
    """Return a row as the code that it describes."""
    owner, method, arguments, options = case
    shown = [repr(value) for value in arguments] + [f"{name}={value!r}" for name, value in options.items()]
    return re.sub(r" at 0x\w+", "", f"{owner}.{method}({', '.join(shown)})")[:100]


async def run_case(target: Any, case: Case) -> None:
    """Make the call on one face of a client."""
    _, method, arguments, options = case
    done = (getattr(target, method) if method else target)(*arguments, **options)
    if inspect.isawaitable(done):
        await done
