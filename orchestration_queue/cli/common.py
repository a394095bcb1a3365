"""What commands share: their common options, and how they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestration_queue.cli.text import Cell, clean, dump, print_line, styled, text_of
from orchestration_queue.errors import InvalidOptionError, PayloadError, UsageError
from orchestration_queue.options import Backoff, RateLimit
from orchestration_queue.schedules.cron import known_zone

__all__ = [
    "STATE_COLORS",
    "FailureKindOption",
    "JsonFlag",
    "Per",
    "Prefix",
    "QueueName",
    "Rate",
    "Url",
    "Yes",
    "ask",
    "console",
    "fail",
    "moment_text",
    "name_fields",
    "parse_backoff",
    "parse_header",
    "parse_instant",
    "parse_json",
    "parse_rate",
    "report",
    "seconds_text",
    "show_fields",
    "show_json",
    "show_table",
    "state_text",
    "time_text",
    "warn",
]

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="OQ_URL", help="The server; default an embedded one in .oq/ of this directory."),
]
Prefix = Annotated[str, typer.Option("--prefix", envvar="OQ_PREFIX", help="First part of every key.")]
QueueName = Annotated[str, typer.Argument(help="The queue.")]
JsonFlag = Annotated[bool, typer.Option("--json", envvar="OQ_JSON", help="Print JSON, for programs.")]
FailureKindOption = Annotated[
    str | None, typer.Option("--kind", help="Only jobs of this kind of failure; `oq queue failures` lists the kinds.")
]
Rate = Annotated[
    int | None,
    typer.Option("--rate", help="Maximum job starts per window, over all workers of this limit; default unlimited."),
]
Per = Annotated[float | None, typer.Option("--per", help="Length of the rate window, in seconds; default 1.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_NO_TERMINAL = 10_000
"""Columns of output that does not go to a terminal."""

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
    typer.echo(dump(value, indent=2))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Print rows under a heading, with numbers aligned to the right."""
    cells = [[text_of(cell) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        is_number = bool(cells) and all(_is_number(row[place].plain) for row in cells)
        table.add_column(styled(column), justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console().print(table)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "").isdecimal()


def console() -> Console:
    """Return standard output, which folds lines to a terminal's width only; a file or a pipe gets them whole."""
    out = Console()
    return out if out.is_terminal else Console(width=_NO_TERMINAL)


def report(as_json: bool, sentence: str, **facts: object) -> None:
    """Report what was done: in a sentence, or as JSON."""
    if as_json:
        show_json(facts)
    else:
        print_line(sentence)


def show_fields(fields: Mapping[str, Cell | None]) -> None:
    """Print names and values, one pair to a line; empty values are left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if value is not None and str(value):
            table.add_row(styled(name), text_of(value))
    console().print(table)


def name_fields(values: Mapping[str, object]) -> dict[str, str | None]:
    """Return values by their names as people read them."""
    return {name.replace("_", " "): None if value is None else str(value) for name, value in values.items()}


def state_text(state: str | None, label: str | None = None) -> Text:
    """Return a state, or a label for it, in the state's color."""
    if not state:
        return Text("gone", style="dim")
    return styled(label or state, STATE_COLORS.get(state, "magenta"))


def seconds_text(seconds: float | None) -> str:
    """Format a duration in seconds."""
    return "-" if seconds is None else f"{seconds:.2f}"


def time_text(at: datetime | None) -> str | None:
    """Format a time in this machine's zone."""
    return None if at is None else at.astimezone().isoformat(" ", "milliseconds")


def moment_text(at: datetime | None) -> str:
    """Format a time to the second in this machine's zone, for tables."""
    return "-" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def fail(message: str) -> None:
    """Print one red sentence to stderr."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(clean(message), style="red", markup=False)


def warn(message: str) -> None:
    """Print one yellow sentence to stderr."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(clean(message), style="yellow", markup=False)


def ask(yes: bool, question: str) -> None:
    """Return if the answer is yes or was given beforehand; abort otherwise.

    Raises:
        UsageError: There is no answer, as without a terminal.
    """
    if yes:
        return
    # To stderr, so that stdout holds results alone.
    typer.echo(f"{clean(question)} [y/N]: ", err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        raise UsageError("No answer came; pass --yes to do it without being asked.")
    if answer.strip().lower() not in ("y", "yes"):
        raise typer.Abort


def parse_json(words: str) -> Any:
    """Parse JSON from the command line.

    Raises:
        PayloadError: The words are not JSON.
    """
    try:
        return json.loads(words)
    except ValueError as error:
        raise PayloadError(
            f"The data {words[:60]!r} is not JSON ({error}); quote it for your shell, like --data '{{\"day\": 1}}'."
        ) from None


def parse_instant(option: str, words: str | None, tz: str | None = None) -> datetime | None:
    """Parse a time in ISO 8601; without an offset, in the given zone, which is UTC by default."""
    if words is None:
        return None
    try:
        at = datetime.fromisoformat(words)
    except ValueError:
        raise UsageError(
            f"--{option} {words!r} is not a time in ISO 8601; write it like 2030-01-31T06:00+01:00."
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=known_zone(tz))


def parse_rate(rate: int | None, per: float | None) -> RateLimit | None:
    """Read ``--rate`` and ``--per`` of a worker."""
    if rate is not None:
        return RateLimit(max=rate, duration=1 if per is None else per)
    if per is not None:
        raise UsageError("--per is the window of a rate limit; pass --rate too.")
    return None


def parse_backoff(words: str) -> Backoff:
    """Read ``2`` as two seconds each time, and ``exponential:2`` as doubling from there."""
    kind, colon, seconds = words.rpartition(":")
    try:
        return Backoff(type=kind if colon else "fixed", delay=float(seconds))
    except ValueError:
        raise InvalidOptionError(
            f"--backoff {words!r} is not a pause; pass seconds, like 2, or type:seconds, like exponential:2."
        ) from None


def parse_header(words: str) -> tuple[str, str]:
    """Read ``name=text`` as a header of a job."""
    name, equals, text = words.partition("=")
    if not (name and equals):
        raise InvalidOptionError(f"--header {words!r} has no name and text; pass it like trace=4bf92f35.")
    return name, text
