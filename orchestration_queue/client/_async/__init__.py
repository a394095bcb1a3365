"""The clients of a queue."""

from orchestration_queue.client._async.broadcast import AsyncBroadcast
from orchestration_queue.client._async.events import AsyncQueueEvents
from orchestration_queue.client._async.flow import AsyncFlow
from orchestration_queue.client._async.flow_producer import AsyncFlowProducer
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.queue import AsyncQueue
from orchestration_queue.client._async.schedulers import AsyncJobSchedulers

__all__ = [
    "AsyncBroadcast",
    "AsyncFlow",
    "AsyncFlowProducer",
    "AsyncJob",
    "AsyncJobSchedulers",
    "AsyncQueue",
    "AsyncQueueEvents",
]
