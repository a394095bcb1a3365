"""Which DAG files a fork server imports for the tasks, and which the tasks import themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from orchestration_queue.airflow.workload_runner import WorkloadRunner
from orchestration_queue.worker.forks.fork_pool import Recycling

PROGRAM: Final = """
import json, sys
from orchestration_queue.airflow.warm_dags import WarmDags
from orchestration_queue.airflow import warm_dags
import airflow.dag_processing.dagbag as dagbag

path, bundle = sys.argv[1:]
warm, reported = WarmDags(), []
reason = warm.load(path, bundle, "bundle")
warm.offer(lambda **file: reported.append(file))
first, second = (
    dagbag.BundleDagBag(dag_folder=path, safe_mode=False, load_op_links=False, bundle_path=bundle, bundle_name="bundle")
    for _ in range(2)
)
settled = [warm.is_settled(path)]
now = warm_dags.time.monotonic
warm_dags.time.monotonic = lambda: now() + warm_dags._AGAIN_S
settled.append(warm.is_settled(path))
print(json.dumps([reason, first is second, sorted(first.dags), reported, settled]))
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
    assert examine(PLAIN, tmp_path) == ["", True, ["found"], [], [True, True]]


@pytest.mark.parametrize(
    ("source", "word", "is_final"),
    [
        (ASKS_A_VARIABLE, "GetVariable", True),
        (ASKS_A_CONNECTION, "GetConnection", True),
        (BROKEN, "no such table", False),
        (HANGS, "was not done after 5.0 s", False),
    ],
)
def test_other_files_are_imported_by_their_tasks(source: str, word: str, is_final: bool, tmp_path: Path) -> None:
    """A default of a variable, in place of its value, would stay in all tasks. What failed is tried again later."""
    reason, is_shared, dags, reported, settled = examine(source, tmp_path)
    assert settled == [True, is_final]
    assert word in reason
    assert not is_shared
    assert dags == ([] if source == BROKEN else ["found"])
    assert reported == [], "and they are not offered again"


def test_a_file_that_can_not_be_forked_is_tried_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(PLAIN)
    lease = timedelta(seconds=30)
    runner = WorkloadRunner(1, lease=lease, now_ms=mock.Mock(), revoked=mock.Mock(), recycling=Recycling(), grace=lease)
    server, slot = mock.Mock(), mock.Mock(note={"outcome": "0", "parsed": json.dumps({"path": str(path)})})
    runner._set_cold(str(path), "a thread")
    runner._warm(server, slot)
    server.tell.assert_not_called()
    os.utime(path, ns=(0, 0))
    runner._warm(server, slot)
    server.tell.assert_called_once_with("import", path=str(path))
