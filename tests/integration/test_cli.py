"""The command `oq`: what it prints, for people and for programs, and what its exit codes say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from orchestration_queue import __version__
from orchestration_queue.cli.main import app
from orchestration_queue.client import Queue
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.library import LIBRARIES
from tests.by_hand import HandWorker
from tests.processes import OQ, worker_process
from tests.waiting import wait_until_sync


class Oq:
    """Runs the command in this process, on one server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *arguments: str, answer: str | None = None) -> Result:
        # Wide, so that no table is cut.
        return CliRunner().invoke(app, arguments, answer, env={"OQ_URL": self._url, "COLUMNS": "200"})

    def json(self, *arguments: str) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture
def oq(server_url: str, raw: Any) -> Oq:
    return Oq(server_url)


def test_a_job_whose_data_are_no_json_is_shown(oq: Oq, queue_name: str, server_url: str) -> None:
    with Queue(queue_name, url=server_url, codec="msgpack") as queue:
        queue.add("n", {"raw": b"\x00", "at": datetime(2013, 1, 31, tzinfo=UTC)})
    shown = oq("job", "show", queue_name, "1")
    assert (shown.exit_code, "2013-01-31T00:00:00+00:00" in shown.stdout) == (0, True)
    assert oq.json("job", "show", queue_name, "1")["data"] == {"raw": "b'\\x00'", "at": "2013-01-31T00:00:00+00:00"}


def test_a_failed_job_shows_its_kind_and_traceback(oq: Oq, queue_name: str, raw: Any) -> None:
    oq("job", "add", queue_name, "send")
    noted = {
        "state": "failed",
        "failedReason": "boom",
        "failureKind": "error",
        "traceback": "a.py\n  raise [red]E",
    }
    raw.hset(QueueKeys(queue_name).job("1"), mapping=noted)
    shown = oq("job", "show", queue_name, "1").stdout
    for words in ("failure kind", "a.py", "  raise [red]E"):
        assert words in shown
    described = oq.json("job", "show", queue_name, "1")
    assert (described["failure_kind"], described["traceback"]) == ("error", noted["traceback"])


def test_a_job_is_added_and_shown(oq: Oq, queue_name: str, hand: HandWorker) -> None:
    added = oq("job", "add", queue_name, "send", "--data", '{"to": "[bold]zoë"}', "--attempts", "3")
    assert (added.exit_code, added.stdout) == (0, f"Added job 1 to queue {queue_name}.\n")
    held = hand.take()
    hand.log(held, "half [red]way")
    hand.complete(held, {"sent": True})
    shown = oq("job", "show", queue_name, "1")
    assert shown.exit_code == 0
    for words in (
        "send",
        "completed",
        '{"to": "[bold]zoë"}',
        '{"sent": true}',
        '{"attempts":3}',
        "half [red]way",
        "0 of 3",
    ):
        assert words in shown.stdout


def test_json_is_for_programs(oq: Oq, queue_name: str, hand: HandWorker) -> None:
    added = oq.json("job", "add", queue_name, "send", "--job-id", "mine", "--priority", "5", "--data", "[1]")
    assert added == {"queue": queue_name, "id": "mine", "is_new": True}
    assert oq.json("job", "add", queue_name, "send", "--job-id", "mine")["is_new"] is False
    assert oq("job", "add", queue_name, "send", "--job-id", "mine").stdout == "Job mine already exists.\n"
    hand.fail(hand.take(), "no such address")
    shown = oq.json("job", "show", queue_name, "mine")
    assert {
        name: shown[name] for name in ("id", "queue", "name", "state", "data", "priority", "failed_reason", "logs")
    } == {
        "id": "mine",
        "queue": queue_name,
        "name": "send",
        "state": "failed",
        "data": [1],
        "priority": 5,
        "failed_reason": "no such address",
        "logs": [],
    }
    assert shown["added_at"].endswith("+00:00")


def test_a_payload_of_another_serializer_is_shown_as_it_is(oq: Oq, queue_name: str, raw: Any) -> None:
    oq("job", "add", queue_name, "send")
    raw.hset(f"glide:{{{queue_name}}}:job:1", "data", "<xml/>")
    assert oq.json("job", "show", queue_name, "1")["data"] == "<xml/>"
    assert "<xml/>" in oq("job", "show", queue_name, "1").stdout


def test_queues_are_listed_with_their_counts(oq: Oq, queue_name: str, server_url: str) -> None:
    assert oq.json("queue", "ls") == []
    with Queue("a", url=server_url) as a, Queue("b", url=server_url) as b:
        a.add("work")
        b.pause()
    none = dict.fromkeys(("waiting", "active", "delayed", "completed", "failed", "suspended"), 0)
    assert oq.json("queue", "ls") == [
        {"queue": "a", **none, "waiting": 1, "paused": False},
        {"queue": "b", **none, "paused": True},
    ]
    lines = oq("queue", "ls").stdout.splitlines()
    assert lines[0].split() == ["queue", "waiting", "active", "delayed", "completed", "failed", "suspended"]
    assert [line.split() for line in lines[1:]] == [["a", *"100000"], ["b", *"000000", "paused"]]


def test_another_prefix_is_another_world(oq: Oq, queue_name: str, server_url: str) -> None:
    oq("job", "add", queue_name, "send", "--prefix", "other")
    assert oq.json("queue", "ls") == []
    assert [row["queue"] for row in oq.json("queue", "ls", "--prefix", "other")] == [queue_name]
    in_environment = CliRunner().invoke(
        app, ["queue", "ls", "--json"], env={"OQ_URL": server_url, "OQ_PREFIX": "other"}
    )
    assert [row["queue"] for row in json.loads(in_environment.stdout)] == [queue_name]


def test_the_library_is_dumped_exactly_and_needs_no_server(oq: Oq) -> None:
    for library in LIBRARIES:
        dumped = CliRunner().invoke(app, ["library", "dump", library.name], env={"OQ_URL": "redis://localhost:1"})
        assert dumped.exit_code == 0
        assert dumped.stdout == library.text


def test_the_librarys_status_is_looked_up_and_nothing_loaded(oq: Oq, queue_name: str, raw: Any) -> None:
    raw.function_flush()
    rows = oq.json("library", "status")
    assert [(row["library"], row["server"], row["on_connect"]) for row in rows] == [
        (library.name, None, "load") for library in LIBRARIES
    ]
    assert raw.function_list() == []
    oq("job", "add", queue_name, "send")
    assert [(row["server"], row["on_connect"]) for row in oq.json("library", "status")] == [
        (library.version, "keep") for library in LIBRARIES
    ]
    assert "glidemq" in oq("library", "status").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["job", "add", "a:b", "n"], 2, "Queue name 'a:b' contains ':'"),
        (["job", "add", "q", "n", "--data", "{"], 2, "The data '{' is not JSON"),
        (["job", "add", "q", "n", "--delay", "-1"], 2, "greater than or equal to 0 seconds"),
        (["job", "add", "q", "n", "--delay", "nan"], 2, "given nan"),
        (["job", "add", "q", "n", "--priority", "2049"], 2, "less than or equal to 2048"),
        (["job", "add", "q", "n", "--job-id", "a{b"], 2, "Job id 'a{b' contains '{'"),
        (["job", "add", "q", "n", "--delay", "soon"], 2, "see `oq job add --help`"),
        (["job", "add", "q"], 2, "see `oq job add --help`"),
        (["job", "ad"], 2, "see `oq job --help`"),
        (["jobs"], 2, "see `oq --help`"),
        (["job", "add", "q", "n", "--speed", "9"], 2, "see `oq job add --help`"),
        (["job", "show", "q", "nix"], 3, "Queue 'q' is unknown on this server; `oq queue ls` lists"),
        (["flow", "tree", "q", "nix"], 3, "Queue 'q' is unknown"),
        (["library", "dump", "nix"], 2, "Library 'nix' is unknown"),
        (["queue", "ls", "--url", "http://x"], 2, "The server URL 'http://x' cannot be read"),
        (["worker", "nix", "--queue", "q"], 2, "write module:object"),
        (["worker", "no_such_module:x", "--queue", "q"], 2, "cannot be imported"),
        (["worker", "os:nix", "--queue", "q"], 2, "has no 'nix'"),
        (["worker", "os:sep", "--queue", "q"], 2, "runs no jobs"),
        (["worker", "builtins:repr", "--queue", "q", "--concurrency", "0"], 2, "concurrency"),
        (
            ["worker", "builtins:repr", "--queue", "q", "--log-level", "loud"],
            2,
            "`--log-level` must be debug, info, warning or error, got 'loud'",
        ),
        (["worker", "builtins:repr"], 2, "pass --queue"),
        (["worker", "builtins:repr", "--queue", "q", "--metrics-port", "70000"], 2, "metrics-port"),
        (["chasqui", "worker", "q", "builtins:repr", "--rate", "0"], 2, "greater than 0"),
        (["chasqui", "worker", "q", "builtins:repr", "--rate", "-1"], 2, "greater than 0"),
        (["chasqui", "worker", "q", "builtins:repr", "--rate", "5", "--per", "0"], 2, "RateLimit.duration"),
        (["chasqui", "worker", "q", "builtins:repr", "--rate", "5", "--per", "nan"], 2, "given nan"),
        (["chasqui", "worker", "q", "builtins:repr", "--per", "60"], 2, "pass --rate too"),
        (["chasqui", "worker", "q", "builtins:repr", "--rate", "many"], 2, "`oq chasqui worker --help`"),
        (["qless", "worker", "q", "--handler", "builtins:repr", "--rate", "0"], 2, "greater than 0"),
        (["qless", "worker", "q", "--handler", "builtins:repr", "--rate", "-1"], 2, "greater than 0"),
        (["qless", "worker", "q", "--handler", "builtins:repr", "--rate", "5", "--per", "0"], 2, "RateLimit.duration"),
        (["qless", "worker", "q", "--handler", "builtins:repr", "--rate", "5", "--per", "nan"], 2, "given nan"),
        (["qless", "worker", "q", "--handler", "builtins:repr", "--per", "60"], 2, "pass --rate too"),
        (["qless", "worker", "q", "--handler", "builtins:repr", "--rate", "many"], 2, "`oq qless worker --help`"),
    ],
)
def test_errors_are_one_sentence_with_a_telling_code_and_nothing_is_written(
    oq: Oq, raw: Any, arguments: list[str], code: int, says: str
) -> None:
    result = oq(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert raw.dbsize() == 0


def test_an_unreachable_server_is_4_and_a_failed_or_late_job_is_1(oq: Oq, queue_name: str, tmp_path: Path) -> None:
    away = oq("queue", "ls", "--url", f"unix://{tmp_path}/absent.sock")
    assert (away.exit_code, away.stdout) == (4, "")
    assert away.stderr.startswith("Cannot reach the server at unix://")
    late = oq("job", "add", queue_name, "send", "--wait", "0.05")
    assert (late.exit_code, late.stdout) == (1, "")
    assert "is still waiting after 0.05 s" in late.stderr


def test_help_and_version(oq: Oq) -> None:
    assert oq("--version").stdout == f"{__version__}\n"
    for noun in ((), ("queue",), ("job",), ("dead",), ("flow",), ("scheduler",), ("library",)):
        assert oq(*noun, "--help").exit_code == 0
        assert "Usage" in oq(*noun).stdout


def test_the_help_of_workers_shows_the_short_form_and_its_options(oq: Oq) -> None:
    for words in (("worker", "--help"), ("worker",)):
        shown = oq(*words).stdout
        assert "oq worker module:tasks --queue mail" in shown
        assert all(option in shown for option in ("--concurrency", "--drain", "--reload"))
        assert "Change the concurrency of workers." in shown


def commands() -> list[list[str]]:
    """Every command, as its words."""
    return list(_verbs(get_command(app), []))


def _verbs(command: Any, words: list[str]) -> Iterator[list[str]]:
    verbs = getattr(command, "commands", None)
    if verbs is None:
        yield words
        return
    for name, verb in verbs.items():
        yield from _verbs(verb, [*words, name])


def test_every_option_is_read_from_the_environment() -> None:
    for command in commands():
        help_text = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "400", "NO_COLOR": "1"}).stdout
        for line in help_text.splitlines():
            if (option := re.match(r"│ [* ]*(--[a-z-]+)", line)) and option[1] != "--help":
                assert re.search(r"\[env var: OQ_[A-Z_]+\]", line), (command, line)


def test_the_environment_stands_in_for_options(oq: Oq, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        oq("job", "add", queue_name, "send")
    monkeypatch.setenv("OQ_JOB_LS_LIMIT", "2")
    monkeypatch.setenv("OQ_JSON", "1")
    assert len(json.loads(oq("job", "ls", queue_name).stdout)) == 2
    assert len(json.loads(oq("job", "ls", queue_name, "--limit", "3").stdout)) == 3
    monkeypatch.setenv("OQ_VERSION", "1.2.3")
    assert json.loads(oq("queue", "ls").stdout)[0]["waiting"] == 3


@pytest.mark.parametrize(
    ("words", "place", "offered"),
    [
        ("oq que", 1, "queue"),
        ("oq queue obl", 2, "obliterate"),
        ("oq worker run --pol", 3, "--polling"),
        ("oq worker pipeline:tasks --polling ", 4, "ordered round-robin"),
    ],
)
def test_a_shell_completes_nouns_verbs_options_and_their_values(words: str, place: int, offered: str) -> None:
    asked = {"_OQ_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    said = subprocess.run([OQ], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout.split()) == (0, offered.split())


TASKS = """
import os, time
from orchestration_queue.tasks import Tasks
tasks = Tasks()

@tasks.task
def double(n: int) -> int:
    return 2 * n

@tasks.task
def where() -> int:
    return os.getpid()

def handler(job):
    return job.data
"""


def oq_process(*arguments: str, url: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [OQ, *arguments], cwd=directory, env={**os.environ, "OQ_URL": url}, text=True, capture_output=True, timeout=90
    )


def test_a_worker_process_runs_tasks_of_the_working_directory_and_leaves_on_sigterm(
    server_url: str, queue_name: str, raw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    with worker_process("mine:tasks", queue_name, server_url, "--concurrency", "2") as worker:
        added = oq_process(
            "job",
            "add",
            queue_name,
            "double",
            "--data",
            '{"n": 21}',
            "--wait",
            "60",
            url=server_url,
            directory=tmp_path,
        )
        assert (added.returncode, added.stdout, added.stderr) == (0, "42\n", "")
        with Queue(queue_name, url=server_url) as queue:
            assert queue.add("where", {}).wait(60) == worker.pid
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    missing = oq_process("job", "show", queue_name, "nix", url=server_url, directory=tmp_path)
    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr.startswith(f"Queue '{queue_name}' has no job 'nix'")


def test_a_worker_process_takes_one_function_for_all_jobs_and_leaves_on_ctrl_c(
    server_url: str, queue_name: str, raw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    with worker_process("mine:handler", queue_name, server_url) as worker:
        with Queue(queue_name, url=server_url) as queue:
            assert queue.add("anything", [1, 2]).wait(60) == [1, 2]
        worker.send_signal(signal.SIGINT)
        assert worker.wait(60) == 0


def test_importing_the_package_is_cheap_and_brings_no_integration() -> None:
    program = "import sys, orchestration_queue; print(*sorted(sys.modules))"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=100).split()
    assert not {"dagster", "pyspark", "redis", "pydantic", "typer"} & set(loaded)
    program = "import sys, orchestration_queue.client, orchestration_queue.worker; print(*sorted(sys.modules))"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=100).split()
    assert not {"dagster", "pyspark", "typer", "rich"} & set(loaded)


def test_a_name_that_no_worker_knows_is_warned_of(
    oq: Oq, queue_name: str, server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    assert oq("job", "add", queue_name, "dubble").stderr == "", "there is no worker yet"
    with Queue(queue_name, url=server_url) as queue, worker_process("mine:tasks", queue_name, server_url):
        wait_until_sync(lambda: queue.workers(), "the worker to register")
        assert oq("job", "add", queue_name, "where").stderr == ""
        assert oq("job", "add", queue_name, "where", "--backoff", "exponential:2").stderr == ""
        assert oq("job", "add", queue_name, "where", "--attempts", "3", "--backoff", "mine:2").stderr == (
            f"No live worker of queue '{queue_name}' has a strategy 'mine', so the job's retries wait for its plain "
            "delay; use fixed or exponential, or start workers with that strategy.\n"
        )
        assert oq("job", "add", queue_name, "dubble").stderr.endswith("; did you mean 'double'?\n")
        unlike = oq("job", "add", queue_name, "nix")
        assert unlike.exit_code == 0
        assert unlike.stderr == (
            f"No live worker of queue '{queue_name}' has a task 'nix', so the job will fail with them; "
            "they have double, where.\n"
        )
        with worker_process("builtins:repr", queue_name, server_url):
            wait_until_sync(lambda: len(queue.workers()) == 2, "a worker that runs any job")
            assert oq("job", "add", queue_name, "nix").stderr == ""


def test_a_worker_waits_for_its_first_job(server_url: str, queue_name: str, raw: Any, tmp_path: Path) -> None:
    with worker_process("builtins:repr", queue_name, server_url) as worker:
        wait_until_sync(lambda: list(raw.scan_iter(f"glide:{{{queue_name}}}:w:*")), "the worker to register", 60)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert not list(raw.scan_iter(f"glide:{{{queue_name}}}:w:*"))


def test_an_unknown_queue_is_3_and_the_closest_is_named(oq: Oq, raw: Any) -> None:
    oq("job", "add", "ingest", "n")
    before = set(raw.scan_iter("*"))
    for command in (
        ["queue", "show"],
        ["job", "ls"],
        ["dead", "ls"],
        ["scheduler", "ls"],
        ["worker", "ls"],
        ["doctor"],
    ):
        result = oq(*command, "ingset")
        assert (result.exit_code, result.stdout) == (3, ""), command
        assert result.stderr.startswith("Queue 'ingset' is unknown on this server; did you mean 'ingest'?")
    assert set(raw.scan_iter("*")) == before
    assert oq("queue", "pause", "later").exit_code == 0, "a queue can be paused before its first job"


def test_a_worker_names_the_line_at_which_its_module_fails(oq: Oq, tmp_path: Path) -> None:
    (tmp_path / "oqt_broken.py").write_text("import oqt_nowhere\n")
    result = oq("worker", f"{tmp_path}/oqt_broken.py:tasks", "--queue", "q")
    assert result.exit_code == 2
    frames, _, sentence = result.stderr.rstrip("\n").rpartition("\n")
    assert f'File "{tmp_path}/oqt_broken.py", line 1' in frames
    assert "importlib" not in frames
    assert "No module named 'oqt_nowhere'" in sentence
