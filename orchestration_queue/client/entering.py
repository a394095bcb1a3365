"""Refuse the wrong kind of `with` in one sentence: Python's own says nothing about the other class."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from orchestration_queue.errors import UsageError

__all__ = ["AsyncEntered", "Entered"]


class AsyncEntered:
    """A client that only `async with` enters. Type checkers see no other method."""

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            name = type(self).__name__
            raise UsageError(f"{name} needs `async with`; use {name.removeprefix('Async')} in code without a loop.")

        def __exit__(self, *_: object) -> None: ...


class Entered:
    """A client that only `with` enters. Type checkers see no other method."""

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            name = type(self).__name__
            raise UsageError(f"{name} needs `with`; use Async{name} in coroutines.")

        async def __aexit__(self, *_: object) -> None: ...
