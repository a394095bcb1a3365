"""Clients of queues: add jobs and flows, look after them, listen, schedule. Each in an async and a sync face."""

from orchestration_queue.client._async import (
    AsyncBroadcast,
    AsyncFlow,
    AsyncFlowProducer,
    AsyncJob,
    AsyncJobSchedulers,
    AsyncQueue,
    AsyncQueueEvents,
)
from orchestration_queue.client._sync import Broadcast, Flow, FlowProducer, Job, JobSchedulers, Queue, QueueEvents
from orchestration_queue.client.values import FlowNode, NewJob
from orchestration_queue.protocol.operations.broadcasting import Subscription
from orchestration_queue.protocol.operations.control import Revocation
from orchestration_queue.protocol.operations.reading import JobCounts

__all__ = [
    "AsyncBroadcast",
    "AsyncFlow",
    "AsyncFlowProducer",
    "AsyncJob",
    "AsyncJobSchedulers",
    "AsyncQueue",
    "AsyncQueueEvents",
    "Broadcast",
    "Flow",
    "FlowNode",
    "FlowProducer",
    "Job",
    "JobCounts",
    "JobSchedulers",
    "NewJob",
    "Queue",
    "QueueEvents",
    "Revocation",
    "Subscription",
]
