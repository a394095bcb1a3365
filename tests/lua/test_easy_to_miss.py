"""The behaviours of the wire that are easy to miss, by their number in the protocol's list.

Every test here needs only the library. Numbers about what a program around it does are tested elsewhere:
tests/integration/test_easy_to_miss_index.py says where each number is.

Of 17, 21, 23, 31, 41, 44, 46, 50, 55, 71, 73 and 80 the library's part is here.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from itertools import pairwise

import pytest
import redis

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import MINUTE, NOW, SHIFT, Wire, Word, as_hash, due

STALLED = "job stalled more than maxStalledCount"


# -- Library replies and raw calls


@pytest.mark.parametrize("keys", [[], ["{glidemq}:_"]])
def test_01_the_version_needs_no_key_and_takes_one(wire: Wire, keys: list[str]) -> None:
    assert wire.fcall("version", keys, []) == "93"


def test_02_a_fresh_client_finds_the_library_loaded(wire: Wire) -> None:
    fresh = redis.Redis(unix_socket_path=wire.client.connection_pool.connection_kwargs["path"], decode_responses=True)
    assert Wire(fresh).fcall("version", [], []) == "93"
    fresh.close()


def test_03_an_activated_hash_has_each_field_once(wire: Wire) -> None:
    wire.make_job("7", state="waiting", processedOn=1, lastActive=2)
    reply = wire.call("moveToActive", jobId="7", timestamp=1234567890, entryId="1-1", group="any")
    job = as_hash(reply)
    assert (job["state"], job["processedOn"], job["lastActive"]) == ("active", "1234567890", "1234567890")


@pytest.mark.parametrize(
    ("function", "argc", "reply"),
    [
        ("completeAndFetchNext", 12, ["NEXT_NONE", "7"]),
        ("complete", 11, 1),
        ("fail", 11, "failed"),
        ("suspend", 7, "ok"),
        ("moveToWaitingChildren", 5, "ok"),
        ("moveActiveToDelayed", 7, "ok"),
        ("deferActive", 3, 1),
    ],
)
def test_04_calls_may_be_as_short_as_this(wire: Wire, function: str, argc: int, reply: object) -> None:
    wire.make_job("7", state="active", lifo=1)
    wire.open_group()
    assert wire.short(function, argc, jobId="7") == reply


def test_04_the_list_sweep_may_have_four_arguments(wire: Wire) -> None:
    wire.active(lifo=1)
    assert wire.short("reclaimStalledListJobs", 4) == 1


@pytest.mark.parametrize(
    "calls",
    [
        [("complete", {})] * 2,
        [("fail", {})] * 2,
        [("fail", {"maxAttempts": 9})] * 2,
        [("reclaimStalledListJobs", {"timestamp": NOW + 5}), ("complete", {})],
        [("suspend", {}), ("fail", {})],
        [("removeJob", {})],
        [("moveActiveToDelayed", {})],
        [("moveToWaitingChildren", {})],
        [("rateLimitGroup", {"durationMs": 5})],
        [("suspend", {})],
    ],
    ids=lambda calls: "-".join(name for name, _ in calls),
)
@pytest.mark.parametrize("before", [None, 0, 1])
def test_05_the_counter_of_list_jobs_never_falls_below_zero(
    wire: Wire, calls: list[tuple[str, dict[str, Word]]], before: int | None
) -> None:
    wire.make_job("7", state="active", lifo=1, lastActive=NOW, groupKey="k")
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    for function, values in calls:
        wire.call(function, **values if function == "reclaimStalledListJobs" else {"jobId": "7", **values})
        assert wire.list_active() >= 0
    assert wire.list_active() == 0


def test_05_nor_when_a_parent_goes_on_at_once(wire: Wire) -> None:
    wire.make_job("7", state="active", lifo=1, depsCompleted=1)
    wire.ask("SADD", wire.key("deps:7"), "c")
    assert wire.call("moveToWaitingChildren", jobId="7") == "completed"
    assert wire.list_active() == 0


@pytest.mark.parametrize(
    "function",
    [
        "complete",
        "fail",
        "suspend",
        "moveActiveToDelayed",
        "moveToWaitingChildren",
        "deferActive",
        "removeJob",
        "revoke",
    ],
)
def test_06_a_hash_may_hold_nothing_but_its_state(wire: Wire, function: str) -> None:
    wire.make_job("7", state="active")
    assert wire.call(function, jobId="7") in (1, "ok", "failed", "flagged")


def test_07_deferring_a_missing_job_drops_the_entry_and_creates_nothing(wire: Wire) -> None:
    entry_id = wire.ask("XADD", wire.key("stream"), "*", "jobId", "7", "name", "n")
    assert wire.short("deferActive", 3, jobId="7", entryId=entry_id) == 0
    assert wire.names() <= {"stream"}
    assert wire.stream() == []


def test_08_deferring_a_list_job_counts_it_off(wire: Wire) -> None:
    job_id, _ = wire.active(lifo=1)
    assert wire.call("deferActive", jobId=job_id) == 1
    assert (wire.get("list-active"), wire.state(job_id)) == ("0", "waiting")


@pytest.mark.parametrize(("values", "name"), [({"lifo": 1}, "lifo"), ({"priority": 2}, "priority")])
def test_09_a_stalled_list_job_comes_back_once_and_then_fails(wire: Wire, values: dict[str, Word], name: str) -> None:
    job_id, _ = wire.active(**values)
    assert wire.call("reclaimStalledListJobs", timestamp=NOW + 5) == 1
    assert (wire.state(job_id), wire.job(job_id)["stalledCount"]) == ("waiting", "1")
    assert (wire.get("list-active"), wire.elements(name)) == ("0", [job_id])
    wire.take_from_list()
    assert wire.call("reclaimStalledListJobs", timestamp=NOW + 5) == 1
    assert (wire.state(job_id), wire.job(job_id)["failedReason"]) == ("failed", STALLED)
    assert job_id in wire.zset("failed")


def test_10_the_same_moment_counts_one_stall(wire: Wire) -> None:
    wire.active(lifo=1)
    assert [wire.call("reclaimStalledListJobs", timestamp=NOW + 5) for _ in range(2)] == [1, 0]


def test_11_a_fresh_list_job_is_left_alone(wire: Wire) -> None:
    wire.active(lifo=1)
    assert wire.call("reclaimStalledListJobs", timestamp=NOW + 5, minIdleMs=1000) == 0
    assert wire.get("list-active") == "1"


@pytest.mark.parametrize(("limit", "count", "taken"), [(0, 3, ["3", "2", "1"]), (2, 5, ["3", "2"])])
def test_12_reserving_takes_the_newest_within_the_limit(wire: Wire, limit: int, count: int, taken: list[str]) -> None:
    wire.ask("HSET", wire.key("meta"), "globalConcurrency", limit)
    for _ in range(3):
        wire.add(lifo=1)
    assert wire.call("rpopAndReserve", list="lifo", count=count) == taken
    assert wire.get("list-active") == str(len(taken))


def test_13_a_rate_window_allows_waits_and_resets(wire: Wire) -> None:
    def ask(at: int, limit: int = 2) -> int:
        return int(wire.call("rateLimit", max=limit, windowMs=5000, now=NOW + at))

    assert [ask(0), ask(0), ask(1000), ask(5000)] == [0, 0, 4000, 0]
    wire.ask("HSET", wire.key("meta"), "rateLimitMax", 1, "rateLimitDuration", 5000)
    assert [ask(10_000, 0), ask(11_000, 0)] == [0, 4000]


@pytest.mark.parametrize(
    ("function", "values"),
    [("changePriority", {"newPriority": 1}), ("changeDelay", {"newDelay": 1}), ("promoteJob", {})],
)
def test_14_changes_of_a_missing_job_are_errors(wire: Wire, function: str, values: dict[str, Word]) -> None:
    """Every row of the states is in the test of its function."""
    assert wire.call(function, jobId="7", **values) == "error:not_found"


def test_15_scores_are_exact(wire: Wire) -> None:
    wire.add(priority=5)
    wire.add(delay=777, priority=1)
    wire.call("changePriority", jobId="2", newPriority=9)
    assert wire.zset("scheduled") == {"1": 5 * SHIFT, "2": due(NOW + 777, 9)}


def test_16_the_end_of_time_promotes_in_due_order(wire: Wire) -> None:
    for delay in (9000, 3000):
        wire.add(delay=delay, priority=2)
    assert wire.call("promote", now=2**53 - 1) == 2
    assert HandWorker(wire).run() == ["2", "1"]


def test_17_promotion_says_how_many_and_repeats_harmlessly(wire: Wire) -> None:
    wire.add(delay=5)
    assert [wire.call("promote", now=NOW + 5) for _ in range(3)] == [1, 0, 0]
    assert wire.stream_ids() == ["1"]


def test_18_registering_with_a_finished_child_releases_the_parent_once(wire: Wire) -> None:
    wire.flow(parentCustomId="p")
    wire.make_job("c", state="completed")
    for _ in range(2):
        reply = wire.call("registerParent", childJobId="c", parentId="p", parentQueue="q", depsMember=wire.key("c"))
        assert reply == "already_completed"
        assert (wire.state("p"), wire.job("p")["depsCompleted"]) == ("waiting", "1")
        assert wire.stream_ids() == ["p"]


def test_19_revoking_twice_is_harmless(wire: Wire) -> None:
    wire.add()
    assert [wire.call("revoke", jobId="1") for _ in range(2)] == ["revoked", "flagged"]
    assert wire.stream() == []
    assert set(wire.zset("failed")) == {"1"}


def test_20_a_revoked_job_is_not_run_but_failed(wire: Wire) -> None:
    wire.add()
    wire.make_job("1", revoked=1)
    assert HandWorker(wire).run() == []
    assert (wire.state("1"), wire.job("1")["failedReason"]) == ("failed", "revoked")


# -- Creation


def test_21_a_custom_id_is_taken_once_and_counts(wire: Wire) -> None:
    assert [wire.add(), wire.add(customJobId="2"), wire.add(customJobId="2"), wire.add()] == [
        "1",
        "2",
        "duplicate",
        "3",
    ]


def test_22_ids_of_a_flow_never_collide(wire: Wire) -> None:
    assert wire.flow_ids({"queue": "b", "id": "1"}, {"queue": "b"}, parentCustomId="p") == ["p", "1", "2"]
    for children, parent in (([{"id": "x"}, {"id": "x"}], "n"), ([{"id": "p"}], "n"), ([], "p")):
        assert json.loads(wire.flow(*children, parentCustomId=parent)) == ["duplicate"]
    assert wire.add(customJobId="p") == "duplicate"


@pytest.mark.parametrize(("ttl", "expires"), [(0, None), ("", None), (700, str(NOW + 700))])
@pytest.mark.parametrize("function", ["addJob", "dedup"])
def test_23_only_a_positive_ttl_expires(wire: Wire, function: str, ttl: Word, expires: str | None) -> None:
    job_id = wire.call(function, ttl=ttl)
    assert wire.job(job_id).get("expireAt") == expires


def test_24_automatic_ids_start_at_one_and_rise(wire: Wire) -> None:
    assert [int(wire.add()) for _ in range(50)] == list(range(1, 51))


def test_25_a_bucket_is_stored_in_thousandths(wire: Wire) -> None:
    wire.add(orderingKey="k", groupConcurrency=3, tbCapacity=50_000, tbRefillRate=10_000, cost=5000)
    group = wire.group("k")
    assert (group["tbCapacity"], group["tbRefillRate"], group["maxConcurrency"]) == ("50000", "10000", "3")
    assert int(group["tbTokens"]) <= 50_000
    assert wire.job("1")["cost"] == "5000"


def test_26_flow_members_join_their_groups(wire: Wire) -> None:
    def opts(key: str) -> str:
        return json.dumps({"ordering": {"key": key, "rateLimit": {"max": 2, "duration": 500}}})

    parent, child = wire.flow_ids({"opts": opts("c")}, parentOpts=opts("p"))
    for job_id, key in ((parent, "p"), (child, "c")):
        assert (wire.job(job_id)["groupKey"], wire.job(job_id)["orderingSeq"]) == (key, "1")
        assert (wire.group(key)["rateMax"], wire.group(key)["rateDuration"]) == ("2", "500")


def test_27_a_parent_waits_and_its_children_know_it(wire: Wire) -> None:
    parent, *children = wire.flow_ids({}, {}, {})
    assert wire.state(parent) == "waiting-children"
    assert {wire.job(child)["parentId"] for child in children} == {parent}
    assert wire.members(f"deps:{parent}") == {wire.key(child) for child in children}


def diamond(wire: Wire) -> None:
    """A, then B and C, then D, in the calls by which a client submits a graph."""
    for name in "DBC":
        wire.flow(parentCustomId=name, parentName=name)
    wire.add("A", customJobId="A")
    for child, dependents in (("A", "BC"), ("B", "D"), ("C", "D")):
        wire.make_job(child, parentIds=json.dumps(list(dependents)), parentQueues=json.dumps(["q"] * len(dependents)))
        for dependent in dependents:
            reply = wire.call("registerParent", childJobId=child, parentId=dependent, depsMember=wire.key(child))
            assert reply == "ok"


def test_28_a_diamond_is_wired_from_below(wire: Wire) -> None:
    diamond(wire)
    assert {name: wire.state(name) for name in "ABCD"} == {"A": "waiting", **dict.fromkeys("BCD", "waiting-children")}
    assert [len(wire.members(f"deps:{name}")) for name in "ABCD"] == [0, 1, 1, 2]
    assert wire.members("parents:A") == {wire.key("B"), wire.key("C")}
    assert "parentId" not in wire.job("A")


def test_28_a_leaf_of_one_dependent_has_a_parent_and_no_set(wire: Wire) -> None:
    wire.flow(parentCustomId="D")
    leaf = wire.call("addJob", wire.key("deps:D"), parentId="D", parentQueue="q")
    assert wire.job(leaf)["parentId"] == "D"
    assert wire.members("deps:D") == {wire.key(leaf)}
    assert not wire.exists(f"parents:{leaf}")


def test_29_the_join_of_a_diamond_runs_once_and_last(wire: Wire) -> None:
    diamond(wire)
    order = HandWorker(wire).run(slots=2)
    assert (order[0], sorted(order[1:3]), order[3:]) == ("A", ["B", "C"], ["D"])
    assert wire.job("D")["depsCompleted"] == "2"


@pytest.mark.parametrize("text", ["gz:H4sIAAAA", "\x00\x01 not json", "custom|1|é", "", "[1, 2]"])
def test_31_data_and_results_are_stored_byte_for_byte(wire: Wire, text: str) -> None:
    job_id, entry_id = wire.active(data=text)
    wire.call("complete", jobId=job_id, entryId=entry_id, returnvalue=text)
    assert (wire.job(job_id)["data"], wire.job(job_id)["returnvalue"]) == (text, text)


# -- Deduplication


def test_33_an_entry_is_the_job_and_its_time(wire: Wire) -> None:
    wire.call("dedup", dedupId="d", customJobId="j-1")
    assert wire.hash("dedup") == {"d": f"j-1:{NOW}"}


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_34_the_state_of_the_hash_decides_not_the_sets(wire: Wire, state: str) -> None:
    wire.call("dedup")
    wire.make_job("1", state=state)
    assert wire.call("dedup") == "2"


def test_35_throttle_ends_by_time_and_debounce_replaces_what_waits(wire: Wire) -> None:
    def add(mode: str, at: int = 0, **values: Word) -> str:
        return str(wire.call("dedup", dedupId=mode, mode=mode, ttlMs=100, timestamp=NOW + at, **values))

    assert [add("throttle", at) for at in (0, 99, 150)] == ["1", "skipped", "2"]
    assert [add("debounce", delay=500) for _ in range(2)] == ["3", "4"]
    assert (wire.exists("job:3"), set(wire.zset("scheduled"))) == (False, {"4"})
    wire.call("promoteJob", jobId="4")
    assert add("debounce", delay=500) == "skipped"


def test_36_debounced_members_of_a_group_stop_nobody(wire: Wire) -> None:
    for _ in range(3):
        last = wire.call("dedup", mode="debounce", delay=500, orderingKey="k")
    group = wire.group("k")
    assert {field for field in group if field.startswith("skip:")} == {"skip:1", "skip:2"}
    assert group["nextSeq"] == "1"
    after = wire.add(orderingKey="k")
    assert HandWorker(wire).run() == [last, after]


def test_37_a_hundred_alike_are_one(wire: Wire) -> None:
    replies = [wire.call("dedup") for _ in range(100)]
    assert (replies[0], set(replies[1:])) == ("1", {"skipped"})
    assert wire.stream_ids() == ["1"]


# -- Processing


def test_38_the_first_sign_of_life_is_the_activation(wire: Wire) -> None:
    wire.add()
    assert "lastActive" not in wire.job("1")
    wire.take()
    assert wire.job("1")["lastActive"] == str(NOW)


def test_40_stalls_are_counted_to_the_limit(wire: Wire) -> None:
    job_id, _ = wire.active()
    wire.call("reclaimStalled", maxStalledCount=2, workerLockDuration=1000, timestamp=NOW + 999)
    assert "stalledCount" not in wire.job(job_id)
    seen = []
    for _ in range(3):
        wire.ask("HDEL", wire.key(f"job:{job_id}"), "lastActive")
        wire.call("reclaimStalled", maxStalledCount=2, timestamp=NOW)
        seen.append((wire.job(job_id)["stalledCount"], wire.state(job_id)))
        if wire.state(job_id) == "waiting":
            wire.take()
    assert seen == [("1", "waiting"), ("2", "waiting"), ("3", "failed")]
    assert wire.job(job_id)["failedReason"] == STALLED


def test_41_a_long_lease_outlives_a_short_sweep(wire: Wire) -> None:
    own = wire.active(opts='{"lockDuration":9000}')[0]
    other = wire.active()[0]
    wire.idle(10_000)
    wire.call("reclaimStalled", minIdleMs=200, workerLockDuration=5000, timestamp=NOW + 1200)
    assert [wire.state(job_id) for job_id in (own, other)] == ["active", "active"]
    wire.idle(10_000)
    wire.call("reclaimStalled", minIdleMs=200, workerLockDuration=5000, timestamp=NOW + 6000)
    assert [wire.state(job_id) for job_id in (own, other)] == ["active", "waiting"]


def test_42_another_worker_completes_what_a_crashed_one_held(wire: Wire) -> None:
    job_id, _ = wire.active()
    wire.call("reclaimStalled", consumer="w-2", timestamp=NOW + 9)
    assert HandWorker(wire, consumer="w-2").run() == [job_id]
    assert (wire.state(job_id), wire.job(job_id)["stalledCount"]) == ("completed", "1")


def test_43_priority_beats_lifo_beats_fifo(wire: Wire) -> None:
    added: list[dict[str, Word]] = [{}, {"lifo": 1}, {"priority": 3}, {"priority": 1}, {"lifo": 1}, {"priority": 2}, {}]
    for values in added:
        wire.add(**values)
    assert HandWorker(wire).run() == ["4", "6", "3", "5", "2", "1", "7"]


def test_43_a_delayed_lifo_job_is_the_newest_when_its_time_comes(wire: Wire) -> None:
    wire.add(lifo=1, delay=5)
    wire.add(lifo=1)
    wire.call("promote", now=NOW + 5)
    assert wire.call("popLists", count=2) == ["1", "2"]


@pytest.mark.parametrize("values", [{"lifo": 1}, {"priority": 1}])
def test_44_45_a_global_limit_of_one_is_kept_and_freed_by_failure(wire: Wire, values: dict[str, Word]) -> None:
    wire.ask("HSET", wire.key("meta"), "globalConcurrency", 1)
    for _ in range(2):
        wire.add(**values)
    wire.call("promote")
    name = next(iter(values))
    first = wire.call("rpopAndReserve", list=name, count=5)
    assert (len(first), wire.call("rpopAndReserve", list=name, count=5)) == (1, [])
    wire.call("moveToActive", jobId=first[0])
    wire.call("fail", jobId=first[0])
    assert wire.get("list-active") == "0"
    assert len(wire.call("rpopAndReserve", list=name, count=5)) == 1


def test_46_active_jobs_are_the_pending_and_the_listed_ones(wire: Wire) -> None:
    wire.active()
    listed = {wire.active(**values)[0] for values in ({"lifo": 1}, {"priority": 2}, {"lifo": 1})}
    assert set(wire.call("getActiveListJobIds")) == listed
    assert (len(wire.pending()), wire.list_active()) == (1, 3)


def test_47_order_holds_by_key_whatever_the_priorities(wire: Wire) -> None:
    generator = random.Random(47)
    keys = {}
    for number in range(240):
        key = f"k{number % 10}"
        keys[wire.add(orderingKey=key, priority=generator.randrange(6), skipEvents=1)] = key
    started = HandWorker(wire).run(slots=10)
    assert len(started) == len(set(started)) == 240
    by_key = defaultdict(list)
    for job_id in started:
        by_key[keys[job_id]].append(int(job_id))
    assert all(ids == sorted(ids) for ids in by_key.values())
    assert {wire.group(key)["active"] for key in by_key} == {"0"}


def test_48_a_delayed_step_keeps_its_place_in_the_order(wire: Wire) -> None:
    worker = HandWorker(wire)
    first, second = wire.add("first", orderingKey="k"), wire.add("second", orderingKey="k")
    assert worker.take() == first
    entry_id = worker.held.pop(first)
    wire.call("moveActiveToDelayed", jobId=first, entryId=entry_id, delayedUntil=NOW + 50)
    assert worker.take() is None
    assert wire.parked("k") == {second: 2}
    assert worker.run() == [first, first, second]


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_49_no_slot_is_held_when_all_is_done(wire: Wire, slots: int) -> None:
    for _ in range(7):
        wire.add(orderingKey="k", groupConcurrency=3)
    assert HandWorker(wire).run(slots) == [str(number) for number in range(1, 8)]
    assert wire.group("k")["active"] == "0"
    assert wire.parked("k") == {}


def test_50_a_rate_limited_group_is_slow_even_when_chained(wire: Wire) -> None:
    for _ in range(3):
        wire.add(orderingKey="k", groupRateMax=1, groupRateDuration=800)
    assert HandWorker(wire).run() == ["1", "2", "3"]
    at = [int(wire.job(i)["processedOn"]) for i in "123"]
    assert [later - earlier for earlier, later in pairwise(at)] == [800, 800]


@pytest.mark.parametrize(
    ("settle", "values", "kept"),
    [
        ("fail", {"removeMode": "true"}, []),
        ("complete", {"removeMode": "count", "removeCount": 2}, ["2", "3"]),
        ("complete", {"removeMode": "age_count", "removeAge": 1}, ["2", "3"]),
    ],
)
def test_53_retention_counts_jobs_and_seconds(
    wire: Wire, settle: str, values: dict[str, Word], kept: list[str]
) -> None:
    for age in (1000, 500, 0):
        job_id, entry_id = wire.active()
        wire.call(settle, jobId=job_id, entryId=entry_id, timestamp=NOW - age, **values)
    assert sorted(wire.names("job:")) == [f"job:{job_id}" for job_id in kept]


def test_54_retrying_gives_failed_jobs_a_new_life(wire: Wire) -> None:
    for _ in range(3):
        job_id, entry_id = wire.active()
        wire.call("fail", jobId=job_id, entryId=entry_id)
    assert [wire.call("retryJobs", count=count) for count in (2, 9)] == [2, 1]
    assert (len(wire.zset("failed")), len(wire.zset("scheduled"))) == (0, 3)
    job = wire.job("1")
    assert (job["state"], job["attemptsMade"], job["failedReason"]) == ("delayed", "0", "")


def test_55_83_a_first_failure_is_a_retry_in_the_events(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.call("fail", jobId=job_id, entryId=entry_id, maxAttempts=2)
    assert HandWorker(wire).run() == [job_id]
    kinds = [entry[1] for entry in wire.events() if entry[3] == job_id]
    assert [kind for kind in kinds if kind in ("added", "retrying", "failed", "completed")] == [
        "added",
        "retrying",
        "completed",
    ]


def test_57_a_failed_child_leaves_its_parent_waiting(wire: Wire) -> None:
    parent, child, _ = wire.flow_ids({}, {})
    wire.call("fail", jobId=child, entryId=wire.take()[1])
    assert (wire.state(parent), wire.job(parent).get("depsCompleted")) == ("waiting-children", None)


def test_58_waiting_for_finished_children_goes_on_at_once(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    child = wire.call("addJob", wire.key(f"deps:{job_id}"), parentId=job_id, parentQueue="q")
    wire.call("complete", *wire.parent_keys(job_id), jobId=child, depsMember=wire.key(child), parentId=job_id)
    assert wire.call("moveToWaitingChildren", jobId=job_id, entryId=entry_id) == "completed"
    assert wire.state(job_id) == "waiting"


@pytest.mark.parametrize("opts", ['{"fallbacks":[{"model":"a"},{"model":"b"}]}', '{"fallbacks":[]}'])
def test_59_each_retry_counts_a_fallback(wire: Wire, opts: str) -> None:
    wire.add(opts=opts)
    seen = []
    for _ in range(3):
        seen.append(int(wire.job("1").get("fallbackIndex", 0)))
        wire.call("fail", jobId="1", entryId=wire.take()[1], maxAttempts=9)
        wire.call("promote")
    assert seen == [0, 1, 2] or (seen == [0, 0, 0] and opts.endswith("[]}"))


# -- Suspend, reads, events


def test_71_a_timeout_needs_no_worker(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.call("suspend", jobId=job_id, entryId=entry_id, timeoutMs=10)
    assert wire.call("sweepSuspended", now=NOW + 10) == 1
    assert wire.job(job_id)["failedReason"] == "Suspend timeout exceeded"


def test_72_a_signal_reaches_only_a_suspended_job_and_may_be_large(wire: Wire) -> None:
    assert wire.call("signal", jobId="7") == "not_suspended"
    job_id, entry_id = wire.active()
    assert wire.call("signal", jobId=job_id) == "not_suspended"
    wire.call("suspend", jobId=job_id, entryId=entry_id)
    payload = json.dumps({"text": 'ä"\\\n' * 50_000})
    assert wire.call("signal", jobId=job_id, signalData=payload) == "ok"
    (signal,) = json.loads(wire.job(job_id)["signals"])
    assert signal["data"] == payload


def test_73_suspending_and_resuming_are_events_of_the_job(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.call("suspend", jobId=job_id, entryId=entry_id)
    wire.call("signal", jobId=job_id)
    assert [entry[1] for entry in wire.events() if entry[3] == job_id] == ["added", "suspended", "resumed"]


def test_79_metrics_are_by_minute_and_add_up(wire: Wire) -> None:
    for number in range(5):
        job_id, entry_id = wire.active()
        wire.call("complete", jobId=job_id, entryId=entry_id, timestamp=NOW + number * 20_000)
    counts = {field.split(":")[1]: int(n) for field, n in wire.hash("metrics:completed").items() if field[-1] == "c"}
    assert set(counts) == {str(MINUTE), str(MINUTE + 60_000)}
    assert sum(counts.values()) == 5


def test_80_clean_is_oldest_first_and_drain_spares_active_and_delayed(wire: Wire) -> None:
    for age in (10, 30, 20):
        job_id, entry_id = wire.active()
        wire.call("complete", jobId=job_id, entryId=entry_id, timestamp=NOW - age)
    assert wire.call("clean", set="completed", cutoff=NOW, limit=2) == ["2", "3"]
    active, waiting, delayed = wire.active()[0], wire.add(), wire.add(delay=5)
    assert wire.call("drain") == 1
    assert [wire.exists(f"job:{job_id}") for job_id in (active, waiting, delayed)] == [True, False, True]


def test_81_output_and_log_outlive_completion_but_not_removal(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.ask("XADD", wire.key(f"jstream:{job_id}"), "*", "chunk", "x")
    wire.ask("RPUSH", wire.key(f"log:{job_id}"), "line")
    wire.call("complete", jobId=job_id, entryId=entry_id)
    assert (wire.exists(f"jstream:{job_id}"), wire.exists(f"log:{job_id}")) == (True, True)
    wire.call("removeJob", jobId=job_id)
    assert (wire.exists(f"jstream:{job_id}"), wire.exists(f"log:{job_id}")) == (False, False)


def test_82_events_are_found_by_their_fields(wire: Wire) -> None:
    wire.add("mail")
    ((_, fields),) = wire.ask("XRANGE", wire.key("events"), "-", "+")
    assert list(fields.items())[:2] == [("event", "added"), ("jobId", "1")]
