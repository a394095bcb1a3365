"""Flows: graphs of jobs, compiled into calls that can be inspected before anything is sent."""

from orchestration_queue.flows.builder import (
    DagBuilder,
    Dependency,
    Part,
    Shape,
    SubFlow,
    chain,
    chord,
    group,
    names_of,
    tree,
)
from orchestration_queue.flows.dag import Dag, FlowOptions
from orchestration_queue.flows.node import Node, TriggerRule
from orchestration_queue.flows.plan import CARRIERS, Carrier, FlowPlan, compile  # noqa: A004
from orchestration_queue.flows.plan_calls import PlannedCall, PlannedNode
from orchestration_queue.flows.record import FlowRecord, RecordedNode, RecordedOptions, job_id_of, split_job_id
from orchestration_queue.flows.stored import FlowState
from orchestration_queue.flows.submit import Launch, launch

__all__ = [
    "CARRIERS",
    "Carrier",
    "Dag",
    "DagBuilder",
    "Dependency",
    "FlowOptions",
    "FlowPlan",
    "FlowRecord",
    "FlowState",
    "Launch",
    "Node",
    "Part",
    "PlannedCall",
    "PlannedNode",
    "RecordedNode",
    "RecordedOptions",
    "Shape",
    "SubFlow",
    "TriggerRule",
    "chain",
    "chord",
    "compile",
    "group",
    "job_id_of",
    "launch",
    "names_of",
    "split_job_id",
    "tree",
]
