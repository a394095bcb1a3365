"""Random commands over few names, so that they meet."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

QUEUES, WORKERS, TAGS, GROUPS = ("a", "b"), ("w1", "w2"), ("red", "blue", "7"), ("g1", "g2")
JIDS, PARENTS = tuple(f"j{n}" for n in range(8)), ("r0", "r1")
DATA = ("{}", "[]", '{"a": 1.50}', '"text"', "null", "17", '{"list": [], "b": "/"}')


class Fuzzer:
    """Makes commands; `now` grows."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1_000_000.0
        self._verbs: Sequence[tuple[int, Callable[[], tuple[str | float, ...]]]] = (
            (14, self._put),
            (14, self._pop),
            (9, self._complete),
            (5, lambda: ("fail", self._jid(), self._worker(), self._one(GROUPS), "why", *self._maybe(self._data()))),
            (6, self._retry),
            (5, lambda: ("heartbeat", self._jid(), self._worker(), *self._maybe(self._data()))),
            (3, self._recur),
            (1, lambda: ("unrecur", self._one(PARENTS))),
            (2, lambda: ("recur.get", self._one(PARENTS))),
            (2, self._recur_update),
            (1, lambda: (self._one(("recur.tag", "recur.untag")), self._one(PARENTS), *self._tags())),
            (4, lambda: ("cancel", *self._some(JIDS))),
            (2, lambda: ("timeout", self._jid())),
            (4, self._depends),
            (3, lambda: ("priority", self._jid(), self._one((0, 3, -2, 5)))),
            (2, lambda: ("log", self._jid(), "noted", *self._maybe('{"x": 1}'))),
            (2, lambda: ("track", self._one(("track", "untrack", "TRACK")), self._jid())),
            (1, lambda: ("track",)),
            (4, lambda: ("tag", self._one(("add", "remove")), self._jid(), *self._tags())),
            (1, lambda: ("tag", "get", self._one(TAGS), *self._page())),
            (2, lambda: ("failed", *self._maybe(self._group(), *self._page()))),
            (2, lambda: ("unfail", self._queue(), self._group(), *self._maybe(self._one((1, 2, 25))))),
            (4, lambda: ("get", self._jid())),
            (1, lambda: ("multiget", *self._some(JIDS))),
            (3, lambda: ("peek", self._queue(), self._one((1, 3, 9)))),
            (4, self._jobs),
            (3, lambda: ("queues", *self._maybe(self._queue()))),
            (1, lambda: ("length", self._queue())),
            (1, lambda: (self._one(("pause", "unpause", "unpause")), self._queue())),
            (1, lambda: ("queue.forget", self._queue())),
            (2, lambda: ("stats", self._queue(), self.now - self.random.choice((0, 86400)))),
            (3, lambda: ("workers", *self._maybe(self._worker()))),
            (1, lambda: ("worker.deregister", self._worker())),
            (1, lambda: ("config.get", *self._maybe(self._one(("heartbeat", "application", "nothing"))))),
            (2, self._config),
        )

    def command(self) -> tuple[str | float, ...]:
        """Return the next command and its arguments; time passes before it."""
        self.now += self.random.choice((0, 0, 0.25, 1, 3.75, 11, 61, 100.5, 4000))
        if self.random.random() < 0.003:
            self.now += 90000
        weights = [weight for weight, _ in self._verbs]
        return self.random.choices([make for _, make in self._verbs], weights)[0]()

    def _one(self, items: Sequence[str | float]) -> str | float:
        return self.random.choice(items)

    def _some(self, items: Sequence[str]) -> list[str]:
        return self.random.sample(list(items), self.random.randint(1, 3))

    def _maybe(self, *words: str | float) -> tuple[str | float, ...]:
        return words if self.random.random() < 0.5 else ()

    def _jid(self) -> str:
        return str(self._one((*JIDS, *JIDS, "r0-1", "r1-2", "gone")))

    def _queue(self) -> str:
        return str(self._one(QUEUES))

    def _worker(self) -> str:
        return str(self._one(WORKERS))

    def _group(self) -> str:
        return str(self._one((*GROUPS, "failed-retries-a", "failed-retries-b")))

    def _data(self) -> str:
        return str(self._one(DATA))

    def _tags(self) -> list[str]:
        return self._some(TAGS)[:2]

    def _page(self) -> tuple[str | float, ...]:
        return self._maybe(self._one((0, 1)), self._one((1, 25)))

    def _put(self) -> tuple[str | float, ...]:
        options: list[str | float] = []
        if self.random.random() < 0.4:
            options += ["priority", self._one((0, 1, -1, 10, 2.5))]
        if self.random.random() < 0.4:
            options += ["tags", json.dumps(self._tags())]
        if self.random.random() < 0.5:
            options += ["retries", self._one((0, 1, 2))]
        if self.random.random() < 0.4:
            options += ["depends", json.dumps(self._some(JIDS)[:2] if self.random.random() < 0.8 else [])]
        if self.random.random() < 0.1:
            options += ["unknown", "x"]
        verb = self._one(("put", "put", "put", "requeue"))
        delay = self._one((0, 0, 0, 5, 70))
        return (verb, self._worker(), self._queue(), self._one(JIDS), "K", self._data(), delay, *options)

    def _pop(self) -> tuple[str | float, ...]:
        return ("pop", self._queue(), self._worker(), self._one((1, 2, 3, 10)))

    def _complete(self) -> tuple[str | float, ...]:
        words: list[str | float] = ["complete", self._jid(), self._worker(), self._queue(), self._data()]
        if self.random.random() < 0.4:
            words += ["next", self._queue()]
            if self.random.random() < 0.5:
                words += ["delay", self._one((0, 5, 70))]
            if self.random.random() < 0.5:
                words += ["depends", json.dumps(self._some(JIDS)[:1] if self.random.random() < 0.7 else [])]
        return tuple(words)

    def _retry(self) -> tuple[str | float, ...]:
        more = (*self._maybe(self._one((0, 5, 70))),)
        if more:
            more += self._maybe(self._one(GROUPS), *self._maybe("oops"))
        return ("retry", self._jid(), self._queue(), self._worker(), *more)

    def _recur(self) -> tuple[str | float, ...]:
        options: list[str | float] = []
        if self.random.random() < 0.4:
            options += ["priority", self._one((0, 4)), "tags", json.dumps(self._tags())]
        if self.random.random() < 0.4:
            options += ["retries", self._one((0, 2))]
        if self.random.random() < 0.5:
            options += ["backlog", self._one((0, 1, 3))]
        interval, offset = self._one((10, 60, 7.5, 600)), self._one((0, 0, 5, 12.25))
        where = (self._queue(), self._one(PARENTS), "K", self._data())
        return ("recur", *where, "interval", interval, offset, *options)

    def _recur_update(self) -> tuple[str | float, ...]:
        changes = {
            "priority": self._one((1, 6)),
            "interval": self._one((10, 30, 60)),
            "retries": 3,
            "data": self._data(),
            "klass": "L",
            "queue": self._queue(),
            "backlog": 2,
        }
        name = str(self._one(tuple(changes)))
        return ("recur.update", self._one(PARENTS), name, changes[name])

    def _depends(self) -> tuple[str | float, ...]:
        others = ("all",) if self.random.random() < 0.2 else tuple(self._some(JIDS))
        verb = self._one(("on", "off"))
        return ("depends", self._jid(), verb, *(others if verb == "off" else self._some(JIDS)))

    def _jobs(self) -> tuple[str | float, ...]:
        state = self._one(("complete", "running", "stalled", "scheduled", "depends", "recurring"))
        queue = () if state == "complete" else (self._queue(),)
        return ("jobs", state, *queue, *self._page())

    def _config(self) -> tuple[str | float, ...]:
        options = {
            "heartbeat": (60, 20, -10),
            "a-heartbeat": (30,),
            "grace-period": (10, 0, -1),
            "jobs-history": (604800, 100, -1),
            "jobs-history-count": (5, 50000),
            "max-worker-age": (3600, 86400),
            "max-job-history": (1, 2, 3, 5, 0, 100),
        }
        name = str(self._one(tuple(options)))
        if self.random.random() < 0.4:
            return ("config.unset", name)
        return ("config.set", name, self._one(options[name]))
