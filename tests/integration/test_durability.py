"""Adding with `durability="replicated"`: it returns when a replica has the job, and says so when none has it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue import NotReplicatedError, Queue, Replicated
from orchestration_queue.client import NewJob
from orchestration_queue.client.durability import check_durability, confirmation
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.slots import call_slot, key_slot
from tests.faces import Face
from tests.nodes import Nodes

PATIENT = Replicated(timeout=60)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as nodes:
        yield nodes


@pytest.mark.parametrize("name", ["sync", "async"])
async def test_a_replica_has_what_was_added_and_without_one_the_caller_is_told(
    nodes: Nodes, name: str, queue_name: str
) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    keys = QueueKeys(queue_name)
    face = Face(name, f"redis://127.0.0.1:{primary.port}")
    async with face.queue(queue_name, durability=PATIENT) as queue, face.producer(queue_name) as producer:
        job = await queue.add("work")
        assert replica.raw.exists(keys.job(job.id))
        bulk = await queue.add_bulk([NewJob("work") for _ in range(3)])
        mixed = await queue.add_bulk([NewJob("work"), NewJob("work", parent=job.ref)])
        assert replica.raw.exists(*[keys.job(each.id) for each in (*bulk, *mixed)]) == 5
        produced = await producer.add("work", durability=PATIENT)
        assert replica.raw.exists(keys.job(str(produced)))
        replica.kill()
        brief = Replicated(timeout=0.1)
        adds: list[Any] = [
            queue.add("work", options={"job_id": "late"}, durability=brief),
            queue.add_bulk([NewJob("work")], durability=brief),
            queue.add_bulk([NewJob("work"), NewJob("work", parent=job.ref)], durability=brief),
            producer.add("work", durability=brief),
        ]
        for add in adds:
            with pytest.raises(NotReplicatedError, match="0 of 1 replicas confirmed") as caught:
                await add
            assert caught.value.maybe_applied
        assert (await queue.get("late")).state == "waiting", "the primary has it"
        assert (await queue.add("work", durability="primary")).is_new


def test_the_confirmation_goes_to_the_server_of_the_queue(queue_name: str) -> None:
    keys = QueueKeys(queue_name)
    for durability in (Replicated(), Replicated(fsync=True)):
        (call,) = confirmation(keys, durability)
        assert call_slot(call) == key_slot(keys.stream)
    assert confirmation(keys, check_durability("primary")) == []
    assert check_durability("replicated") == Replicated(replicas=1, timeout=timedelta(seconds=1))


@pytest.mark.parametrize("wrong", ["two", 2, True, None, {"replicas": 2}])
def test_another_durability_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOptionError, match="`durability` must be"):
        Queue("q", durability=wrong)
