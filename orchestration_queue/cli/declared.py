"""Options of `oq job add` that follow from the declaration of a job's options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from orchestration_queue.options import DECLARED, JobOptions

__all__ = ["takes_declared"]

_TYPES: Final[dict[str, type]] = {"string": str, "integer": int, "number": float}
_PLAIN: Final = {name: on_wire for name, on_wire in DECLARED.items() if on_wire.metavar}


def takes_declared(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each declared one that is text or a number; it gets those given as ``declared``."""

    @functools.wraps(command)
    def run(**words: Any) -> None:
        given = {name: words.pop(name) for name in _PLAIN}
        command(**words, declared={name: value for name, value in given.items() if value is not None})

    known = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name))
        for name in _PLAIN
    ]
    kept = [each for each in known.parameters.values() if each.name != "declared"]
    run.__signature__ = known.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]  # read by inspect
    run.__annotations__ = {
        **{name: hint for name, hint in command.__annotations__.items() if name != "declared"},
        **{each.name: each.annotation for each in added},
    }
    return run


def _annotation(name: str) -> Any:
    on_wire, help_text = _PLAIN[name], (JobOptions.model_fields[name].description or "").split("\n")[0]
    return Annotated[
        _TYPES[on_wire.schema["type"]] | None,
        typer.Option(metavar=on_wire.metavar, help=help_text),
    ]
