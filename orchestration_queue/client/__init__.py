"""Clients of queues: add jobs and flows, manage them, read events, schedule. Each in an async and a sync version.

Modules are imported when one of their names is first used, so adding jobs does not import flows and schedules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.client._async.alerts import AsyncAlerts
    from orchestration_queue.client._async.broadcast import AsyncBroadcast
    from orchestration_queue.client._async.dead_letters import AsyncDeadLetters
    from orchestration_queue.client._async.events import (
        AsyncEventReader,
        AsyncQueueEvents,
        AsyncRegistration,
        AsyncShardedEvents,
    )
    from orchestration_queue.client._async.flow import AsyncFlow
    from orchestration_queue.client._async.flow_producer import AsyncFlowProducer
    from orchestration_queue.client._async.flows import AsyncFlows
    from orchestration_queue.client._async.job import AsyncJob
    from orchestration_queue.client._async.log_tail import AsyncLogTail
    from orchestration_queue.client._async.producer import AsyncProducer
    from orchestration_queue.client._async.queue import AsyncQueue
    from orchestration_queue.client._async.schedulers import AsyncJobSchedulers
    from orchestration_queue.client._async.sharded import AsyncShardedQueue
    from orchestration_queue.client._async.sharing import AsyncPools, AsyncShares
    from orchestration_queue.client._async.tags import AsyncTags
    from orchestration_queue.client._async.taken_job import AsyncTakenJob
    from orchestration_queue.client._async.usage import AsyncUsageLedger
    from orchestration_queue.client._sync.alerts import Alerts
    from orchestration_queue.client._sync.broadcast import Broadcast
    from orchestration_queue.client._sync.dead_letters import DeadLetters
    from orchestration_queue.client._sync.events import EventReader, QueueEvents, Registration, ShardedEvents
    from orchestration_queue.client._sync.flow import Flow
    from orchestration_queue.client._sync.flow_producer import FlowProducer
    from orchestration_queue.client._sync.flows import Flows
    from orchestration_queue.client._sync.job import Job
    from orchestration_queue.client._sync.log_tail import LogTail
    from orchestration_queue.client._sync.producer import Producer
    from orchestration_queue.client._sync.queue import Queue
    from orchestration_queue.client._sync.schedulers import JobSchedulers
    from orchestration_queue.client._sync.sharded import ShardedQueue
    from orchestration_queue.client._sync.sharing import Pools, Shares
    from orchestration_queue.client._sync.tags import Tags
    from orchestration_queue.client._sync.taken_job import TakenJob
    from orchestration_queue.client._sync.usage import UsageLedger
    from orchestration_queue.client.flow_runs import FlowRun, FlowRuns, RunNode, RunsOf
    from orchestration_queue.client.flow_status import FlowStatus, FlowSummary
    from orchestration_queue.client.values import FlowNode
    from orchestration_queue.flows.explanation import FlowExplanation
    from orchestration_queue.protocol.alerts import Alert, AlertEvent, Breach, Evaluator
    from orchestration_queue.protocol.operations.additions import NewJob
    from orchestration_queue.protocol.operations.broadcasts import Subscription
    from orchestration_queue.protocol.operations.budgets import BudgetState
    from orchestration_queue.protocol.operations.control import Cancellation
    from orchestration_queue.protocol.operations.dead_letters import DeadLetter, LetterGroup
    from orchestration_queue.protocol.operations.explanation import Explanation
    from orchestration_queue.protocol.operations.job_output import StreamEntry
    from orchestration_queue.protocol.operations.job_search import FailureGroup, TagCount
    from orchestration_queue.protocol.operations.moves import MovedJobs
    from orchestration_queue.protocol.operations.pools import Pool, PoolHolder
    from orchestration_queue.protocol.operations.queue_state import JobCounts, Metrics, MetricsMinute
    from orchestration_queue.protocol.operations.shares import Share
    from orchestration_queue.protocol.operations.suspension import Signal, SuspendInfo
    from orchestration_queue.protocol.operations.usage import UsageSummary, UsageTotals
    from orchestration_queue.protocol.operations.worker_registry import WorkerInfo, WorkerJob
    from orchestration_queue.protocol.operations.worker_signals import WorkerReply
    from orchestration_queue.protocol.statistics import DayStatistics, Distribution, TaskStatistics

__all__ = [
    "Alert",
    "AlertEvent",
    "Alerts",
    "AsyncAlerts",
    "AsyncBroadcast",
    "AsyncDeadLetters",
    "AsyncEventReader",
    "AsyncFlow",
    "AsyncFlowProducer",
    "AsyncFlows",
    "AsyncJob",
    "AsyncJobSchedulers",
    "AsyncLogTail",
    "AsyncPools",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncQueueEvents",
    "AsyncRegistration",
    "AsyncShardedEvents",
    "AsyncShardedQueue",
    "AsyncShares",
    "AsyncTags",
    "AsyncTakenJob",
    "AsyncUsageLedger",
    "Breach",
    "Broadcast",
    "BudgetState",
    "Cancellation",
    "DayStatistics",
    "DeadLetter",
    "DeadLetters",
    "Distribution",
    "Evaluator",
    "EventReader",
    "Explanation",
    "FailureGroup",
    "Flow",
    "FlowExplanation",
    "FlowNode",
    "FlowProducer",
    "FlowRun",
    "FlowRuns",
    "FlowStatus",
    "FlowSummary",
    "Flows",
    "Job",
    "JobCounts",
    "JobSchedulers",
    "LetterGroup",
    "LogTail",
    "Metrics",
    "MetricsMinute",
    "MovedJobs",
    "NewJob",
    "Pool",
    "PoolHolder",
    "Pools",
    "Producer",
    "Queue",
    "QueueEvents",
    "Registration",
    "RunNode",
    "RunsOf",
    "ShardedEvents",
    "ShardedQueue",
    "Share",
    "Shares",
    "Signal",
    "StreamEntry",
    "Subscription",
    "SuspendInfo",
    "TagCount",
    "Tags",
    "TakenJob",
    "TaskStatistics",
    "UsageLedger",
    "UsageSummary",
    "UsageTotals",
    "WorkerInfo",
    "WorkerJob",
    "WorkerReply",
]

_FACES = {
    "alerts": "Alerts",
    "broadcast": "Broadcast",
    "dead_letters": "DeadLetters",
    "events": "EventReader QueueEvents Registration ShardedEvents",
    "flow": "Flow",
    "flow_producer": "FlowProducer",
    "flows": "Flows",
    "job": "Job",
    "log_tail": "LogTail",
    "producer": "Producer",
    "queue": "Queue",
    "schedulers": "JobSchedulers",
    "sharded": "ShardedQueue",
    "sharing": "Pools Shares",
    "tags": "Tags",
    "taken_job": "TakenJob",
    "usage": "UsageLedger",
}
_VALUES = {
    "client.flow_runs": "FlowRun FlowRuns RunNode RunsOf",
    "client.flow_status": "FlowStatus FlowSummary",
    "client.values": "FlowNode",
    "flows.explanation": "FlowExplanation",
    "protocol.operations.additions": "NewJob",
    "protocol.alerts": "Alert AlertEvent Breach Evaluator",
    "protocol.operations.broadcasts": "Subscription",
    "protocol.operations.budgets": "BudgetState",
    "protocol.operations.control": "Cancellation",
    "protocol.operations.explanation": "Explanation",
    "protocol.operations.dead_letters": "DeadLetter LetterGroup",
    "protocol.operations.job_search": "FailureGroup TagCount",
    "protocol.operations.pools": "Pool PoolHolder",
    "protocol.operations.shares": "Share",
    "protocol.operations.queue_state": "JobCounts Metrics MetricsMinute",
    "protocol.operations.worker_signals": "WorkerReply",
    "protocol.operations.worker_registry": "WorkerInfo WorkerJob",
    "protocol.operations.job_output": "StreamEntry",
    "protocol.operations.moves": "MovedJobs",
    "protocol.operations.usage": "UsageSummary UsageTotals",
    "protocol.operations.suspension": "Signal SuspendInfo",
    "protocol.statistics": "DayStatistics Distribution TaskStatistics",
}
__getattr__, __dir__ = lazy_names(
    __name__,
    {name: f"client._sync.{module}" for module, names in _FACES.items() for name in names.split()}
    | {f"Async{name}": f"client._async.{module}" for module, names in _FACES.items() for name in names.split()}
    | {name: module for module, names in _VALUES.items() for name in names.split()},
)
