"""Schedules: when repeatable jobs run, as values and pure arithmetic."""

from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.policies import MissedRuns, Overlap, Policies
from orchestration_queue.schedules.templates import SUBMIT_FLOW, FlowTemplate, JobTemplate
from orchestration_queue.schedules.tick import Fire, TickPlan, evaluate, fire_id
from orchestration_queue.schedules.timing import Timing
from orchestration_queue.schedules.values import Cron, Every, RepeatAfterComplete, Schedule

__all__ = [
    "SUBMIT_FLOW",
    "Cron",
    "Every",
    "Fire",
    "FlowTemplate",
    "JobTemplate",
    "MissedRuns",
    "Overlap",
    "Policies",
    "RepeatAfterComplete",
    "Schedule",
    "SchedulerEntry",
    "TickPlan",
    "Timing",
    "evaluate",
    "fire_id",
]
