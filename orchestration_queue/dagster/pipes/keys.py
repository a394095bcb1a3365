"""The keys of one Pipes session. All of them share one hash tag and expire, however the session ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from orchestration_queue.errors import InvalidNameError
from orchestration_queue.options import name_problem
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["DEFAULT_LIMIT", "DEFAULT_TTL", "PipesKeys"]

DEFAULT_TTL = timedelta(days=1)
"""How long a session's keys outlive their last read, and the last message."""
DEFAULT_LIMIT = 10_000
"""About how many logs, and as many results, a session keeps."""


@dataclass(frozen=True, slots=True)
class PipesKeys:
    """The keys of one session. A session is one external launch, however many attempts of a step read it.

    Raises:
        InvalidNameError: The session's name is empty, too long, or has a character of the wire's own.
    """

    session: str
    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        for what, name in (("Session name", self.session), ("Key prefix", self.prefix)):
            if problem := name_problem(name):
                raise InvalidNameError(
                    f"{what} {name!r} {problem}, which keys cannot carry; use letters, digits, '.', '-' and '_'."
                )

    def _named(self, name: str) -> str:
        return f"{self.prefix}:pipes:{{{self.session}}}:{name}"

    @property
    def context(self) -> str:
        """The key of what the step sends to the external side, as JSON."""
        return self._named("context")

    @property
    def results(self) -> str:
        """What the external side reports that counts: a stream."""
        return self._named("results")

    @property
    def logs(self) -> str:
        """What it logs: a stream of its own, so that no flood of logs pushes a result out."""
        return self._named("logs")

    @property
    def read(self) -> str:
        """By reader, up to where it has passed the logs on."""
        return self._named("read")

    @property
    def all(self) -> tuple[str, ...]:
        """Every key of the session."""
        return (self.context, self.results, self.logs, self.read)
