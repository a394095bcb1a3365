"""What a job tells becomes metadata of the fitting kind."""

from __future__ import annotations

import json

import dagster as dg
import pytest

from orchestration_queue.dagster.assets.results import history_metadata, job_metadata
from orchestration_queue.protocol.record import JobRecord

pytestmark = pytest.mark.dagster


def described(result: object, logs: tuple[str, ...] = ()) -> dict[str, dg.MetadataValue]:
    fields = {"name": "t", "state": "completed", "returnvalue": json.dumps(result), "stalledCount": "1"}
    return dict(job_metadata(JobRecord("f.n", fields), queue="q", flow_id="f", logs=logs))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("x", None, dg.MetadataValue.null()),
        ("x", True, dg.MetadataValue.bool(True)),
        ("x", 3, dg.MetadataValue.int(3)),
        ("x", 2**70, dg.MetadataValue.text(str(2**70))),
        ("x", 0.5, dg.MetadataValue.float(0.5)),
        ("x", "words", dg.MetadataValue.text("words")),
        ("path", "/a", dg.MetadataValue.path("/a")),
        ("picture_path", "/b.png", dg.MetadataValue.path("/b.png")),
        ("page", "https://a.example/b", dg.MetadataValue.url("https://a.example/b")),
        ("x", [1, {"a": None}], dg.MetadataValue.json([1, {"a": None}])),
    ],
)
def test_values_find_their_kind(name: str, value: object, expected: dg.MetadataValue) -> None:
    assert described({name: value})[name] == expected


def test_rows_are_dagsters_row_count_too_when_they_are_a_number() -> None:
    assert described({"rows": 7})["dagster/row_count"] == dg.MetadataValue.int(7)
    assert "dagster/row_count" not in described({"rows": True})
    assert "dagster/row_count" not in described({"rows": "seven"})


def test_a_result_that_is_no_object_is_called_result() -> None:
    assert described(5)["result"] == dg.MetadataValue.int(5)
    assert "result" not in described(None)


def test_how_it_ran_stands_beside_what_it_returned() -> None:
    ours = described({})
    assert ours["orchestration_queue/job_id"].value == "f.n"
    assert ours["orchestration_queue/workers_lost"].value == 1
    assert "orchestration_queue/log" not in ours


def test_the_histories_of_ten_jobs_are_shown_by_name_and_of_one_without() -> None:
    entry = {"event": "failed", "attempt": 1, "kind": "upload error", "reason": "why", "traceback": "at a"}
    record = JobRecord("f.n", {"name": "t", "state": "failed", "history": json.dumps([entry])})
    quiet = JobRecord("f.m", {"name": "t", "state": "failed"})
    one = "```\n- attempt 1 failed: [upload error] why\n  at a\n```"
    assert history_metadata({}) == history_metadata({"m": quiet}) == {}
    assert history_metadata({"n": record}) == {"orchestration_queue/history": dg.MetadataValue.md(one)}
    (many,) = history_metadata({**{str(number): record for number in range(11)}, "m": quiet}).values()
    assert many.value == "\n\n".join(f"**{number}**\n\n{one}" for number in range(10))


def test_logs_stay_in_their_block_and_within_bounds() -> None:
    block = described({}, ("before", "``` escape?"))["orchestration_queue/log"]
    assert block == dg.MetadataValue.md("```\nbefore\n''' escape?\n```")
    many = described({}, tuple(str(number) for number in range(250)))["orchestration_queue/log"].value
    assert isinstance(many, str)
    assert many.splitlines()[1] == "(50 earlier lines: `oq job show`)"
    assert len(many.splitlines()) == 203
