"""The IO manager of Dagster's assets in a classic session. Here, to share that session with the tests beside it."""

# No `from __future__ import annotations` here: Dagster reads the types of parameters, and would find texts.

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame

from orchestration_queue.dagster.spark import ParquetIOManager

pytestmark = [pytest.mark.spark, pytest.mark.dagster]


def test_a_classic_session_keeps_and_loads_assets(spark: Any, tmp_path: Path) -> None:
    @dg.asset
    def classic() -> DataFrame:
        frame: DataFrame = spark.range(7).selectExpr("id", "'x' as word")
        return frame

    @dg.asset
    def again(classic: DataFrame) -> dg.MaterializeResult[None]:
        rows = classic.where("id > 1").count()
        return dg.MaterializeResult(metadata={"rows": rows, "kind": type(classic).__module__})

    lake = ParquetIOManager(root=str(tmp_path / "lake"))
    with dg.instance_for_test() as instance:
        result = dg.materialize([classic, again], instance=instance, resources={"io_manager": lake})
    first, second = (event.materialization.metadata for event in result.get_asset_materialization_events())
    assert first["dagster/row_count"].value == 7
    assert (second["rows"].value, second["kind"].value) == (5, "pyspark.sql.classic.dataframe")
