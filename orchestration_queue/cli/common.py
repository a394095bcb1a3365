"""What all commands share: their common options, and how they speak."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from orchestration_queue.errors import PayloadError, UsageError

__all__ = [
    "STATE_COLORS",
    "JsonFlag",
    "Prefix",
    "QueueName",
    "Url",
    "Yes",
    "ask",
    "console",
    "fail",
    "moment_text",
    "named_object",
    "parsed_json",
    "seconds_text",
    "show_fields",
    "show_json",
    "show_table",
    "state_text",
    "tell",
    "time_text",
]

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="OQ_URL", help="The server; default an embedded one in .oq/ of this directory."),
]
Prefix = Annotated[str, typer.Option("--prefix", envvar="OQ_PREFIX", help="First part of every key.")]
QueueName = Annotated[str, typer.Argument(help="The queue.")]
JsonFlag = Annotated[bool, typer.Option("--json", envvar="OQ_JSON", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_NO_TERMINAL = 10_000
"""Columns for what nobody looks at in a terminal."""

STATE_COLORS = {
    "completed": "green",
    "running": "cyan",
    "submitting": "yellow",
    "waiting-children": "blue",
    "upstream_failed": "dark_orange",
    "skipped": "bright_black",
    "cancelled": "magenta",
    "failed": "red",
    "active": "cyan",
    "waiting": "yellow",
    "delayed": "yellow",
    "prioritized": "yellow",
}


def show_json(value: object) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a heading; numbers stand to the right."""
    rows = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        is_number = bool(rows) and all(row[place].replace(".", "").isdecimal() or row[place] == "-" for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def console() -> Console:
    """Standard output. Lines are folded to a terminal's width; a file or a pipe gets them whole."""
    out = Console()
    return out if out.is_terminal else Console(width=_NO_TERMINAL)


def tell(as_json: bool, sentence: str, **facts: object) -> None:
    """Say what was done: in a sentence, or as JSON."""
    if as_json:
        show_json(facts)
    else:
        typer.echo(sentence)


def show_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one pair to a line; those without a value are left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", [], ()):
            table.add_row(name, value)
    console().print(table)


def state_text(state: str | None) -> str:
    """A state, in its color."""
    return f"[{STATE_COLORS.get(state, 'magenta')}]{state}[/]" if state else "[dim]gone[/]"


def seconds_text(seconds: float | None) -> str:
    """A duration."""
    return "-" if seconds is None else f"{seconds:.2f}"


def time_text(at: datetime | None) -> str | None:
    """A time, in this machine's zone."""
    return None if at is None else at.astimezone().isoformat(" ", "milliseconds")


def moment_text(at: datetime | None) -> str:
    """A time to the second, in this machine's zone, for tables."""
    return "-" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def fail(message: str) -> None:
    """Print one red sentence to stderr."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(message, style="red", markup=False)


def ask(yes: bool, question: str) -> None:
    """Go on only if the answer is yes, or was given beforehand."""
    if not yes:
        typer.confirm(question, abort=True)


def parsed_json(words: str) -> Any:
    """What somebody wrote on the command line as JSON.

    Raises:
        PayloadError: It is none.
    """
    try:
        return json.loads(words)
    except ValueError as error:
        raise PayloadError(
            f"The data {words[:60]!r} is not JSON ({error}); quote it for your shell, like --data '{{\"day\": 1}}'."
        ) from None


def named_object(target: str, role: str, example: str) -> object:
    """The object that a ``module:object`` names; modules of the working directory come first.

    Args:
        target: The words.
        role: What the object does, for messages.
        example: How to name one, for messages.

    Raises:
        UsageError: There is no such module, or no such object in it.
    """
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise UsageError(f"{target!r} names nothing that {role}; write module:object, like {example}.")
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109  sys.path holds text
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise UsageError(
            f"The module {module_name!r} cannot be imported ({error}); run from its directory, or install it."
        ) from error
    except AttributeError:
        raise UsageError(f"The module {module_name!r} has no {name!r}; check the name after the colon.") from None
    return found
