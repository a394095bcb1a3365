"""DataFrames handed on by reference: what the queue carries, where the rows lie, and what attempts leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import (
    InvalidOptionError,
    SparkCancelledError,
    UnrecoverableError,
    UsageError,
)
from orchestration_queue.flows import Dag, Node
from orchestration_queue.spark import ConnectServer, DataFrameRef, SparkOptions
from orchestration_queue.spark.connect.run import run_connect
from orchestration_queue.spark.dataframes import FrameShape, dataframe_parameters, returned_shape
from orchestration_queue.spark.result_files import ResultLocation, call_with_frames
from tests.spark import connect_work
from tests.spark.conftest import reason

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
]  # seconds of processor time, on however busy a machine

SOON = timedelta(seconds=100)


def contents(directory: Path) -> list[str]:
    """The names in a directory."""
    return sorted(entry.name for entry in directory.iterdir())


def below(directory: Path) -> list[Path]:
    """All files below a directory."""
    return [file for file in directory.rglob("*") if file.is_file()]


def held(directory: Path) -> int:
    """Bytes of the Parquet files below a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*.parquet"))


async def test_the_nodes_of_a_flow_hand_dataframes_on_by_their_names(
    queue: AsyncQueue, results: Path, server_url: str
) -> None:
    dag = Dag(
        "etl",
        [
            Node("numbers", data={"count": 100}),
            Node("kinds", deps=["numbers"]),
            Node("both", task="read_both", deps=["numbers", "kinds"]),
        ],
        queue.name,
    )
    async with AsyncFlowProducer(url=server_url) as flows:
        flow = await flows.submit(dag, flow_id="f")
        assert (await flow.wait(SOON))["both"] == {"numbers": 100, "0": 34, "1": 33, "2": 33}
        records = await flow.records()
    numbers, kinds = (DataFrameRef.model_validate(records[node].result) for node in ("numbers", "kinds"))
    assert numbers == DataFrameRef(
        location=str(results / queue.name / "f.numbers"),
        columns={"id": "bigint", "kind": "string"},
        rows=100,
        bytes=held(Path(numbers.location)),
    )
    assert (kinds.rows, kinds.inputs) == (3, (numbers.location,))
    assert pd.read_parquet(kinds.location).to_dict("list") == {"kind": ["0", "1", "2"], "count": [34, 33, 33]}
    assert len(records["numbers"].fields["returnvalue"]) < 400, "the queue carries where it is, not what"
    assert contents(results) == [".drafts", queue.name]
    assert held(results / ".drafts") == 0


async def test_a_reference_in_the_jobs_data_is_read_also_by_a_process_of_its_own(
    queue: AsyncQueue, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineage = results.with_name("lineage.jsonl")
    monkeypatch.setenv("OPENLINEAGE_URL", lineage.as_uri())
    ref = await (await queue.add("numbers", {"count": 10})).wait(SOON)
    least = await queue.add("kinds", {"numbers": ref, "least": 6})
    apart = await queue.add("kinds_apart", {"numbers": ref})
    counted = pd.read_parquet((await least.wait(SOON))["location"])
    assert dict(zip(counted["kind"], counted["count"], strict=True)) == {"0": 2, "1": 1, "2": 1}
    counted = pd.read_parquet((await apart.wait(SOON))["location"])
    assert dict(zip(counted["kind"], counted["count"], strict=True)) == {"0": 4, "1": 3, "2": 3}
    assert (await apart.wait(SOON))["inputs"] == [ref["location"]]
    events = [json.loads(line) for line in lineage.read_text().splitlines()]
    made = {event["outputs"][0]["name"]: event for event in events if event["eventType"] == "COMPLETE"}
    for job in (least, apart):
        assert [read["name"] for read in made[(await job.wait(SOON))["location"]]["inputs"]] == [ref["location"]]


async def test_dataframes_are_handed_on_in_containers(queue: AsyncQueue, results: Path, server_url: str) -> None:
    nodes = [Node(f"m{month}", task="numbers", data={"count": month}) for month in (1, 2, 3)]
    dag = Dag("year", [*nodes, Node("whole", task="gather", deps=["m1", "m2", "m3"])], queue.name)
    async with AsyncFlowProducer(url=server_url) as flows:
        flow = await flows.submit(dag, flow_id="y")
        both, counts = (DataFrameRef.model_validate(ref) for ref in (await flow.wait(SOON))["whole"])
    assert both.location == str(results / queue.name / "y.whole" / "0")
    assert (both.rows, len(both.inputs)) == (6, 3)
    assert pd.read_parquet(counts.location).to_dict("list") == {"node": ["m1", "m2", "m3"], "rows": [1, 2, 3]}
    apart = await (await queue.add("gather_apart", {"parts": [both, counts]})).wait(SOON)
    assert [ref["rows"] for ref in apart] == [1, 1]
    assert [ref["inputs"] for ref in apart] == [[both.location, counts.location]] * 2


async def test_what_is_handed_on_is_written_as_the_options_say(queue: AsyncQueue, results: Path) -> None:
    ref = await (await queue.add("numbers", {"count": 9})).wait(SOON)
    job = await queue.add("split", {"numbers": ref})
    split = await job.wait(SOON)
    assert (split["count"], split["even"]["rows"], split["odd/ones"]["rows"]) == (9, 5, 4)
    odd = split["odd/ones"]
    assert (odd["format"], odd["location"]) == ("orc", str(results / queue.name / job.id / "odd%2Fones"))
    files = [file for file in below(Path(odd["location"])) if file.suffix == ".orc"]
    assert sorted(file.parent.name for file in files) == ["kind=0", "kind=1", "kind=2"], "one file for each directory"
    assert odd["bytes"] == sum(file.stat().st_size for file in files)
    again = await (await queue.add("kinds", {"numbers": split["even"]})).wait(SOON)
    assert again["rows"] == 3


async def test_a_table_is_handed_on_by_its_name(queue: AsyncQueue, results: Path) -> None:
    ref = await (await queue.add("saved_table", {"name": f"t_{queue.name[2:]}"})).wait(SOON)
    assert (ref["format"], ref["columns"], ref["rows"], ref["bytes"]) == ("table", {"id": "bigint"}, 5, None)
    job = await queue.add("read_both", {"numbers": ref, "kinds": ref | {"location": "nowhere"}})
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in await reason(job)
    job = await queue.add("count_table", {"table": ref})
    assert await job.wait(SOON) == 5


async def test_rows_keep_their_names(queue: AsyncQueue, results: Path) -> None:
    ref = await (await queue.add("numbers", {"count": 4})).wait(SOON)
    best = await queue.add("best_kind", {"numbers": ref})
    assert await best.wait(SOON) == {"kind": "0", "of": {"id": 0, "days": ["2013-07-04"]}}
    none = await queue.add("best_kind", {"numbers": await (await queue.add("numbers", {"count": 0})).wait(SOON)})
    assert await none.wait(SOON) is None
    rows = await (await queue.add("all_kinds", {"numbers": ref})).wait(SOON)
    counts = [{"kind": kind, "count": count} for kind, count in (("0", 2), ("1", 1), ("2", 1))]
    assert rows == {"rows": counts, "in all": 3}


async def test_delta_lake_is_asked_for_where_it_is_not_there(queue: AsyncQueue, results: Path) -> None:
    written = await queue.add("as_delta")
    assert "The format 'delta' needs Delta Lake, which Spark does not have; add its jars to the" in await reason(
        written
    )
    assert (await written.refresh()).attempts_made == 1, "another attempt would not find it either"
    assert not [file for file in below(results) if file.suffix == ".parquet"]
    ref = DataFrameRef(format="delta", location=str(results / "d"), columns={"id": "bigint"}, rows=1)
    assert DataFrameRef.model_validate(ref.model_dump()) == ref
    read = await queue.add("count_table", {"table": ref.model_dump()})
    assert "'delta' needs Delta Lake, which Spark does not have" in await reason(read)


@pytest.mark.parametrize(
    ("task", "data", "expected"),
    [
        ("kinds", {}, "needs the DataFrame 'numbers', but no upstream node of that name returned one"),
        ("kinds", {"numbers": {"location": "/x"}}, "columns"),
        ("kinds", {"numbers": "/x"}, "numbers"),
        (
            "kinds",
            {"numbers": {"location": "/no/such/place", "columns": {}, "rows": 1}},
            "AnalysisException: [PATH_NOT_FOUND]",
        ),
    ],
)
async def test_what_is_wrong_with_a_reference_is_said(
    queue: AsyncQueue, results: Path, task: str, data: dict[str, Any], expected: str
) -> None:
    why = await reason(await queue.add(task, data))
    assert expected in why
    assert "results" not in contents(results.parent), "and nothing is written"


async def test_without_a_place_to_keep_it_a_dataframe_is_refused_for_good(queue: AsyncQueue) -> None:
    job = await queue.add("numbers", {"count": 1})
    assert "set SparkOptions(results=...) or OQ_SPARK_RESULTS" in await reason(job)


def called(server: ConnectServer, function: Callable[..., Any], arguments: dict[str, Any], keep: ResultLocation) -> Any:
    """What a function comes to in a session, with references for DataFrames."""
    function = function.function.__wrapped__  # type: ignore[attr-defined]  # a task's own function
    return run_connect(
        "called", lambda spark: call_with_frames(function, spark, arguments, keep), server, SparkOptions()
    )


def test_an_attempt_replaces_what_another_left_unless_it_was_told_to_stop(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    keep = ResultLocation(str(tmp_path), "q", "../../escape")
    first = called(connect_server, connect_work.numbers, {"count": 3}, keep)
    killed = tmp_path / ".drafts" / "q" / "..%2F..%2Fescape" / "half"
    killed.mkdir(parents=True)  # as an attempt leaves it that was killed while it wrote
    stopped = ResultLocation(keep.root, keep.queue, keep.job, may_commit=lambda: False)
    with pytest.raises(SparkCancelledError, match="asked to stop before its result was moved to"):
        called(connect_server, connect_work.numbers, {"count": 4}, stopped)
    assert len(pd.read_parquet(first.location)) == 3
    second = called(connect_server, connect_work.numbers, {"count": 5}, keep)
    assert second.location == first.location == f"{tmp_path}/q/..%2F..%2Fescape"
    assert len(pd.read_parquet(first.location)) == second.rows == 5
    assert contents(tmp_path / ".drafts" / "q") == []


def test_any_file_system_of_sparks_will_do(connect_server: ConnectServer, tmp_path: Path) -> None:
    keep = ResultLocation(tmp_path.as_uri(), "q", "j")
    for count in (3, 4):
        ref = called(connect_server, connect_work.numbers, {"count": count}, keep)
    assert (ref.location, ref.rows) == (f"{tmp_path.as_uri()}/q/j", 4)
    assert ref.bytes == held(tmp_path / "q" / "j")
    assert len(pd.read_parquet(tmp_path / "q" / "j")) == 4


def test_what_a_job_has_read_is_among_its_inputs(connect_server: ConnectServer, tmp_path: Path) -> None:
    pd.DataFrame({"id": [1]}).to_parquet(tmp_path / "lone.parquet")
    ref = called(
        connect_server, connect_work.read_path, {"path": str(tmp_path)}, ResultLocation(f"{tmp_path}/kept", "q", "j")
    )
    assert ref.inputs == (str(tmp_path),)


def test_a_keep_that_cannot_be_written_says_so(connect_server: ConnectServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match="file") as failed:
        called(connect_server, connect_work.numbers, {"count": 1}, ResultLocation(str(tmp_path / "file"), "q", "j"))
    assert "\n" not in str(failed.value)


def test_dataframes_are_found_by_their_annotation() -> None:
    kinds = connect_work.kinds.function
    assert dataframe_parameters(kinds.__wrapped__) == {"numbers": FrameShape("one")}  # type: ignore[attr-defined]
    assert returned_shape(kinds.__wrapped__) == FrameShape("one")  # type: ignore[attr-defined]
    assert kinds.__annotations__["numbers"] == DataFrameRef | None
    with pytest.raises(UsageError, match="needs the DataFrame 'numbers'; pass a DataFrameRef as numbers="):
        cast(Any, kinds)()


def test_a_reference_holds_what_it_says() -> None:
    with pytest.raises(InvalidOptionError, match="rows"):
        DataFrameRef(location="/x", columns={}, rows=-1)
    with pytest.raises(InvalidOptionError, match="has no option 'more'"):
        DataFrameRef.model_validate({"location": "/x", "columns": {}, "rows": 1, "more": 1})
    ref = DataFrameRef(location="/x", columns={"a": "int"}, rows=1)
    assert ref.model_dump(mode="json") == {
        "kind": "dataframe",
        "format": "parquet",
        "location": "/x",
        "columns": {"a": "int"},
        "rows": 1,
        "bytes": None,
        "inputs": [],
    }


def test_unrecoverable_is_what_another_attempt_cannot_mend(connect_server: ConnectServer) -> None:
    function = connect_work.numbers.function.__wrapped__  # type: ignore[attr-defined]
    with pytest.raises(UnrecoverableError, match="numbers returned a DataFrame, but no location for results is set"):
        run_connect(
            "numbers",
            lambda spark: call_with_frames(function, spark, {"count": 1}, None),
            connect_server,
            SparkOptions(),
        )
