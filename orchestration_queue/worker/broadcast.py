"""The worker of a subscription: runs its handler for each message that matches the subscription."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.operations.broadcasts import NEW_ONLY, check_start, check_subscription
from orchestration_queue.protocol.operations.membership import Member
from orchestration_queue.protocol.outcome import Strategy
from orchestration_queue.protocol.subjects import SubjectFilter
from orchestration_queue.server import AsyncConnection, ServerUrl
from orchestration_queue.worker.broadcast_io import BroadcastIO
from orchestration_queue.worker.middleware import Middleware
from orchestration_queue.worker.runner import Handler, Router
from orchestration_queue.worker.worker import Worker

__all__ = ["BroadcastWorker"]


class BroadcastWorker(Worker):
    """Receives the messages of a broadcast for one subscription, and runs its handler for each.

    Every subscription receives every message, and has its own retries. The workers of one subscription share its
    messages. Delivery is at least once, as with :class:`Worker`.

    Args:
        name: The broadcast's name.
        handler: One handler for all messages, or a router by subject. It receives the message as a job, whose ``name``
            is the subject and whose ``attempt`` counts this subscription's attempts.
        subscription: The subscription's name. It remains when its workers stop, and continues where it was.
        subjects: Patterns of the subjects to receive: ``*`` matches one word, a final ``>`` one or more. None receives
            all. Pass the same to all workers of a subscription.
        start_from: Where a new subscription starts: ``$`` with messages published from now on, ``0-0`` with the oldest
            message that is kept, or a stream entry's id with the messages after it.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        options: As for :class:`Worker`.
        prefix: First part of every key.
        middleware: As for :class:`Worker`.
        strategies: As for :class:`Worker`.

    Raises:
        InvalidNameError: A name is invalid, or a pattern is malformed.
        InvalidOptionError: ``start_from`` is invalid.

    Examples:
        >>> async def mail(job: AsyncActiveJob) -> None:
        ...     print(job.name, job.data)
        >>> worker = BroadcastWorker("shop", mail, subscription="mailer", subjects=["orders.*"])
        >>> asyncio.run(worker.run())  # doctest: +SKIP
    """

    def __init__(
        self,
        name: str,
        handler: Handler | Router,
        *,
        subscription: str,
        subjects: Iterable[str] = (),
        start_from: str = NEW_ONLY,
        url: str | ServerUrl | None = None,
        options: WorkerOptions | Mapping[str, Any] | None = None,
        prefix: str = DEFAULT_PREFIX,
        middleware: Sequence[Middleware] = (),
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        super().__init__(
            name,
            handler,
            url=url,
            options=options,
            prefix=prefix,
            middleware=middleware,
            strategies=strategies,
        )
        self.subscription = check_subscription(subscription)
        self._subjects = SubjectFilter(subjects)
        self._start_from = check_start(start_from)

    def _make_queue_io(self, calls: AsyncConnection, waits: AsyncConnection) -> BroadcastIO:
        member = Member(self.keys, self.subscription, self.id)
        return BroadcastIO(member, self._subjects, self._start_from, calls, waits, self.options)
