"""DataFrames in the annotations of Spark tasks: which shapes are handed over, and which are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from orchestration_queue.errors import InvalidOptionError, UnrecoverableError, UsageError
from orchestration_queue.spark import DataFrameRef, SparkSubmit, spark_task
from orchestration_queue.spark.dataframes import (
    FrameShape,
    dataframe_parameters,
    frame_shape,
    mentions_dataframe,
    mentions_row,
)
from orchestration_queue.spark.runtime import _upstream
from orchestration_queue.spark.submit.standalone import Reservation, create_request


class Classic:
    """Stands for PySpark's class, which unit tests do without."""


Classic.__name__ = Classic.__qualname__ = "DataFrame"
Classic.__module__ = "pyspark.sql.classic.dataframe"


class Pandas:
    """Another library's class of that name."""


Pandas.__name__ = Pandas.__qualname__ = "DataFrame"
Pandas.__module__ = "pandas.core.frame"


@pytest.mark.parametrize(
    ("hint", "shape"),
    [
        ("DataFrame", FrameShape("one")),
        ("pyspark.sql.DataFrame", FrameShape("one")),
        ("'DataFrame'", FrameShape("one")),
        ("DataFrame | None", FrameShape("one", optional=True)),
        ("None | DataFrame", FrameShape("one", optional=True)),
        ("Optional[DataFrame]", FrameShape("one", optional=True)),
        ("list[DataFrame]", FrameShape("list")),
        ("Sequence[sql.DataFrame] | None", FrameShape("list", optional=True)),
        ("tuple[DataFrame, ...]", FrameShape("tuple")),
        ("tuple[DataFrame, DataFrame]", FrameShape("tuple", size=2)),
        ("Mapping[str, DataFrame]", FrameShape("dict")),
        (Classic, FrameShape("one")),
        (Classic | None, FrameShape("one", optional=True)),
        (Optional[Classic], FrameShape("one", optional=True)),  # noqa: UP045 (older code has it)
        (list[Classic], FrameShape("list")),
        (list["DataFrame"], FrameShape("list")),  # type: ignore[name-defined]  # noqa: F821 (a name is all there is)
        (dict[str, Classic], FrameShape("dict")),
        (Sequence[Classic], FrameShape("list")),
        (Mapping[str, Classic], FrameShape("dict")),
        (tuple[Classic, ...], FrameShape("tuple")),
        ("dict[int, DataFrame]", None),
        ("list[int]", None),
        ("pd.DataFrame", None),
        (Pandas, None),
        (list[Pandas], None),
        (None, None),
        (int, None),
        ("not an annotation", None),
    ],
    ids=str,
)
def test_a_shape_is_read_from_types_and_from_their_names(hint: object, shape: FrameShape | None) -> None:
    assert frame_shape(hint) == shape


def test_a_shape_is_an_annotation_again() -> None:
    assert FrameShape("one").annotate(int) is int
    assert FrameShape("dict", optional=True).annotate(int) == dict[str, int] | None
    assert FrameShape("tuple", size=2).annotate(int) == tuple[int, int]
    assert FrameShape("tuple").annotate(int) == tuple[int, ...]


def nested(spark: Any, frames: list[list[DataFrame]]) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Takes what cannot be handed over."""


def mixed(spark: Any, day: str, months: dict[str, DataFrame], year: DataFrame | None) -> dict[str, DataFrame | int]:  # type: ignore[name-defined]  # noqa: F821
    """Takes and returns DataFrames among others."""
    return {}


def test_what_cannot_be_handed_over_is_refused_where_it_is_written() -> None:
    with pytest.raises(UsageError, match=r"Parameter 'frames' of nested is annotated list\[list\[DataFrame\]\], but"):
        spark_task(nested)


def test_callers_see_references_in_the_same_containers() -> None:
    task = spark_task(mixed)
    hints = inspect.get_annotations(task)
    assert hints["months"] == dict[str, DataFrameRef] | None
    assert hints["year"] == DataFrameRef | None
    assert hints["return"] is Any
    assert mentions_dataframe(mixed.__annotations__["return"])


def rows(spark: Any) -> dict[str, list[Row] | int]:  # type: ignore[name-defined]  # noqa: F821
    """Returns rows among others."""
    return {}


def test_rows_may_be_imported_for_type_checkers_alone() -> None:
    assert mentions_row("tuple[pyspark.sql.Row, ...]")
    assert not mentions_row("dict[str, RowCount]")
    assert inspect.get_annotations(spark_task(rows))["return"] is Any


def ref(name: str) -> DataFrameRef:
    """A reference."""
    return DataFrameRef(location=f"/{name}", columns={}, rows=1)


def upstream(function: Callable[..., Any], results: dict[str, Any]) -> dict[str, Any]:
    """What a function gets from nodes that returned these."""
    job: Any = SimpleNamespace(upstream_results=lambda: results)
    return _upstream("f", function, {}, job)


def gather(spark: Any, months: list[DataFrame]) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Takes a list."""


def pair(spark: Any, months: tuple[DataFrame, DataFrame]) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Takes two."""


def join(spark: Any, weather: DataFrame, months: dict[str, DataFrame], extra: DataFrame | None = None) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Takes one by name, and all others."""


def maybe(spark: Any, flights: DataFrame | None) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Takes one if there is one."""


def test_the_only_dataframe_of_an_object_is_handed_on() -> None:
    results = {
        name: {"table": ref(name).model_dump(mode="json"), "rows": 1, "checks": {"rows": True}}
        for name in ("m1", "m2", "flights")
    }
    assert upstream(maybe, results) == {"flights": ref("flights")}, "by the node's name"
    assert upstream(gather, results) == {"months": [ref("m1"), ref("m2"), ref("flights")]}
    two = {"m1": {name: ref(name).model_dump(mode="json") for name in ("left", "right")}}
    with pytest.raises(UnrecoverableError, match="needs the DataFrame 'months'"):
        upstream(gather, two)


def test_a_container_takes_what_all_nodes_returned() -> None:
    results = {name: ref(name).model_dump(mode="json") for name in ("m1", "m2", "m3")}
    assert upstream(gather, {**results, "count": 5}) == {"months": [ref("m1"), ref("m2"), ref("m3")]}
    assert upstream(gather, {"months": [*results.values()][:2], "m3": results["m3"]}) == {
        "months": [ref("m1"), ref("m2")]
    }, "the node of the parameter's name goes first"
    weather = {"weather": ref("w").model_dump(mode="json")}
    assert upstream(join, {**results, **weather}) == {
        "weather": ref("w"),
        "months": {"m1": ref("m1"), "m2": ref("m2"), "m3": ref("m3")},
    }
    assert upstream(maybe, {"count": 5}) == {}
    with pytest.raises(UnrecoverableError, match="needs the DataFrame 'months'"):
        upstream(pair, results)
    with pytest.raises(UnrecoverableError, match="needs the DataFrame 'months'"):
        upstream(gather, {"count": 5})
    with pytest.raises(UsageError, match="needs the DataFrame 'months'; pass a DataFrameRef"):
        _upstream("f", gather, {}, None)
    assert dataframe_parameters(join) == {
        "weather": FrameShape("one"),
        "months": FrameShape("dict"),
        "extra": FrameShape("one", optional=True),
    }


def test_python_files_are_among_the_files_that_executors_fetch() -> None:
    options = SparkSubmit(
        master="spark://host:7077", deploy_mode="cluster", py_files=("/lib.zip", "/x.py"), files=("/x.py", "/y.csv")
    )
    reservation = Reservation("http://host:6066", "http://host:8080", "tag", 0)
    request = create_request(reservation, options, "/app.py", [], options.own_properties)
    assert request["sparkProperties"]["spark.files"] == "/x.py,/y.csv,/lib.zip"
    bare = create_request(reservation, options, "/app.py", [], {})
    assert "spark.files" not in bare["sparkProperties"]


def test_only_a_process_of_its_own_has_to_import_the_function() -> None:
    def local(spark: Any) -> None:
        """As in a script or a notebook."""

    assert spark_task(local).__wrapped__ is local  # type: ignore[attr-defined]
    with pytest.raises(
        InvalidOptionError, match=r"runtime='process', Spark work runs in another process, which cannot import"
    ):
        spark_task(runtime="process")(local)
