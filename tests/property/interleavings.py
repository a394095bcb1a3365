"""Every order in which the calls of several clients can reach one server, up to a number of preemptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.server import AsyncConnection

__all__ = ["Client", "GatedConnection", "Schedule", "run_in_order", "schedules"]


@dataclass(eq=False)
class Client:
    """A client whose every call waits for its turn."""

    name: str
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    at_gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def gate(self) -> None:
        """Wait for the turn to make one call."""
        self.at_gate.set()
        await self.turn.wait()
        self.turn.clear()


class GatedConnection(AsyncConnection):
    """A connection whose calls go one by one, each in its turn; a transaction is one call.

    Attributes:
        client: Who makes the calls; they have no turns without one.
    """

    client: Client | None = None

    async def _exchange(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> list[Reply]:
        if self.client is None:
            return await super()._exchange(calls, atomic=atomic, repeatable=repeatable)
        replies: list[Reply] = []
        for piece in [calls] if atomic else [[call] for call in calls]:
            await self.client.gate()
            replies += await super()._exchange(piece, atomic=atomic, repeatable=repeatable)
        return replies


@dataclass
class Schedule:
    """An order of turns, and what else was possible at each.

    Attributes:
        prefix: Who has the first turns; later ones go to who had the last, as long as it has calls to make.
        turns: Who had which turn.
        choices: Who could have had it.
    """

    prefix: tuple[int, ...] = ()
    turns: list[int] = field(default_factory=list)
    choices: list[list[int]] = field(default_factory=list)

    def choose(self, able: list[int]) -> int:
        """Return who is next."""
        place, last = len(self.turns), self.turns[-1] if self.turns else able[0]
        chosen = self.prefix[place] if place < len(self.prefix) else last if last in able else able[0]
        self.turns.append(chosen)
        self.choices.append(able)
        return chosen

    def _preempts(self, place: int, chosen: int) -> bool:
        """Whether a turn goes to another client although the last one has calls to make."""
        return place > 0 and chosen != self.turns[place - 1] and self.turns[place - 1] in self.choices[place]

    def others(self, preemptions: int) -> Iterator[Schedule]:
        """Yield the schedules that leave this one after its prefix."""
        spent = 0
        for place, (chosen, able) in enumerate(zip(self.turns, self.choices, strict=True)):
            if place >= len(self.prefix):
                for other in able:
                    if other != chosen and spent + self._preempts(place, other) <= preemptions:
                        yield Schedule((*self.turns[:place], other))
            spent += self._preempts(place, chosen)


def schedules(preemptions: int) -> Iterator[Schedule]:
    """Yield each schedule of at most `preemptions` once; it must be run before the next is asked for."""
    todo = [Schedule()]
    while todo:
        schedule = todo.pop()
        yield schedule
        todo += schedule.others(preemptions)


async def run_in_order(schedule: Schedule, acts: Sequence[Callable[[Client], Awaitable[Any]]]) -> list[Any]:
    """Run clients side by side, each call in the turn that the schedule gives it; return the outcome of each."""
    clients = [Client(str(number)) for number in range(len(acts))]
    tasks = [asyncio.ensure_future(act(client)) for act, client in zip(acts, clients, strict=True)]
    while not all(task.done() for task in tasks):
        for client, task in zip(clients, tasks, strict=True):
            await _settle(client, task)
        able = [number for number, client in enumerate(clients) if client.at_gate.is_set()]
        if able:
            client = clients[schedule.choose(able)]
            client.at_gate.clear()
            client.turn.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def _settle(client: Client, task: asyncio.Future[Any]) -> None:
    """Wait until a client is at its gate or has ended."""
    if not task.done() and not client.at_gate.is_set():
        gate = asyncio.ensure_future(client.at_gate.wait())
        await asyncio.wait([gate, task], return_when=asyncio.FIRST_COMPLETED)
        gate.cancel()
