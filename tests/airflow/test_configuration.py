"""The executor without an Airflow around it: what it refuses, and what it writes to the queue."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pytest
import redis
from airflow.executors.workloads import ExecuteTask
from airflow.executors.workloads import TestConnection as ConnectionTest
from airflow.executors.workloads.base import BundleInfo
from airflow.executors.workloads.task import TaskInstanceDTO

from orchestration_queue.airflow import AirflowWorker, QueueExecutor
from orchestration_queue.airflow.configuration import AirflowOptions, TaskOptions
from orchestration_queue.airflow.envelope import CONTINUES, WorkloadEnvelope
from orchestration_queue.airflow.tokens import _cipher, unseal
from orchestration_queue.client import Queue
from orchestration_queue.errors import PayloadError, UsageError
from tests.airflow.deployment import AIRFLOW
from tests.processes import OQ
from tests.waiting import wait_until_sync

if TYPE_CHECKING:
    from airflow.models.taskinstancekey import TaskInstanceKey

TOKEN: Final = "eyJhbGciOiJIUzUxMiJ9.the-token-of-a-task"
SECTION: Final = "AIRFLOW__ORCHESTRATION_QUEUE__"


@pytest.fixture(autouse=True)
def configured(server_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(f"{SECTION}URL", server_url)
    monkeypatch.setenv(f"{SECTION}TOKEN_KEY", "secret")
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "x" * 64)
    _cipher.cache_clear()
    yield
    _cipher.cache_clear()


@pytest.fixture
def executor() -> Iterator[QueueExecutor]:
    made = QueueExecutor(parallelism=4)
    made.start()
    yield made
    made.end()


def task(task_id: str = "load", **fields: Any) -> ExecuteTask:
    known = {
        "id": uuid.uuid4(),
        "dag_version_id": uuid.uuid4(),
        "task_id": task_id,
        "dag_id": "etl",
        "run_id": "run-1",
        "try_number": 1,
        "map_index": -1,
        "pool_slots": 1,
        "priority_weight": 1,
        "queue": "default",
        "external_executor_id": str(uuid.uuid4()),
    }
    ti = TaskInstanceDTO.model_validate({**known, **fields})
    return ExecuteTask(
        ti=ti, token=TOKEN, dag_rel_path=Path("etl.py"), log_path="log", bundle_info=BundleInfo(name="dags-folder")
    )


def add(executor: QueueExecutor, *workloads: ExecuteTask) -> None:
    for workload in workloads:
        executor.queue_workload(workload, mock.Mock())
    executor.trigger_tasks(executor.parallelism)


MISTAKES: Final = [
    ({"LEASE": "soon"}, "`lease` must be a number of seconds, got 'soon'"),
    ({"LEASE": "0.1"}, "`[orchestration_queue] lease` must be at least 1 second"),
    ({"LEASE": "-5"}, "lease"),
    ({"URL": "http://example.org"}, "http"),
    ({"PREFFIX": "x"}, "has no option 'preffix'; use 'prefix'."),
    ({"PREFIX": "{x}"}, "prefix"),
    ({"TOKEN_KEY": ""}, None),
]


@pytest.mark.parametrize(("options", "sentence"), MISTAKES, ids=str)
def test_a_mistake_in_the_configuration_is_one_sentence_at_the_scheduler_s_start(
    options: dict[str, str], sentence: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in options.items():
        monkeypatch.setenv(SECTION + name, value)
    if sentence is None:
        for name in ("AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__CORE__FERNET_KEY"):
            monkeypatch.setenv(name, "")
        sentence = "Airflow has no secret to encrypt the tokens of tasks with; set `[orchestration_queue] token_key`"
        from orchestration_queue.airflow.tokens import check_keys

        with pytest.raises(UsageError) as refused:
            check_keys()
    else:
        with pytest.raises(UsageError) as refused:
            QueueExecutor()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_executor_of_a_team_needs_a_server_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow gives a team none of the other executors' options: it would wait on a server that no worker knows."""
    with pytest.raises(UsageError) as refused:
        QueueExecutor(team_name="red")
    assert str(refused.value) == (
        "The executor of team 'red' has no server; set `url` in section [red=orchestration_queue], or "
        "AIRFLOW__RED___ORCHESTRATION_QUEUE__URL."
    )
    monkeypatch.setenv("AIRFLOW__RED___ORCHESTRATION_QUEUE__URL", "redis://localhost:1")
    monkeypatch.setenv("AIRFLOW__RED___ORCHESTRATION_QUEUE__PREFFIX", "x")
    with pytest.raises(UsageError, match="has no option 'preffix'"):
        QueueExecutor(team_name="red")


def test_the_job_of_a_connection_test_is_canceled_when_airflow_gives_it_up(
    executor: QueueExecutor, raw: redis.Redis, server_url: str
) -> None:
    asked = ConnectionTest(connection_test_id=uuid.uuid4(), connection_id="c", timeout=60, token=TOKEN)
    executor.queue_workload(asked, mock.Mock())
    executor.heartbeat()
    assert executor.running == {asked.key}
    executor.fail_connection_test(asked.key)
    assert not executor.running
    with Queue("airflow.default", url=server_url) as queue:
        assert queue.get(asked.key.id).record.fields.get("revoked") == "1"


ASKED: Final = [
    ({"timeout": "soon"}, "timeout"),
    ({"timeout": -1}, "timeout"),
    ({"tiemout": 5}, "has no option 'tiemout'; use 'timeout'."),
    ({"memory_mib": 0}, "memory_mib"),
    ({"env": {"A": 1}}, "env"),
    ({"pools": {"": 1}}, "Pool name"),
    ({"share": 5}, "share"),
    ("fast", "executor_config"),
]


@pytest.mark.parametrize(("asked", "word"), ASKED, ids=str)
def test_a_task_that_asks_for_something_invalid_fails_with_a_sentence(
    asked: Any, word: str, executor: QueueExecutor
) -> None:
    workload = task(executor_config={"orchestration_queue": asked})
    add(executor, workload)
    ((key, (state, reason)),) = executor.get_event_buffer().items()
    assert (key, state) == (workload.key, "failed")
    assert word in reason
    assert not executor.running
    assert not executor.queued_tasks


def test_what_a_task_asks_of_other_executors_is_ignored() -> None:
    assert TaskOptions.of({"KubernetesExecutor": {"image": "x"}, "pod_override": object()}) == TaskOptions()
    assert TaskOptions.of(None) == TaskOptions()


@pytest.mark.parametrize("bundles", [0, True, "8"])
def test_a_worker_refuses_wrong_arguments(bundles: Any) -> None:
    with pytest.raises(UsageError, match="bundles"):
        AirflowWorker(bundles=bundles)


def test_the_token_of_a_task_is_nowhere_on_the_server(
    executor: QueueExecutor, raw: redis.Redis, server_url: str
) -> None:
    workload = task()
    add(executor, workload)
    job_id = str(workload.ti.external_executor_id)
    with Queue("airflow.default", url=server_url) as queue:
        data = queue.get(job_id).data
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), protocol=2)
    held = b"".join(client.dump(key) or b"" for key in client.scan_iter(count=1000))
    client.close()
    assert job_id.encode() in held
    assert TOKEN.encode() not in held
    assert b"the-token-of" not in held
    for words in (["job", "show", "airflow.default", job_id], ["job", "show", "airflow.default", job_id, "--json"]):
        shown = subprocess.run(
            [OQ, *words, "--url", server_url], capture_output=True, text=True, timeout=120, check=True
        )
        assert "etl" in shown.stdout
        assert "the-token-of" not in shown.stdout + shown.stderr
    assert unseal(WorkloadEnvelope.model_validate(data).token) == TOKEN


def test_a_worker_with_another_secret_says_what_to_set(
    executor: QueueExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = executor._job("one", task()).data
    _cipher.cache_clear()
    monkeypatch.setenv(f"{SECTION}TOKEN_KEY", "other")
    with pytest.raises(PayloadError, match="token_key"):
        unseal(data["token"])


def test_a_task_that_is_added_twice_is_one_job(executor: QueueExecutor, raw: redis.Redis, server_url: str) -> None:
    """As after a reply that was lost."""
    workload = task()
    add(executor, workload)
    add(executor, workload)
    with Queue("airflow.default", url=server_url) as queue:
        (job,) = queue.jobs("waiting")
    assert (job.id, job.name) == (workload.ti.external_executor_id, "etl.load")
    assert executor.running == {workload.key}


def test_a_revoked_task_never_runs_and_is_not_reported(
    executor: QueueExecutor, server_url: str, raw: redis.Redis
) -> None:
    workload = task()
    add(executor, workload)
    instance = mock.Mock(key=workload.key, queue="default", external_executor_id=workload.ti.external_executor_id)
    executor.revoke_task(ti=instance)
    with Queue("airflow.default", url=server_url) as queue:
        assert queue.get(str(workload.ti.external_executor_id)).record.failed_reason == "revoked"
    assert not executor.running
    assert executor.get_event_buffer() == {}


def test_tasks_without_a_job_are_not_adopted(executor: QueueExecutor, raw: redis.Redis) -> None:
    workload, other = task("known"), task("lost")
    add(executor, workload)
    known, lost, never = (
        mock.Mock(id=one.ti.id, key=one.key, queue="default", external_executor_id=job_id)
        for one, job_id in (
            (workload, workload.ti.external_executor_id),
            (other, other.ti.external_executor_id),
            (other, None),
        )
    )
    successor = QueueExecutor(parallelism=4)
    assert successor.try_adopt_task_instances([known, lost]) == [lost]
    assert successor.try_adopt_task_instances([never]) == [never]
    assert successor.running == {workload.key}
    successor.end()


def test_an_unreachable_server_leaves_tasks_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{SECTION}URL", "redis://127.0.0.1:1?connect_timeout=0.2")
    executor = QueueExecutor(parallelism=4)
    executor._connection = type(executor._connection)("redis://127.0.0.1:1", timeout=0.2, connect_timeout=0.2)
    workload = task()
    add(executor, workload)
    executor.sync()
    assert list(executor.queued_tasks) == [workload.key]
    assert not executor.running
    assert executor.get_event_buffer() == {}
    executor.end()


def test_a_scheduler_that_revokes_many_tasks_waits_for_an_unreachable_server_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = QueueExecutor(parallelism=4)
    executor._connection = type(executor._connection)("redis://127.0.0.1:1", timeout=0.2, connect_timeout=0.2)
    tried: list[str] = []
    cancel = Queue.cancel

    def record(queue: Queue, job_id: str) -> Any:
        tried.append(job_id)
        return cancel(queue, job_id)

    monkeypatch.setattr(Queue, "cancel", record)
    for name in ("first", "second"):
        executor.revoke_task(ti=mock.Mock(key=task(name).key, queue="default", external_executor_id=name))
    assert tried == ["first"]
    executor.end()


def test_a_job_that_is_about_to_be_added_is_not_missing(executor: QueueExecutor, raw: redis.Redis) -> None:
    """Or its task would fail, and run, if the watcher reads all jobs just then."""
    from orchestration_queue.airflow.job_watcher import JobWatcher, Outcome

    watcher = JobWatcher(executor._connection, 60, mock.Mock())
    watcher.expect(executor._queue("default").keys, ["one"])
    watcher._check_all()
    assert watcher.take() == []
    watcher.confirm(["one"])
    watcher._check_all()
    (report,) = watcher.take()
    assert (report.job_id, report.outcome) == ("one", Outcome.FAILED)
    assert "does not exist" in report.reason


def test_no_event_is_lost_while_airflow_s_database_fails(executor: QueueExecutor, raw: redis.Redis) -> None:
    """The events beside that of a job that stalled, and that one itself, which has to be looked up there."""
    from orchestration_queue.airflow.job_watcher import JobWatcher, Outcome

    begun = mock.Mock(side_effect=[ConnectionError("the database is gone"), True])
    watcher = JobWatcher(executor._connection, 60, mock.Mock(), begun)
    keys = executor._queue("default").keys
    watcher.add(keys, ["stalled", "gone"])
    at = datetime.now(UTC)
    events = [
        (keys, mock.Mock(is_gap=False, type=kind, job_id=job_id, at=at))
        for kind, job_id in (("stalled", "stalled"), ("removed", "gone"))
    ]
    reader = mock.Mock(cursors={keys: "0"})
    reader.read.side_effect = [events, []]
    with pytest.raises(ConnectionError):
        watcher._follow(reader)
    assert [(report.job_id, report.outcome) for report in watcher.take()] == [("gone", Outcome.FAILED)]
    watcher._follow(reader)
    assert [(report.job_id, report.outcome) for report in watcher.take()] == [("stalled", Outcome.FAILED)]
    assert begun.call_args_list == [mock.call("stalled", at)] * 2


def test_a_task_whose_data_is_too_long_fails_alone(executor: QueueExecutor, raw: redis.Redis) -> None:
    long = task("long", executor_config={"orchestration_queue": {"env": {"TEXT": "x" * 2_000_000}}})
    good = task("good")
    add(executor, good, long)
    ((key, (state, reason)),) = executor.get_event_buffer().items()
    assert (key, state) == (long.key, "failed")
    assert "1,048,576" in reason
    assert executor.running == {good.key}
    assert not executor.queued_tasks


def test_a_task_of_a_queue_with_an_invalid_name_fails_alone(executor: QueueExecutor, raw: redis.Redis) -> None:
    bad, good = task("bad", queue="{x}", priority_weight=5), task("good")
    add(executor, bad, good)
    ((key, (state, reason)),) = executor.get_event_buffer().items()
    assert (key, state) == (bad.key, "failed")
    assert "{x}" in reason
    assert executor.running == {good.key}
    instance = mock.Mock(id=bad.ti.id, key=bad.key, queue="{x}", external_executor_id=bad.ti.external_executor_id)
    assert executor.try_adopt_task_instances([instance]) == [instance]
    executor.revoke_task(ti=instance)


def test_the_job_of_a_deferred_task_does_not_end_its_next_one(executor: QueueExecutor, raw: redis.Redis) -> None:
    """Airflow queues a task again under the same key, perhaps before the end of its first job is reported."""
    from orchestration_queue.airflow.job_watcher import JobReport, Outcome

    first = task()
    again = task(id=first.ti.id)
    add(executor, first)
    add(executor, again)
    executor._watcher._reports.put(JobReport(str(first.ti.external_executor_id), Outcome.COMPLETED))
    executor.sync()
    assert executor.running == {again.key}
    assert executor.get_event_buffer() == {}
    executor._watcher._reports.put(JobReport(str(again.ti.external_executor_id), Outcome.COMPLETED))
    executor.sync()
    buffer: dict[TaskInstanceKey, Any] = executor.get_event_buffer()  # type: ignore[assignment]
    assert {key: state for key, (state, _) in buffer.items()} == {again.key: "success"}


def test_a_job_whose_task_continues_as_another_one_is_not_reported(
    executor: QueueExecutor, raw: redis.Redis, server_url: str
) -> None:
    workload = task()
    add(executor, workload)
    with Queue("airflow.default", url=server_url) as queue:
        (taken,) = queue.take(1)
        taken.complete({"exit_code": 0, "outcome": CONTINUES})
    wait_until_sync(lambda: executor.sync() or not executor.running, "it is read")  # type: ignore[func-returns-value]
    assert executor.get_event_buffer() == {}


STALLED_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
LEASE: Final = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("heartbeat_at", "fields", "is_lost"),
    [
        (STALLED_AT - LEASE * 3 / 8, {}, True),
        (STALLED_AT, {}, False),
        (STALLED_AT - LEASE, {"state": "deferred"}, False),
        (STALLED_AT - LEASE, {"external_executor_id": "another"}, False),
        (None, {}, False),
    ],
    ids=["died with its worker", "has begun on another worker", "has ended", "has another job", "has not begun"],
)
def test_a_stalled_job_s_task_is_lost_if_its_heartbeats_ended_before(
    heartbeat_at: datetime | None,
    fields: dict[str, str],
    is_lost: bool,
    executor: QueueExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The start of a task that was deferred is that of its first job."""
    from airflow.models.taskinstance import TaskInstance

    workload = task()
    add(executor, workload)
    job_id = str(workload.ti.external_executor_id)
    known = {"state": "running", "external_executor_id": job_id, "start_date": STALLED_AT - timedelta(days=1)}
    instance = mock.Mock(last_heartbeat_at=heartbeat_at, **{**known, **fields})
    monkeypatch.setattr(TaskInstance, "get_task_instance", lambda *_, **__: instance)
    assert executor._has_begun(job_id, STALLED_AT) is is_lost


def test_airflow_has_the_worker_s_command(server_url: str) -> None:
    ended = subprocess.run(
        [AIRFLOW, "queue", "worker", "--queue", "q", "--concurrency", "many"],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == 2
    assert "--concurrency must be a whole number" in ended.stderr


def test_the_page_names_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "airflow-executor.md").read_text()
    first_cells = " ".join(re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE))
    named = {*re.findall(r"`(\w+)`", first_cells)}
    assert named >= {*AirflowOptions.model_fields, *TaskOptions.model_fields, "token_key"}


def test_a_task_whose_worker_is_gone_fails_although_there_is_no_other_worker(
    server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{SECTION}LEASE", "1")
    executor = QueueExecutor(parallelism=4)
    executor.start()
    workload = task()
    add(executor, workload)
    with Queue("airflow.default", url=server_url) as queue:
        (taken,) = queue.take(1)  # and its lease is never renewed
        wait_until_sync(lambda: executor.sync() or executor.event_buffer, "it is reported")  # type: ignore[func-returns-value]
        ((key, (state, reason)),) = executor.get_event_buffer().items()
        assert (key, state) == (workload.key, "failed")
        assert "has not renewed its lease for 2 s" in reason
        wait_until_sync(lambda: queue.get(taken.id).record.fields.get("revoked") == "1", "it is canceled")
    executor.end()
