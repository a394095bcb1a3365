"""Policies of schedules: what is refused, what is stored, and that other clients' leaders leave alone what is ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError, PayloadError, ScheduleError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import name_problem
from orchestration_queue.schedules import (
    Awaited,
    Cron,
    Every,
    FlowTemplate,
    JobTemplate,
    MissedRuns,
    Overlap,
    Policies,
    RepeatAfterComplete,
    Schedule,
    SchedulerEntry,
    Timing,
    evaluate,
    flow_id_of,
    run_now,
    scheduled_job_id,
)
from orchestration_queue.schedules.tick import CHECK_MS, NEVER_MS, next_check

NOW = 1_700_000_000_000  # a Tuesday
HOUR = 3_600_000

BAD_INPUT: dict[str, tuple[Callable[[], object], type[OrchestrationQueueError], str]] = {
    "unknown policy": (lambda: Every(1, missed="later"), ScheduleError, "MissedRuns.mode"),  # type: ignore[arg-type]
    "all without a bound": (lambda: Every(1, missed="fire_all"), ScheduleError, "fire_all needs a max"),  # type: ignore[arg-type]
    "a bound of 0": (lambda: MissedRuns.fire_all(0), InvalidOptionError, "MissedRuns.max"),
    "a bound beyond all": (lambda: MissedRuns.fire_all(1001), InvalidOptionError, "MissedRuns.max"),
    "a bound without all": (lambda: MissedRuns(mode="skip", max=3), InvalidOptionError, "other modes have none"),
    "unknown overlap": (lambda: Every(1, overlap="wait"), ScheduleError, "overlap"),  # type: ignore[arg-type]
    "negative jitter": (lambda: Every(1, jitter=timedelta(seconds=-1)), ScheduleError, "jitter"),
    "no graph": (lambda: FlowTemplate("etl"), InvalidOptionError, "must be a Dag"),
    "graph that is a class": (lambda: FlowTemplate(Dag), InvalidOptionError, "must be a Dag"),
    "graph without JSON": (
        lambda: FlowTemplate(Dag("x", [Node("a", data=object())], queue="q")),
        PayloadError,
        "cannot be written as JSON",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    build, error, message = BAD_INPUT[case]
    with pytest.raises(error, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def initial(schedule: Schedule) -> SchedulerEntry:
    return SchedulerEntry.initial(schedule, JobTemplate(), NOW)


def test_policies_are_stored_apart_and_read_again() -> None:
    entry = initial(Every(60, jitter=timedelta(seconds=9), missed=MissedRuns.fire_all(7), overlap=Overlap.QUEUE_ONE))
    assert entry.members["oq"] == {"missed": "fire_all", "missedMax": 7, "overlap": "queue_one", "jitter": 9000}
    assert entry.policies == Policies("fire_all", 7, Overlap.QUEUE_ONE, 9000)
    assert (entry.missed, entry.overlap, entry.jitter) == ("fire_all", Overlap.QUEUE_ONE, timedelta(seconds=9))
    assert "oq" not in initial(Every(60)).members, "the wire's behaviour needs no word"


@pytest.mark.parametrize(
    "extra",
    [
        None,
        7,
        [],
        {},
        {"missed": 5, "missedMax": "x", "overlap": [], "jitter": -4},
        {"missed": "later", "overlap": "wait"},
    ],
)
def test_what_cannot_be_read_means_what_the_wire_means(extra: object) -> None:
    assert SchedulerEntry({"every": 1000, "oq": extra}).policies == Policies()


def test_setting_it_again_goes_on_and_takes_new_policies() -> None:
    before = initial(Every(60)).fired(NOW, NOW + 60_000, job="j", queued=5)
    assert before is not None
    again = SchedulerEntry.initial(Every(60, overlap="skip"), JobTemplate(), NOW, before)
    assert (again.iteration_count, again.last_job, again.overlap) == (1, "j", Overlap.SKIP)
    paused = SchedulerEntry.initial(Every(60), JobTemplate(), NOW, before.paused())
    assert (paused.is_paused, paused.next_run) == (True, before.next_run)


OR_PATTERN = "0 0 13 * 5"


def test_either_day_is_enough_when_asked() -> None:
    at: datetime | None = datetime(2024, 1, 1, tzinfo=UTC)
    found = []
    for _ in range(5):
        assert at is not None
        at = Cron(OR_PATTERN, day_or=True).next_run(at)
        found.append(at and (at.month, at.day))
    assert found == [(1, 5), (1, 12), (1, 13), (1, 19), (1, 26)]


@pytest.mark.parametrize("pattern", ["0 0 13 * *", "0 0 * * 5", "0 0 1-31 * 5", "0 0 13 * 0-6", "* * * * *"])
def test_one_restricted_day_is_as_without_the_flag(pattern: str) -> None:
    assert [Timing(pattern=pattern, day_or=either).first_run(NOW) for either in (True, False)] == [
        Timing(pattern=pattern).first_run(NOW)
    ] * 2


def wire_decision(members: dict[str, Any], now_ms: int) -> str:
    """The wire's rules for one entry, of a leader that knows nothing of ours."""
    numbers = [members.get(name) for name in ("every", "repeatAfterComplete")]
    if not members.get("pattern") and not any(isinstance(number, int) and 0 < number < 2**53 for number in numbers):
        return "delete"
    if not members.get("nextRun") or members["nextRun"] > now_ms:
        return "skip"
    return "run"


@pytest.mark.parametrize(
    "entry",
    [
        initial(Cron(OR_PATTERN, day_or=True)),
        initial(Every(60)).paused(),
        initial(Cron("* * * * *")).paused(),
        initial(RepeatAfterComplete(60)).paused(),
        initial(Cron(OR_PATTERN, day_or=True)).paused(),
    ],
    ids=["either day", "every", "cron", "repeat after complete", "either day, paused"],
)
def test_other_clients_neither_run_nor_remove_what_is_not_for_them(entry: SchedulerEntry) -> None:
    members = json.loads(entry.dump())
    assert wire_decision(members, NOW + 100 * 365 * 24 * HOUR) == "skip"
    assert SchedulerEntry.parse(entry.dump()) == entry


def test_a_hidden_pattern_is_run_by_ours() -> None:
    entry = initial(Cron(OR_PATTERN, day_or=True))
    plan = evaluate({"x": entry.dump()}, entry.next_run)
    assert [run.due_ms for run in plan.runs] == [entry.next_run]
    after = SchedulerEntry.parse(plan.updates["x"])
    assert after is not None
    assert after.next_run > entry.next_run
    assert after.timing == entry.timing


def test_another_workers_continuation_does_not_end_a_pause() -> None:
    paused = initial(RepeatAfterComplete(60)).paused()
    text = json.dumps({**paused.members, "nextRun": NOW + 5})
    plan = evaluate({"x": text}, NOW + HOUR)
    assert plan.runs == ()
    again = SchedulerEntry.parse(plan.updates["x"])
    assert again is not None
    assert (again.members["nextRun"], again.next_run, again.is_paused) == (0, NOW + 5, True)


def test_all_missed_runs_within_the_limit_and_the_tick() -> None:
    members = {"every": 1000, "nextRun": NOW, "iterationCount": 0, "oq": {"missed": "fire_all", "missedMax": 200}}
    plan = evaluate({"x": json.dumps(members)}, NOW + 99_500)
    assert [run.due_ms for run in plan.runs] == [NOW + 1000 * run for run in range(50)]
    rest = evaluate(plan.updates, NOW + 99_500)
    assert [run.due_ms for run in rest.runs] == [NOW + 1000 * run for run in range(50, 100)]
    assert evaluate(rest.updates, NOW + 99_500).is_empty
    last = evaluate({"x": json.dumps({**members, "limit": 3})}, NOW + 99_500)
    assert (len(last.runs), last.deletions) == (3, ("x",))


def test_the_latest_missed_runs_of_a_cron_are_found_however_long_ago_the_first_was() -> None:
    timing = Timing(pattern="0 3 * * *")
    first_ms = timing.first_run(NOW)
    assert first_ms is not None
    runs = timing.runs_until(first_ms, first_ms + 400 * 24 * HOUR + 5, 3)
    assert runs == [first_ms + day * 24 * HOUR for day in (398, 399, 400)]


def test_the_missed_runs_of_a_cron_begin_with_the_one_that_was_due() -> None:
    due_ms = NOW - NOW % 60_000
    # Sixty runs can't be found in less than a minute, which is as far back as is searched first.
    assert Timing(pattern="* * * * *").runs_until(due_ms, due_ms + 60_000, 60) == [due_ms, due_ms + 60_000]


@pytest.mark.parametrize("timing", [Timing(every=60_000), Timing(pattern="* * * * *"), Timing(repeat_after_complete=5)])
def test_a_run_that_is_due_just_now_is_one_of_those_up_to_now(timing: Timing) -> None:
    due_ms = NOW - NOW % 60_000
    assert timing.runs_until(due_ms, due_ms, 3) == [due_ms]
    assert timing.runs_until(due_ms, due_ms - 1, 3) == []


def test_no_more_than_the_latest_missed_runs_are_found() -> None:
    assert Timing(every=1000).runs_until(0, 10_500, 3) == [8000, 9000, 10_000]
    assert Timing(every=1000).runs_until(0, 1500, 3) == [0, 1000]


def test_a_delay_is_anything_up_to_the_jitter() -> None:
    delays = {Policies(jitter_ms=2).delay_ms("nightly", due_ms) for due_ms in range(100)}
    assert delays == {0, 1, 2}


def test_a_queued_last_run_is_still_made_and_then_the_schedule_goes() -> None:
    members = {"every": 1000, "nextRun": NOW, "iterationCount": 1, "endDate": NOW}
    text = json.dumps({**members, "oq": {"overlap": "queue_one", "job": "j"}})
    held = evaluate({"x": text}, NOW).held["x"].text
    assert held is not None
    assert wire_decision(json.loads(held), NOW + HOUR) == "skip"
    assert evaluate({"x": held}, NOW + 1, awaited={"x": Awaited("open")}).is_empty
    plan = evaluate({"x": held}, NOW + 1, awaited={"x": Awaited("ended", NOW)})
    assert ([run.due_ms for run in plan.runs], plan.deletions) == ([NOW], ("x",))


def test_a_run_by_hand_has_an_id_of_its_own() -> None:
    for name in ("nightly", "x" * 300, "a.b:c"):
        (run,) = run_now(name, initial(Every(60)), NOW).runs
        assert name_problem(run.job_id) is None
        assert run.job_id != scheduled_job_id(name, NOW)
        assert run.due_ms == NOW


def test_a_run_by_hand_leaves_an_entry_that_needs_no_guard_alone() -> None:
    plan = run_now("x", initial(Every(60, limit=1)), NOW)
    assert (len(plan.runs), plan.updates, plan.checks, plan.deletions) == (1, {}, {}, ())


def test_a_run_by_hand_is_the_last_job_of_a_schedule_that_lets_none_overlap() -> None:
    entry = initial(Every(60, overlap="queue_one"))
    plan = run_now("x", entry, NOW + 5)
    after = SchedulerEntry.parse(plan.updates["x"])
    assert after is not None
    assert (plan.runs[0].previous, after.last_job, after.queued) == ("", plan.runs[0].job_id, 0)
    assert (after.next_run, after.iteration_count) == (entry.next_run, 0)
    again = run_now("x", after, NOW + 6)
    assert (again.runs[0].previous, again.runs[0].overlap) == (after.last_job, "queue_one")
    held = SchedulerEntry.parse(again.held["x"].text or "")
    assert held is not None
    assert (held.queued, held.last_job, held.next_run) == (NOW + 6, after.last_job, entry.next_run)


def test_runs_by_hand_of_repeat_after_complete_never_overlap_either() -> None:
    plan = run_now("x", initial(RepeatAfterComplete(60)), NOW)
    assert plan.runs[0].scheduler_name == "x", "its end decides about the next"
    waiting = SchedulerEntry.parse(plan.updates["x"])
    assert waiting is not None
    assert (waiting.waits_for_completion, waiting.iteration_count) == (True, 0)
    assert run_now("x", waiting, NOW + 1).is_empty
    following = waiting.completed(NOW + 5)
    assert following is not None
    assert following.next_run == NOW + 5 + 60_000


def test_flow_ids_tell_schedules_and_times_apart() -> None:
    jobs = [scheduled_job_id(name, due) for name in ("a", "a.1", "a%2E1", "x" * 300, "y" * 300) for due in (1, NOW)] + [
        "17"
    ]
    flows = [flow_id_of(job_id) for job_id in jobs]
    assert len(set(flows)) == len(jobs)
    assert all("." not in flow and name_problem(f"{flow}.{'n' * 60}") is None for flow in flows)


def test_next_runs_are_as_many_as_were_asked_for_and_as_the_limit_leaves() -> None:
    entry = initial(Every(60))
    minutes = [datetime.fromtimestamp((NOW + 60_000 * minute) / 1000, UTC) for minute in range(1, 6)]
    assert entry.next_runs(NOW, 3) == minutes[:3]
    assert entry.next_runs(NOW, 0) == []
    limited = initial(Every(60, limit=4)).fired(NOW, NOW + 60_000, jobs=2)
    assert limited is not None
    assert limited.next_runs(NOW, 9) == minutes[:2]
    ended = initial(Every(60, end=minutes[1]))
    assert ended.next_runs(NOW, 9) == minutes[:2]
    assert entry.paused().next_runs(NOW, 3) == []
    assert len(initial(RepeatAfterComplete(60)).next_runs(NOW, 3)) == 1


def test_a_resumed_schedule_keeps_a_run_that_is_still_to_come_and_skips_one_that_was_due() -> None:
    paused = initial(Every(60)).paused()
    planned_ms = NOW + 60_000

    def next_run(now_ms: int) -> int:
        resumed = paused.resumed(now_ms)
        assert resumed is not None
        assert not resumed.is_paused
        return resumed.next_run

    assert next_run(planned_ms - 1) == planned_ms
    assert next_run(planned_ms) == next_run(planned_ms + 1) == planned_ms + 60_000
    waiting = initial(RepeatAfterComplete(60)).paused().resumed(NOW + HOUR)
    assert waiting is not None
    assert waiting.next_run == NOW + HOUR


def test_an_entry_that_waits_is_checked_soon_and_any_other_when_it_is_due() -> None:
    entry = initial(Every(3600))
    assert next_check("x", entry, NOW) == NOW + HOUR
    assert next_check("x", entry.planned(NOW + HOUR, queued=NOW), NOW) == NOW + CHECK_MS
    assert next_check("x", entry.planned(NOW + 5, queued=NOW), NOW) == NOW + 5
    assert next_check("x", entry.paused(), NOW) == NEVER_MS
    jittered = initial(Every(3600, jitter=timedelta(seconds=60)))
    late_ms = jittered.policies.delay_ms("x", NOW + HOUR)
    assert late_ms > 0
    assert next_check("x", jittered, NOW) == jittered.run_at("x") == NOW + HOUR + late_ms


def test_a_last_job_from_before_overlaps_were_allowed_guards_nothing() -> None:
    entry = initial(Every(60)).planned(NOW, job="j")
    plan = evaluate({"x": json.dumps(dict(entry.members))}, NOW)
    (run,) = plan.runs
    assert (run.previous, plan.held) == ("", {})


def test_a_resumed_schedule_whose_job_has_not_ended_still_waits_for_it() -> None:
    waiting = initial(RepeatAfterComplete(60)).planned(0, job="j")
    resumed = waiting.paused().resumed(NOW + HOUR)
    assert resumed is not None
    assert (resumed.waits_for_completion, resumed.is_paused) == (True, False)


@pytest.mark.parametrize(("stored", "last_job"), [("j", "j"), ("", None), (5, None), (None, None)])
def test_a_last_job_is_an_id(stored: object, last_job: str | None) -> None:
    assert SchedulerEntry({"every": 1000, "oq": {"job": stored}}).last_job == last_job


@pytest.mark.parametrize(("stored", "name"), [("load", "load"), ("", "nightly"), (5, "nightly"), (None, "nightly")])
def test_jobs_without_a_name_of_their_own_have_the_scheduler_s(stored: object, name: str) -> None:
    assert SchedulerEntry({"every": 1000, "template": {"name": stored}}).job_name("nightly") == name


@pytest.mark.parametrize(
    ("schedule", "hidden"),
    [
        (Cron(OR_PATTERN, day_or=True), {"cron": OR_PATTERN}),
        (Cron(f"0 {OR_PATTERN}", day_or=True), {"cron": f"0 {OR_PATTERN}", "dayOr": True}),
        (Cron(f"0 {OR_PATTERN}", day_or=False), {"cron": f"0 {OR_PATTERN}"}),
        (Cron(OR_PATTERN, day_or=False), {}),
        (Every(60), {}),
    ],
    ids=["either day", "either day, with seconds", "both days, with seconds", "both days", "no pattern"],
)
def test_a_pattern_is_hidden_if_other_clients_would_read_it_differently(
    schedule: Schedule, hidden: dict[str, object]
) -> None:
    assert schedule.timing.hidden_members == hidden
    assert schedule.timing.is_ours is bool(hidden)


@pytest.mark.parametrize("length", [-1, 0, 1])
def test_the_id_of_a_run_has_as_much_of_the_scheduler_s_name_as_fits(length: int) -> None:
    name = "x" * (256 - len(f"repeat..{NOW}") + length)
    job_id = scheduled_job_id(name, NOW)
    assert (name in job_id, len(job_id)) == ((True, 256 + length) if length <= 0 else (False, 256))


@pytest.mark.parametrize(
    ("job_id", "flow_id"),
    [
        ("repeat.nightly.5", "nightly%2E5"),
        ("nightly.5", "scheduled-nightly%2E5"),
        ("repeat.", "scheduled-repeat%2E"),
        ("17", "scheduled-17"),
        (f"repeat.{'x' * 180}", "x" * 180),
    ],
)
def test_a_flow_is_named_after_its_schedule_and_due_time(job_id: str, flow_id: str) -> None:
    assert flow_id_of(job_id) == flow_id


def test_the_id_of_a_flow_leaves_room_for_its_nodes() -> None:
    assert len(flow_id_of(f"repeat.{'x' * 181}")) < 180
