"""Which messages of external work are passed on to a step: each once, and the results of its last run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from dagster_pipes import PipesMessage

from orchestration_queue.dagster.pipes.inbox import Inbox, InboxEntry, read_entries


def entry(
    method: str, seq: int, *, at: str | None = None, writer: str = "w", run: str = "1", **params: Any
) -> InboxEntry:
    message: Any = {"method": method, "params": params}
    return InboxEntry(at or f"{seq}-0", writer, seq, run, message)


def log(seq: int, **fields: Any) -> InboxEntry:
    return entry("log", seq, message=f"line {seq}", level="INFO", **fields)


def words(messages: list[PipesMessage]) -> list[str]:
    return [(message["params"] or {}).get("message", message["method"]) for message in messages]


def test_a_message_that_was_sent_twice_is_passed_on_once() -> None:
    inbox = Inbox()
    assert words(inbox.logs([log(1), log(2), log(2, at="3-0")])) == ["line 1", "line 2"]
    assert words(inbox.logs([log(2, at="4-0"), log(3, at="5-0")])) == ["line 3"]


def test_logs_that_an_earlier_reader_passed_on_are_not_passed_on_again() -> None:
    assert words(Inbox("2-0").logs([log(1), log(2), log(3)])) == ["line 3"]


def test_ids_are_compared_as_numbers() -> None:
    assert words(Inbox("9-9").logs([log(1, at="9-10"), log(2, at="10-0")])) == ["line 1", "line 2"]


def test_lost_logs_are_told() -> None:
    lost = "[pipes] 2 log messages of the external side were lost."
    assert words(Inbox().logs([log(3)])) == [lost, "line 3"]
    assert words(Inbox().logs([log(1), log(4)])) == ["line 1", lost, "line 4"]
    assert words(Inbox("7-0").logs([log(8)])) == ["line 8"], "an earlier reader may have passed them on"


def test_results_are_held_until_the_session_ends_and_the_last_word_counts() -> None:
    inbox = Inbox()
    first = entry("report_asset_materialization", 2, asset_key="a", data_version="old")
    last = entry("report_asset_materialization", 3, asset_key="a", data_version="new")
    check = entry("report_asset_check", 4, asset_key="a", check_name="c")
    custom = [entry("report_custom_message", seq, payload=1) for seq in (5, 6)]
    told = inbox.results([entry("opened", 1), first, last, check, *custom, entry("closed", 7)])
    assert words(told) == ["opened"]
    assert inbox.conclude() == [e.message for e in (last, check, *custom, entry("closed", 7))]


def test_a_run_that_begins_anew_makes_the_results_before_it_void() -> None:
    inbox = Inbox()
    made = entry("report_asset_materialization", 2, asset_key="a")
    inbox.results([entry("opened", 1), made, entry("closed", 3)])
    again = inbox.results([entry("opened", 1, writer="x", run="2")])
    assert words(again) == ["[pipes] The external work runs again; discarded 1 reports of its previous run."]
    zombie = entry("report_asset_materialization", 4, asset_key="z")
    inbox.results([zombie, entry("opened", 1, writer="y", run="1"), entry("closed", 2, writer="x", run="2")])
    assert [message["method"] for message in inbox.conclude()] == ["closed"]


def test_several_writers_of_one_run_add_up_and_the_last_one_closes() -> None:
    inbox = Inbox()
    one = entry("report_asset_materialization", 2, asset_key="a")
    inbox.results([entry("opened", 1), one, entry("closed", 3, exception=None)])
    two = entry("report_asset_materialization", 2, writer="x", asset_key="b")
    closed = entry("closed", 3, writer="x")
    assert inbox.results([entry("opened", 1, writer="x"), two, closed]) == []
    assert inbox.conclude() == [one.message, two.message, closed.message]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"message": "no JSON", "seq": "1"},
        {"message": "[]", "seq": "1"},
        {"message": json.dumps({"method": 1, "params": {}}), "seq": "1"},
        {"message": json.dumps({"method": "log"}), "seq": "1"},
        {"message": json.dumps({"method": "log", "params": {}}), "seq": "one"},
    ],
)
def test_what_is_no_message_is_told_and_passed_over(fields: Mapping[str, str]) -> None:
    flat = [word.encode() for pair in fields.items() for word in pair]
    entries = read_entries([(b"5-1", flat)])
    note = "[pipes] Entry 5-1 of the external side is not a Pipes message and was ignored."
    assert words(Inbox().logs(entries)) == [note]
    assert words(Inbox().results(entries)) == [note]
