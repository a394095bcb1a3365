"""One tick of the schedulers: what is made, what is stored, and what goes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.options import name_problem
from orchestration_queue.protocol.functions.oq1 import EntryUpdate
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import schedule_entries
from orchestration_queue.schedules import (
    Awaited,
    Every,
    JobTemplate,
    SchedulerEntry,
    TickPlan,
    evaluate,
    scheduled_job_id,
)
from orchestration_queue.schedules.tick import CHECK_MS, NEVER_MS, HeldRun

NOW = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
SECOND = timedelta(seconds=1)
MINUTE, HOUR = 60_000, 3_600_000


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def entry_text(**members: Any) -> str:
    return json.dumps({"nextRun": NOW - 1, "iterationCount": 0, **members})


def tick(now_ms: int = NOW, **members: Any) -> TickPlan:
    return evaluate({"nightly": entry_text(**members)}, now_ms)


def test_due_entry_fires_once_however_much_was_missed() -> None:
    plan = tick(every=1000, nextRun=NOW - 3500, template={"name": "load", "data": [1], "opts": {"attempts": 2}})
    (run,) = plan.runs
    assert (run.name, run.job_name, run.data_text, run.due_ms) == ("nightly", "load", "[1]", NOW - 3500)
    assert (run.options.job_id, run.options.attempts) == (f"repeat.nightly.{NOW - 3500}", 2)
    assert (run.options_text, run.scheduler_name) == ('{"attempts":2}', "")
    assert json.loads(plan.updates["nightly"]) == {
        "every": 1000,
        "iterationCount": 1,
        "lastRun": NOW,
        "nextRun": NOW + 500,
        "template": {"name": "load", "data": [1], "opts": {"attempts": 2}},
    }
    assert plan.deletions == ()
    assert plan.next_due_ms == NOW + 500


def test_template_defaults() -> None:
    (run,) = tick(every=1000).runs
    assert (run.job_name, run.data_text, run.options_text) == ("nightly", "{}", "{}")
    assert tick(every=1000, template={"data": None}).runs[0].data_text == "null"


def test_template_options_of_any_client_are_kept_and_placed() -> None:
    stored = {"priority": 9999, "attempts": -1, "ttl": 5000, "lifo": True, "delay": 60, "fallbacks": [{"model": "x"}]}
    (run,) = tick(every=1000, template={"opts": stored}).runs
    assert json.loads(run.options_text) == stored
    options = run.options
    assert (options.priority, options.attempts, options.ttl, options.lifo) == (2048, 0, 5 * SECOND, True)
    assert options.delay == timedelta(0)


def test_members_of_other_clients_survive() -> None:
    plan = tick(every=1000, color="blue", template={"opts": {"x": 1}, "y": 2})
    after = json.loads(plan.updates["nightly"])
    assert (after["color"], after["template"]) == ("blue", {"opts": {"x": 1}, "y": 2})


def test_repeat_after_complete_waits_for_its_job() -> None:
    plan = tick(repeatAfterComplete=1000)
    assert plan.runs[0].scheduler_name == "nightly"
    after = SchedulerEntry.parse(plan.updates["nightly"])
    assert after is not None
    assert (after.next_run, after.iteration_count) == (0, 1)
    assert evaluate(plan.updates, NOW + 10**9).is_empty, "until the job has ended"


@pytest.mark.parametrize(
    "members",
    [
        {"every": 1000, "nextRun": NOW + 1},
        {"every": 1000, "nextRun": 0},
        {"every": 1000, "nextRun": None},
        {"every": 1000, "template": {"data": "x" * 1_048_575}},
        {"every": 1000, "template": {"data": "\ud800"}},
        {"every": 1000, "template": {"data": 1e999}},
        {"pattern": "* * * * *", "tz": "Mars/Base"},
        {"pattern": "* * * * *", "tz": "localtime"},
    ],
    ids=[
        "later",
        "in flight",
        "never set",
        "large data",
        "not text",
        "not a number",
        "zone unknown",
        "zone of a machine",
    ],
)
def test_left_as_it_is(members: dict[str, Any]) -> None:
    text = entry_text(**members).replace("Infinity", "1e999")
    assert evaluate({"nightly": text}, NOW).is_empty


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"every": -5},
        {"every": 0},
        {"every": 1.5},
        {"every": "1000"},
        {"every": True},
        {"repeatAfterComplete": 2**53},
        {"every": 1000, "limit": 3, "iterationCount": 3},
        {"every": 1000, "nextRun": NOW - 10, "endDate": NOW - 11},
        {"pattern": "not a cron"},
        {"pattern": "0 0 30 2 *"},
    ],
    ids=str,
)
def test_removed_without_a_job(members: dict[str, Any]) -> None:
    plan = tick(**members)
    assert (plan.runs, dict(plan.updates), plan.deletions) == ((), {}, ("nightly",))


@pytest.mark.parametrize(
    "members",
    [
        {"every": 1000, "limit": 3, "iterationCount": 2},
        {"repeatAfterComplete": 1000, "limit": 1},
        {"every": 1000, "endDate": NOW + 10},
        {"pattern": "* * * * *", "endDate": NOW + 10},
    ],
    ids=str,
)
def test_the_last_run_removes_the_entry(members: dict[str, Any]) -> None:
    plan = tick(**members)
    assert len(plan.runs) == 1
    assert (dict(plan.updates), plan.deletions) == ({}, ("nightly",))


def test_a_broken_entry_does_not_block_others() -> None:
    entries = {
        "unreadable": "{",
        "broken": entry_text(pattern="61 * * * *"),
        "fine": entry_text(pattern="0 * * * *", nextRun=ms("2023-11-14 22:00")),
        "later": entry_text(every=1000, nextRun=NOW + 5),
    }
    plan = evaluate(entries, NOW)
    assert [run.name for run in plan.runs] == ["fine"]
    assert plan.deletions == ("broken",)
    assert json.loads(plan.updates["fine"])["nextRun"] == ms("2023-11-14 23:00")
    assert plan.next_due_ms == NOW + 5


def test_two_leaders_of_one_entry_make_one_job() -> None:
    entries = {"nightly": entry_text(every=1000, nextRun=NOW - 10)}
    first, second = evaluate(entries, NOW), evaluate(entries, NOW + 3)
    assert first.runs[0].options.job_id == second.runs[0].options.job_id
    later = evaluate(first.updates, NOW + 990)
    assert later.runs[0].options.job_id != first.runs[0].options.job_id


def test_limit_counts_over_ticks() -> None:
    entries: dict[str, str] = {"nightly": SchedulerEntry.initial(Every(1, limit=3), JobTemplate(), NOW).dump()}
    fired = 0
    for second in range(10):
        plan = evaluate(entries, NOW + second * 1000)
        fired += len(plan.runs)
        entries |= plan.updates
        for name in plan.deletions:
            del entries[name]
    assert (fired, entries) == (3, {})


NAMES = ["nightly", "a:b", "a%3Ab", "{a}", "a.1", "a", "a\n", "ü", "%", "", "x" * 300, "x" * 301, ":" * 200]


def test_fire_ids_are_legal_and_tell_schedulers_apart() -> None:
    ids = [scheduled_job_id(name, due) for name in NAMES for due in (1, NOW)]
    assert len(set(ids)) == len(ids)
    assert [name_problem(job_id) for job_id in ids] == [None] * len(ids)
    assert scheduled_job_id("etl.nightly", NOW) == f"repeat.etl.nightly.{NOW}"
    assert scheduled_job_id("a:b", NOW) == f"repeat.a%3Ab.{NOW}"


def test_a_run_that_waits_for_the_one_before_leaves_the_plan_as_it_is() -> None:
    plan = tick(every=1000, nextRun=NOW, oq={"overlap": "queue_one", "job": "before"})
    held = plan.held["nightly"].text
    assert held is not None
    assert json.loads(held)["nextRun"] == NOW + 1000


@pytest.mark.parametrize(("ended_ms", "last_run"), [(NOW - 4999, 1), (NOW - 10_000, NOW - 4999), (0, NOW - 4999)])
def test_who_ended_the_job_has_a_moment_to_tell_the_schedule(ended_ms: int, last_run: int) -> None:
    waiting = {"nightly": entry_text(repeatAfterComplete=1000, nextRun=0, lastRun=last_run)}
    for fate in ("ended", "gone"):
        assert evaluate(waiting, NOW, awaited={"nightly": Awaited(fate, ended_ms)}).is_empty


@pytest.mark.parametrize(
    ("awaited", "next_ms"),
    [
        (Awaited("ended", NOW - 5000), NOW - 4000),
        (Awaited("gone"), NOW + 1000),
        (Awaited("open"), None),
        (Awaited(), None),
    ],
)
def test_a_schedule_that_nobody_told_goes_on_from_the_end_of_its_job(awaited: Awaited, next_ms: int | None) -> None:
    waiting = {"nightly": entry_text(repeatAfterComplete=1000, nextRun=0, lastRun=NOW - 5000)}
    plan = evaluate(waiting, NOW, awaited={"nightly": awaited})
    assert {name: json.loads(text)["nextRun"] for name, text in plan.updates.items()} == (
        {} if next_ms is None else {"nightly": next_ms}
    )


@pytest.mark.parametrize(
    ("late_ms", "made", "missed", "next_ms"),
    [
        (0, [0], [], HOUR),
        (MINUTE, [0], [], HOUR),
        (MINUTE + 1, [], [0], HOUR),
        (HOUR + MINUTE, [HOUR], [0], 2 * HOUR),
        (HOUR + MINUTE + 1, [], [0], 2 * HOUR),
    ],
)
def test_a_run_that_is_more_than_a_minute_late_is_skipped_when_asked(
    late_ms: int, made: list[int], missed: list[int], next_ms: int
) -> None:
    due_ms = NOW - late_ms
    plan = tick(every=HOUR, nextRun=due_ms, oq={"missed": "skip"})
    assert [run.due_ms for run in plan.runs] == [due_ms + run_ms for run_ms in made]
    assert plan.misses == tuple(("nightly", due_ms + run_ms) for run_ms in missed)
    assert json.loads(plan.updates["nightly"])["nextRun"] == due_ms + next_ms


def test_a_run_is_not_late_before_its_jitter_has_passed() -> None:
    members: dict[str, Any] = {"every": HOUR, "nextRun": NOW, "oq": {"missed": "skip", "jitter": HOUR // 2}}
    entry = SchedulerEntry.parse(entry_text(**members))
    assert entry is not None
    delay_ms = entry.policies.delay_ms("nightly", NOW)
    assert delay_ms > 0
    assert tick(NOW + delay_ms - 1, **members).is_empty
    assert [run.due_ms for run in tick(NOW + delay_ms + MINUTE, **members).runs] == [NOW]
    assert tick(NOW + delay_ms + MINUTE + 1, **members).runs == ()


def test_a_skipped_run_that_was_the_last_removes_the_entry() -> None:
    plan = tick(every=HOUR, nextRun=NOW - 2 * MINUTE, endDate=NOW, oq={"missed": "skip"})
    assert (plan.runs, plan.misses, plan.deletions) == ((), (("nightly", NOW - 2 * MINUTE),), ("nightly",))


def test_a_skipped_run_of_repeat_after_complete_is_made_up_for_an_interval_later() -> None:
    plan = tick(repeatAfterComplete=HOUR, nextRun=NOW - 2 * MINUTE, oq={"missed": "skip"})
    assert plan.runs == ()
    assert json.loads(plan.updates["nightly"])["nextRun"] == NOW + HOUR


def test_all_missed_runs_are_made_one_by_one_if_none_may_overlap() -> None:
    policies = {"missed": "fire_all", "missedMax": 9, "overlap": "skip"}
    plan = tick(every=1000, nextRun=NOW - 3000, oq=policies)
    assert [run.due_ms for run in plan.runs] == [NOW - 3000]
    assert json.loads(plan.updates["nightly"])["nextRun"] == NOW - 2000


def test_missed_runs_count_towards_a_limit_that_is_partly_used() -> None:
    plan = tick(every=1000, nextRun=NOW - 5000, limit=5, iterationCount=3, oq={"missed": "fire_all", "missedMax": 9})
    assert ([run.due_ms for run in plan.runs], plan.deletions) == ([NOW - 5000, NOW - 4000], ("nightly",))


@pytest.mark.parametrize(
    ("members", "has_last_job"),
    [
        ({"every": 1000}, False),
        ({"every": 1000, "oq": {"overlap": "skip"}}, True),
        ({"repeatAfterComplete": 1000}, True),
    ],
)
def test_an_entry_whose_next_run_depends_on_its_last_job_remembers_it(
    members: dict[str, Any], has_last_job: bool
) -> None:
    plan = tick(**members)
    ours = json.loads(plan.updates["nightly"]).get("oq", {})
    assert ours.get("job") == (plan.runs[0].job_id if has_last_job else None)


def test_a_run_that_is_skipped_for_the_one_before_leaves_only_what_follows() -> None:
    members: dict[str, Any] = {"every": 1000, "nextRun": NOW, "oq": {"overlap": "skip", "job": "before"}}
    (held,) = tick(**members).held.values()
    assert held.text is not None
    after = json.loads(held.text)
    assert (after["nextRun"], after["oq"]) == (NOW + 1000, {"overlap": "skip", "job": "before"})
    assert held.look_ms == NOW + 1000
    assert tick(**members, endDate=NOW).held == {"nightly": HeldRun(None, NEVER_MS)}, "nothing follows"


@pytest.mark.parametrize(
    ("members", "check_ms"),
    [
        ({"every": 1000, "nextRun": NOW + 5}, NOW + 5),
        ({"every": 1000, "nextRun": NOW}, NOW + 1000),
        ({"every": 1000, "nextRun": 0}, NEVER_MS),
        ({"repeatAfterComplete": 1000, "nextRun": 0}, NOW + CHECK_MS),
        ({"every": 1000, "template": {"data": "\ud800"}}, NOW + CHECK_MS),
        ({"pattern": "* * * * *", "tz": "Mars/Base"}, NOW + CHECK_MS),
        ({"every": 1000, "nextRun": 0, "oq": {"paused": True, "nextRun": NOW}}, NEVER_MS),
    ],
    ids=["later", "due", "never set", "in flight", "data no text", "zone unknown here", "paused"],
)
def test_each_entry_is_checked_again_when_something_may_change(members: dict[str, Any], check_ms: int) -> None:
    assert tick(**members).checks == {"nightly": check_ms}


def test_entries_that_cannot_be_read_or_run_are_not_checked_again() -> None:
    plan = evaluate({"unreadable": "{", "broken": entry_text(pattern="61 * * * *")}, NOW)
    assert plan.checks == {"unreadable": NEVER_MS}


def test_the_next_run_is_one_after_this_tick() -> None:
    assert tick(pattern="* * * * *", tz="Mars/Base", nextRun=NOW).next_due_ms is None
    assert tick(every=1000, nextRun=0, oq={"paused": True, "nextRun": NOW + 5}).next_due_ms is None
    assert tick(every=1000, nextRun=NOW + 1).next_due_ms == NOW + 1


@pytest.mark.parametrize(
    "plan",
    [
        TickPlan(runs=tick(every=1000).runs),
        TickPlan(updates={"x": "{}"}),
        TickPlan(deletions=("x",)),
        TickPlan(misses=(("x", NOW),)),
    ],
    ids=["a run", "an update", "a removal", "a missed run"],
)
def test_a_plan_is_empty_only_if_it_writes_nothing(plan: TickPlan) -> None:
    assert not plan.is_empty
    assert TickPlan(checks={"x": NOW}).is_empty


def test_a_plan_is_written_with_every_entry_and_what_to_store_if_its_run_is_held() -> None:
    keys = QueueKeys("q")
    plan = TickPlan(
        runs=tick(every=1000).runs,
        updates={"changed": "{1}", "last": "{2}"},
        deletions=("gone",),
        held={"changed": HeldRun("{0}", 5), "last": HeldRun(None, NEVER_MS)},
        misses=(("changed", 4),),
        checks={"changed": 7, "same": 8, "last": 9},
    )
    entries = [
        EntryUpdate(name="gone", entry="drop", look_ms=0),
        EntryUpdate(name="changed", entry="{1}", look_ms=7, held_entry="{0}", held_look_ms=5),
        EntryUpdate(name="same", entry="", look_ms=8),
        EntryUpdate(name="last", entry="{2}", look_ms=9, held_entry="drop", held_look_ms=NEVER_MS),
    ]
    runs = [plan.runs[0].written(NOW)]
    expected = schedule_entries.fire(keys, "token", NOW, runs, entries, [("changed", 4)])
    assert plan.write(keys, "token", NOW).call == expected.call
