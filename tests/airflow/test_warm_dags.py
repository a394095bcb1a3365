"""Which DAG files a fork server imports for the tasks, and which the tasks import themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAM: Final = """
import json, sys
from orchestration_queue.airflow.warm_dags import WarmDags
import airflow.dag_processing.dagbag as dagbag

path, bundle = sys.argv[1:]
warm, reported = WarmDags(), []
reason = warm.load(path, bundle, "bundle")
warm.offer(lambda **file: reported.append(file))
first, second = (
    dagbag.BundleDagBag(dag_folder=path, safe_mode=False, load_op_links=False, bundle_path=bundle, bundle_name="bundle")
    for _ in range(2)
)
print(json.dumps([reason, first is second, sorted(first.dags), reported]))
"""
HEAD: Final = """
from datetime import UTC, datetime
from airflow.sdk import DAG, Connection, Variable
"""
DAG_LINE: Final = "with DAG('found', schedule=None, start_date=datetime(2024, 1, 1, tzinfo=UTC)): pass\n"
PLAIN: Final = HEAD + DAG_LINE
ASKS_A_VARIABLE: Final = HEAD + "Variable.get('size', default=3)\n" + DAG_LINE
ASKS_A_CONNECTION: Final = HEAD + "try: Connection.get('x')\nexcept Exception: pass\n" + DAG_LINE
HANGS: Final = HEAD + "import os, time\nif os.environ.get('_AIRFLOW_PROCESS_CONTEXT'): time.sleep(600)\n" + DAG_LINE
BROKEN: Final = HEAD + "raise LookupError('no such table')\n"


def examine(source: str, tmp_path: Path) -> list[Any]:
    path = tmp_path / "file.py"
    path.write_text(source)
    command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    found: list[Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_a_file_that_asks_for_nothing_is_imported_once(tmp_path: Path) -> None:
    assert examine(PLAIN, tmp_path) == ["", True, ["found"], []]


@pytest.mark.parametrize(
    ("source", "word"),
    [
        (ASKS_A_VARIABLE, "GetVariable"),
        (ASKS_A_CONNECTION, "GetConnection"),
        (BROKEN, "no such table"),
        (HANGS, "was not done after 5.0 s"),
    ],
)
def test_other_files_are_imported_by_their_tasks(source: str, word: str, tmp_path: Path) -> None:
    """A default of a variable, in place of its value, would stay in all tasks."""
    reason, is_shared, dags, reported = examine(source, tmp_path)
    assert word in reason
    assert not is_shared
    assert dags == ([] if source == BROKEN else ["found"])
    assert reported == [], "and they are not offered again"
