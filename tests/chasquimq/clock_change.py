"""Schedulers of both kinds in one process, whose clock a library may have set.

Takes a server's socket, a queue, how many repeatable jobs, when they are first due (epoch ms), when they have been due
long enough, their pattern and zone. Prints, as JSON, how often each fired, when it is due next, and who led.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import cycle
from typing import Any

import redis

from orchestration_queue.wires.chasquimq import AsyncChasquiQueue
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from tests.chasquimq.original import their_worker
from tests.chasquimq.redis86 import redis86
from tests.chasquimq.working import working
from tests.waiting import wait_until


async def ignore(job: Any) -> None:
    """Do nothing: the windows are counted where they fire."""


async def pass_the_lead(socket: str, name: str, specs: int, first: int, until: int, cron: str, zone: str) -> Any:
    """Have workers of both kinds lead in turn, each there before the other ends."""
    keys = ChasquiKeys(name)
    server: Any = redis.Redis(unix_socket_path=socket, protocol=2)
    leads: list[str] = []

    def due() -> dict[str, int]:
        return {key.decode(): int(at) for key, at in server.zrange(keys.repeat, 0, -1, withscores=True)}

    with redis86(socket) as proxy:
        url = f"unix://{socket}"

        def worker(kind: str) -> AbstractAsyncContextManager[Any]:
            return working(name, ignore, url) if kind == "ours" else their_worker(name, ignore, proxy)

        async with AsyncChasquiQueue(name, url=url) as queue, AsyncExitStack() as leader:
            options: Any = {"missed_fires": "fire_all", "max_catchup": 10_000}
            for number in range(specs):
                await queue.put_schedule("tick", cron=cron, tz=zone, key=str(number), **options)
                server.zadd(keys.repeat, {str(number): first})
            for kind in cycle(("ours", "theirs")):
                following = AsyncExitStack()
                await following.enter_async_context(worker(kind))
                await leader.aclose()
                leader.push_async_callback(following.aclose)
                await wait_until(lambda: server.exists(keys.scheduler_lock), "a leader")
                before = due()
                await wait_until(lambda before=before: min(due().values()) > max(before.values()), "it to fire")  # type: ignore[misc]
                leads.append(kind)
                if min(due().values()) >= until and len(leads) >= 4:
                    break
    last = due()
    fired = {key: int(server.hget(keys.spec(key), "fired") or 0) for key in last}
    added = server.xinfo_stream(keys.stream)["entries-added"]
    server.close()
    return {"fired": fired, "due": last, "added": added, "leads": leads}


if __name__ == "__main__":
    _, at, named, count, begin, end, pattern, place = sys.argv
    told = asyncio.run(pass_the_lead(at, named, int(count), int(begin), int(end), pattern, place))
    sys.stdout.write(json.dumps(told))
