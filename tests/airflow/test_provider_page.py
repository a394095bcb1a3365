"""What the page on the provider shows: Airflow loads each of its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "airflow-provider.md"
BLOCKS = dict(re.findall(r"```python\n# dags/(\w+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL))


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    for name, code in BLOCKS.items():
        (tmp_path / f"{name}.py").write_text(code)
    return tmp_path


def test_each_block_has_its_file() -> None:
    assert len(BLOCKS) == PAGE.read_text().count("```python") == 5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Airflow imports
def test_airflow_loads_what_the_page_shows(dags: Path) -> None:
    bag = DagBag(dag_folder=dags)
    assert not bag.import_errors
    assert set(bag.dags) == {"tables", "follow", "report", "nightly", "counts"}
    assert bag.dags["tables"].task_dict["tables"].upstream_task_ids == {"extract"}
