"""KEYS and ARGV of all 45 functions, in the order they go over the wire.

A key is its text behind ``P:``; ``{name}`` in it stands for the argument of that name, or for a word the caller adds.
An argument may carry what it is sent as when the caller says nothing: ``delay=0``, ``parentId=`` (the empty string).
``@`` in such a value stands for ``P``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOW: Final = 1_700_000_000_000
"""When everything happens, unless a test says otherwise."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What one function takes."""

    keys: tuple[str, ...]
    args: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, keys: str, args: str) -> Signature:
        def split(word: str) -> tuple[str, str | None]:
            name, given, value = word.partition("=")
            return name, value if given else None

        return cls(tuple(keys.split()), tuple(split(word) for word in args.split()))

    def defaults(self) -> dict[str, str]:
        return {name: value for name, value in self.args if value is not None}


_T: Final = f"timestamp={NOW}"
_N: Final = f"now={NOW}"
_GROUP: Final = "orderingKey= groupConcurrency=0 groupRateMax=0 groupRateDuration=0 tbCapacity=0 tbRefillRate=0 cost=0"
_REMOVE: Final = "removeMode=0 removeCount=0 removeAge=0"
_DONE: Final = "stream completed events job:{jobId} metrics:completed"
_EDIT: Final = "job:{jobId} stream scheduled events"

SIGNATURES: Final = {
    name: Signature.parse(keys, args)
    for name, keys, args in (
        ("version", "", ""),
        (
            "addJob",
            "id stream scheduled events",
            f"jobName=task data={{}} opts={{}} {_T} delay=0 priority=0 parentId= maxAttempts=0 {_GROUP} ttl=0"
            " customJobId= lifo=0 parentQueue= schedulerName= skipEvents=0",
        ),
        ("promote", "scheduled stream events", _N),
        ("nextDue", "scheduled ratelimited", ""),
        ("tryLock", "{lock}", "owner ttlMs=1000"),
        ("unlock", "{lock}", "owner"),
        ("renewLock", "{lock}", "owner ttlMs=1000"),
        (
            "complete",
            _DONE,
            f"jobId entryId= returnvalue=null {_T} group=workers {_REMOVE} depsMember= parentId= broadcastMode=0",
        ),
        (
            "completeAndFetchNext",
            _DONE,
            f"jobId entryId= returnvalue=null {_T} group=workers consumer=w-1 {_REMOVE} depsMember= parentId="
            " orderingKeyHint= orderingSeqHint= groupKeyHint= broadcastMode=0 processedOnHint= hasParents=0"
            " skipEvents=0 skipMetrics=0",
        ),
        (
            "fail",
            "stream failed scheduled events job:{jobId} metrics:failed",
            f"jobId entryId= failedReason=boom {_T} maxAttempts=0 backoffDelay=0 group=workers {_REMOVE}"
            " broadcastMode=0",
        ),
        (
            "reclaimStalled",
            "stream events",
            f"group=workers consumer=sweeper minIdleMs=0 maxStalledCount=1 {_T} failedKey=@:failed broadcastMode=0"
            " workerLockDuration=0",
        ),
        (
            "reclaimStalledListJobs",
            "stream events",
            f"minIdleMs=0 maxStalledCount=1 {_T} failedKey=@:failed workerLockDuration=0",
        ),
        ("pause", "meta events", ""),
        ("resume", "meta events", ""),
        (
            "dedup",
            "dedup id stream scheduled events",
            f"dedupId=once ttlMs=0 mode=simple jobName=task data={{}} opts={{}} {_T} delay=0 priority=0 parentId="
            f" maxAttempts=0 {_GROUP} ttl=0 customJobId= lifo=0 parentQueue= skipEvents=0",
        ),
        ("rateLimit", "rate meta", f"max windowMs {_N}"),
        ("promoteRateLimited", "ratelimited stream", _N),
        ("checkConcurrency", "meta stream list-active", "group=workers"),
        ("rpopAndReserve", "meta stream list-active {list}", "group=workers count=1"),
        ("moveToActive", "job:{jobId} stream", f"{_T} entryId= group=workers jobId broadcastMode=0"),
        ("deferActive", "stream job:{jobId} list-active", "jobId entryId= group=workers broadcastMode=0"),
        # addFlow repeats keys and arguments per child: Wire.flow builds it.
        (
            "addFlow",
            "id stream scheduled events",
            f"parentName=parent parentData={{}} parentOpts={{}} {_T} parentDelay=0 parentPriority=0"
            " parentMaxAttempts=0 numChildren=0 parentCustomId= numExtraDeps=0",
        ),
        ("completeChild", "deps:{parentId} job:{parentId} stream events", "depsMember parentId"),
        (
            "registerParent",
            "job:{childJobId} parents:{childJobId} deps:{parentId} job:{parentId} stream events",
            "childJobId parentId parentQueue=@ depsMember",
        ),
        ("removeJob", "job:{jobId} stream scheduled completed failed events log:{jobId}", "jobId"),
        ("clean", "{set} events id", "cutoff limit"),
        ("revoke", "job:{jobId} stream scheduled failed events", f"jobId {_T} group=workers"),
        ("changePriority", _EDIT, "jobId newPriority group=workers"),
        ("changeDelay", _EDIT, f"jobId newDelay {_N} group=workers"),
        ("promoteJob", _EDIT, "jobId"),
        (
            "moveActiveToDelayed",
            _EDIT,
            f"jobId entryId= {_N} delayedUntil={NOW} group=workers newData= broadcastMode=0",
        ),
        ("moveToWaitingChildren", "job:{jobId} stream events", f"jobId entryId= group=workers {_N} broadcastMode=0"),
        (
            "rateLimitGroup",
            "job:{jobId} stream",
            f"jobId entryId= group=workers durationMs {_T} broadcastMode=0 currentJob=requeue requeuePosition=front"
            " extend=max",
        ),
        ("rateLimitGroupExternal", "ratelimited events", f"groupKey durationMs {_T} extend=max"),
        ("searchByName", "{structure}", "stateType name limit=100 prefix=@:"),
        ("drain", "stream scheduled events id lifo priority", "drainDelayed=0 group=workers"),
        ("retryJobs", "failed scheduled events id", f"count=0 {_T}"),
        ("healListActive", "id", ""),
        ("getActiveListJobIds", "id", "start=0 end=-1"),
        ("popLists", "priority lifo", "count=1"),
        (
            "suspend",
            "job:{jobId} stream events suspended",
            f"jobId entryId= group=workers {_N} reason= timeoutMs=0 broadcastMode=0",
        ),
        ("signal", "job:{jobId} stream events suspended signals:{jobId}", f"jobId signalName=go signalData= {_N}"),
        ("sweepSuspended", "suspended events failed metrics:failed", f"{_N} prefix=@:"),
        ("checkBudget", "budget:{flowId}", ""),
        (
            "recordUsageAndCheckBudget",
            "budget:{flowId}",
            "tokens={} costs={} weightedTotal=0 totalCost=0 maxTokens={} maxCosts={}",
        ),
    )
}
