"""A worker driven by hand: the calls a worker makes, without its threads and its clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.lua.wire import NOW, WORKERS, Wire, Word, as_hash


@dataclass
class HandWorker:
    """Takes what it may, ends what it is told to, and jumps to when something is due.

    Attributes:
        wire: The queue.
        now: The time it believes in.
        started: Every job that it was handed, in order.
        fetched: Every job that it took from a list or the stream by itself, also those that may not start.
        held: The jobs it has, and the entry of each; empty for one that came from a list.
    """

    wire: Wire
    consumer: str = "w-1"
    now: int = NOW
    started: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)

    def tick(self) -> None:
        self.wire.call("promote", now=self.now)
        self.wire.call("promoteRateLimited", now=self.now)

    def fetch(self) -> tuple[str, str] | None:
        """A job and its entry, from the lists or else from the stream."""
        if popped := self.wire.call("popLists"):
            self.wire.ask("INCRBY", self.wire.key("list-active"), 1)
            return popped[0], ""
        entry = self.wire.fetch(self.consumer)
        return None if entry is None else (entry[1], entry[0])

    def take(self) -> str | None:
        """The next job that may run, or None when nothing is ready."""
        while (fetched := self.fetch()) is not None:
            job_id, entry_id = fetched
            self.fetched.append(job_id)
            if self.start(job_id, entry_id):
                return job_id
        return None

    def start(self, job_id: str, entry_id: str) -> bool:
        """Activate a job that was fetched, and hold it; False when it may not start, and was put down."""
        reply = self.wire.call("moveToActive", jobId=job_id, entryId=entry_id, timestamp=self.now)
        if isinstance(reply, list):
            self._hold(job_id, entry_id)
            return True
        if reply == "":
            self.wire.call("complete", jobId=job_id, entryId=entry_id, timestamp=self.now)
        elif reply == "REVOKED":
            self._fail_revoked(job_id, entry_id)
        elif entry_id == "":
            self.wire.ask("DECRBY", self.wire.key("list-active"), 1)
        return False

    def _hold(self, job_id: str, entry_id: str) -> None:
        self.started.append(job_id)
        self.held[job_id] = entry_id

    def _fail_revoked(self, job_id: str, entry_id: str) -> None:
        self.wire.call("fail", jobId=job_id, entryId=entry_id, failedReason="revoked", timestamp=self.now)

    def parent_of(self, job_id: str) -> tuple[list[str], dict[str, Word]]:
        """The keys and arguments by which a completion reaches the job's parent."""
        job = self.wire.job(job_id)
        if not job.get("parentId"):
            return [], {}
        keys = self.wire.sibling(job["parentQueue"]).parent_keys(job["parentId"])
        return keys, {"depsMember": self.wire.key(job_id), "parentId": job["parentId"]}

    def finish(self, job_id: str, **retention: Word) -> None:
        """Complete a held job; hold the next one that the reply hands over."""
        keys, values = self.parent_of(job_id)
        reply = self.wire.call(
            "completeAndFetchNext",
            *keys,
            jobId=job_id,
            entryId=self.held.pop(job_id),
            timestamp=self.now,
            consumer=self.consumer,
            group=WORKERS,
            **values,
            **retention,
        )
        assert reply[1] == job_id
        if reply[0] == "NEXT_HASH":
            assert as_hash(reply[4:])["state"] == "active"
            self._hold(reply[2], reply[3])
        elif reply[0] == "NEXT_REVOKED":
            self._fail_revoked(reply[2], reply[3])

    def run(self, slots: int = 1) -> list[str]:
        """Work until nothing is ready and nothing will be due: the jobs it was handed, in order."""
        for _ in range(10_000):
            self.tick()
            while len(self.held) < slots and self.take() is not None:
                pass
            if self.held:
                self.finish(next(iter(self.held)))
                continue
            due = self.wire.call("nextDue")
            if due < 0:
                return self.started
            self.now = max(self.now, due)
        raise AssertionError(f"no end in sight; the next due time is {due}, now is {self.now}")
