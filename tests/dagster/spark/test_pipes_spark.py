"""Spark as a step's external work: what it reports, how it ends, and that it runs once, whichever process dies."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration_queue.client import Queue
from orchestration_queue.dagster.spark import PipesSparkClient, spark_steps
from orchestration_queue.errors import InvalidOptionError, JobFailedError, UnrecoverableError
from orchestration_queue.options import JobOptions
from orchestration_queue.spark import SparkOptions, SparkSubmit
from tests.dagster.spark.step_location import killable
from tests.dagster.test_pipes import logged, metadata_of, told
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.timeout(300),  # seconds of processor time, on however busy a machine
    # Dagster's own Pipes read these from the context of an asset.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.*is deprecated:DeprecationWarning"),
]


def table(retry_policy: dg.RetryPolicy | None = None, **work: Any) -> dg.AssetsDefinition:
    """An asset that Spark makes."""
    checks = [dg.AssetCheckSpec("not_empty", asset="made")] if "script" in work else []

    @dg.asset(retry_policy=retry_policy, check_specs=checks)
    def made(context: dg.AssetExecutionContext, spark: PipesSparkClient) -> dg.MaterializeResult:  # type: ignore[type-arg]
        return spark.run(context=context, extras={"shift": "night"}, **work).get_materialize_result()

    return made


def run(
    asset: dg.AssetsDefinition, client: PipesSparkClient, instance: dg.DagsterInstance
) -> dg.ExecuteInProcessResult:
    return dg.materialize([asset], instance=instance, resources={"spark": client}, raise_on_error=False)


@pytest.mark.parametrize("spark", [SparkOptions(shuffle_partitions=3), SparkSubmit(shuffle_partitions=3)])
def test_a_script_reports_by_pipes_wherever_it_runs(
    client: PipesSparkClient,
    instance: dg.DagsterInstance,
    spark: SparkOptions,
    capfd: pytest.CaptureFixture[str],
) -> None:
    result = run(table(script="totals.py", arguments=["count", "b"], spark=spark), client, instance)
    assert result.success
    shown = metadata_of(result)
    is_connect = not isinstance(spark, SparkSubmit)
    assert {"rows": 6, "shift": "night", "remote": is_connect, "partitions": "3"}.items() <= shown.items()
    (check,) = result.get_asset_check_evaluations()
    assert check.passed
    application = shown["orchestration_queue/spark_application"]
    assert str(application).startswith("local-")
    assert shown["orchestration_queue/spark_ui"] == f"http://history:18080/history/{application}"
    assert shown["orchestration_queue/spark_progress"] == "done"
    assert ("orchestration_queue/spark_session" in shown) is is_connect
    assert f"Spark application: {application}" in logged(instance, result.run_id)
    assert "started count" in str(shown["orchestration_queue/log"])
    assert "started count" in capfd.readouterr().out, "as the step's own output, for its compute log"


def test_a_task_reports_as_well(client: PipesSparkClient, instance: dg.DagsterInstance) -> None:
    result = run(table(task="count_rows", arguments={"rows": 5}), client, instance)
    assert result.success
    shown = metadata_of(result)
    assert (shown["rows"], shown["shift"]) == (5, "night")
    assert shown["orchestration_queue/spark_session"]


def test_cancelling_the_run_ends_sparks_work(
    client: PipesSparkClient, instance: dg.DagsterInstance, server_url: str, scratch: str
) -> None:
    beats = Path(scratch, "beats")
    texts: list[str] = []

    def progress() -> str:
        with Queue(client.default_queue, url=server_url) as queue:
            return str([job.progress() for job in queue.jobs("active")])

    def cancel() -> None:
        try:
            wait_until_sync(beats.exists, "Spark to be at work", 240)
            wait_until_sync(lambda: "query 1: 0 of 1 tasks, 1 running" in progress(), "the progress to tell", 60)
            texts.append(progress())
        finally:
            os.kill(os.getpid(), signal.SIGINT)  # as Dagster's run worker does when a run is terminated

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        dg.materialize(
            [table(script="totals.py", arguments=["wait", scratch])], instance=instance, resources={"spark": client}
        )
    cancelling.join()
    assert "'session': " in texts[0], "beside the progress, for the next attempt to find"
    wait_until_sync(lambda: is_quiet(beats), "Spark's work to end", 60)


def is_quiet(file: Path) -> bool:
    """Whether a file has stopped growing that was written to twenty times a second."""
    before = file.stat().st_size
    end = time.monotonic() + 0.5
    wait_until_sync(lambda: time.monotonic() > end or file.stat().st_size > before, "half a second", 5)
    return file.stat().st_size == before


def test_a_step_that_is_killed_comes_back_to_its_spark(
    instance: dg.DagsterInstance,
    server_url: str,
    client: PipesSparkClient,
    scratch: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"OQ_URL": server_url, "TEST_QUEUE": client.default_queue, "TEST_SCRATCH": scratch}.items():
        monkeypatch.setenv(name, value)
    steps = Path(scratch, "steps")

    def kill_the_first_step() -> None:
        wait_until_sync(Path(scratch, "beats").exists, "Spark to be at work", 240)
        os.kill(int(steps.read_text()), signal.SIGKILL)
        wait_until_sync(lambda: "Reattached to in-progress" in told(instance), "the next attempt to be back", 240)
        Path(scratch, "go").touch()

    killing = threading.Thread(target=kill_the_first_step)
    killing.start()
    with dg.execute_job(dg.reconstructable(killable), instance) as result:
        killing.join()
        assert result.success
        (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["rows"].value == 6
    assert len(steps.read_text().split()) == 2
    assert Path(scratch, "launches").read_text() == "x\n", "one launch over two attempts of the step"
    lines = logged(instance, next(iter(instance.get_runs())).run_id)
    assert lines.count("before the break") == 1


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ({}, "Exactly one of `script` and `task` must be given"),
        ({"script": "a.py", "task": "t"}, "Exactly one of `script` and `task` must be given"),
        ({"script": "/etc/a.py"}, "relative to the worker's directory of scripts, got '/etc/a.py'"),
        ({"script": "../a.py"}, r"relative to the worker's directory of scripts, got '\.\./a\.py'"),
        ({"script": "a\0.py"}, r"relative to the worker's directory of scripts, got 'a\\x00\.py'"),
        ({"script": ""}, "relative to the worker's directory of scripts, got ''"),
        ({"script": "a.py", "arguments": "one two"}, "must be a list of strings, got 'one two'"),
        ({"script": "a.py", "arguments": {"a": 1}}, "must be a list of strings, got .*"),
        ({"script": "a.py", "arguments": [1]}, "must be a list of strings"),
        ({"task": "t", "arguments": ["a"]}, "`arguments` of task 't' must be a mapping, got"),
        ({"task": "t", "spark": SparkOptions()}, "`spark` applies to scripts, but task 't' has its own options"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_added(server_url: str, work: dict[str, Any], words: str) -> None:
    client = PipesSparkClient(url=server_url, default_queue="nobodys")
    with pytest.raises(InvalidOptionError, match=words):
        client.run(context=dg.build_op_context(), **work)
    with Queue("nobodys", url=server_url) as queue:
        assert queue.count() == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"script": "no.py"}, "Script 'no.py' does not exist below"),
        ({"script": "../steps.py"}, r"relative to the worker's directory of scripts, got '\.\./steps\.py'"),
        (
            {"script": "totals.py", "options": {"master": "local[9]"}},
            "can't set 'master' for a session on this worker",
        ),
        ({"script": "totals.py", "options": {"memory": "9g"}}, "can't set 'memory' for a session"),
        (
            {"script": "totals.py", "by_submit": True, "options": {"jars": ["x"]}},
            "can't set 'jars' for an application",
        ),
        ({"script": "totals.py", "by_submit": True, "options": {"env": {}}}, "can't set 'env' for an application"),
        ({"script": "totals.py", "options": {"conf": {"spark.jars": "x"}}}, r"can't set the property 'spark\.jars'"),
        ({"script": "totals.py", "options": {"shuffle_partitions": 0}}, r"SparkSubmit\.shuffle_partitions \(given 0\)"),
    ],
)
def test_a_worker_runs_only_what_it_lets_steps_say(
    server_url: str, client: PipesSparkClient, data: dict[str, Any], words: str
) -> None:
    with Queue(client.default_queue, url=server_url) as queue, pytest.raises(JobFailedError, match=words):
        queue.add("spark_step", data, JobOptions(attempts=3)).wait(60)


def test_a_link_out_of_the_directory_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "link.py").symlink_to(__file__)
    step = spark_steps(tmp_path)
    with pytest.raises(UnrecoverableError, match=r"Script 'link\.py' does not exist below"):
        step("link.py", job=None)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"`scripts` must be an existing directory, got"):
        spark_steps(tmp_path / "none")


PARTS = ["components", "io_manager", "pipelines", "session"]


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (["orchestration_queue.dagster", "orchestration_queue.dagster.spark.steps"], {"dagster", "pyspark"}),
        ([f"orchestration_queue.dagster.spark.{part}" for part in PARTS], {"pyspark"}),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(modules: list[str], absent: set[str]) -> None:
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=60)
    assert not absent & set(loaded.split())
