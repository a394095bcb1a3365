"""Find a handler by its address, in the process that runs it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.worker.sandbox.handler import Address, Sandboxed

__all__ = ["find", "refuse_worker_while_importing"]

_PROGRAM = "__mp_main__"
"""The name under which a program's file is imported, the same as in :mod:`multiprocessing`."""

_importing: set[str] = set()


def find(address: Address) -> Callable[[Any], Any]:
    """Return the handler at an address.

    Raises:
        UsageError: There is no function at the address.
    """
    where = address.script or address.module
    try:
        module = _program(address.script) if address.script else importlib.import_module(address.module)
        found: Any = module
        for part in address.name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"The sandbox process cannot find {address.name!r} in {where} ({error}); "
            "define the handler under that name at the top level, where importing the module defines it, too."
        ) from error
    is_wrapped = isinstance(found, Sandboxed)
    if not is_wrapped and (task := getattr(found, "as_handler", None)) is not None:
        found, is_wrapped = task, True
    if address.is_wrapped and not is_wrapped:
        raise UsageError(
            f"{address.name!r} in {where} is the bare function and not the task made of it; "
            "make it a task by decorating it, so that the name leads to the task."
        )
    return found.function if isinstance(found, Sandboxed) else found


def _program(script: str) -> Any:
    """Return the program that started the worker, imported once, without its `if __name__ == "__main__"` part."""
    if _PROGRAM not in sys.modules:
        spec = importlib.util.spec_from_file_location(_PROGRAM, script)
        if spec is None or spec.loader is None:
            raise ImportError(f"{Path(script).name} is no Python file")
        module = sys.modules[_PROGRAM] = importlib.util.module_from_spec(spec)
        _importing.add(_PROGRAM)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[_PROGRAM]
            raise
        finally:
            _importing.clear()
    return sys.modules[_PROGRAM]


def refuse_worker_while_importing() -> None:
    """Prevent a program from starting its worker again in each sandbox process.

    Raises:
        UsageError: This is a sandbox process that is importing its program.
    """
    if _importing:
        raise UsageError(
            "The program starts its worker when it is imported, and so did its sandbox process; "
            'put what starts the worker under `if __name__ == "__main__":`.'
        )
