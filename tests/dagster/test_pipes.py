"""Pipes over streams: what external work reports arrives once, whichever process dies meanwhile."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.dagster.pipes import (
    PipesQueueClient,
    PipesStreamContextInjector,
    PipesStreamMessageReader,
    spark_properties,
)
from orchestration_queue.dagster.pipes.session import shareable_url
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, JobFailedError
from orchestration_queue.options import Backoff, JobOptions, Retention
from orchestration_queue.server import parse_url
from tests.dagster.conftest import QUICK
from tests.dagster.pipes_location import killable
from tests.processes import worker_process
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.timeout(400),
    # Dagster's own Pipes read these from the context of an asset.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.*is deprecated:DeprecationWarning"),
]

PROGRAM = Path(__file__).with_name("pipes_program.py")


@pytest.fixture
def client(server_url: str) -> Iterator[PipesQueueClient]:
    made = PipesQueueClient(url=server_url, cancel_timeout_seconds=60)
    yield made
    made.close()


@pytest.fixture
def worker(server_url: str, queue_name: str) -> Iterator[subprocess.Popen[bytes]]:
    with worker_process("tests.dagster.pipes_jobs:tasks", queue_name, server_url, *QUICK) as process:
        yield process


def table(queue: str, task: str, retry_policy: dg.RetryPolicy | None = None, **data: object) -> dg.AssetsDefinition:
    """An asset that a task makes."""

    @dg.asset(
        retry_policy=retry_policy, check_specs=[dg.AssetCheckSpec("not_empty", asset="made")] * (task == "report")
    )
    def made(  # with checks Dagster knows only the bare class
        context: dg.AssetExecutionContext, pipes: PipesQueueClient
    ) -> dg.MaterializeResult:  # type: ignore[type-arg]
        invocation = pipes.run(context=context, queue=queue, task=task, data=data, extras={"shift": "night"})
        context.log.info(f"told: {invocation.get_custom_messages()}")
        return invocation.get_materialize_result()

    return made


def run(
    asset: dg.AssetsDefinition, client: PipesQueueClient, instance: dg.DagsterInstance
) -> dg.ExecuteInProcessResult:
    return dg.materialize([asset], instance=instance, resources={"pipes": client}, raise_on_error=False)


def metadata_of(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    (event,) = result.get_asset_materialization_events()
    return {name: value.value for name, value in event.materialization.metadata.items()}


def logged(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    return [event.user_message for event in instance.all_logs(run_id)]


def told(instance: dg.DagsterInstance) -> str:
    """All that the events of all runs say, Dagster's own among them."""
    entries = [event for run in instance.get_runs() for event in instance.all_logs(run.run_id)]
    return "\n".join(event.dagster_event.message or "" for event in entries if event.dagster_event)


def launches(scratch: str) -> list[str]:
    return Path(scratch, "launches").read_text().split()


def test_what_a_handler_reports_is_what_dagster_shows(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    worker: subprocess.Popen[bytes],
    queue_name: str,
    scratch: str,
    raw: redis.Redis,
) -> None:
    result = run(table(queue_name, "report", scratch=scratch, rows=7), client, instance)
    assert result.success
    (job_id,) = launches(scratch)
    shown = metadata_of(result)
    assert shown["rows"] == 7
    assert shown["orchestration_queue/job_id"] == job_id
    assert shown["orchestration_queue/task"] == "report"
    assert "result" not in shown
    (check,) = result.get_asset_check_evaluations()
    assert check.passed
    lines = logged(instance, result.run_id)
    assert "loading 7 rows for made, night shift" in lines
    assert f"told: ({{'run': '{result.run_id}'}},)" in lines
    ttls = {str(key).rpartition(":")[2]: raw.ttl(key) for key in raw.keys("glide:pipes:*")}
    assert set(ttls) == {"context", "results", "logs", "read"}
    assert all(86_000 < ttl <= 86_400 for ttl in ttls.values())


def test_a_job_with_durable_steps_continues_them_under_one_dagster_step(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    worker: subprocess.Popen[bytes],
    queue_name: str,
    scratch: str,
    server_url: str,
) -> None:
    @dg.asset
    def made(context: dg.AssetExecutionContext, pipes: PipesQueueClient) -> dg.MaterializeResult[None]:
        options = JobOptions(attempts=2, backoff=Backoff(delay=0.05))
        data = {"scratch": scratch}
        invocation = pipes.run(context=context, queue=queue_name, task="report_in_steps", data=data, options=options)
        return invocation.get_materialize_result()

    result = run(made, client, instance)
    assert result.success
    assert metadata_of(result)["rows"] == 30
    assert Path(scratch, "fetched").read_text().split() == ["0", "1", "2"]
    assert len(set(launches(scratch))) == 1
    assert "fetched 30 rows in attempt 2" in logged(instance, result.run_id)
    with Queue(queue_name, url=server_url) as queue:
        names = [step.name for step in queue.get(launches(scratch)[0]).steps()]
    assert names == ["page-0", "pause", "page-1", "page-2"]


def test_a_failed_job_fails_the_step_and_the_next_attempt_adds_another(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    worker: subprocess.Popen[bytes],
    queue_name: str,
    scratch: str,
) -> None:
    asset = table(queue_name, "report_and_fail", dg.RetryPolicy(max_retries=1), scratch=scratch)
    result = run(asset, client, instance)
    assert result.success
    first, second = launches(scratch)
    assert first != second
    assert metadata_of(result)["launch"] == 2
    retried = [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
    (data,) = [event.step_retry_data for event in retried]
    assert data.error is not None
    assert f"Job {first} of queue {queue_name} failed: the source is gone" in str(data.error)
    assert any("the source is gone" in str(event.event_specific_data) for event in result.all_events)


def test_a_failed_job_shows_its_attempts_among_the_failure_s_metadata(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    worker: subprocess.Popen[bytes],
    queue_name: str,
    scratch: str,
) -> None:
    result = run(table(queue_name, "report_and_fail", scratch=scratch), client, instance)
    (failed,) = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert failed.user_failure_data is not None
    told = str(failed.user_failure_data.metadata["orchestration_queue/history"].value)
    assert "attempt 1 failed on" in told
    assert "the source is gone" in told
    assert "in report_and_fail" in told


def test_a_step_that_fails_after_its_work_finds_the_work_done(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    worker: subprocess.Popen[bytes],
    queue_name: str,
    scratch: str,
) -> None:
    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def made(context: dg.AssetExecutionContext, pipes: PipesQueueClient) -> dg.MaterializeResult[None]:
        data = {"scratch": scratch, "rows": 3}
        first = pipes.run(context=context, queue=queue_name, task="report_often", data=data)
        second = pipes.run(context=context, queue=queue_name, task="report_often", data=data)
        if context.retry_number == 0:
            raise RuntimeError("after the work")
        messages = [*first.get_custom_messages(), *second.get_custom_messages()]
        return dg.MaterializeResult(metadata={"messages": len(messages)})

    result = run(made, client, instance)
    assert result.success
    assert len(launches(scratch)) == 2, "one for each of the two calls, and none for the second attempt"
    assert metadata_of(result)["messages"] == 6
    assert logged(instance, result.run_id).count("row 2") == 2


def test_a_job_that_another_worker_takes_over_counts_once(
    client: PipesQueueClient, instance: dg.DagsterInstance, server_url: str, queue_name: str, scratch: str
) -> None:
    workers = ExitStack()
    brief = (*QUICK, "--lease", "5")

    def replace_the_worker() -> None:
        first = workers.enter_context(worker_process("tests.dagster.pipes_jobs:tasks", queue_name, server_url, *brief))
        first.wait(100)
        workers.enter_context(worker_process("tests.dagster.pipes_jobs:tasks", queue_name, server_url, *brief))

    replacing = threading.Thread(target=replace_the_worker)
    with workers:
        replacing.start()
        result = run(table(queue_name, "report_and_die", scratch=scratch), client, instance)
        replacing.join()
    assert result.success
    assert len(launches(scratch)) == 2
    shown = metadata_of(result)
    assert shown["run"] == 2
    assert shown["orchestration_queue/workers_lost"] == 1
    lines = logged(instance, result.run_id)
    assert [line for line in lines if line.startswith("run ")] == ["run 1", "run 2"]
    assert "told: (2,)" in lines
    assert "[pipes] The external work runs again; discarded 2 reports of its previous run." in lines


def test_cancelling_the_run_revokes_the_job(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    worker: subprocess.Popen[bytes],
    queue_name: str,
    scratch: str,
    raw: redis.Redis,
) -> None:
    def cancel() -> None:
        wait_until_sync(Path(scratch, "waiting").exists, "the job to start", 60)
        os.kill(os.getpid(), signal.SIGINT)  # as Dagster's run worker does when a run is terminated

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        dg.materialize(
            [table(queue_name, "report_slowly", scratch=scratch)], instance=instance, resources={"pipes": client}
        )
    cancelling.join()
    (job_id,) = launches(scratch)
    assert raw.hget(f"glide:{{{queue_name}}}:job:{job_id}", "failedReason") == "revoked"
    wait_until_sync(Path(scratch, "stopped").exists, "the handler to notice")


def test_cancelling_the_run_before_the_job_s_addition_is_answered_revokes_it_too(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    queue_name: str,
    raw: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add = Queue.add

    def interrupted(*args: Any, **options: Any) -> None:
        add(*args, **options)
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(Queue, "add", interrupted)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        dg.materialize([table(queue_name, "report")], instance=instance, resources={"pipes": client})
    (job,) = raw.keys(f"glide:{{{queue_name}}}:job:*")
    assert raw.hget(job, "failedReason") == "revoked"


def test_a_step_whose_process_is_killed_comes_back_to_its_job(
    instance: dg.DagsterInstance,
    server_url: str,
    worker: subprocess.Popen[bytes],
    queue_name: str,
    scratch: str,
    raw: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"OQ_URL": server_url, "TEST_QUEUE": queue_name, "TEST_SCRATCH": scratch}.items():
        monkeypatch.setenv(name, value)
    steps = Path(scratch, "steps")

    def has_logged(line: str) -> bool:
        return any(line in logged(instance, run.run_id) for run in instance.get_runs())

    def kill_the_first_step() -> None:
        # One that is killed between a message and this note passes the message on once more.
        wait_until_sync(lambda: raw.keys("glide:pipes:*:read"), "the step to note that it has passed on a message", 120)
        assert has_logged("before the break")
        os.kill(int(steps.read_text()), signal.SIGKILL)
        wait_until_sync(lambda: len(steps.read_text().split()) == 2, "the second attempt", 120)
        wait_until_sync(lambda: "Reattached to in-progress" in told(instance), "it to be back", 120)
        Path(scratch, "go").touch()

    def run_id() -> str:
        return next(iter(instance.get_runs())).run_id

    killing = threading.Thread(target=kill_the_first_step)
    killing.start()
    with dg.execute_job(dg.reconstructable(killable), instance) as result:
        killing.join()
        assert result.success
        (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["rows"].value == 2
    assert len(launches(scratch)) == 1
    lines = logged(instance, run_id())
    assert lines.count("before the break") == 1
    assert lines.count("after the break") == 1
    assert "told: ('first', 'second')" in lines


def test_an_external_program_needs_only_the_writers_file(
    client: PipesQueueClient,
    instance: dg.DagsterInstance,
    worker: subprocess.Popen[bytes],
    queue_name: str,
) -> None:
    result = run(table(queue_name, "report_from_a_program", program=str(PROGRAM)), client, instance)
    assert result.success
    assert metadata_of(result)["has_package"] is False
    assert "from outside" in logged(instance, result.run_id)


def subprocess_asset(url: str, session: str | None = None, **environment: str) -> dg.AssetsDefinition:
    """An asset that a program makes, without any queue."""

    @dg.asset
    def made(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        external = dg.PipesSubprocessClient(
            context_injector=PipesStreamContextInjector(url, session=session),
            message_reader=PipesStreamMessageReader(url, session=session),
            env=environment,
        )
        return external.run(context=context, command=[sys.executable, str(PROGRAM)]).get_materialize_result()

    return made


def test_streams_serve_any_pipes_client(
    instance: dg.DagsterInstance, server_url: str, monkeypatch: pytest.MonkeyPatch, raw: redis.Redis
) -> None:
    monkeypatch.delenv("OQ_URL", raising=False)  # the step says where the server is
    result = dg.materialize([subprocess_asset(server_url)], instance=instance)
    assert result.success
    assert metadata_of(result)["has_package"] is False


def test_what_a_killed_program_wrote_is_told_with_its_failure(
    instance: dg.DagsterInstance, server_url: str, raw: redis.Redis
) -> None:
    result = dg.materialize([subprocess_asset(server_url, OQ_DIE="1")], instance=instance, raise_on_error=False)
    assert not result.success
    lines = logged(instance, result.run_id)
    assert "from outside" in lines
    assert any("did not receive closed message" in line for line in lines)


def test_a_handler_that_no_step_added_is_told_so(
    server_url: str, queue_name: str, scratch: str, worker: subprocess.Popen[bytes]
) -> None:
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("report", {"scratch": scratch, "rows": 1})
        with pytest.raises(
            JobFailedError, match=r"Pipes context at key glide:pipes:\{.*\}:context does not exist: the step wrote it"
        ):
            job.wait(120)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"job_id": "mine"}, "remove job_id, and pass name"),
        ({"remove_on_complete": Retention(count=0)}, "reads its outcome from the job"),
        ({"remove_on_fail": Retention(count=0)}, "reads its outcome from the job"),
    ],
)
def test_options_that_would_lose_the_job_are_refused(
    client: PipesQueueClient, options: dict[str, object], words: str, raw: redis.Redis
) -> None:
    with pytest.raises(InvalidOptionError, match=words):
        client.run(context=dg.build_op_context(), queue="q", task="t", options=JobOptions.model_validate(options))
    assert raw.keys() == []


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"session": "a:b"}, InvalidNameError, "Session name 'a:b'"),
        ({"session": ""}, InvalidNameError, "Session name ''"),
        ({"prefix": "a{b"}, InvalidNameError, "Key prefix"),
        ({"ttl": timedelta(0)}, InvalidOptionError, "from a second to 365 days"),
        ({"ttl": timedelta(days=366)}, InvalidOptionError, "from a second to 365 days"),
    ],
)
@pytest.mark.parametrize("made", [PipesStreamContextInjector, PipesStreamMessageReader])
def test_bad_arguments_are_refused(
    made: Callable[..., object], arguments: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        made("redis://localhost", **arguments)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="`limit` must be >= 1, got 0"):
        PipesStreamMessageReader("redis://localhost", limit=0)


@pytest.mark.parametrize(
    ("url", "shared"),
    [
        ("redis://host:1/2", "redis://host:1/2"),
        ("unix:///tmp/socket", "unix:///tmp/socket"),
        ("redis+cluster://a,b", "redis+cluster://a:6379,b:6379"),
        ("redis://:secret@host", None),
        ("rediss://user@host", None),
        ("redis+sentinel://host/main?sentinel_password=secret", None),
    ],
)
def test_a_url_with_a_secret_is_not_passed_on(url: str, shared: str | None) -> None:
    assert shareable_url(parse_url(url)) == shared


def test_a_spark_driver_on_a_cluster_is_told_by_properties() -> None:
    assert spark_properties({"DAGSTER_PIPES_CONTEXT": "x"}) == {
        "spark.yarn.appMasterEnv.DAGSTER_PIPES_CONTEXT": "x",
        "spark.kubernetes.driverEnv.DAGSTER_PIPES_CONTEXT": "x",
    }


def test_the_worker_s_side_needs_no_dagster() -> None:
    program = "import sys, orchestration_queue.dagster.pipes.session; sys.exit('dagster' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
