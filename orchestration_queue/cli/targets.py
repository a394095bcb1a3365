"""Import what a command line names: an object of a module or of a file."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeAlias

import typer

from orchestration_queue.errors import UsageError
from orchestration_queue.worker.sandbox import Sandboxed, sandboxed

__all__ = ["Sandbox", "TargetImportError", "find_handler", "find_object"]

Sandbox: TypeAlias = Annotated[
    bool, typer.Option("--sandbox", help="Run each job in a separate process, with its own working directory.")
]

_OURS = str(Path(__file__).parents[1])


class TargetImportError(UsageError):
    """The named module raises an error when it is imported.

    Attributes:
        frames: The lines of the caller's own code that led to it, for a terminal.
    """

    def __init__(self, message: str, frames: str) -> None:
        super().__init__(message)
        self.frames = frames


def find_handler(target: str, sandbox: bool) -> Any:
    """Return what runs the jobs of another wire's queue, in sandboxes if asked for; raises as :func:`find_object`."""
    found: Any = find_object(target, "runs jobs", "app:handler")
    return sandboxed(found) if sandbox and not isinstance(found, Sandboxed) else found


def find_object(target: str, role: str, example: str) -> object:
    """Return the object that ``module:object`` or ``path/to/file.py:object`` names.

    Modules of the working directory come first.

    Args:
        target: The words of the command line.
        role: What the object does, for messages.
        example: How to name one, for messages.

    Raises:
        UsageError: The module does not exist or lacks the object.
        TargetImportError: The module cannot be imported.
    """
    module_name, colon, name = target.rpartition(":")
    if not (module_name and colon and name):
        raise UsageError(
            f"{target!r} does not name an object that {role}; write module:object or file.py:object, like {example}."
        )
    if module_name.endswith(".py") or "/" in module_name:
        module_name, directory = _module_of_file(module_name)
    else:
        directory = os.getcwd()  # noqa: PTH109  sys.path holds text
    if directory not in sys.path:
        sys.path.insert(0, directory)
    found: object = _import_module(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"The module {module_name!r} has no {name!r}; {_hint(found, part)}.")
        found = getattr(found, part)
    return found


def _module_of_file(words: str) -> tuple[str, str]:
    """Return the dotted name of a file's module, and the directory from which it is imported."""
    path = Path(words)
    if not path.is_file():
        raise UsageError(f"File {words!r} does not exist; check the path before the colon.")
    path = path.resolve()
    names = [] if path.stem == "__init__" else [path.stem]
    root = path.parent
    while (root / "__init__.py").is_file():
        names.insert(0, root.name)
        root = root.parent
    module_name = ".".join(names)
    loaded = sys.modules.get(module_name)
    if loaded is not None and getattr(loaded, "__file__", None) != str(path):
        raise UsageError(
            f"The file {words!r} has the same name as the module {module_name!r}, which is already imported; rename it."
        )
    return module_name, str(root)


def _import_module(module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"The module {module_name!r} cannot be imported ({error}); run from its directory, install it, or name "
                "its file."
            ) from None
        raise _explain(module_name, error) from error
    except Exception as error:
        raise _explain(module_name, error) from error


def _explain(module_name: str, error: Exception) -> TargetImportError:
    """Return the error with the caller's own frames; those of Python, packages and this library are left out."""
    frames = list(_own_frames(error))
    why = "".join(traceback.TracebackException.from_exception(error).format_exception_only()).strip().splitlines()[-1]
    where = f" at {os.path.relpath(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f" at {os.path.relpath(error.filename)}:{error.lineno}"
    return TargetImportError(
        f"The module {module_name!r} cannot be imported{where} ({why}); repair it, or install what it needs.",
        "".join(traceback.format_list(frames)),
    )


def _own_frames(error: Exception) -> Iterator[traceback.FrameSummary]:
    foreign = (
        _OURS,
        "<frozen ",
        *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    )
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(foreign):
            yield frame


def _hint(found: object, name: str) -> str:
    close = get_close_matches(name, [each for each in dir(found) if not each.startswith("_")], n=1)
    return f"the closest name is {close[0]!r}" if close else "check the name after the colon"
