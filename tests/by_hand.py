"""A worker by hand: takes one job at a time, and ends it as the test says, over the same wire."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from orchestration_queue.errors import ServerError
from orchestration_queue.options import Retention
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, text, texts
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations import exchanges, job_output, worker_registry, worker_signals
from orchestration_queue.protocol.record import JobRecord, pairs
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms

__all__ = ["HandWorker", "Held"]


@dataclass(frozen=True)
class Held:
    """A started job, and the stream entry it came by."""

    record: JobRecord
    entry_id: str

    @property
    def id(self) -> str:
        return self.record.id


class HandWorker:
    """One worker's part in the frozen wire, call by call, as a worker of any language plays it."""

    def __init__(self, url: str, queue: str, prefix: str = "glide") -> None:
        self.keys = QueueKeys(queue, prefix)
        self._connection = Connection.open(url)
        try:
            self._connection.execute(worker_registry.create_group(self.keys))
        except ServerError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def take(self) -> Held:
        """Start the next job: from the lists, else from the stream."""
        keys = self.keys
        self._connection.run(worker_signals.tick(keys, now_ms()))
        pop = glidemq.pop_lists(keys, count=1)
        entry_id = ""
        if popped := texts(self._connection.execute(pop)):
            self._connection.execute(Call("INCRBY", (keys.list_active,), (1,)))
            job_id = popped[0]
        else:
            (delivery,) = self._connection.run(exchanges.read_group(keys, "hand", 1, 60_000))
            job_id, entry_id = delivery.job_id, delivery.entry_id
        reply = self._connection.execute(
            glidemq.move_to_active(
                stream_key=keys.stream,
                job_key=keys.job(job_id),
                now_ms=now_ms(),
                entry_id=entry_id,
                group=GROUP,
                job_id=job_id,
            )
        )
        assert isinstance(reply, list), text(reply)
        return Held(JobRecord(job_id, pairs(reply)), entry_id)

    def complete(self, held: Held, result: object = None, retention: Retention | None = None) -> None:
        """Complete the job, and notify its parent, if it has one."""
        keys, record = self.keys, held.record
        mode, count, age_s = (retention or Retention()).wire_arguments
        parent = QueueKeys(record.parent_queue, keys.prefix) if record.parent_queue else None
        parent_id = record.parent_id or ""
        self._connection.execute(
            glidemq.complete(
                keys,
                job_key=keys.job(held.id),
                metrics_key=keys.metrics_completed,
                parent_deps_key=parent.deps(parent_id) if parent else None,
                parent_job_key=parent.job(parent_id) if parent else None,
                parent_stream_key=parent.stream if parent else None,
                parent_events_key=parent.events if parent else None,
                job_id=held.id,
                entry_id=held.entry_id,
                returnvalue=codec.encode(result),
                now_ms=now_ms(),
                group=GROUP,
                remove_mode=mode,
                remove_count=count,
                remove_age_s=age_s,
                deps_member=keys.member(held.id) if parent else "",
                parent_id=parent_id if parent else "",
            )
        )

    def fail(self, held: Held, reason: str, *, max_attempts: int = 0, retention: Retention | None = None) -> None:
        """Fail the attempt; for good, when there are no more."""
        keys = self.keys
        mode, count, age_s = (retention or Retention()).wire_arguments
        self._connection.execute(
            glidemq.fail(
                keys,
                job_key=keys.job(held.id),
                metrics_key=keys.metrics_failed,
                job_id=held.id,
                entry_id=held.entry_id,
                failed_reason=reason,
                now_ms=now_ms(),
                max_attempts=max_attempts,
                group=GROUP,
                remove_mode=mode,
                remove_count=count,
                remove_age_s=age_s,
            )
        )

    def log(self, held: Held, line: str) -> None:
        """Append to the job's log."""
        self._connection.execute(job_output.log(self.keys, held.id, (line,)))
