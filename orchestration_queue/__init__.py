"""Pipelines as Dagster assets, run by a fleet of workers over a Valkey queue, with Spark for the big work.

The names below are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names
from orchestration_queue._version import __version__

if TYPE_CHECKING:
    from orchestration_queue.client import (
        AsyncBroadcast,
        AsyncFlow,
        AsyncFlowProducer,
        AsyncJob,
        AsyncJobSchedulers,
        AsyncProducer,
        AsyncQueue,
        AsyncQueueEvents,
        Broadcast,
        Flow,
        FlowProducer,
        Job,
        JobSchedulers,
        NewJob,
        Producer,
        Queue,
        QueueEvents,
    )
    from orchestration_queue.flows import Dag, DagBuilder, FlowOptions, Node, TriggerRule, chain, chord, group, tree
    from orchestration_queue.options import (
        Backoff,
        Batch,
        Budget,
        Deduplication,
        Fallback,
        JobOptions,
        Ordering,
        RateLimit,
        Retention,
        TokenBucket,
        TokenLimit,
        Usage,
        WorkerOptions,
    )
    from orchestration_queue.protocol.codec import Codec, register_codec
    from orchestration_queue.schedules import (
        Cron,
        Every,
        FlowTemplate,
        JobTemplate,
        MissedRuns,
        Overlap,
        RepeatAfterComplete,
    )
    from orchestration_queue.states import JobState
    from orchestration_queue.tasks import Depends, JobLogs, Task, Tasks, current_job
    from orchestration_queue.worker import (
        ActiveJob,
        AsyncActiveJob,
        BroadcastWorker,
        RateLimitError,
        SharedSlots,
        Worker,
        run_workers,
        sandboxed,
    )

__all__ = [
    "ActiveJob",
    "AsyncActiveJob",
    "AsyncBroadcast",
    "AsyncFlow",
    "AsyncFlowProducer",
    "AsyncJob",
    "AsyncJobSchedulers",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncQueueEvents",
    "Backoff",
    "Batch",
    "Broadcast",
    "BroadcastWorker",
    "Budget",
    "Codec",
    "Cron",
    "Dag",
    "DagBuilder",
    "Deduplication",
    "Depends",
    "Every",
    "Fallback",
    "Flow",
    "FlowOptions",
    "FlowProducer",
    "FlowTemplate",
    "Job",
    "JobLogs",
    "JobOptions",
    "JobSchedulers",
    "JobState",
    "JobTemplate",
    "MissedRuns",
    "NewJob",
    "Node",
    "Ordering",
    "Overlap",
    "Producer",
    "Queue",
    "QueueEvents",
    "RateLimit",
    "RateLimitError",
    "RepeatAfterComplete",
    "Retention",
    "SharedSlots",
    "Task",
    "Tasks",
    "TokenBucket",
    "TokenLimit",
    "TriggerRule",
    "Usage",
    "Worker",
    "WorkerOptions",
    "__version__",
    "chain",
    "chord",
    "current_job",
    "group",
    "register_codec",
    "run_workers",
    "sandboxed",
    "tree",
]

_HOMES = {
    "client": "Broadcast Flow FlowProducer Job JobSchedulers NewJob Producer Queue QueueEvents AsyncBroadcast "
    "AsyncFlow AsyncFlowProducer AsyncJob AsyncJobSchedulers AsyncProducer AsyncQueue AsyncQueueEvents",
    "flows": "Dag DagBuilder FlowOptions Node TriggerRule chain chord group tree",
    "options": "Backoff Batch Budget Deduplication Fallback JobOptions Ordering RateLimit Retention TokenBucket "
    "TokenLimit Usage WorkerOptions",
    "schedules": "Cron Every FlowTemplate JobTemplate MissedRuns Overlap RepeatAfterComplete",
    "states": "JobState",
    "protocol.codec": "Codec register_codec",
    "tasks": "Depends JobLogs Task Tasks current_job",
    "worker": "ActiveJob AsyncActiveJob BroadcastWorker RateLimitError SharedSlots Worker run_workers sandboxed",
}
__getattr__, __dir__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names.split()})
