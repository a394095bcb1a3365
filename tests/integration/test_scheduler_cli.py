"""The command `oq scheduler`: what it sets, what it tells, and what it says when it cannot."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestration_queue.client import JobSchedulers
from orchestration_queue.flows import Dag, Node
from orchestration_queue.schedules import (
    Cron,
    Every,
    FlowTemplate,
    JobTemplate,
    MissedRuns,
    RepeatAfterComplete,
    Schedule,
)
from tests.integration.test_cli import Oq

NIGHTLY = Cron("30 2 * * 1-5", tz="Europe/Berlin", start=datetime(2124, 3, 23, tzinfo=UTC))


@pytest.fixture
def oq(server_url: str, raw: Any) -> Oq:
    return Oq(server_url)


@pytest.fixture
def schedulers(raw: Any, server_url: str, queue_name: str) -> Iterator[JobSchedulers]:
    with JobSchedulers(queue_name, url=server_url) as schedulers:
        schedulers.upsert("nightly", NIGHTLY, JobTemplate(name="load", data={"to": "[bold]zoë"}))
        yield schedulers


SET: list[tuple[list[str], Schedule]] = [
    (["--cron", "0 6 * * 1", "--tz", "Europe/Berlin"], Cron("0 6 * * 1", "Europe/Berlin")),
    (["--cron", "0 6 13 * 5", "--day-or"], Cron("0 6 13 * 5", day_or=True)),
    (["--every", "1.5", "--limit", "3", "--jitter", "60"], Every(1.5, limit=3, jitter=60)),
    (["--after", "30", "--missed", "skip"], RepeatAfterComplete(30, missed=MissedRuns.skip())),
    (["--every", "9", "--missed", "fire_all", "--missed-max", "7"], Every(9, missed=MissedRuns.fire_all(7))),
    (["--every", "9", "--overlap", "queue_one"], Every(9, overlap="queue_one")),
    (["--every", "9", "--start", "2124-07-01T09:00+09:00"], Every(9, datetime(2124, 7, 1, tzinfo=UTC))),
    (["--every", "9", "--end", "2124-07-01"], Every(9, end=datetime(2124, 7, 1, tzinfo=UTC))),
    (
        ["--cron", "0 6 * * 1", "--tz", "Asia/Tokyo", "--start", "2124-07-01T09:00"],
        Cron("0 6 * * 1", "Asia/Tokyo", datetime(2124, 7, 1, tzinfo=UTC)),
    ),
]


@pytest.mark.parametrize(("arguments", "schedule"), SET, ids=[" ".join(row[0]) for row in SET])
def test_a_scheduler_is_set(oq: Oq, queue_name: str, server_url: str, arguments: list[str], schedule: Schedule) -> None:
    words = ["--job", "load", "--data", '{"day": 1}', "--priority", "5", "--attempts", "2"]
    added = oq.json("scheduler", "add", queue_name, "s", *arguments, *words)
    with JobSchedulers(queue_name, url=server_url) as schedulers:
        entry = schedulers.get("s")
    assert (entry.timing, entry.policies, entry.limit) == (schedule.timing, schedule.policies, schedule.limit)
    assert entry.template == {"name": "load", "data": {"day": 1}, "opts": {"priority": 5, "attempts": 2}}
    assert (added["name"], added["template"]) == ("s", entry.template)
    assert datetime.fromisoformat(added["next_run"]).timestamp() * 1000 == pytest.approx(entry.next_run)


def test_setting_a_scheduler_tells_its_next_run(oq: Oq, queue_name: str, schedulers: JobSchedulers) -> None:
    words = ["--cron", "0 6 1 7 *", "--tz", "Asia/Tokyo", "--start", "2124-06-01"]
    said = oq("scheduler", "add", queue_name, "s", *words)
    assert said.stdout == "Scheduler s runs next at Sat 2124-07-01 06:00:00+09:00.\n"
    schedulers.pause("s")
    again = oq("scheduler", "add", queue_name, "s", *words)
    assert again.stdout == f"Scheduler s is still paused; resume it with `oq scheduler resume {queue_name} s`.\n"


def test_schedulers_are_listed(oq: Oq, queue_name: str, raw: Any, schedulers: JobSchedulers) -> None:
    schedulers.upsert("chain", RepeatAfterComplete(30))
    schedulers.run_now("chain")
    schedulers.upsert("often", Every(600))
    schedulers.pause("often")
    late = {"every": 1000, "nextRun": int(time.time() * 1000) - 90_000, "iterationCount": 4}
    raw.hset(schedulers.keys.schedulers, "late", json.dumps(late))
    listed = oq.json("scheduler", "ls", queue_name)
    assert [(row["name"], row["is_paused"], row["made"]) for row in listed] == [
        ("chain", False, 0),
        ("late", False, 4),
        ("nightly", False, 0),
        ("often", True, 0),
    ]
    heading, *rows = (line.split() for line in oq("scheduler", "ls", queue_name).stdout.splitlines())
    assert heading == ["scheduler", "runs", "zone", "next", "run", "made"]
    assert rows[0] == ["chain", "0:00:30", "after", "each", "job", "UTC", "0", "running"]
    assert (rows[1][:4], rows[1][-2:]) == (["late", "every", "0:00:01", "UTC"], ["4", "overdue"])
    assert " ".join(rows[2]) == "nightly 30 2 * * 1-5 Europe/Berlin Thu 2124-03-23 02:30:00+01:00 0"
    assert rows[3][-1] == "paused"


def test_a_scheduler_is_shown(oq: Oq, queue_name: str, schedulers: JobSchedulers) -> None:
    job = schedulers.run_now("nightly")
    assert job is not None
    shown = oq.json("scheduler", "show", queue_name, "nightly")
    assert (shown["pattern"], shown["tz"], shown["template"]["data"]) == (
        "30 2 * * 1-5",
        "Europe/Berlin",
        {"to": "[bold]zoë"},
    )
    assert [(run["job_id"], run["outcome"]) for run in shown["history"]] == [(job.id, "fired")]
    lines = {
        line[:12].strip(): line[12:].strip()
        for line in oq("scheduler", "show", queue_name, "nightly").stdout.splitlines()
    }
    assert lines["scheduler"] == f"nightly of queue {queue_name}"
    assert (lines["next run"], lines["in UTC"]) == ("Thu 2124-03-23 02:30:00+01:00", "Thu 2124-03-23 01:30:00")
    assert (lines["makes job"], lines["data"]) == ("load", '{"to": "[bold]zoë"}')
    assert lines["history"].endswith(f"fired  {job.id}")


def test_the_calendar_counts_runs_and_says_what_is_late(
    oq: Oq, queue_name: str, raw: Any, schedulers: JobSchedulers
) -> None:
    schedulers.upsert("beat", Every(1))
    schedulers.upsert("resting", Every(600))
    schedulers.pause("resting")
    late = {"every": 90_000_000, "nextRun": int(time.time() * 1000) - 90_000, "iterationCount": 4}
    raw.hset(schedulers.keys.schedulers, "late", json.dumps(late))
    shown = oq.json("scheduler", "calendar", queue_name, "--days", "2", "--zone", "Asia/Tokyo")
    assert (shown["zone"], shown["schedules"], len(shown["days"])) == ("Asia/Tokyo", 4, 3)
    assert [hour["runs"] for hour in shown["days"][1]["hours"]][:2] == [3600, 3600]
    assert [(each["scheduler"], each["outcome"]) for each in shown["deviations"]][-1] == ("late", "overdue")
    assert [(each["scheduler"], each["reason"]) for each in shown["unplanned"]] == [("resting", "paused")]
    text = oq("scheduler", "calendar", "--zone", "Asia/Tokyo").stdout
    assert "Busiest hour" in text
    assert "overdue" in text
    assert "00:00:00 to 23:59:59" in text


def test_next_runs_in_the_schedules_zone_and_in_utc(oq: Oq, queue_name: str, schedulers: JobSchedulers) -> None:
    heading, *rows = oq("scheduler", "next", queue_name, "nightly", "--count", "3").stdout.splitlines()
    assert heading.split() == ["Europe/Berlin", "UTC", "in"]
    assert [row.split()[:6] for row in rows] == [
        ["Thu", "2124-03-23", "02:30:00+01:00", "Thu", "2124-03-23", "01:30:00"],
        ["Fri", "2124-03-24", "02:30:00+01:00", "Fri", "2124-03-24", "01:30:00"],
        ["Mon", "2124-03-27", "02:30:00+02:00", "Mon", "2124-03-27", "00:30:00"],
    ]
    assert len(oq.json("scheduler", "next", queue_name, "nightly")) == 10
    assert oq.json("scheduler", "next", queue_name, "nightly", "--count", "1") == [
        {"at": "2124-03-23T02:30:00+01:00", "utc": "2124-03-23T01:30:00+00:00"}
    ]


def test_what_has_no_next_run_says_why(oq: Oq, queue_name: str, raw: Any, schedulers: JobSchedulers) -> None:
    schedulers.pause("nightly")
    schedulers.upsert("chain", RepeatAfterComplete(30))
    schedulers.run_now("chain")
    raw.hset(
        schedulers.keys.schedulers, "over", json.dumps({"every": 9, "nextRun": 9, "limit": 1, "iterationCount": 1})
    )
    reasons = {"nightly": "it is paused", "chain": "that is decided when its job ends", "over": "it is over"}
    for name, reason in reasons.items():
        assert oq("scheduler", "next", queue_name, name).stdout == f"Scheduler {name} has no planned run: {reason}.\n"
        assert oq.json("scheduler", "next", queue_name, name) == []


def test_a_run_by_hand(oq: Oq, queue_name: str, schedulers: JobSchedulers) -> None:
    ran = oq.json("scheduler", "run", queue_name, "nightly")
    assert (ran["scheduler"], ran["is_queued"], schedulers.history("nightly")[0].job_id) == (
        "nightly",
        False,
        ran["id"],
    )
    assert "added job repeat.nightly." in oq("scheduler", "run", queue_name, "nightly").stdout


def test_a_run_by_hand_that_would_overlap(oq: Oq, queue_name: str, schedulers: JobSchedulers) -> None:
    for overlap in ("queue_one", "skip"):
        schedulers.upsert(overlap, Every(60, overlap=overlap))
        schedulers.run_now(overlap)
    assert "as soon as" in oq("scheduler", "run", queue_name, "queue_one").stdout
    assert oq.json("scheduler", "run", queue_name, "queue_one")["is_queued"] is True
    refused = oq("scheduler", "run", queue_name, "skip")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "added no job" in refused.stderr
    assert f"oq scheduler show {queue_name} skip" in refused.stderr


def test_a_scheduler_is_paused_and_goes_on(oq: Oq, queue_name: str, schedulers: JobSchedulers) -> None:
    assert "oq scheduler resume" in oq("scheduler", "pause", queue_name, "nightly").stdout
    assert schedulers.get("nightly").is_paused
    resumed = oq("scheduler", "resume", queue_name, "nightly")
    assert resumed.stdout == "Scheduler nightly runs next at Thu 2124-03-23 02:30:00+01:00.\n"
    assert not schedulers.get("nightly").is_paused
    assert oq.json("scheduler", "pause", queue_name, "nightly")["is_paused"] is True
    assert oq.json("scheduler", "resume", queue_name, "nightly")["next_run"] == "2124-03-23T01:30:00+00:00"
    schedulers.upsert("chain", RepeatAfterComplete(30))
    schedulers.run_now("chain")
    schedulers.pause("chain")
    waits = oq("scheduler", "resume", queue_name, "chain")
    assert waits.stdout == "Scheduler chain continues when its job has ended.\n"


def test_removing_asks_first(oq: Oq, queue_name: str, schedulers: JobSchedulers) -> None:
    assert oq("scheduler", "rm", queue_name, "nightly").exit_code == 2
    assert list(schedulers.list()) == ["nightly"]
    assert oq("scheduler", "rm", queue_name, "nightly", "--yes").stdout == "Scheduler nightly is removed.\n"
    schedulers.upsert("often", Every(60))
    assert oq.json("scheduler", "rm", queue_name, "often", "--yes")["is_removed"] is True
    assert schedulers.list() == {}


@pytest.mark.parametrize("verb", ["show", "rm", "pause", "resume", "run", "next"])
def test_an_unknown_scheduler_is_3_and_names_the_next_command(oq: Oq, raw: Any, verb: str) -> None:
    raw.set("glide:{q}:id", 0)
    result = oq("scheduler", verb, "q", "nix")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)
    assert "has no scheduler 'nix'" in result.stderr
    assert "oq scheduler ls q" in result.stderr
    assert raw.dbsize() == 1


EVERY = ("--every", "9")
DAG = Dag("etl", [Node("load"), Node("report", deps=("load",))], "a queue")


def a_dag() -> Dag:
    return DAG


@pytest.mark.parametrize("target", ["DAG", "a_dag"])
def test_a_flow_is_submitted_in_each_run(oq: Oq, queue_name: str, schedulers: JobSchedulers, target: str) -> None:
    oq("scheduler", "add", queue_name, "nightly", *EVERY, "--flow", f"{__name__}:{target}")
    assert schedulers.get("nightly").template == FlowTemplate(DAG).members()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "exactly one of --cron, --every and --after, got none"),
        (("--cron", "* * * * *", *EVERY), "got --cron and --every"),
        ((*EVERY, "--tz", "UTC"), "apply to a --cron pattern, but not to --every"),
        (("--after", "9", "--day-or"), "but not to --after"),
        (("--every", "0"), "every must be a positive safe integer"),
        (("--every", "often"), "oq scheduler add --help"),
        (("--after", "0"), "repeatAfterComplete must be a positive safe integer"),
        (("--cron", "* * * *"), "must have 5 fields, got 4"),
        (("--cron", "* * * * *", "--tz", "Mars/Base"), "Invalid timezone 'Mars/Base'"),
        (("--cron", "* * * * *", "--tz", "localtime"), "Invalid timezone 'localtime': it depends on the machine"),
        (("--cron", "* * * * *", "--tz", "Mars/Base", "--end", "2124-01-01"), "Invalid timezone 'Mars/Base'"),
        (("--cron", "0 0 30 2 *"), "no occurrences"),
        ((*EVERY, "--start", "tomorrow"), "--start 'tomorrow' is not a time in ISO 8601"),
        ((*EVERY, "--end", "2000-01-01"), "no occurrences"),
        ((*EVERY, "--limit", "0"), "limit must be a positive integer"),
        ((*EVERY, "--jitter=-1"), "jitter"),
        ((*EVERY, "--missed", "fire_all"), "need each other"),
        ((*EVERY, "--missed-max", "3"), "need each other"),
        ((*EVERY, "--missed", "fire_all", "--missed-max", "0"), "MissedRuns.max"),
        ((*EVERY, "--missed", "later"), "oq scheduler add --help"),
        ((*EVERY, "--overlap", "wait"), "oq scheduler add --help"),
        ((*EVERY, "--data", "{"), "is not JSON"),
        ((*EVERY, "--priority", "2049"), "priority"),
        (
            (*EVERY, "--flow", "pipeline"),
            "'pipeline' does not name an object that is a flow; write module:object",
        ),
        ((*EVERY, "--flow", "nowhere:dag"), "The module 'nowhere' cannot be imported"),
        ((*EVERY, "--flow", f"{__name__}:nix"), "has no 'nix'"),
        ((*EVERY, "--flow", f"{__name__}:EVERY"), "is a tuple, not a flow; name a Dag"),
        ((*EVERY, "--flow", f"{__name__}:Dag"), "needs arguments, so it can't be called; name a Dag, or a function"),
        ((*EVERY, "--flow", f"{__name__}:DAG", "--data", "null"), "describe a job, but --flow submits a flow"),
    ],
)
def test_bad_options_are_2_and_nothing_is_written(oq: Oq, raw: Any, arguments: tuple[str, ...], says: str) -> None:
    result = oq("scheduler", "add", "q", "s", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert says in result.stderr
    assert raw.dbsize() == 0


@pytest.mark.parametrize("count", ["0", "1001", "ten"])
def test_a_count_that_is_none_is_2(oq: Oq, raw: Any, count: str) -> None:
    result = oq("scheduler", "next", "q", "s", "--count", count)
    assert (result.exit_code, "oq scheduler next --help" in result.stderr) == (2, True)
