"""The words by which an application is submitted, checked before anything starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from orchestration_queue.errors import InvalidOptionError

__all__ = ["checked", "command_line"]

_IS_URI = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)


def checked(
    application: str | Path, arguments: Sequence[str], main_class: str | None, *, is_here: bool = True
) -> tuple[str, list[str]]:
    """The application and its words, as a command line has them.

    Args:
        application: The path of a Python program or a jar, or a URI.
        arguments: Its words.
        main_class: The class to run, of a jar.
        is_here: Whether a path is one of this machine.

    Raises:
        InvalidOptionError: They cannot be used.
    """
    if isinstance(arguments, str) or not all(isinstance(word, str) and "\0" not in word for word in arguments):
        raise InvalidOptionError(f"The application {application} takes words; pass its arguments as a list of text.")
    if main_class and not str(application).endswith(".jar"):
        raise InvalidOptionError(f"The application {application} is no jar, so it has no class; leave main_class out.")
    if _IS_URI.match(str(application)):
        return str(application), list(arguments)
    path = Path(application).absolute()
    if is_here and not path.is_file():
        raise InvalidOptionError(f"There is no application {path}; correct the path.")
    return str(path), list(arguments)


def command_line(
    home: str,
    properties: Path,
    main_class: str | None,
    path: str,
    words: Sequence[str],
    proxy_user: str | None = None,
) -> list[str]:
    """The command that submits an application. What is secret, or says where it runs, is in the properties.

    Args:
        home: The home of Spark.
        properties: The file of Spark's properties.
        main_class: The class to run, of a jar.
        path: The application.
        words: Its words.
        proxy_user: The user to run it as; no property says this.
    """
    kind = ["--class", main_class] if main_class else []
    user = ["--proxy-user", proxy_user] if proxy_user else []
    submit = [f"{home}/bin/spark-submit", "--load-spark-defaults", *kind, *user]
    return [*submit, "--properties-file", str(properties), path, *words]
