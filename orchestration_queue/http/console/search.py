"""What the search of a queue's page finds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from orchestration_queue.client import AsyncJob, AsyncQueue
from orchestration_queue.errors import UsageError
from orchestration_queue.http.v1.jobs import bounded
from orchestration_queue.http.v1.reading import data_filter
from orchestration_queue.states import JobState

__all__ = ["Search"]

_READY = ("waiting", "prioritized", "group-waiting")


@dataclass(frozen=True, slots=True)
class Search:
    """The jobs that someone looks for.

    Attributes:
        state: Their state, one of the page's.
        text: Their id, name or one of their tags.
        kind: The kind of their failure.
        data: Members of their data, as JSON text.
    """

    state: str
    text: str = ""
    kind: str = ""
    data: str = ""

    @classmethod
    def read(cls, state: str, get: Callable[[str], str | None]) -> Search:
        """Return the search that a query or a form describes."""
        text, kind, data = ((get(name) or "").strip() for name in ("q", "kind", "data"))
        return cls(state, text, kind, data)

    @property
    def is_narrowed(self) -> bool:
        """Whether it leaves out any job of the state."""
        return bool(self.text or self.kind or self.data)

    @property
    def query(self) -> str:
        """The query of the page that shows it."""
        given = {"state": self.state, "q": self.text, "kind": self.kind, "data": self.data}
        return urlencode({name: value for name, value in given.items() if value})

    def __str__(self) -> str:
        more = [f"whose id, name or tag is {self.text!r}"] if self.text else []
        more += [f"whose failure is {self.kind!r}"] if self.kind else []
        more += [f"with {self.data} in their data"] if self.data else []
        return " ".join([f"{self.state} jobs", " and ".join(more)]).strip()

    async def jobs(self, queue: AsyncQueue, limit: int) -> list[AsyncJob]:
        """Return the jobs.

        Raises:
            UsageError: The data are no JSON object, or completed jobs are to have a kind of failure.
        """
        data, kind, state = data_filter(self.data), self.kind or None, JobState(self.state)
        found: dict[str, AsyncJob] = {}
        async with bounded("reads jobs until it has found enough; search for the id of a job"):
            if self.text and not (data or kind):
                exact = await queue.find(self.text)
                found |= {exact.id: exact} if exact else {}
                with suppress(UsageError):  # it is no tag
                    tagged = await queue.tags.jobs(self.text, limit=limit)
                    found |= {job.id: job for job in tagged if self._is_in_state(job)}
            named = await queue.search(self.text or None, state, data, limit, kind)
        found |= {job.id: job for job in named}
        return list(found.values())[:limit]

    def _is_in_state(self, job: AsyncJob) -> bool:
        stored: Any = job.record.fields.get("state")
        return stored in _READY if self.state == "waiting" else stored == self.state
