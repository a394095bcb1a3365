"""What the page on Spark work shows is what happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from orchestration_queue.client import Queue
from tests.docs.page import Page
from tests.docs.walkthrough import own_connect_server
from tests.processes import OQ

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = Page("how-to/run-spark-work.md")


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """The page's programs, written to files; their texts by name."""
    (tmp_path / "nightly.py").write_text("import sys\nresult = sys.argv[1:]\n")
    return PAGE.write_programs(tmp_path)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of programs that share a Connect server of their own; it is gone when the test ends."""
    given = {name: value for name, value in os.environ.items() if name not in ("OQ_URL", "SPARK_REMOTE")}
    with own_connect_server(tmp_path) as variables:
        yield given | variables


def test_the_programs_of_the_page_print_what_it_shows(
    tmp_path: Path, programs: dict[str, str], environment: dict[str, str]
) -> None:
    flights = tmp_path / "flights"
    flights.mkdir()
    carriers, distances = ["UA", "AA", "UA", "AA"], [1400, 1089, 0, 762]
    pd.DataFrame({"carrier": carriers, "distance": distances}).to_parquet(flights / "part.parquet")
    shown = PAGE.shown()
    assert [words for words, _ in shown] == ["add.py /data/flights", "alone.py /data/flights"]
    command = [OQ, "worker", "etl:tasks", "--queue", "etl"]
    assert " ".join(["oq", *command[1:]]) in PAGE.text
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        for shown_words, text in shown:
            words = [sys.executable, shown_words.split()[0], str(flights)]
            said = subprocess.check_output(words, cwd=tmp_path, env=environment, text=True, timeout=200)
            assert said.replace(str(flights), "/data/flights") == text
        (shelf,) = (tmp_path / "temporary").glob("oq-connect-*")
        assert len(list(shelf.iterdir())) == 1, "worker and program share one server"
        with Queue("etl", url=f"embedded://{tmp_path / '.oq'}") as queue:
            job = queue.add("count_rows", {"path": str(flights)})
            assert job.wait(100) == {"rows": 4}
            assert job.logs() == [f"counting {flights}"]
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_the_other_programs_of_the_page_import(
    tmp_path: Path, programs: dict[str, str], environment: dict[str, str]
) -> None:
    assert set(programs) == {"etl.py", "pools.py", "add.py", "scripts.py", "alone.py", "durable.py"}
    check = "import durable, pools, scripts; assert all([*module.tasks] for module in (durable, pools, scripts))"
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path, env=environment, check=True, timeout=280)
