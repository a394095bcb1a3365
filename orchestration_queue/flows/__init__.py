"""Flows: graphs of jobs, compiled into calls that can be looked at before anything is sent."""

from orchestration_queue.flows.dag import Dag, DagBuilder, Node
from orchestration_queue.flows.plan import FlowPlan, PlannedCall, Step, compile, job_id_of, split_job_id  # noqa: A004

__all__ = ["Dag", "DagBuilder", "FlowPlan", "Node", "PlannedCall", "Step", "compile", "job_id_of", "split_job_id"]
