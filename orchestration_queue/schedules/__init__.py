"""Schedules: when repeatable jobs run, as values and pure arithmetic."""

from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.tick import Fire, TickPlan, evaluate, fire_id
from orchestration_queue.schedules.timing import Timing
from orchestration_queue.schedules.values import Cron, Every, JobTemplate, RepeatAfterComplete, Schedule

__all__ = [
    "Cron",
    "Every",
    "Fire",
    "JobTemplate",
    "RepeatAfterComplete",
    "Schedule",
    "SchedulerEntry",
    "TickPlan",
    "Timing",
    "evaluate",
    "fire_id",
]
