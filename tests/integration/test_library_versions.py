"""Our own libraries and others under their names: which one stays, and that queues work on whichever it is.

That a library is loaded, kept or replaced by its version, byte for byte, is tested with small ones in
``test_connection.py``; here are the real ones.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from subprocess import PIPE

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.doctor import run_checks
from orchestration_queue.doctor.libraries import BUNDLED
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.protocol.library import LIBRARIES, Library
from orchestration_queue.server import Connection
from orchestration_queue.wires.chasquimq.keys import LIBRARY as CHASQUIMQ
from orchestration_queue.wires.qless.commands import LIBRARY as QLESS
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.integration.test_cli import Oq
from tests.nodes import Node, Nodes
from tests.waiting import wait_until

SOON = timedelta(seconds=60)
QUICK = WorkerOptions(concurrency=2, promotion_interval=timedelta(milliseconds=50), drain=timedelta(seconds=5))
GLIDEMQ = LIBRARIES[0]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("versions")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def node(nodes: Nodes) -> Node:
    return nodes.start()


@pytest.fixture
def url(node: Node) -> str:
    """A server without functions."""
    node.ask("FUNCTION", "FLUSH")
    return f"redis://127.0.0.1:{node.port}"


def revision(number: int) -> str:
    """A text of ours with another number."""
    text, changed = re.subn(r'local REVISION = "\d+"', f'local REVISION = "{number}"', GLIDEMQ.text)
    assert changed == 1
    return f"{text}\n-- Another release.\n"


def unnumbered(version: int) -> str:
    """A text of ours from before they had numbers: it answers the same whatever it is asked."""
    text, changed = re.subn(r'return "93(\." \.\. REVISION|")', f'return "{version}"', GLIDEMQ.text)
    assert changed == 2
    return text


def upstream(version: int) -> str:
    """A text like glide-mq's own: the same functions in words that aren't ours."""
    first, ours, rest = unnumbered(version).split("\n", 2)
    assert "bundle_lua" in ours
    return f"{first}\n\n{rest}"


REVISION = int(GLIDEMQ.version.partition(".")[2])


def loaded(raw: redis.Redis) -> str:
    return str(raw.function_list(library="glidemq", withcode=True)[0][-1])


async def run_jobs(url: str, name: str) -> None:
    """Some jobs of a queue, from adding to their results: at once, by priority, late, and retried."""

    async def work(job: AsyncActiveJob) -> int:
        if job.attempt < int(job.data["attempts"]):
            raise ValueError("once more")
        return int(job.data["n"])

    options = [
        JobOptions(),
        JobOptions(priority=3),
        JobOptions(delay=timedelta(milliseconds=50)),
        JobOptions(attempts=2),
        JobOptions(lifo=True),
    ]
    worker = Worker(name, work, url=url, options=QUICK)
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue(name, url=url) as queue:
        jobs = [
            await queue.add("work", {"n": number, "attempts": each.attempts or 1}, each)
            for number, each in enumerate(options)
        ]
        assert [await job.wait(SOON) for job in jobs] == list(range(len(options)))
    worker.stop()
    await asyncio.wait_for(running, 60)


@pytest.mark.parametrize("theirs", [upstream(92), upstream(93), upstream(94)], ids=["92", "93", "94"])
async def test_glide_mq_s_own_library_stays_and_works(url: str, node: Node, queue_name: str, theirs: str) -> None:
    node.raw.function_load(theirs)
    await run_jobs(url, queue_name)
    assert loaded(node.raw) == theirs


@pytest.mark.parametrize("theirs", [revision(REVISION), revision(REVISION + 1)], ids=["the same", "newer"])
async def test_a_library_that_is_not_older_stays_and_works(url: str, node: Node, queue_name: str, theirs: str) -> None:
    node.raw.function_load(theirs)
    await run_jobs(url, queue_name)
    assert loaded(node.raw) == theirs


@pytest.mark.parametrize("theirs", [revision(REVISION - 1), unnumbered(93)], ids=["older", "without a number"])
async def test_an_older_library_of_ours_is_replaced(url: str, node: Node, queue_name: str, theirs: str) -> None:
    node.raw.function_load(theirs.replace("glidemq_signal", "glidemq_signalled"))
    await run_jobs(url, queue_name)
    assert loaded(node.raw) == GLIDEMQ.text


def test_a_user_who_may_not_read_libraries_keeps_one_without_a_number(url: str, node: Node) -> None:
    theirs = unnumbered(93)
    node.raw.function_load(theirs)
    node.ask("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-function|list")
    with Connection.open(url.replace("//", "//reader:secret@")):
        assert loaded(node.raw) == theirs


SHOWN = {
    "nothing": ("", None, None, "load", [("hint", "is missing")]),
    "ours": (revision(REVISION), f"93.{REVISION}", "orchestration_queue", "keep", []),
    "newer": (revision(REVISION + 1), f"93.{REVISION + 1}", "orchestration_queue", "keep", []),
    "older": (
        revision(REVISION - 1),
        f"93.{REVISION - 1}",
        "orchestration_queue",
        "replace",
        [("hint", f"is of an older release: its version is 93.{REVISION - 1}, this release's 93.{REVISION}")],
    ),
    "without a number": (
        unnumbered(93),
        "93",
        "orchestration_queue",
        "replace",
        [("hint", f"is of an older release: its version is 93, this release's 93.{REVISION}")],
    ),
    "glide-mq's": (upstream(93), "93", "glide-mq", "keep", [("hint", "is glide-mq's own, of version 93")]),
    "glide-mq's older": (upstream(92), "92", "glide-mq", "keep", [("problem", "is glide-mq's own, of version 92")]),
}


@pytest.mark.parametrize("case", SHOWN)
def test_it_is_shown_whose_text_a_server_has_and_what_connecting_changes(url: str, node: Node, case: str) -> None:
    source, version, owner, step, findings = SHOWN[case]
    if source:
        node.raw.function_load(source)
    row, other = Oq(url).json("library", "status")
    assert row == {
        "node": row["node"],
        "library": "glidemq",
        "ours": GLIDEMQ.version,
        "server": version,
        "loaded_by": owner,
        "on_connect": step,
    }
    assert (other["library"], other["loaded_by"]) == ("orchestration_queue_1", None)
    subject = "The function library glidemq "
    found = [(each.severity.value, each.what) for each in run_checks(url, []) if each.what.startswith(subject)]
    assert found == [(severity, subject + what) for severity, what in findings]
    assert node.libraries == ({"glidemq"} if source else set())  # nothing was loaded


def test_a_text_of_unknown_origin_is_shown_kept_and_replaced_when_asked(url: str, node: Node) -> None:
    own = LIBRARIES[1]
    theirs = own.text.replace("python tools/bundle_lua.py", "hand", 1)
    node.raw.function_load(theirs)
    row = Oq(url).json("library", "load")[1]
    assert (row["server"], row["loaded_by"], row["on_connect"]) == (own.version, "unknown", "keep")
    (finding,) = [each for each in run_checks(url, []) if "is not this package's" in each.what]
    assert own.name in finding.what
    row = Oq(url).json("library", "load", "--foreign")[1]
    assert (row["server"], row["loaded_by"]) == (own.version, "orchestration_queue")


def test_glide_mq_s_own_library_is_replaced_only_when_asked(url: str, node: Node) -> None:
    theirs = upstream(94)
    node.raw.function_load(theirs)
    assert [row["loaded_by"] for row in Oq(url).json("library", "load")] == ["glide-mq", "orchestration_queue"]
    assert loaded(node.raw) == theirs
    assert {row["loaded_by"] for row in Oq(url).json("library", "load", "--foreign")} == {"orchestration_queue"}
    assert loaded(node.raw) == GLIDEMQ.text


def test_a_newer_text_of_ours_is_never_replaced(url: str, node: Node) -> None:
    theirs = revision(REVISION + 1)
    node.raw.function_load(theirs)
    assert Oq(url).json("library", "load", "--foreign")[0]["server"] == f"93.{REVISION + 1}"
    assert loaded(node.raw) == theirs


@pytest.mark.parametrize("library", [CHASQUIMQ, QLESS], ids=["chasquimq", "qless"])
def test_libraries_of_other_wires_are_brought_up_to_date_where_they_are_loaded(
    url: str, node: Node, library: Library
) -> None:
    assert [row["library"] for row in Oq(url).json("library", "load")] == [each.name for each in LIBRARIES]
    node.raw.function_load(re.sub(r'local REVISION = "\d+"', 'local REVISION = "1"', library.text))
    (row,) = [row for row in Oq(url).json("library", "status") if row["library"] == library.name]
    assert (row["server"], row["loaded_by"], row["on_connect"]) == ("1", "orchestration_queue", "replace")
    (finding,) = [each for each in run_checks(url, []) if library.name in each.what]
    assert finding.fix is not None
    assert finding.fix() == f"loaded {library.name}"
    (row,) = [row for row in Oq(url).json("library", "load") if row["library"] == library.name]
    assert (row["server"], row["on_connect"]) == (library.version, "keep")


def test_libraries_of_other_wires_are_loaded_by_name(url: str, node: Node) -> None:
    assert [row["on_connect"] for row in Oq(url).json("library", "load", "chasquimq", "qless")] == ["keep"] * 4
    assert node.libraries == {library.name for library in BUNDLED}


@pytest.mark.parametrize("library", BUNDLED, ids=lambda library: library.name)
def test_each_library_can_be_printed(library: Library) -> None:
    assert Oq("redis://localhost:1")("library", "dump", library.name).stdout == library.text


async def test_libraries_lost_while_a_worker_runs_cost_no_job(url: str, node: Node, queue_name: str) -> None:
    attempts: list[int] = []

    async def work(job: AsyncActiveJob) -> int:
        attempts.append(job.data["n"])
        await asyncio.sleep(0.002)
        return int(job.data["n"])

    worker = Worker(queue_name, work, url=url, options=QUICK)
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue(queue_name, url=url) as queue:
        jobs = await queue.add_bulk([NewJob("work", {"n": n}) for n in range(300)])
        for done in (50, 150, 250):
            await wait_until(lambda done=done: len(attempts) >= done, f"{done} jobs to run")  # type: ignore[misc]
            node.ask("FUNCTION", "FLUSH")
        assert [await job.wait(SOON) for job in jobs] == list(range(300))
    worker.stop()
    await asyncio.wait_for(running, 60)
    assert sorted(attempts) == list(range(300))
    assert node.libraries == {library.name for library in LIBRARIES}


def test_many_processes_may_load_them_at_once(url: str, node: Node) -> None:
    code = (
        "import sys; from orchestration_queue.server import Connection, parse_url\n"
        "url = parse_url(sys.argv[1]); print('ready', flush=True); input(); Connection.open(url).close()"
    )
    command = [sys.executable, "-c", code, url]
    processes = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) for _ in range(5)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60) for process in processes] == [(b"", b"")] * 5
    assert loaded(node.raw) == GLIDEMQ.text
