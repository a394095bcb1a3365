"""What a step asks of a worker: one of the worker's scripts, its words, and how Spark is to run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from pydantic import field_validator

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Options
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["TASK", "ScriptItem"]

TASK = "spark_step"
"""The task's name on every worker that runs scripts for steps."""


class ScriptItem(Options):
    """A script to run: the data of a job."""

    script: str
    """Its path below the worker's directory of scripts."""
    arguments: tuple[str, ...] = ()
    """Its words, as ``sys.argv[1:]``."""
    by_submit: bool = False
    """By ``spark-submit``, with a driver of its own; else in a session on the Connect server."""
    options: Mapping[str, Any] = {}
    """What is said of Spark's options, beside what the worker says."""

    @field_validator("script")
    @classmethod
    def _stays_below(cls, script: str) -> str:
        path = PurePosixPath(script)
        if not path.name or path.is_absolute() or ".." in path.parts or "\0" in script:
            raise InvalidOptionError(
                f"The script {script!r} is no path below the worker's directory of scripts; name it like "
                "'daily/totals.py', as seen from there."
            )
        return script

    @field_validator("arguments", mode="before")
    @classmethod
    def _are_words(cls, arguments: Any) -> object:
        is_list = isinstance(arguments, Sequence) and not isinstance(arguments, str)
        if not is_list or not all(isinstance(word, str) and "\0" not in word for word in arguments):
            raise InvalidOptionError(f"A script takes words, and {arguments!r} is no list of text; pass one.")
        return tuple(arguments)

    @classmethod
    def of(cls, script: str, arguments: object, options: SparkOptions | None) -> ScriptItem:
        """As a caller says it: options for ``spark-submit`` ask for ``spark-submit``.

        Raises:
            InvalidOptionError: The script is no path below a directory, or its arguments are no words.
        """
        said = {} if options is None else options.model_dump(mode="json", exclude_unset=True)
        return cls(script=script, arguments=arguments, by_submit=isinstance(options, SparkSubmit), options=said)
