"""A worker waits for a server that is away, full or failing over, and for nothing else."""

from __future__ import annotations

import asyncio

import pytest

from orchestration_queue.errors import OrchestrationQueueError, ServerError, TransportError, UsageError
from orchestration_queue.worker.reconnecting import Pauses, is_passing, until_available

AWAY = TransportError("away", maybe_applied=False)


def test_pauses_double_up_to_the_longest_and_begin_anew() -> None:
    pauses = Pauses(first_s=1, longest_s=5)
    assert [pauses.next_s() for _ in range(5)] == [1, 2, 4, 5, 5]
    pauses.reset()
    assert pauses.next_s() == 1


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (AWAY, True),
        (ServerError("full", code="OOM"), True),
        (ServerError("starting", code="LOADING"), True),
        (ServerError("a replica", code="READONLY"), True),
        (ServerError("no right", code="NOPERM"), False),
        (ServerError("no password", code="NOAUTH"), False),
        (UsageError("no such URL"), False),
    ],
)
def test_only_what_passes_by_itself_is_waited_for(error: OrchestrationQueueError, passes: bool) -> None:
    assert is_passing(error) is passes


async def test_it_tries_until_the_server_answers_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "orchestration_queue")
    errors: list[OrchestrationQueueError] = [AWAY, ServerError("full", code="OOM")]

    async def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    assert await until_available(attempt, asyncio.Event(), "The worker") == "answer"
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "The worker reached its server after" in caplog.text


async def test_it_gives_up_when_it_is_to_stop_and_at_other_errors() -> None:
    stopping = asyncio.Event()

    async def attempt() -> str:
        stopping.set()
        raise AWAY

    async def refuse() -> None:
        raise UsageError("no such URL")

    assert await until_available(attempt, stopping, "The worker") is None
    with pytest.raises(UsageError):
        await until_available(refuse, asyncio.Event(), "The worker")
