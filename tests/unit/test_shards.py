"""Which shard a key sticks to, and what is refused before a shard is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import orchestration_queue
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.protocol.shards import MOST_SHARDS, check_shards, shard_names, shard_of
from orchestration_queue.protocol.slots import key_slot

ShardedQueue: Any = orchestration_queue.ShardedQueue
shard_workers: Any = orchestration_queue.shard_workers
NOWHERE = "redis://127.0.0.1:1"


def test_a_key_sticks_to_its_shard_in_every_process_and_version() -> None:
    assert [shard_of(key, 8) for key in ("customer-7", "customer-8", "a", "é")] == [3, 1, 3, 2]
    assert {shard_of(f"key {number}", 1) for number in range(100)} == {0}


@pytest.mark.parametrize("shards", [1, MOST_SHARDS])
def test_a_queue_has_up_to_a_thousand_shards(shards: int) -> None:
    assert check_shards(shards) == shards


def test_keys_are_spread_evenly() -> None:
    counts = Counter(shard_of(f"key {number}", 8) for number in range(80_000))
    assert len(counts) == 8
    assert all(9_500 < count < 10_500 for count in counts.values())


@pytest.mark.parametrize(("few", "many"), [(1, 2), (3, 4), (8, 9), (8, 16)])
def test_with_more_shards_keys_move_to_the_new_ones_only(few: int, many: int) -> None:
    keys = [f"key {number}" for number in range(20_000)]
    moved = [shard_of(key, many) for key in keys if shard_of(key, many) != shard_of(key, few)]
    assert set(moved) == set(range(few, many))
    assert abs(len(moved) / len(keys) - (many - few) / many) < 0.02


def test_shards_lie_in_all_quarters_of_a_clusters_slots() -> None:
    slots = [key_slot(f"glide:{{{name}}}:id") for name in shard_names("events", 4)]
    assert {slot // 4096 for slot in slots} == {0, 1, 2, 3}


async def handle(job: Any) -> None:
    return None


MISTAKES: list[tuple[str, Callable[[], object], str]] = [
    *[
        (f"{face.__name__} with {shards!r} shards", lambda face=face, shards=shards: face(shards), "`shards` must be")
        for face in (lambda n: ShardedQueue("q", n, url=NOWHERE), lambda n: shard_workers("q", handle, n))
        for shards in (0, -1, 1025, 1.5, "8", True, None)
    ],
    *[
        (f"queue {name!r}", lambda name=name: ShardedQueue(name, 2, url=NOWHERE), fragment)
        for name, fragment in (
            ("", "`name` must be"),
            (5, "`name` must be"),
            ("a:b", "cannot carry"),
            ("x" * 256, "cannot carry"),
        )
    ],
    *[
        (f"key {key!r}", lambda key=key: ShardedQueue("q", 2, url=NOWHERE).shard_for(key), "`key` must be")
        for key in ("", None, 5, b"k")
    ],
    *[
        (f"after {after!r}", lambda after=after: ShardedQueue("q", 2, url=NOWHERE).events(after), "`after` must")
        for after in ("0", {"q": "0"}, {"q.2": "0"}, {"q.0": "yesterday"}, 5)
    ],
    ("bad codec", lambda: ShardedQueue("q", 2, url=NOWHERE, codec="x"), "Codec"),
    ("bad durability", lambda: ShardedQueue("q", 2, url=NOWHERE, durability="x"), "`durability`"),
    ("jobs that are none", lambda: ShardedQueue("q", 2, url=NOWHERE).add_bulk(["x"]), "`jobs` must be"),
    ("a job without a name", lambda: ShardedQueue("q", 2, url=NOWHERE).add(""), "`name` must be"),
    ("data that JSON cannot say", lambda: ShardedQueue("q", 2, url=NOWHERE).add("a", object()), "data of job 'a'"),
    ("no job id", lambda: ShardedQueue("q", 2, url=NOWHERE).find(""), "`job_id` must be"),
    ("a negative limit", lambda: ShardedQueue("q", 2, url=NOWHERE).search(limit=-1), "`limit` must be"),
    ("batches", lambda: shard_workers("q", handle, 2, options={"batch": {"size": 2}}), "batch"),
    ("no handler", lambda: shard_workers("q", 5, 2), "`handler` must be"),
]


@pytest.mark.parametrize(("mistake", "fragment"), [each[1:] for each in MISTAKES], ids=[each[0] for each in MISTAKES])
def test_mistakes_are_refused_in_one_sentence_and_nothing_is_sent(mistake: Callable[[], object], fragment: str) -> None:
    with pytest.raises(OrchestrationQueueError, match=fragment) as refusal:  # a server would not be reached here
        mistake()
    assert "\n" not in str(refusal.value)
