"""One queue as it looks on the wire: raw FCALLs in, keys out. Nothing here knows our Python layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from tests.lua.signatures import NOW, SIGNATURES

__all__ = ["MINUTE", "NOW", "SHIFT", "WORKERS", "Event", "Wire", "Word", "as_hash", "due", "event", "load_library"]

LIBRARY: Final = Path(__file__).parents[2] / "orchestration_queue" / "protocol" / "lua" / "glidemq.lua"
SHIFT: Final = 2**42
"""What one step of priority weighs in a score of the scheduled set."""
MINUTE: Final = NOW - NOW % 60_000
WORKERS: Final = "workers"

Word = str | int
Event = tuple[str, ...]


def load_library(client: redis.Redis) -> None:
    """Put the library of this checkout on the server."""
    client.function_load(LIBRARY.read_text(), replace=True)


def event(kind: str, job_id: Word, **extras: Word) -> Event:
    """An entry of the events stream: every field and value, in order."""
    return _flat({"event": kind, "jobId": job_id, **extras})


def due(at: int, priority: int = 0) -> int:
    """The score of a job of the scheduled set that is due at a time."""
    return priority * SHIFT + at


def _flat(fields: dict[str, Any]) -> Event:
    return tuple(str(word) for pair in fields.items() for word in pair)


def as_hash(reply: object) -> dict[str, str]:
    """A flat field/value reply as a dict; refuses a field that comes twice."""
    assert isinstance(reply, list), reply
    names = reply[::2]
    assert len(set(names)) == len(names), f"repeated field in {names}"
    return dict(zip(names, reply[1::2], strict=True))


class Wire:
    """A queue, by its raw keys and the library's functions."""

    def __init__(self, client: redis.Redis, queue: str = "q", prefix: str = "glide") -> None:
        self.client = client
        self.driver: Any = client
        self.queue = queue
        self.base = f"{prefix}:{{{queue}}}"

    def sibling(self, queue: str) -> Wire:
        """Another queue of the same server."""
        return Wire(self.client, queue)

    # -- calls ---------------------------------------------------------------------------------------------------

    def key(self, name: str) -> str:
        return f"{self.base}:{name}"

    def ask(self, *words: Word) -> Any:
        """Any command of the server."""
        return self.driver.execute_command(*words)

    def fcall(self, function: str, keys: Sequence[str], args: Sequence[Word]) -> Any:
        """One function with exactly these keys and arguments."""
        return self.ask("FCALL", f"glidemq_{function}", len(keys), *keys, *args)

    def words(self, function: str, **values: Word) -> tuple[list[str], list[str]]:
        """The KEYS and ARGV of a call, from its signature and the values that differ from its defaults."""
        signature = SIGNATURES[function]
        known = {name: text.replace("@", self.base) for name, text in signature.defaults().items()}
        known |= {name: str(value) for name, value in values.items()}
        args = [known[name] for name, _ in signature.args]
        keys = [self.key(template.format_map(known)) for template in signature.keys]
        templates = " ".join(signature.keys)
        names = {name for name, _ in signature.args}
        strange = [name for name in values if name not in names and f"{{{name}}}" not in templates]
        assert not strange, f"{function} takes no {strange}"
        return keys, args

    def call(self, function: str, /, *more_keys: str, **values: Word) -> Any:
        """One function by the names of its arguments.

        Args:
            function: Its name behind ``glidemq_``.
            *more_keys: Optional keys behind the fixed ones.
            **values: The arguments that differ from the defaults of the signature.
        """
        keys, args = self.words(function, **values)
        return self.fcall(function, [*keys, *more_keys], args)

    def short(self, function: str, argc: int, /, **values: Word) -> Any:
        """The same with only the first arguments, as older callers send it."""
        keys, args = self.words(function, **values)
        return self.fcall(function, keys, args[:argc])

    def add(self, name: str = "task", /, **values: Word) -> str:
        """Add a job; its id."""
        job_id = self.call("addJob", **{"jobName": name, **values})
        assert isinstance(job_id, str)
        return job_id

    def flow(self, *children: Mapping[str, Word], extra_deps: Sequence[str] = (), **values: Word) -> Any:
        """Add a parent and its children. A child names what differs: ``queue``, ``name``, ``opts``, ``id``..."""
        keys, args = self.words("addFlow", numChildren=len(children), **values)
        head, words = args[:9], []
        for child in children:
            there = self.sibling(str(child.get("queue", self.queue)))
            keys += [there.key(name) for name in ("id", "stream", "scheduled", "events")]
            defaults: dict[str, Word] = {"name": "child", "data": "{}", "opts": "{}"}
            defaults |= {"delay": 0, "priority": 0, "maxAttempts": 0, "base": there.base, "parentQueue": self.queue}
            words += list(
                (defaults | {"id": ""} | {name: word for name, word in child.items() if name != "queue"}).values()
            )
        return self.fcall("addFlow", keys, [*head, *words, len(extra_deps), *extra_deps])

    def flow_ids(self, *children: Mapping[str, Word], **values: Any) -> list[str]:
        """The ids of a new flow, parent first."""
        ids: list[str] = json.loads(self.flow(*children, **values))
        assert len(ids) == 1 + len(children), ids
        return ids

    def parent_keys(self, parent_id: str) -> list[str]:
        """The four keys by which a completion reaches the parent."""
        return [self.key(f"deps:{parent_id}"), self.key(f"job:{parent_id}"), self.key("stream"), self.key("events")]

    # -- a worker, step by step ----------------------------------------------------------------------------------

    def open_group(self, group: str = WORKERS) -> None:
        try:
            self.ask("XGROUP", "CREATE", self.key("stream"), group, "0", "MKSTREAM")
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    def fetch(self, consumer: str = "w-1", group: str = WORKERS) -> tuple[str, str] | None:
        """Read one entry as a worker does: its entry id and job id, or None."""
        self.open_group(group)
        key = self.key("stream")
        reply = self.ask("XREADGROUP", "GROUP", group, consumer, "COUNT", 1, "STREAMS", key, ">")
        if not reply:
            return None
        entry_id, fields = reply[0][1][0]
        return entry_id, fields["jobId"]

    def fetched(self, consumer: str = "w-1", group: str = WORKERS) -> tuple[str, str]:
        """The next entry, which must be there."""
        entry = self.fetch(consumer, group)
        assert entry is not None, "nothing to fetch"
        return entry

    def take(self, **values: Word) -> tuple[str, str]:
        """Fetch the next entry of the stream and activate its job: job id and entry id."""
        entry_id, job_id = self.fetched()
        reply = self.call("moveToActive", jobId=job_id, entryId=entry_id, **values)
        assert isinstance(reply, list), reply
        return job_id, entry_id

    def active(self, **values: Word) -> tuple[str, str]:
        """Add a job and hand it to a worker: job id and entry id (empty when it came from a list)."""
        job_id = self.add(**values)
        if not values.get("priority") and not values.get("lifo"):
            taken = self.take()
            assert taken[0] == job_id
            return taken
        self.call("promote")
        return self.take_from_list(), ""

    def take_from_list(self) -> str:
        """Pop a list as a worker does, count it, activate it: the job id."""
        (job_id,) = self.call("popLists")
        self.ask("INCRBY", self.key("list-active"), 1)
        reply = self.call("moveToActive", jobId=job_id)
        assert isinstance(reply, list), reply
        return str(job_id)

    def idle(self, ms: int) -> None:
        """Make every pending entry look as if its worker had been silent for so long."""
        for entry_id in self.pending():
            self.ask("XCLAIM", self.key("stream"), WORKERS, "w-1", 0, entry_id, "IDLE", ms, "JUSTID")

    # -- what the keys hold --------------------------------------------------------------------------------------

    def make_job(self, job_id: str, /, **fields: Word) -> str:
        """Write fields of a job by hand; on a new id, a job that has only these."""
        self.set_fields(f"job:{job_id}", **fields)
        return job_id

    def set_fields(self, name: str, /, **fields: Word) -> None:
        self.ask("HSET", self.key(name), *_flat(fields))

    def hash(self, name: str) -> dict[str, str]:
        return dict(self.ask("HGETALL", self.key(name)))

    def job(self, job_id: str) -> dict[str, str]:
        """Its record without the id of its entry, which differs each time."""
        record = self.hash(f"job:{job_id}")
        record.pop("entry", None)
        return record

    def state(self, job_id: str) -> str | None:
        value: str | None = self.ask("HGET", self.key(f"job:{job_id}"), "state")
        return value

    def group(self, key: str) -> dict[str, str]:
        return self.hash(f"group:{key}")

    def zset(self, name: str) -> dict[str, int]:
        """Members and scores, lowest first."""
        pairs = self.driver.zrange(self.key(name), 0, -1, withscores=True)
        return {member: int(score) for member, score in pairs}

    def parked(self, group: str) -> dict[str, int]:
        return self.zset(f"groupq:{group}")

    def elements(self, name: str) -> list[str]:
        return list(self.ask("LRANGE", self.key(name), 0, -1))

    def place(self, name: str) -> Sequence[str] | dict[str, int]:
        """The jobs of the stream, of a list, or of a sorted set with their scores."""
        if name == "stream":
            return self.stream_ids()
        return self.elements(name) if name in ("lifo", "priority") else self.zset(name)

    def members(self, name: str) -> set[str]:
        return set(self.ask("SMEMBERS", self.key(name)))

    def get(self, name: str) -> str | None:
        value: str | None = self.ask("GET", self.key(name))
        return value

    def list_active(self) -> int:
        return int(self.get("list-active") or 0)

    def exists(self, name: str) -> bool:
        return bool(self.ask("EXISTS", self.key(name)))

    def stream(self) -> list[Event]:
        """Every entry, as fields and values in order."""
        return [_flat(fields) for _, fields in self.ask("XRANGE", self.key("stream"), "-", "+")]

    def stream_ids(self) -> list[str]:
        """The job of every entry."""
        return [fields["jobId"] for _, fields in self.ask("XRANGE", self.key("stream"), "-", "+")]

    def pending(self, group: str = WORKERS) -> list[str]:
        """Ids of the entries that wait for an acknowledgement; none without the group."""
        try:
            rows = self.driver.xpending_range(self.key("stream"), group, min="-", max="+", count=10_000)
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            return []
        return [row["message_id"] for row in rows]

    def events(self) -> list[Event]:
        return [_flat(fields) for _, fields in self.ask("XRANGE", self.key("events"), "-", "+")]

    def forget_events(self) -> None:
        self.ask("DEL", self.key("events"))

    def names(self, start: str = "") -> set[str]:
        """Names of the queue's keys behind ``P:`` that start so."""
        found = (str(key) for key in self.ask("KEYS", "*"))
        return {key.removeprefix(f"{self.base}:") for key in found if key.startswith(self.key(start))}

    def dump(self) -> dict[str, Any]:
        """Everything the server holds."""
        readers: dict[str, tuple[Word, ...]] = {
            "string": ("GET",),
            "hash": ("HGETALL",),
            "set": ("SMEMBERS",),
            "list": ("LRANGE", 0, -1),
            "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
            "stream": ("XRANGE", "-", "+"),
        }
        found: dict[str, Any] = {}
        for key in sorted(self.ask("KEYS", "*")):
            kind = self.ask("TYPE", key)
            command, *rest = readers[kind]
            value = self.ask(command, key, *rest)
            if kind == "hash":
                value.pop("entry", None)  # the id of an entry differs each time
            found[key] = value
            if kind == "stream":
                groups = [(group["name"], group["pending"]) for group in self.driver.xinfo_groups(key)]
                found[key] = (found[key], groups)
        return found

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing on the server may differ afterwards."""
        before = self.dump()
        yield
        after = self.dump()
        changed = {key: after.get(key) for key in {**before, **after} if after.get(key) != before.get(key)}
        assert not changed, f"changed: {changed}"

    def refused(self, function: str, keys: Sequence[str], args: Sequence[Word], match: str | None = None) -> None:
        """The call must end in an error reply and leave no trace."""
        with self.unchanged(), pytest.raises(redis.ResponseError, match=match):
            self.fcall(function, keys, args)
