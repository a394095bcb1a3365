"""Applications on YARN, Kubernetes and by Livy: one for each job, whatever is killed, and none without its job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, SparkCancelledError, SparkFailedError, SparkTimeoutError
from orchestration_queue.spark import SparkSubmit, run_submit
from orchestration_queue.spark.submit import attempt as attempts
from orchestration_queue.spark.submit.livy import Livy
from orchestration_queue.spark.submit.trackers import KubernetesTracker, find_tracker
from tests.spark.wires import KINDS, Wire, wire
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.timeout(300)

APP = "local:///opt/app.py"
IDS = {"yarn": "application_1_0001", "kubernetes": "app-1-driver", "livy": "1"}
ABOUT = {
    "yarn": {"application": IDS["yarn"], "ui": f"http://proxy/{IDS['yarn']}"},
    "kubernetes": {"driver": IDS["kubernetes"], "application": "spark-1"},
    "livy": {"batch": "1", "application": "application_9"},
}


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Wire]:
    with wire(request.param, tmp_path) as server:
        yield server


@pytest.fixture
def livy(tmp_path: Path) -> Iterator[Wire]:
    with wire("livy", tmp_path) as server:
        yield server


class Watched:
    """What an attempt tells, and when it is told to stop."""

    def __init__(self, cluster: Wire) -> None:
        self.cluster = cluster
        self.told: list[dict[str, Any]] = []
        self.apps_when_told: list[int] = []
        self.lines: list[str] = []

    def progress(self, told: dict[str, Any]) -> None:
        self.told.append(told)
        self.apps_when_told.append(len(self.cluster.apps))

    def run(self, home: Path, **more: Any) -> dict[str, Any]:
        options = {name: more.pop(name) for name in list(more) if name in SparkSubmit.model_fields}
        return run_submit(
            APP,
            ["7"],
            self.cluster.options(home, **options),
            log=self.lines.append,
            progress=self.progress,
            job_id="j-1",
            **more,
        )


def later(work: Any, cluster: Wire) -> threading.Thread:
    """Do something as soon as the cluster has an application."""

    def wait() -> None:
        wait_until_sync(lambda: bool(cluster.apps), "an application")
        work(cluster.app)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def end(cluster: Wire, state: str, **more: Any) -> threading.Thread:
    return later(lambda app: app.__dict__.update({**more, "state": state}), cluster)


def test_an_application_carries_a_tag_that_was_written_down_before(cluster: Wire, tmp_path: Path) -> None:
    watched = Watched(cluster)
    ending = end(cluster, "succeeded", log=["counted 7"])
    result = watched.run(tmp_path, conf={"spark.yarn.tags": "mine"} if cluster.kind == "yarn" else {})
    ending.join()
    assert result == {"exit_code": 0, **ABOUT[cluster.kind]}
    kept = watched.told[0]["spark"]["submission"]
    assert watched.apps_when_told[0] == 0, "before anything was submitted"
    assert kept["tag"] in cluster.app.tag
    assert (kept["kind"], kept["url"]) == (cluster.kind, cluster.url)
    request = cluster.app.request
    if cluster.kind == "livy":
        assert (request["file"], request["args"], request["driverMemory"]) == (APP, ["7"], "1g")
        assert request["conf"]["spark.orchestration_queue.job"] == "j-1"
        assert cluster.headers[0]["X-Requested-By"]
    else:
        assert (request["spark.submit.deployMode"], request["spark.orchestration_queue.job"]) == ("cluster", "j-1")
    if cluster.kind == "yarn":
        assert request["spark.yarn.tags"] == f"mine,{kept['tag']}"
    else:
        assert "counted 7" in watched.lines


def test_the_application_of_a_killed_worker_is_found_and_followed(cluster: Wire, tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    options = cluster.options(tmp_path).model_dump_json(exclude_unset=True)
    program = (
        "import json, sys\nfrom pathlib import Path\nfrom orchestration_queue.spark import SparkSubmit, run_submit\n"
        f"options = SparkSubmit.model_validate_json({options!r})\n"
        f"run_submit({APP!r}, [], options, progress=lambda told: Path({str(file)!r}).write_text(json.dumps(told)))\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], env=os.environ, stderr=subprocess.DEVNULL)
    try:
        wait_until_sync(lambda: bool(cluster.apps), "the application to be submitted", 240)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait(60)
    watched = Watched(cluster)

    def succeed(app: Any) -> None:
        wait_until_sync(lambda: bool(watched.told), "the next attempt to follow")
        app.state = "succeeded"

    ending = later(succeed, cluster)
    result = watched.run(tmp_path, earlier=json.loads(file.read_text()))
    ending.join()
    assert result == {"exit_code": 0, **ABOUT[cluster.kind]}
    assert watched.lines[0].startswith(f"found {IDS[cluster.kind]} of an earlier attempt, which is ")
    assert cluster.app.state == "succeeded", "one application, followed to its end"
    # And when its end was not written down either: the next attempt finds that it has succeeded.
    assert watched.run(tmp_path, earlier=watched.told[-1]) == result
    assert len(cluster.apps) == 1


@pytest.mark.parametrize("left", ["failed", "gone", "of another cluster", "nonsense"])
def test_what_cannot_be_followed_is_submitted_again(cluster: Wire, tmp_path: Path, left: str) -> None:
    kept: Any = {"kind": cluster.kind, "url": cluster.url, "tag": "t1"}
    if left == "failed":
        cluster.submit("t1", {"name": "app-t1"}).state = "failed"
    elif left == "of another cluster":
        kept["kind"] = "mesos"
    elif left == "nonsense":
        kept = {"kind": cluster.kind, "tag": 7}
    cluster.template = {"state": "succeeded"}
    watched = Watched(cluster)
    result = watched.run(tmp_path, earlier={"spark": {"submission": kept}})
    assert result["exit_code"] == 0
    assert len(cluster.apps) == 1 + (left == "failed")


def test_an_application_that_a_late_worker_ends_is_submitted_again_by_the_next_attempt(
    cluster: Wire, tmp_path: Path
) -> None:
    """A worker that was unreachable has lost its job, and ends what it believes to be its own."""
    cluster.submit("t1", {"name": "app-t1"})
    cluster.template = {"state": "succeeded"}
    watched = Watched(cluster)
    tracker = Livy.at(cluster.url) if cluster.kind == "livy" else find_tracker(cluster.options(tmp_path))
    assert tracker is not None

    def kill_late(app: Any) -> None:
        wait_until_sync(lambda: bool(watched.told), "the next attempt to follow")
        tracker.kill(app.id)

    killing = later(kill_late, cluster)
    result = watched.run(tmp_path, earlier={"spark": {"submission": {"kind": cluster.kind, "tag": "t1"}}})
    killing.join()
    assert result["exit_code"] == 0
    assert f"{IDS[cluster.kind]} of an earlier attempt was killed by others; submitting it again" in watched.lines
    assert [app.state for app in cluster.apps.values() if app.tag != "t1"] == ["succeeded"]


@pytest.mark.parametrize("why", ["cancelled", "timeout"])
def test_an_application_that_has_to_stop_is_ended_where_it_runs(cluster: Wire, tmp_path: Path, why: str) -> None:
    watched = Watched(cluster)
    expected = SparkCancelledError if why == "cancelled" else SparkTimeoutError
    cluster.template = {"waits": False}  # its spark-submit leaves, so that the application alone is left to be ended
    more = {"timeout": timedelta(seconds=15)} if why == "timeout" else {}
    with pytest.raises(expected, match=r"'app' (was asked to stop|took longer than 0:00:15)"):
        watched.run(tmp_path, should_stop=lambda: why == "cancelled" and len(watched.told) > 1, **more)
    ended = {"yarn": "PUT /ws", "kubernetes": "DELETE /api", "livy": "DELETE /batches"}
    if why == "cancelled":  # on a slow machine its time is over before it is there
        assert [words for words in cluster.asked if words.startswith(ended[cluster.kind])]
    assert not [app for app in cluster.apps.values() if app.state == "running"]


def test_a_spark_submit_that_is_stopped_takes_its_application_along(cluster: Wire, tmp_path: Path) -> None:
    watched = Watched(cluster)
    with pytest.raises(SparkCancelledError, match="'app' was asked to stop"):
        watched.run(tmp_path, should_stop=lambda: bool(cluster.apps))
    assert not [app for app in cluster.apps.values() if app.state == "running"]


def test_an_application_outlives_a_spark_submit_that_lost_sight_of_it(tmp_path: Path) -> None:
    with wire("yarn", tmp_path) as cluster:
        cluster.template = {"waits": False, "code": 1}
        watched = Watched(cluster)

        def succeed(app: Any) -> None:
            wait_until_sync(lambda: len(watched.told) > 1, "it to be followed")
            app.state = "succeeded"

        ending = later(succeed, cluster)
        assert watched.run(tmp_path)["exit_code"] == 0
        ending.join()
        assert "submitted application_1_0001" in watched.lines
        assert watched.told[-1]["text"] == "application_1_0001: RUNNING, 10 %"


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        (
            "yarn",
            {"message": "User class threw\n exception: no"},
            r"failed as application_1_0001 \(FINISHED, FAILED\): Us",
        ),
        ("kubernetes", {}, r"'app' failed as app-1-driver \(Failed\): Error, exit code 7$"),
        ("kubernetes", {"log": ["Traceback (most recent call last):", "KeyError: 'x'"]}, r"^KeyError: 'x'$"),
        ("livy", {"log": ["\tat a.b(C.java)", "Error: no such file"]}, r"^Error: no such file$"),
        ("livy", {}, r"^Spark application 'app' failed as 1 \(dead\)$"),
    ],
)
def test_why_one_failed_is_said_in_one_line(kind: str, more: dict[str, Any], says: str, tmp_path: Path) -> None:
    with wire(kind, tmp_path) as cluster:
        ending = end(cluster, "failed", **more)
        with pytest.raises(SparkFailedError, match=says) as failed:
            Watched(cluster).run(tmp_path)
        ending.join()
    assert "\n" not in str(failed.value)


def test_an_application_that_its_cluster_forgot_is_said_to_be_gone(cluster: Wire, tmp_path: Path) -> None:
    cluster.template = {"waits": False}
    watched = Watched(cluster)

    def forget(_: Any) -> None:
        wait_until_sync(lambda: len(watched.told) > 1, "it to be followed")
        cluster.apps.clear()

    forgetting = later(forget, cluster)
    with pytest.raises(SparkFailedError, match=r"no longer knows \S+ of Spark application 'app'"):
        watched.run(tmp_path)
    forgetting.join()


def test_a_batch_whose_reply_was_lost_is_found_by_its_name(livy: Wire, tmp_path: Path) -> None:
    livy.unheard, livy.template = 1, {"state": "succeeded"}
    for number in range(150):
        livy.submit(f"{number}", {"name": f"other-{number}"})
    assert Watched(livy).run(tmp_path)["batch"] == "151"
    assert len(livy.apps) == 151


def test_a_cluster_that_will_not_answer_is_named(
    cluster: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "_AWAY_S", 0.5)
    earlier = {"spark": {"submission": {"kind": cluster.kind, "tag": "t1"}}}
    cluster.refuses = (403, "pods is forbidden")
    with pytest.raises(
        SparkFailedError, match=r"cannot be followed \(.*HTTP 403: .*forbidden.*\); give this worker access"
    ):
        Watched(cluster).run(tmp_path, earlier=earlier)
    cluster.refuses = (503, "come back")
    with pytest.raises(SparkFailedError, match=r"is unreachable \(.*HTTP 503: .*\), and may run a driver of this job"):
        Watched(cluster).run(tmp_path, earlier=earlier)
    assert not cluster.apps, "rather tried again than run twice"


def test_what_livy_refuses_is_not_looked_for_again(livy: Wire, tmp_path: Path) -> None:
    livy.refuses = (400, "Blacklisted configuration values")
    watched = Watched(livy)
    with pytest.raises(
        SparkFailedError, match=r"^Livy refused Spark application 'app' \(.*HTTP 400: .*correct its opt"
    ):
        watched.run(tmp_path)
    assert watched.told[-1] == {"percent": 0, "text": "not submitted", "spark": {}}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"master": "yarn"}, "livy_url excludes master, because Livy has its own, got 'yarn'; remove one"),
        ({"env": {"A": "b"}}, r"SparkSubmit\.env has no effect on a driver that Livy starts; set properties"),
        ({"keytab": "k", "principal": "p"}, r"SparkSubmit\.principal has no effect"),
    ],
)
def test_options_that_livy_cannot_keep_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        SparkSubmit(livy_url="http://livy:8998", **options).complete()


def test_kubernetes_is_asked_as_spark_submit_asks_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    conf = {
        "spark.kubernetes.authenticate.submission.oauthTokenFile": str(token),
        "spark.kubernetes.namespace": "etl",
    }
    options = SparkSubmit(master="k8s://host:6443", deploy_mode="cluster", conf=conf)
    tracker = find_tracker(options)
    assert isinstance(tracker, KubernetesTracker)
    assert (tracker.url, tracker.namespace) == ("https://host:6443", "etl")
    assert tracker.server.headers == {"Authorization": "Bearer secret"}
    assert "secret" not in repr(tracker)
    assert find_tracker(options.model_copy(update={"conf": {}})) is None, "nothing says how to be let in"
    bad = {"spark.kubernetes.authenticate.submission.caCertFile": str(tmp_path / "none"), **conf}
    with pytest.raises(InvalidOptionError, match="Cannot read a file that"):
        find_tracker(options.model_copy(update={"conf": bad}))
