"""Schedules: when repeatable jobs run, as values and pure arithmetic."""

from orchestration_queue.schedules.by_hand import id_by_hand, run_now
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.fires import Fire
from orchestration_queue.schedules.ids import fire_id, flow_id_of
from orchestration_queue.schedules.plan import Held, TickPlan
from orchestration_queue.schedules.policies import MissedRuns, Overlap, Policies
from orchestration_queue.schedules.templates import SUBMIT_FLOW, FlowTemplate, JobTemplate
from orchestration_queue.schedules.tick import Awaited, evaluate
from orchestration_queue.schedules.timing import Timing
from orchestration_queue.schedules.values import Cron, Every, RepeatAfterComplete, Schedule

__all__ = [
    "SUBMIT_FLOW",
    "Awaited",
    "Cron",
    "Every",
    "Fire",
    "FlowTemplate",
    "Held",
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
    "flow_id_of",
    "id_by_hand",
    "run_now",
]
