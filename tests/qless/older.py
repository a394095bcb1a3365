"""Calls of the older form, as tests write them."""

from __future__ import annotations

import json
from typing import Any

import redis


class Older:
    """Calls a function of the older form by its name."""

    def __init__(self, server: redis.Redis) -> None:
        self.server: Any = server

    def __call__(self, name: str, *words: str | float, keys: int = 0) -> Any:
        return self.server.fcall(f"qless_{name}", keys, *words)

    def json(self, name: str, *words: str | float) -> Any:
        return json.loads(self(name, *words))

    def put(self, jid: str, now: float = 0, delay: float = 0, *words: str | float, queue: str = "q") -> None:
        self("put", queue, jid, "K", "{}", now, delay, *words, keys=1)

    def pop(self, now: float, count: int = 1, queue: str = "q", worker: str = "w") -> list[str]:
        return [json.loads(text)["jid"] for text in self("pop", queue, worker, count, now, keys=1)]

    def peek(self, now: float, count: int = 9, queue: str = "q") -> list[str]:
        return [json.loads(text)["jid"] for text in self("peek", queue, count, now, keys=1)]

    def core(self, command: str, now: float, *words: str | float) -> Any:
        """Call a command of the newer form on the same data."""
        return self.server.fcall("qless", 0, command, now, *words)
