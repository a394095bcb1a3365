"""A worker's exchange as glide-mq's workers make it, one function per job: what `oq1_exchange` must equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestration_queue.protocol.functions.oq1 import Delivered, HandBack, Settled
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.notifications import Notification, propagate
from tests.lua.oq1 import Exchanged, Started
from tests.lua.signatures import NOW
from tests.lua.wire import WORKERS, Wire, as_hash

ENDED = ("completed", "failed")


class OneByOne:
    """Makes the exchanges of one consumer on a queue, call by call."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._news: list[Notification] = []

    def exchange(
        self,
        *settlements: Settled,
        want: int = 0,
        hand_backs: Sequence[HandBack] = (),
        deliveries: Sequence[Delivered] = (),
        now: int = NOW,
    ) -> Exchanged:
        """Settle, return, start and take."""
        letters = "".join(self._settle_and_note(told, now) for told in settlements)
        for returned in hand_backs:
            self._hand_back(returned)
        self.decide(now)
        if not (want or deliveries):
            return Exchanged(letters, [], [], "")
        room = self._room()
        kept = len(deliveries) - min(len(deliveries), max(0, -room))
        for delivery in deliveries[kept:]:
            self._hand_back(delivery)
        started = [self._start(d.job_id, d.entry_id, now) for d in deliveries[:kept] if self._is_held(d.entry_id)]
        most = min(want, max(0, room))
        if most:
            self.wire.call("promote", now=now)
        taken = self._take(most, now)
        self.decide(now)
        return Exchanged(letters, [job for job in started if job] + taken, [], "")

    def fetch(self, count: int) -> list[tuple[str, str]]:
        """Read up to `count` new entries: entry id and job id."""
        streams: dict[Any, Any] = {self.wire.key("stream"): ">"}
        reply: Any = self.wire.client.xreadgroup(WORKERS, "w-1", streams, count)
        return [(entry_id, fields["jobId"]) for entry_id, fields in reply[0][1]] if reply else []

    def dependents(self, job_id: str) -> list[str]:
        """The jobs of the queue that wait for one."""
        parent = self.wire.job(job_id).get("parentId")
        registered = self.wire.members(f"parents:{job_id}")
        return [*([parent] if parent else []), *(name.rpartition(":")[2] for name in registered)]

    def failed(self, job_id: str, dependents: Sequence[str]) -> None:
        """Note that those that wait for a failed job must be decided about."""
        self._news += [
            Notification(self.wire.queue, dependent, self.wire.key(job_id), "failed") for dependent in dependents
        ]

    def decide(self, now: int) -> None:
        """Do so: the one thing that an exchange does beyond the wire's functions."""
        news, self._news = self._news, []
        if news:
            words = propagate(QueueKeys(self.wire.queue), now, news=news).call.words
            self.wire.ask(*(str(word) for word in words))

    def _settle_and_note(self, told: Settled, now: int) -> str:
        dependents = self.dependents(told.job_id)
        letter = self._settle(told, now)
        if letter == "f":
            self.failed(told.job_id, dependents)
        return letter

    def _settle(self, told: Settled, now: int) -> str:
        job = self.wire.job(told.job_id)
        stalls = job.get("stalledCount", "0")
        same = (job.get("processedOn"), stalls) == (str(told.taken_ms), str(told.stalled_count))
        if job.get("state") != "active" or not same:
            if told.entry_id and job.get("state", "failed") in ENDED:
                self._drop(told.entry_id)
            return "c" if told.kind == "c" and same and job.get("state") == "completed" else "l"
        if told.kind not in "cf":
            return self._pause(told, now)
        values: dict[str, Any] = {
            "jobId": told.job_id,
            "entryId": told.entry_id,
            "timestamp": now,
            "removeMode": told.remove_mode,
            "removeCount": told.remove_count,
            "removeAge": told.remove_age_s,
        }
        if told.kind == "f":
            attempts = {"maxAttempts": told.max_attempts, "backoffDelay": told.wait_ms}
            reply: str = self.wire.call("fail", failedReason=told.payload, **attempts, **values)
            return reply[0]
        values["returnvalue"] = told.payload
        if (parent := job.get("parentId")) and (parent_queue := job.get("parentQueue")):
            keys = self.wire.sibling(parent_queue).parent_keys(parent)
            member = self.wire.key(told.job_id)
            self.wire.call("complete", *keys, depsMember=member, parentId=parent, **values)
        else:
            self.wire.call("complete", **values)
        return "c"

    def _pause(self, told: Settled, now: int) -> str:
        values: dict[str, Any] = {"jobId": told.job_id, "entryId": told.entry_id}
        if told.kind == "d":
            until: dict[str, Any] = {"delayedUntil": told.wait_ms, "newData": told.payload}
            return {"ok": "d"}[self.wire.call("moveActiveToDelayed", now=now, **until, **values)]
        if told.kind == "w":
            return {"ok": "w", "completed": "a"}[self.wire.call("moveToWaitingChildren", now=now, **values)]
        if told.kind == "s":
            why: dict[str, Any] = {"reason": told.payload, "timeoutMs": told.wait_ms}
            return {"ok": "s"}[self.wire.call("suspend", now=now, **why, **values)]
        fate = {"currentJob": "fail"} if told.payload == "fail" else {"requeuePosition": told.payload}
        extend = "max" if told.extend else "replace"
        values["timestamp"] = now
        reply = self.wire.call("rateLimitGroup", durationMs=told.wait_ms, extend=extend, **fate, **values)
        if reply == "error:no_group":
            self.wire.call("fail", failedReason="Cannot rate limit group: no_group", **values)
        return "f" if reply == "error:no_group" or told.payload == "fail" else "g"

    def _hand_back(self, delivery: Delivered | HandBack) -> None:
        if not self._is_held(delivery.entry_id):
            return
        if self.wire.state(delivery.job_id) in ENDED:
            self._drop(delivery.entry_id)
        else:
            self.wire.call("deferActive", jobId=delivery.job_id, entryId=delivery.entry_id)

    def _room(self) -> int:
        meta = self.wire.hash("meta")
        most = int(meta.get("globalConcurrency", 0))
        if meta.get("paused") == "1":
            return -1_000_000
        return most - len(self.wire.pending()) - self.wire.list_active() if most else 1_000_000

    def _take(self, want: int, now: int) -> list[Started]:
        taken: list[Started] = []
        while len(taken) < want and (ids := self.wire.call("popLists", count=want - len(taken))):
            for job_id in ids:
                self.wire.ask("INCRBY", self.wire.key("list-active"), 1)
                if job := self._start(job_id, "", now):
                    taken.append(job)
        while len(taken) < want and (entries := self.fetch(want - len(taken))):
            for entry_id, job_id in entries:
                if job := self._start(job_id, entry_id, now):
                    taken.append(job)
        return taken

    def _start(self, job_id: str, entry_id: str, now: int) -> Started | None:
        ended = self.wire.state(job_id) in ENDED
        reply = ended or self.wire.call("moveToActive", jobId=job_id, entryId=entry_id, timestamp=now)
        if isinstance(reply, list):
            return Started(job_id, entry_id, as_hash(reply))
        if reply == "REVOKED":
            self.failed(job_id, self.dependents(job_id))
            self.wire.call("fail", jobId=job_id, entryId=entry_id, failedReason="revoked", timestamp=now)
        elif not entry_id:
            self.wire.ask("DECRBY", self.wire.key("list-active"), 1)
            self.wire.ask("ZREM", self.wire.key("list-active:jobs"), job_id)
        elif ended or not reply:
            self._drop(entry_id)
        return None

    def _is_held(self, entry_id: str) -> bool:
        return entry_id in self.wire.pending()

    def _drop(self, entry_id: str) -> None:
        self.wire.ask("XACK", self.wire.key("stream"), WORKERS, entry_id)
        self.wire.ask("XDEL", self.wire.key("stream"), entry_id)


def same_but_for_entries(wire: Wire) -> dict[str, Any]:
    """All that a queue holds, free of its name, of the ids of stream entries, and of who took a job from a list."""
    pending = set(wire.pending())
    found: dict[str, Any] = {}
    for name in wire.names():
        value = _read(wire.driver, wire.key(name))
        if name == "stream":
            value = [(entry, entry_id in pending) for entry_id, entry in value]
        elif name == "events":
            value = [entry for _, entry in value]
        elif isinstance(value, dict):
            value.pop("takenBy", None)
            value.pop("history", None)  # our own addition to the wire
            value.pop("entry", None)
        found[renamed(name, wire)] = renamed(value, wire)
    if found.get("list-active") == "0":
        del found["list-active"]
    return found


def _read(client: Any, key: str) -> Any:
    """What a key holds."""
    match client.type(key):
        case "string":
            return client.get(key)
        case "hash":
            return client.hgetall(key)
        case "set":
            return client.smembers(key)
        case "list":
            return client.lrange(key, 0, -1)
        case "zset":
            return client.zrange(key, 0, -1, withscores=True)
        case "stream":
            return [(entry_id, list(fields.items())) for entry_id, fields in client.xrange(key)]
    raise AssertionError(key)


def renamed(value: Any, wire: Wire) -> Any:
    """The same with the queue's name taken out."""
    if isinstance(value, str):
        return "Q" if value == wire.queue else value.replace(wire.base, "P").replace(f'"{wire.queue}"', '"Q"')
    if isinstance(value, dict):
        return {renamed(name, wire): renamed(item, wire) for name, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return type(value)(renamed(item, wire) for item in value)
    return value
