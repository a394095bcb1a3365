"""What is done to a queue, or to something in it: always with the same options, and told in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, QueueName, Url, tell
from orchestration_queue.client import Queue
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["Done", "counted", "verb"]

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Done:
    """What was done: in a sentence for people, and in facts for programs."""

    sentence: str
    facts: Mapping[str, object] = field(default_factory=dict)


def verb(app: typer.Typer, name: str) -> Callable[[Callable[Concatenate[Queue, P], Done]], None]:
    """Make a function of a queue a command: it names the queue first, and has the common options last.

    Args:
        app: The noun.
        name: The verb.
    """

    def register(act: Callable[Concatenate[Queue, P], Done]) -> None:
        def command(queue: str, url: str | None, prefix: str, as_json: bool, **own: Any) -> None:
            with Queue(queue, url=url, prefix=prefix) as client:
                done = act(client, **own)  # type: ignore[call-arg]  # typer goes by the signature below
            tell(as_json, done.sentence, queue=queue, **done.facts)

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


def counted(number: int, noun: str) -> str:
    """A number and what is counted, as one says it."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
