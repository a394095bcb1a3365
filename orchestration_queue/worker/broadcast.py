"""The worker of a subscription: runs its handler for every message of a broadcast that the subscription wants."""

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
    """Gets the messages of a broadcast for one subscription, and runs its handler for each.

    Every subscription gets every message, and tries again by itself when its handler fails. The workers of one
    subscription share its messages. Delivery is at least once, as by :class:`Worker`.

    Args:
        name: The broadcast's name.
        handler: One handler for all messages, or a router by subject; it is given the message as a job, whose
            ``name`` is the subject and whose ``attempt`` counts this subscription's tries.
        subscription: The subscription's name. It stays when its workers leave, and goes on where it was.
        subjects: Patterns of the subjects it wants: ``*`` for one word, ``>`` in the last place for one or more. None
            means all. Give all workers of a subscription the same.
        start_from: Where a new subscription starts: ``$`` with what is published from now on, ``0-0`` with the oldest
            message that is kept, or after the entry of that id.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        options: As of :class:`Worker`.
        prefix: First part of every key.
        middleware: As of :class:`Worker`.
        strategies: As of :class:`Worker`.

    Raises:
        InvalidNameError: The wire cannot carry a name, or a pattern is malformed.
        InvalidOptionError: There is no such start.

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
