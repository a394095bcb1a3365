"""Schedules: when repeatable jobs run, as values and pure functions."""

from orchestration_queue.schedules.calendar import Calendar
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.planning import plan_calendar
from orchestration_queue.schedules.policies import MissedRuns, Overlap, Policies
from orchestration_queue.schedules.scheduled_run import ScheduledRun, flow_id_of, scheduled_job_id
from orchestration_queue.schedules.templates import SUBMIT_FLOW, FlowTemplate, JobTemplate
from orchestration_queue.schedules.tick import Awaited, HeldRun, TickPlan, evaluate, manual_job_id, run_now
from orchestration_queue.schedules.timing import Timing
from orchestration_queue.schedules.values import Cron, Every, RepeatAfterComplete, Schedule

__all__ = [
    "SUBMIT_FLOW",
    "Awaited",
    "Calendar",
    "Cron",
    "Every",
    "FlowTemplate",
    "HeldRun",
    "JobTemplate",
    "MissedRuns",
    "Overlap",
    "Policies",
    "RepeatAfterComplete",
    "Schedule",
    "ScheduledRun",
    "SchedulerEntry",
    "TickPlan",
    "Timing",
    "evaluate",
    "flow_id_of",
    "manual_job_id",
    "plan_calendar",
    "run_now",
    "scheduled_job_id",
]
