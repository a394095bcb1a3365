"""Connect servers before any is started: addresses, limits, contradictions; and what a job prints and how far it is."""

from __future__ import annotations

import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError
from orchestration_queue.spark import ConnectServer, SparkOptions, spark_task
from orchestration_queue.spark.connect import address
from orchestration_queue.spark.connect.address import ServerState
from orchestration_queue.spark.connect.server import _startup_hint
from orchestration_queue.spark.connect.watching import printed_to
from orchestration_queue.spark.runtime import server_for


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "must be the address of a Spark Connect server"),
        ("spark://host:7077", "must be the address"),
        ("sc://", "must be the address"),
        ("sc://:15002", "must be the address"),
        ("sc://host:many", "must be the address"),
        ("sc://host:99999", "must be the address"),
        ("sc://host/path", "must be the address"),
        ("sc://host/;session_id=1", "must not name a session, because each job has its own"),
        ("sc://127.0.0.1:15002/;token=secret", "uses TLS unless the host is 'localhost'"),
        ("sc://[::1]:15002/;use_ssl=false;token=secret", "uses TLS unless the host is 'localhost'"),
    ],
)
def test_an_address_that_would_not_do_is_refused_without_its_secrets(url: str, says: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        ConnectServer(url=url)
    assert says in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sc://host", "host:15002"),
        ("sc://host:1/;user_id=me", "host:1"),
        ("sc://localhost:15002/;token=secret", "localhost:15002"),
        ("sc://127.0.0.1:15002/;use_ssl=true;token=secret", "127.0.0.1:15002"),
    ],
)
def test_an_address_is_kept_as_host_and_port(url: str, place: str) -> None:
    server = ConnectServer(url=url)
    assert server.lease_session("run").place == address.place(url) == place
    assert server.url_of(place) == url
    assert server.url_of("elsewhere:15002") is None


def test_a_master_that_does_not_answer_is_why_a_server_does_not_start(tmp_path: Path) -> None:
    assert _startup_hint(tmp_path) == ""
    (tmp_path / "p1").mkdir()
    log = tmp_path / "p1" / "server.log"
    log.write_text("WARN one\nWARN Caused by: java.net.ConnectException: Connection refused: host:7077\nINFO last\n")
    assert _startup_hint(tmp_path) == (
        " (its log says: WARN Caused by: java.net.ConnectException: Connection refused: host:7077)"
    )


@pytest.mark.parametrize("options", [{"max_jobs": 0}, {"max_jobs": -1}, {"max_memory_gib": 0.0}], ids=str)
def test_limits_under_which_no_server_could_serve_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=r"must be > 0, got .*; pass `max_\w+=100`, or None"):
        ConnectServer(**options)


@pytest.mark.parametrize(
    ("options", "quickly"),
    [(None, False), (SparkOptions(memory="2g"), False), (SparkOptions(quick_start=True), True)],
)
def test_java_compiles_well_on_a_server_unless_told_otherwise(options: SparkOptions | None, quickly: bool) -> None:
    assert ConnectServer(options).options.quick_start is quickly


def test_a_server_of_others_has_its_options_already() -> None:
    with pytest.raises(
        InvalidOptionError, match="`options` configure a server to start, but `url` names an existing one"
    ):
        ConnectServer(SparkOptions(), url="sc://host")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"runtime": "thread"}, "`runtime` must be 'connect' or 'process', got 'thread'"),
        ({"runtime": "process", "server": ConnectServer()}, "`server` needs runtime='connect', got runtime='process'"),
        (
            {"server": ConnectServer(), "options": SparkOptions(memory="2g")},
            r"SparkOptions.memory configures the server, but `server` is given; pass it to ConnectServer",
        ),
    ],
)
def test_contradictions_are_said_where_they_are_written(how: dict[str, Any], says: str) -> None:
    with pytest.raises(OrchestrationQueueError, match=says):
        spark_task(**how)


def test_tasks_that_name_no_server_share_those_of_equal_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert server_for(SparkOptions()) is server_for(SparkOptions(conf={"spark.sql.ansi.enabled": "false"}))
    assert server_for(SparkOptions(memory="2g")) is not server_for(SparkOptions())
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:1")
    assert server_for(SparkOptions(memory="2g")).url == "sc://host:1"


def test_a_local_servers_address_is_one_that_pyspark_speaks_plainly_to() -> None:
    url = ServerState("g", 4711, "token").url
    assert address.check_address(url) == url
    assert address.place(url) == "localhost:4711"


def test_each_thread_prints_to_its_own_log_and_other_threads_where_they_did(capsys: pytest.CaptureFixture[str]) -> None:
    together = threading.Barrier(2)

    def work(name: str) -> list[str]:
        lines: list[str] = []
        with printed_to(lines.append):
            together.wait(60)
            print(name, end="")  # noqa: T201 (what is printed is the test)
            print(" and", name + "\n\n" + name, flush=True)  # noqa: T201
            print("no end", end="")  # noqa: T201
        return lines

    with ThreadPoolExecutor(2) as pool:
        logs = list(pool.map(work, ["one", "two"]))
    assert logs == [["one and one", "one", "no end"], ["two and two", "two", "no end"]]
    with printed_to(logs[0].append):
        other = threading.Thread(target=contextvars.Context().run, args=(print, "elsewhere"))
        other.start()
        other.join()
    print("after")  # noqa: T201
    assert capsys.readouterr().out == "elsewhere\nafter\n"
    assert type(sys.stdout).__name__ != "_Output"


def test_a_line_without_end_is_given_out_in_pieces() -> None:
    lines: list[str] = []
    with printed_to(lines.append):
        print("x" * 40_000, end="")  # noqa: T201
        assert len(lines) == 2
    assert "".join(lines) == "x" * 40_000


def test_progress_never_falls_within_a_query() -> None:
    from pyspark.sql.connect.shell.progress import StageInfo

    from orchestration_queue.spark.connect.session import QueryProgress

    told: list[tuple[int, str]] = []
    progress = QueryProgress(lambda percent, text: told.append((percent, text)), every_s=0)

    def stage(tasks: int, completed: int) -> StageInfo:
        return StageInfo(stage_id=1, num_tasks=tasks, num_completed_tasks=completed, num_bytes_read=2048, done=False)

    progress(None, 0, "a", False)
    progress([stage(4, 2)], 2, "a", False)
    progress([stage(4, 2), stage(4, 0)], 4, "a", False)
    progress([stage(4, 4), stage(4, 4)], 0, "a", True)
    progress([stage(4, 1)], 3, "b", False)
    assert told == [
        (50, "query 1: 2 of 4 tasks, 2 running, 2.0 KiB read"),
        (50, "query 1: 2 of 8 tasks, 4 running, 4.0 KiB read"),
        (25, "query 2: 1 of 4 tasks, 3 running, 2.0 KiB read"),
    ]
