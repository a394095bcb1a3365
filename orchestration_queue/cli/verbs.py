"""Verbs that act on a queue or on something in it: the same options, the same reports, the same errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Concatenate, ParamSpec, TypeAlias

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, QueueName, Url, report, show_fields, show_json, show_table
from orchestration_queue.cli.text import Cell
from orchestration_queue.client import MovedJobs, Queue
from orchestration_queue.errors import StateError
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection

__all__ = ["Details", "Done", "Listing", "format_count", "open_queue", "report_moved", "require_queue", "verb"]

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Done:
    """What was done: a sentence for people, and facts for programs."""

    sentence: str
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found: rows under columns for people, and facts for programs."""

    facts: object
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Details:
    """What is known of one thing: named values for people, and facts for programs."""

    facts: object
    fields: Mapping[str, Cell | None]


Answer: TypeAlias = Done | Listing | Details
"""What a verb returns."""


@contextmanager
def open_queue(queue: str, url: str | None, prefix: str, *, may_create: bool = False) -> Iterator[Queue]:
    """Open a queue that exists.

    Args:
        queue: Its name.
        url: The server.
        prefix: First part of every key.
        may_create: Accept a queue that does not exist yet.

    Raises:
        StateError: The server holds no queue of that name.
    """
    with Connection.open(url) as connection, Queue(queue, connection=connection, prefix=prefix) as client:
        if not may_create:
            require_queue(connection, client)
        yield client


def require_queue(connection: Connection, queue: Queue) -> None:
    """Raise an error that names the closest queue when the server holds no key of this one.

    Raises:
        StateError: The queue was never used.
    """
    keys = queue.keys
    if connection.execute(Call("EXISTS", (keys.id, keys.stream, keys.meta, keys.schedulers)), repeatable=True):
        return
    names = Queue.names(connection=connection, prefix=keys.prefix)
    close = get_close_matches(queue.name, names, n=1)
    hint = f"did you mean {close[0]!r}? `oq queue ls` lists all." if close else "`oq queue ls` lists those that exist."
    raise StateError(f"Queue {queue.name!r} is unknown on this server; {hint}")


def verb(
    app: typer.Typer, name: str, *, may_create: bool = False
) -> Callable[[Callable[Concatenate[Queue, P], Answer]], None]:
    """Make a function of a queue a command: the queue comes first, and the common options last.

    Args:
        app: The noun.
        name: The verb.
        may_create: Accept a queue that does not exist yet.
    """

    def register(act: Callable[Concatenate[Queue, P], Answer]) -> None:
        def command(queue: str, url: str | None, prefix: str, as_json: bool, **own: Any) -> None:
            with open_queue(queue, url, prefix, may_create=may_create) as client:
                answer = act(client, **own)  # type: ignore[call-arg]  # typer goes by the signature below
            if isinstance(answer, Done):
                report(as_json, answer.sentence, queue=queue, **answer.facts)
            elif as_json:
                show_json(answer.facts)
            elif isinstance(answer, Listing):
                show_table(answer.columns, answer.rows)
            else:
                show_fields(answer.fields)

        first, *own = inspect.signature(act, eval_str=True).parameters.values()
        parameters = [
            first.replace(name="queue", annotation=QueueName),
            *own,
            _option("url", Url, None),
            _option("prefix", Prefix, DEFAULT_PREFIX),
            _option("as_json", JsonFlag, False),
        ]
        command.__doc__ = act.__doc__
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # as PEP 362 has it
        app.command(name)(command)

    return register


def _option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation, default=default)


def report_moved(done: MovedJobs, to: str) -> Done:
    """Report how many jobs were moved, and why each other one was not."""
    left = f" Left {format_count(len(done.left), 'job')}: {next(iter(done.left.values()))}" if done.left else ""
    sentence = f"Moved {format_count(len(done.moved), 'job')} to queue {to}.{left}"
    return Done(sentence, {"to": to, "moved": list(done.moved), "left": dict(done.left)})


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
