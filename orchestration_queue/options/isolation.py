"""The process of a work item that runs in a fork."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Isolation"]


class Isolation(StrEnum):
    """The process of a work item."""

    AUTO = "auto"
    """A fork if the loaded code allows one, else a new process."""
    FORK = "fork"
    """A fork of a process that has the user's code loaded, started within milliseconds."""
    IN_PROCESS = "in_process"
    """A process that runs one work item after another and keeps their state, such as a Spark session."""
    SPAWN = "spawn"
    """A new process that loads the code itself: for code that cannot be forked."""
