"""What the page on the data source shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.spark.datasource.columns import COLUMNS
from orchestration_queue.spark.datasource.stream import STREAM_OPTIONS
from orchestration_queue.spark.datasource.write_options import WRITE_OPTIONS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "spark-data-source.md").read_text()


def test_the_programs_of_the_page_do_what_it_says(spark: object, raw: redis.Redis, server_url: str) -> None:
    names: dict[str, Any] = {}
    program = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(program.replace("redis://localhost", server_url), "page", "exec"), names)  # noqa: S102  our own page
    with Queue("orders", url=server_url) as orders, Queue("audit", url=server_url) as audit:
        assert {job.record.id for job in orders.jobs("waiting")} == {"bill-1", "bill-2"}
        assert orders.get("bill-2").record.data == {"order_id": 2, "customer": "Ben", "amount": 35}
        assert sorted(job.record.data["job_id"] for job in audit.jobs("waiting")) == ["bill-1", "bill-2"]
    assert sorted(row.id for row in names["jobs"].collect()) == ["bill-1", "bill-2"]
    assert [names[name].collect() for name in ("failed", "results", "letters")] == [[], [], []]


def test_the_page_names_every_option_and_column() -> None:
    for name in {*WRITE_OPTIONS, *STREAM_OPTIONS, *(column for columns in COLUMNS.values() for column in columns)}:
        assert f"`{name}`" in PAGE or f"`{name}=" in PAGE, name
