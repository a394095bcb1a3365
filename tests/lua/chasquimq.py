"""The library `chasquimq` on a queue: its generated calls, sent raw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import redis

from orchestration_queue.protocol.call import Call
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.lua.wire import Wire, Word

LIBRARY: Final = Path(__file__).parents[2] / "orchestration_queue" / "protocol" / "lua" / "chasquimq.lua"
GROUP: Final = "default"


def load_chasquimq_library(client: redis.Redis) -> None:
    """Put the library of this checkout on the server."""
    client.function_load(LIBRARY.read_text(), replace=True)


class Chasqui:
    """A ChasquiMQ queue on the server of a :class:`Wire`."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.keys = ChasquiKeys("q")

    def send(self, call: Call) -> Any:
        """One call, as it goes over the wire."""
        return self.wire.driver.execute_command(*call.words)

    def server_ms(self) -> int:
        """The server's clock."""
        seconds, microseconds = self.wire.driver.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def entries(self, key: str) -> list[dict[str, str]]:
        """The fields of all entries of a stream."""
        return [fields for _, fields in self.wire.ask("XRANGE", key, "-", "+")]

    def deliver(self, *envelopes: str, consumer: str = "c-1") -> list[str]:
        """Add jobs and hand them to a worker; their entries."""
        stream = self.keys.stream
        for envelope in envelopes:
            self.wire.ask("XADD", stream, "*", "d", envelope, "n", "mail")
        self.wire.ask("XGROUP", "CREATE", stream, GROUP, "0")
        reply = self.wire.ask("XREADGROUP", "GROUP", GROUP, consumer, "STREAMS", stream, ">")
        return [entry_id for entry_id, _ in reply[0][1]]

    def owners(self) -> dict[str, tuple[str, int]]:
        """Of each running entry its worker, and how often it was delivered."""
        try:
            rows = self.wire.driver.xpending_range(self.keys.stream, GROUP, min="-", max="+", count=1000)
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            return {}
        return {row["message_id"]: (row["consumer"], row["times_delivered"]) for row in rows}

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing on the server may differ afterwards, not even who holds a lease."""
        before = self.owners()
        with self.wire.unchanged():
            yield
        assert self.owners() == before

    def refused(self, function: str, keys: list[str], args: list[Word], why: str) -> None:
        """The call must be refused as malformed and leave no trace."""
        match = f"^OQ_BAD_ARGUMENT chasquimq_{function}: .*{why}"
        with self.unchanged(), pytest.raises(redis.ResponseError, match=match):
            self.wire.ask("FCALL", f"chasquimq_{function}", len(keys), *keys, *args)
