"""The script inside reqless and our library side by side: each command runs in both, on a database of its own."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import redis

ORACLE_DB, OUR_DB = 11, 12
Words = tuple[str | float, ...]


def oracle_text() -> str:
    return resources.files("reqless").joinpath("lua/qless.lua").read_text("utf-8")


@dataclass
class Outcome:
    """What one command did: its reply and what it published."""

    reply: Any
    messages: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def is_error(self) -> bool:
        return isinstance(self.reply, Exception)


class Both:
    """Runs commands in both, and says where they differ."""

    def __init__(self, socket: str) -> None:
        self.oracle: Any
        self.ours: Any
        self.oracle, self.ours = (
            redis.Redis(unix_socket_path=socket, db=db, decode_responses=True, protocol=2) for db in (ORACLE_DB, OUR_DB)
        )
        self.messages = self.ours.pubsub(ignore_subscribe_messages=True)
        self.messages.psubscribe("ql:*")
        self.messages.get_message(timeout=5)
        self._sha = self.oracle.script_load(oracle_text())

    def close(self) -> None:
        self.messages.close()
        self.oracle.close()
        self.ours.close()

    def clear(self) -> None:
        self.oracle.flushdb()
        self.ours.flushdb()

    def run(self, command: str, now: float, *args: str | float) -> tuple[Outcome, Outcome]:
        """Run a command in both, and return what the original's did and what ours did."""
        theirs = (*args[:1], 0, *args[1:]) if command == "peek" else args
        original = self.run_original(command, now, *theirs)
        if command == "heartbeat" and not original.is_error:
            # An old defect of the oracle's: its heartbeat does not note that the worker is alive.
            self.oracle.zadd("ql:workers", {str(args[1]): now})
        return original, self.run_ours(command, now, *args)

    def run_original(self, command: str, now: float, *args: str | float) -> Outcome:
        """Run a command in the original's script alone."""
        return self._run(self.oracle, ("EVALSHA", self._sha, 0, command, now, *args))

    def run_ours(self, command: str, now: float, *args: str | float) -> Outcome:
        """Run a command in our library alone."""
        return self._run(self.ours, ("FCALL", "qless", 0, command, now, *args))

    def _run(self, client: Any, words: Words) -> Outcome:
        try:
            reply = client.execute_command(*words)
        except redis.ResponseError as error:
            reply = error
        outcome = Outcome(reply)
        self.messages.connection.send_command("PING")
        while (message := self.messages.connection.read_response())[0] != "pong":
            if message[0] == "pmessage":
                outcome.messages.append((message[2], parsed(message[3])))
        return outcome

    def keys(self, client: Any) -> dict[str, Any]:
        """Return every key, less what the oracle's version has more of."""
        found: dict[str, Any] = {}
        for key in client.scan_iter(count=10000):
            if key.startswith("ql:th:") or key == "ql:tags":
                continue
            job, is_set, _ = key.removeprefix("ql:j:").partition("-depend")
            if is_set and not client.exists(f"ql:j:{job}"):
                continue  # what the oracle forgets with a job, and the core keeps
            match client.type(key):
                case "hash":
                    found[key] = {name: parsed(value) for name, value in client.hgetall(key).items()}
                    found[key].pop("throttles", None)
                case "zset":
                    found[key] = client.zrange(key, 0, -1, withscores=True)
                case "set":
                    found[key] = sorted(client.smembers(key))
                case "list":
                    found[key] = [parsed(value) for value in client.lrange(key, 0, -1)]
        return found


def parsed(text: Any) -> Any:
    """Read JSON where it is JSON; sets and what only the oracle has are made comparable."""
    if not isinstance(text, str):
        return text
    try:
        return _plain(json.loads(text))
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {
            name: sorted(item) if name in ("dependents", "dependencies") else _plain(item)
            for name, item in value.items()
            if name not in ("throttles", "throttled")
        }
    return value


def is_same(one: Any, other: Any) -> bool:
    """Compare values; numbers as numbers, as servers write them differently."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-9)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    return bool(one == other)
