"""What the DAGs of ``dags/features`` come to with QueueExecutor and with LocalExecutor: they must be equal.

``.venv-airflow/bin/python -m tests.airflow.compare [--postgres] [NAME...]`` compares all of them, or those named.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.airflow.deployment import ENDED, Airflow
from tests.conftest import start_server
from tests.dagster.stores import postgres
from tests.waiting import wait_until_sync

__all__ = ["KINDS", "compare", "feature_names", "prepare", "start", "summarize"]

KINDS: Final = ("queue", "local")
SCHEDULED: Final = frozenset(
    {"catchup", "depends_on_past", "wait_for_downstream", "max_active_runs", "external_producer", "external_waiter"}
)
"""Three runs of each, as soon as the DAG is unpaused."""
STARTED_BY_OTHERS: Final = {"asset_consumer": "asset_producer", "triggered": "triggers"}
CONF: Final[dict[str, dict[str, Any]]] = {"params": {"size": 5}}
FAILED: Final = frozenset(
    {"bash_fails", "branch_wrong", "dag_callback_failure", "dagrun_timeout", "deferral_timeout", "execution_timeout"}
    | {"exits", "fails_without_retry", "groups", "mapping_fails", "retries", "retry_policy"}
    | {"sensors_that_fail", "setup_fails", "setup_teardown", "teardown_fails", "trigger_rules_bad", "callbacks"}
    | {"trigger_rules_mixed", "variables"}
)
"""Those whose runs fail; all others succeed."""
_TRY: Final = "state, max_tries, operator, pool, queue, priority_weight, rendered_map_index"
_TABLES: Final = {
    "task_instance": f"try_number, {_TRY}",
    "task_instance_history": f"try_number, {_TRY}",
    "xcom": "key, value",
    "rendered_task_instance_fields": "'', rendered_fields",
}
"""What is compared: a part of the key, and values."""
_IMPORTING: Final = frozenset({"airflow.dag_processing.dagbag.BundleDagBag", "py.warnings"})
_NOISE: Final = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "TIME"),
    (r"manual__\S+?(?=[\"'/ ]|$)|run-[0-9a-f]{8}", "RUN"),
    (r"0x[0-9a-f]+|/tmp/[\w./-]+|\bpid[=: ]+\d+|\d+\.\d+( s|ms| seconds)?", "N"),
    (r"\(ID \d+\)|DateTime\(\d.*?\)\)", "N"),
    (r"(?<=Following branch ).*|(?<=Skipping tasks ).*", "SET"),
    (rf"(?<=_)({'|'.join(KINDS)})\b", "KIND"),
)


def feature_names(airflow: Airflow) -> list[str]:
    """All features that have DAGs."""
    return sorted(dag.removesuffix("_local") for (dag,) in airflow.query("select dag_id from dag") if "_local" in dag)


def prepare(airflow: Airflow) -> None:
    """Store what the DAGs ask for."""
    for key, value in {"stored": "a value", "object": '{"key": 5}'}.items():
        airflow.call("POST", "variables", {"key": key, "value": value})
    connection = {"connection_id": "stored", "conn_type": "http", "host": "example.org", "port": 81}
    airflow.call("POST", "connections", {**connection, "extra": '{"a": 1}'})
    for kind in KINDS:
        airflow.call("POST", "pools", {"name": f"narrow_{kind}", "slots": 1})


def start(airflow: Airflow, name: str) -> None:
    """Start the runs of a feature with both executors."""
    for kind in KINDS:
        dag = f"{name}_{kind}"
        if name in SCHEDULED:
            airflow.call("PATCH", f"dags/{dag}", {"is_paused": False})
        elif name == "backfilled":
            airflow.call("PATCH", f"dags/{dag}", {"is_paused": False})
            dates = {"from_date": "2024-01-01T00:00:00Z", "to_date": "2024-01-03T00:00:00Z"}
            airflow.call("POST", "backfills", {"dag_id": dag, **dates})
        elif name not in STARTED_BY_OTHERS:
            airflow.trigger(dag, CONF.get(name))


def runs_of(airflow: Airflow, dag: str) -> list[tuple[str, str, str]]:
    """Return the id, state, and place in the order of the runs of a DAG that count."""
    found = airflow.query("select run_id, state, run_type, logical_date from dag_run where dag_id = ?", dag)
    counted = [row for row in found if row[2] == "backfill" or not dag.startswith("backfilled")]
    ordered = sorted(counted, key=lambda row: str(row[3]))
    return [(run_id, state, str(index)) for index, (run_id, state, _, _) in enumerate(ordered)]


def is_over(airflow: Airflow, name: str) -> bool:
    """Whether all runs of a feature have ended."""
    expected = 3 if name in SCHEDULED or name == "backfilled" else 1
    runs = [runs_of(airflow, f"{name}_{kind}") for kind in KINDS]
    return all(len(of_kind) == expected and {row[1] for row in of_kind} <= ENDED for of_kind in runs)


def summarize(airflow: Airflow, dag: str) -> dict[str, Any]:
    """Return everything of a DAG's runs that has to be equal, without times and names that can't be."""
    found: dict[str, Any] = {}
    for run_id, state, index in runs_of(airflow, dag):
        found[f"run {index}"] = state
        for name, columns in _TABLES.items():
            statement = f"select task_id, map_index, {columns} from {name} where dag_id = ? and run_id = ?"  # noqa: S608
            for task_id, map_index, key, *facts in airflow.query(statement, dag, run_id):
                found[f"{name} {index} {task_id} {map_index} {key}"] = [_canonical(fact) for fact in facts]
        found |= _logs(airflow.home / "logs" / f"dag_id={dag}" / f"run_id={run_id}", index)
    for path in airflow.marks.glob(f"{dag}*"):
        found[f"marks {path.name}"] = sorted(path.read_text().splitlines())
    return {_quiet(key): _quiet(str(value)) for key, value in found.items()}


def _logs(folder: Path, index: str) -> dict[str, Any]:
    return {
        # What a task prints and what it logs come by several ways; a sensor says the same as often as it has time to.
        f"log {index} {path.relative_to(folder)}": "\n".join(sorted({_quiet(line) for line in _lines(path)}))
        for path in sorted(folder.rglob("*.log"))
    }


def _canonical(value: Any) -> Any:
    """Order what has no order: members of JSON, and the sets of tasks that are followed or skipped."""
    with suppress(TypeError, ValueError):
        value = json.loads(value)
    for name in {"followed", "skipped"} & set(value if isinstance(value, dict) else ()):
        value[name].sort()
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


def _lines(path: Path) -> Iterable[str]:
    """Return what a log says, except the import of the DAG's file, which a warm worker has done before."""
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            yield line
            continue
        if entry.get("logger") not in _IMPORTING:
            error = [one.get("exc_type") for one in entry.get("error_detail", [])]
            yield f"{entry.get('level')} {entry.get('logger')} {entry.get('event')} {error}"


def _quiet(text: str) -> str:
    for pattern, name in _NOISE:
        text = re.sub(pattern, name, text)
    return text


def compare(airflow: Airflow, names: Iterable[str], seconds: float) -> dict[str, list[str]]:
    """Run features with both executors; return what is different, or else than it should be."""
    names = list(names)
    for name in names:
        start(airflow, name)

    def left() -> list[str]:
        return [name for name in names if not is_over(airflow, name)]

    deadline = time.monotonic() + seconds
    while (waiting := left()) and time.monotonic() < deadline:
        wait_until_sync(lambda: len(left()) < len(waiting) or time.monotonic() > deadline, "progress", seconds + 60)
    if "cleared" in names:
        clear(airflow)
    return {name: differences(airflow, name) for name in names}


def clear(airflow: Airflow) -> None:
    """Have ended tasks run again, as a user does."""
    for kind in KINDS:
        ((run_id, _, _),) = runs_of(airflow, f"cleared_{kind}")
        body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id}
        airflow.call("POST", f"dags/cleared_{kind}/clearTaskInstances", body)
    wait_until_sync(lambda: is_over(airflow, "cleared"), "the cleared tasks run again", 300)


def differences(airflow: Airflow, name: str) -> list[str]:
    """Return what is wrong with the runs of a feature."""
    if not is_over(airflow, name):
        return ["not over"]
    queue, local = (summarize(airflow, f"{name}_{kind}") for kind in KINDS)
    wrong = [
        f"{key}: {queue.get(key)!r} and not {local.get(key)!r}"
        for key in sorted(queue.keys() | local.keys())
        if queue.get(key) != local.get(key)
    ]
    expected = "failed" if name in FAILED else "success"
    return wrong + [f"{key} is {value}" for key, value in queue.items() if key[:4] == "run " and value != expected]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--seconds", type=float, default=1500)
    arguments = parser.parse_args()
    with postgres() as database, tempfile.TemporaryDirectory(prefix="oq-compare-") as home:
        server = start_server(Path(home) / "valkey.sock")
        url = database.url if arguments.postgres and database else ""
        settings = {"CORE__PARALLELISM": "8"}
        airflow = Airflow(Path(home) / "airflow", f"unix://{home}/valkey.sock", url, settings)
        with airflow.running(), airflow.worker("default", "--concurrency", "8"):
            airflow.start_triggerer()
            prepare(airflow)
            names = arguments.names or feature_names(airflow)
            found = compare(airflow, names, arguments.seconds)
        server.terminate()
        server.wait(60)
    wrong = {name: lines for name, lines in found.items() if lines}
    json.dump({"features": len(found), "equal": len(found) - len(wrong), "different": wrong}, sys.stdout, indent=1)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
