"""Malformed calls of every function: a clear answer, and never half of a change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lua.signatures import SIGNATURES
from tests.lua.wire import NOW, Wire, Word

JUNK = ("", "soon", "nan")
"""No numbers. Lua reads ``nan`` as one."""


@pytest.fixture
def busy(wire: Wire) -> Wire:
    """A queue with one job in almost every state, so that each function finds something to change."""
    furnish(wire)
    return wire


def furnish(wire: Wire) -> None:
    wire.active(customJobId="active", orderingKey="k", ttl=10**9)
    wire.add(customJobId="parked", orderingKey="k")
    wire.call("moveToActive", jobId="parked", entryId=wire.fetched()[0])
    wire.active(customJobId="suspended")
    wire.call("suspend", jobId="suspended", entryId=wire.pending()[-1], timeoutMs=1)
    wire.active(customJobId="failed")
    wire.call("fail", jobId="failed", entryId=wire.pending()[-1])
    wire.active(customJobId="lifo-active", lifo=1)
    wire.flow({"id": "child"}, parentCustomId="parent")
    wire.add(customJobId="waiting")
    wire.add(customJobId="delayed", delay=5)
    wire.add(customJobId="lifo-waiting", lifo=1)
    wire.set_fields("budget:f", exceeded=0)
    wire.ask("ZADD", wire.key("ratelimited"), NOW, "k")
    wire.ask("SET", wire.key("lock"), "mine")


SOUND: dict[str, dict[str, Word]] = {
    "promote": {"now": NOW + 5},
    "tryLock": {"lock": "free-lock", "owner": "mine"},
    "unlock": {"lock": "lock", "owner": "mine"},
    "renewLock": {"lock": "lock", "owner": "mine"},
    "complete": {"jobId": "active"},
    "completeAndFetchNext": {"jobId": "active"},
    "fail": {"jobId": "active", "maxAttempts": 0},
    "reclaimStalled": {"timestamp": NOW + 5},
    "reclaimStalledListJobs": {"timestamp": NOW + 5},
    "rateLimit": {"max": 1, "windowMs": 1000},
    "rpopAndReserve": {"list": "lifo"},
    "moveToActive": {"jobId": "waiting"},
    "deferActive": {"jobId": "active"},
    "completeChild": {"depsMember": "glide:{q}:child", "parentId": "parent"},
    "registerParent": {"childJobId": "waiting", "parentId": "parent", "depsMember": "glide:{q}:waiting"},
    "removeJob": {"jobId": "active"},
    "clean": {"set": "failed", "cutoff": NOW, "limit": 9},
    "revoke": {"jobId": "waiting"},
    "changePriority": {"jobId": "waiting", "newPriority": 3},
    "changeDelay": {"jobId": "waiting", "newDelay": 3},
    "promoteJob": {"jobId": "delayed"},
    "moveActiveToDelayed": {"jobId": "active"},
    "moveToWaitingChildren": {"jobId": "active"},
    "rateLimitGroup": {"jobId": "active", "durationMs": 9},
    "rateLimitGroupExternal": {"groupKey": "k", "durationMs": 9},
    "searchByName": {"structure": "stream", "stateType": "stream", "name": "task"},
    "suspend": {"jobId": "active"},
    "signal": {"jobId": "suspended"},
    "sweepSuspended": {"now": NOW + 1},
    "checkBudget": {"flowId": "f"},
    "recordUsageAndCheckBudget": {"flowId": "f", "weightedTotal": 5},
}
"""What makes a sound call of each function on the furnished queue; nothing for those that need nothing."""

SILENT = {
    "renewLock",
    "healListActive",
    "version",
    "nextDue",
    "checkConcurrency",
    "searchByName",
    "getActiveListJobIds",
    "checkBudget",
}
"""Functions that only read, or change nothing but a time to live."""


@pytest.mark.parametrize("function", [name for name in SIGNATURES if name not in SILENT])
def test_the_sound_call_changes_something(busy: Wire, function: str) -> None:
    """Otherwise the tables below would prove nothing."""
    before = busy.dump()
    busy.call(function, **SOUND.get(function, {}))
    assert busy.dump() != before


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (name, count)
        for name, signature in SIGNATURES.items()
        for count in range(1 if name == "moveToActive" else len(signature.keys))
    ],
)
def test_too_few_keys_are_refused(busy: Wire, function: str, count: int) -> None:
    keys, args = busy.words(function, **SOUND.get(function, {}))
    busy.refused(function, keys[:count], args)


@pytest.mark.parametrize(
    "function",
    [
        "addJob",
        "promote",
        "tryLock",
        "unlock",
        "renewLock",
        "complete",
        "completeAndFetchNext",
        "fail",
        "reclaimStalled",
        "dedup",
        "rateLimit",
        "promoteRateLimited",
        "moveToActive",
        "deferActive",
        "addFlow",
        "completeChild",
        "registerParent",
        "removeJob",
        "revoke",
        "promoteJob",
        "moveActiveToDelayed",
        "moveToWaitingChildren",
        "rateLimitGroup",
        "rateLimitGroupExternal",
        "retryJobs",
        "suspend",
        "signal",
        "sweepSuspended",
    ],
)
def test_no_arguments_are_refused_where_some_are_needed(busy: Wire, function: str) -> None:
    keys, _ = busy.words(function, **SOUND.get(function, {}))
    busy.refused(function, keys, [])


@pytest.mark.parametrize(
    ("function", "reply"),
    [
        ("clean", []),
        ("reclaimStalledListJobs", 0),
        ("changePriority", "error:invalid_priority"),
        ("changeDelay", "error:invalid_delay"),
    ],
)
def test_no_arguments_have_a_fixed_answer_elsewhere(busy: Wire, function: str, reply: object) -> None:
    keys, _ = busy.words(function, **SOUND[function])
    with busy.unchanged():
        assert busy.fcall(function, keys, []) == reply


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("function", "argument"),
    [
        ("addJob", "timestamp"),
        ("promote", "now"),
        ("complete", "timestamp"),
        ("completeAndFetchNext", "timestamp"),
        ("fail", "timestamp"),
        ("reclaimStalled", "timestamp"),
        ("reclaimStalled", "minIdleMs"),
        ("dedup", "timestamp"),
        ("rateLimit", "now"),
        ("promoteRateLimited", "now"),
        ("moveToActive", "timestamp"),
        ("addFlow", "timestamp"),
        ("revoke", "timestamp"),
        ("changeDelay", "now"),
        ("moveActiveToDelayed", "now"),
        ("moveToWaitingChildren", "now"),
        ("rateLimitGroup", "timestamp"),
        ("rateLimitGroup", "durationMs"),
        ("rateLimitGroupExternal", "timestamp"),
        ("rateLimitGroupExternal", "durationMs"),
        ("retryJobs", "timestamp"),
        ("suspend", "now"),
        ("signal", "now"),
        ("sweepSuspended", "now"),
    ],
)
def test_a_needed_number_must_be_one(busy: Wire, function: str, argument: str, junk: str) -> None:
    keys, args = busy.words(function, **SOUND.get(function, {}) | {argument: junk})
    busy.refused(function, keys, args)


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("function", "argument", "reply"),
    [
        ("reclaimStalledListJobs", "minIdleMs", 0),
        ("reclaimStalledListJobs", "timestamp", 0),
        ("clean", "limit", []),
        ("changePriority", "newPriority", "error:invalid_priority"),
        ("changeDelay", "newDelay", "error:invalid_delay"),
    ],
)
def test_some_numbers_have_a_fixed_answer_instead(
    busy: Wire, function: str, argument: str, reply: object, junk: str
) -> None:
    with busy.unchanged():
        assert busy.call(function, **SOUND[function] | {argument: junk}) == reply


def picture(wire: Wire) -> dict[str, Any]:
    """Everything the server holds, without what its clock decides."""
    found = wire.dump()
    for key, value in found.items():
        if isinstance(value, tuple):
            found[key] = [fields for _, fields in value[0]]
        elif isinstance(value, set):
            found[key] = sorted(value)
    return found


_JOB = (
    "delay",
    "priority",
    "maxAttempts",
    "groupConcurrency",
    "groupRateMax",
    "groupRateDuration",
    "tbCapacity",
    "tbRefillRate",
    "cost",
    "ttl",
    "lifo",
)
_REMOVAL = ("removeCount", "removeAge")


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("function", "argument"),
    [
        *(("addJob", name) for name in _JOB),
        *(("dedup", name) for name in ("ttlMs", *_JOB)),
        *(("addFlow", name) for name in ("parentDelay", "parentPriority", "parentMaxAttempts")),
        *((name, argument) for name in ("complete", "completeAndFetchNext", "fail") for argument in _REMOVAL),
        ("completeAndFetchNext", "processedOnHint"),
        ("fail", "maxAttempts"),
        ("fail", "backoffDelay"),
        ("reclaimStalled", "maxStalledCount"),
        ("reclaimStalled", "workerLockDuration"),
        ("reclaimStalledListJobs", "maxStalledCount"),
        ("reclaimStalledListJobs", "workerLockDuration"),
        ("rpopAndReserve", "count"),
        ("popLists", "count"),
        ("moveActiveToDelayed", "delayedUntil"),
        ("searchByName", "limit"),
        ("retryJobs", "count"),
        ("getActiveListJobIds", "start"),
        ("getActiveListJobIds", "end"),
        ("suspend", "timeoutMs"),
        ("recordUsageAndCheckBudget", "weightedTotal"),
        ("recordUsageAndCheckBudget", "totalCost"),
    ],
)
def test_an_optional_number_that_is_none_means_its_default(busy: Wire, function: str, argument: str, junk: str) -> None:
    values: dict[str, Word] = dict(SOUND.get(function, {}))
    if function in ("addJob", "dedup"):
        values |= {"orderingKey": "k2"}
    if argument in _REMOVAL:
        values |= {"removeMode": "age_count"}
    values.pop(argument, None)
    expected = busy.call(function, **values), picture(busy)
    busy.client.flushall()
    furnish(busy)
    assert (busy.call(function, **{**values, argument: junk}), picture(busy)) == expected


@pytest.mark.parametrize(("children", "extra"), [(2, 0), (1, 1)], ids=["children", "extra dependencies"])
def test_a_flow_must_carry_what_it_announces(wire: Wire, children: int, extra: int) -> None:
    keys, args = wire.words("addFlow", numChildren=children)
    one_child = ["c", "{}", "{}", "0", "0", "0", wire.base, "q", ""]
    keys += [wire.key(name) for name in ("id", "stream", "scheduled", "events")]
    wire.refused("addFlow", keys, [*args[:9], *one_child, extra])


@pytest.mark.parametrize(("keys", "args"), [(1, 1), (2, 1), (1, 4), (2, 5)])
def test_an_ungrouped_job_is_activated_by_few_arguments(wire: Wire, keys: int, args: int) -> None:
    wire.add()
    all_keys, all_args = wire.words("moveToActive", jobId="1")
    assert isinstance(wire.fcall("moveToActive", all_keys[:keys], all_args[:args]), list)
    assert wire.state("1") == "active"
