"""Drivers on a real standalone cluster: one for each job, whatever is killed, and none without its job."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import SparkCancelledError, SparkFailedError, SparkTimeoutError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.spark import SparkSubmit, run_submit, spark_submit
from orchestration_queue.spark.submit import attempt as running
from orchestration_queue.spark.submit.standalone import Master, MasterUnreachableError, Reservation
from orchestration_queue.tasks import Tasks
from tests.processes import worker_process
from tests.spark.conftest import MARK, Marked
from tests.spark.standalone import Cluster, standalone_cluster
from tests.waiting import at_load, wait_until, wait_until_sync
from tests.workers import working

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(300)]

APP = Path(__file__).with_name("cluster_app.py")
SOON = timedelta(seconds=100)
QUICK = ("--lease", "5", "--stalled-interval", "0.5", "--promotion-interval", "0.2")


@pytest.fixture(scope="module")
def of_cluster() -> Marked:
    """What the cluster's processes, and all that they start, have in their environment."""
    return Marked()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, of_cluster: Marked) -> Iterator[Cluster]:
    """A master and a worker, which end with the tests of this module."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), {MARK: of_cluster.id}) as found:
        yield found
    wait_until_sync(lambda: not of_cluster.processes(), "all of the cluster to be gone")


def alone(cluster: Cluster) -> SparkSubmit:
    """Options of a driver that needs no executor, and gets none: that saves a third of the time."""
    return cluster.options.model_copy(update={"executor_memory": "64g"})


def pythons(marked: Marked) -> list[str]:
    """The commands of the applications that run."""
    return [command for command in marked.processes().values() if APP.name in command and "java" not in command]


async def test_the_driver_of_a_killed_worker_is_found_again(
    server_url: str, queue_name: str, raw: redis.Redis, cluster: Cluster, tmp_path: Path
) -> None:
    before = {one.id for one in cluster.master.drivers()}
    with ZipFile(tmp_path / "library.zip", "w") as library:
        library.writestr("shipped.py", "WORD = 'here'\n")
    options = cluster.options.model_copy(update={"py_files": (str(tmp_path / "library.zip"),)})
    module = tmp_path / "cluster_tasks.py"
    module.write_text(
        "from orchestration_queue.spark import SparkSubmit, spark_submit\n"
        "from orchestration_queue.tasks import Tasks\n"
        f"options = SparkSubmit.model_validate_json({options.model_dump_json()!r})\n"
        "tasks = Tasks()\n"
        f"tasks.task(spark_submit({str(APP)!r}, options))\n"
    )
    tasks = Tasks()
    tasks.task(spark_submit(APP, options))
    sign, go = tmp_path / "sign", tmp_path / "sign-go"
    async with AsyncQueue(queue_name, url=server_url) as queue:
        job = await queue.add(APP.stem, {"arguments": ["write", str(sign), str(tmp_path / "out")]})
        with worker_process("cluster_tasks:tasks", queue_name, server_url, *QUICK, directory=tmp_path) as victim:
            await wait_until(sign.exists, "the application to be at work", 240)
            stored = QueueKeys(queue_name).job(job.id)
            await wait_until(lambda: "driver-" in str(raw.hget(stored, "progress")), "its driver to be written down")
            victim.send_signal(signal.SIGKILL)
            victim.wait(60)
        # As if it had died before the master's answer was written down: it left the tag of its driver alone.
        kept = Reservation.of(await job.progress())
        assert kept is not None
        untold = {"spark": replace(kept, driver="").about}
        raw.hset(stored, "progress", json.dumps(untold))
        async with working(queue, tasks, server_url):
            started = time.monotonic()
            while not any("of an earlier attempt" in line for line in await job.logs()):
                assert time.monotonic() - started < 60, "the driver was not found"
            go.touch()
            result = await job.wait(SOON)
        progress, log = await job.progress(), await job.logs()
    (driver,) = {one.id for one in cluster.master.drivers()} - before
    assert (result["exit_code"], result["driver"], result["output_rows"]) == (0, driver, 100)
    assert (progress["percent"], progress["text"]) == (100, "done")
    assert f"found {driver} of an earlier attempt, which is RUNNING" in log
    assert log[-1] == "done"
    assert kept.driver == driver
    # And as if its end had not been written down: the next attempt finds that it has succeeded.
    assert run_submit(APP, ["x"], cluster.options, earlier=progress)["driver"] == driver
    assert {one.id for one in cluster.master.drivers()} == {*before, driver}, "one application only"


def test_an_exception_is_the_reason_also_when_the_masters_answer_was_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    create, created = Master.create, []

    def create_unheard(master: Master, request: dict[str, Any]) -> str:
        created.append(create(master, request))
        raise MasterUnreachableError(master.rest_url, "the connection broke", maybe_heard=True)

    monkeypatch.setattr(Master, "create", create_unheard)
    nowhere = Reservation(*cluster.options.master_urls, tag="of one that was never submitted", since_ms=0)
    earlier = {"spark": nowhere.about}
    lines: list[str] = []
    told: list[dict[str, Any]] = []
    with pytest.raises(SparkFailedError, match=r"^ValueError: seven is no number \(cluster_app\.py:\d+ in <module>\)$"):
        run_submit(
            APP,
            ["raise", str(tmp_path / "sign")],
            alone(cluster),
            log=lines.append,
            progress=told.append,
            earlier=earlier,
        )
    assert lines[0] == f"master {cluster.options.master}", "and none of Spark's own lines"
    assert not [line for line in lines if " INFO " in line or line.startswith("\tat ")]
    first, second = (Reservation.of(one) for one in told[:2])
    assert first is not None
    assert second is not None
    assert (first.driver, first.tag) == ("", second.tag), "its place is written down before it is taken"
    assert created == [second.driver], "found by its tag"
    assert cluster.master.status(second.driver).state == "FAILED"


def test_a_driver_that_has_to_stop_is_gone_within_two_seconds(
    cluster: Cluster, of_cluster: Marked, tmp_path: Path
) -> None:
    sign = tmp_path / "sign"
    asked: list[float] = []
    busy: list[str] = []

    def should_stop() -> bool:
        if sign.exists():
            asked.append(time.monotonic())
            busy.extend(pythons(of_cluster) if not busy else ())
        return sign.exists()

    with pytest.raises(SparkCancelledError, match=r"was stopped with its driver driver-"):
        run_submit(APP, ["wait", str(sign)], alone(cluster), should_stop=should_stop)
    assert busy, "there was a Python process to end"
    wait_until_sync(lambda: not pythons(of_cluster), "it to be gone")
    assert time.monotonic() - asked[0] < at_load(2)
    assert not [one for one in cluster.master.drivers() if one.state in ("RUNNING", "SUBMITTED")]


def test_a_driver_that_a_late_worker_kills_is_submitted_again_by_the_next_attempt(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A worker that was unreachable has lost its job, and ends what it believes to be its own."""
    is_lost = Event()
    kept: list[dict[str, Any]] = []
    told: list[dict[str, Any]] = []

    def run_late() -> None:
        words = ["wait", str(tmp_path / "sign")]
        with pytest.raises(SparkCancelledError):
            run_submit(APP, words, alone(cluster), should_stop=is_lost.is_set, progress=kept.append)

    late = Thread(target=run_late)
    late.start()
    wait_until_sync((tmp_path / "sign").exists, "the application to be at work", 240)
    found = Reservation.of(kept[-1])
    assert found is not None

    def should_stop() -> bool:
        is_lost.set()
        drivers = {one.driver for progress in told if (one := Reservation.of(progress))}
        return bool(drivers - {"", found.driver})

    with pytest.raises(SparkCancelledError, match=rf"with its driver (?!{found.driver})driver-"):
        run_submit(
            APP,
            ["wait", str(tmp_path / "again")],
            alone(cluster),
            should_stop=should_stop,
            progress=told.append,
            earlier=kept[-1],
        )
    late.join()
    assert cluster.master.status(found.driver).state == "KILLED"


@pytest.mark.parametrize(
    ("more", "application", "says"),
    [
        ({}, "/no/such/app.py", r"Driver driver-\S+ of .* 'app' did not start: .*NoSuchFileException"),
        (
            {"conf": {"spark.driver.cores": "many"}},
            str(APP),
            r"The master refused .*'cluster_app' \(Malformed request: .*\); correct its options",
        ),
        (
            {"rest_url": "http://127.0.0.1:9"},
            str(APP),
            r"The master .* is unreachable \(http://127\.0\.0\.1:9 does not answer",
        ),
    ],
    ids=["no such application", "bad property", "no such master"],
)
def test_what_the_cluster_cannot_run_is_said_in_one_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], application: str, says: str
) -> None:
    if "rest_url" in more:
        monkeypatch.setattr(running, "_AWAY_S", 0.5)
    told: list[dict[str, Any]] = []
    with pytest.raises(SparkFailedError, match=says) as failed:
        run_submit(application, ["x"], cluster.options.model_copy(update=more), progress=told.append)
    assert "\n" not in str(failed.value)
    assert not told or (Reservation.of(told[-1]) is None) == ("refused" in str(failed.value))


def test_a_driver_that_waits_for_the_cluster_is_over_its_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []

    def now() -> float:
        """Its time is over when it has a driver, however long a busy machine takes to submit it."""
        place = Reservation.of(told[-1]) if told else None
        return time.monotonic() + (3600 if place and place.driver else 0)

    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    more = {"memory": "64g", "timeout": timedelta(minutes=30)}
    with pytest.raises(SparkTimeoutError, match=r"took longer than 0:30:00 .* with its driver driver-"):
        run_submit(APP, ["x"], SparkSubmit.model_validate(cluster.options.model_dump() | more), progress=told.append)
    assert not [one for one in cluster.master.drivers() if one.state in ("RUNNING", "SUBMITTED")]
