"""The loggers of this package, whose records contain text of jobs only escaped, whatever formats them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from orchestration_queue._text import clean

__all__ = ["Lines", "get_logger"]


class Lines(str):
    """An argument of a log call that keeps its lines, such as a traceback. They are indented: none begins a record."""

    __slots__ = ()

    def __str__(self) -> str:
        return _indent(self)


def get_logger(name: str) -> logging.Logger:
    """Return the logger with this name. Its records escape their arguments, and the text of their exceptions."""
    logger = logging.getLogger(name)
    logger.addFilter(_escape)  # added once
    return logger


def _escape(record: logging.LogRecord) -> bool:
    arguments = record.args
    if isinstance(arguments, Mapping):
        record.args = {name: _escape_value(value) for name, value in arguments.items()}
    elif arguments:
        record.args = tuple(map(_escape_value, arguments))
    if record.exc_info and not record.exc_text:
        # logging's formatters use this text instead of formatting the exception themselves.
        record.exc_text = _indent(_FORMATTER.formatException(record.exc_info))
    return True


_FORMATTER = logging.Formatter()


def _escape_value(value: object) -> object:
    return value if isinstance(value, (int, float, Lines, _Escaped)) else _Escaped(value)


class _Escaped:
    """An argument of a log call that is escaped where it is formatted."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return clean(str(self._value))

    def __repr__(self) -> str:
        return clean(repr(self._value))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in clean(text, lines=True).removesuffix("\n").split("\n"))
