"""`oq dagster dev`: one command for Dagster, a worker and a server."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestration_queue.dagster.develop import develop, find_home
from orchestration_queue.server import parse_url
from tests.dagster.develop import Dev, running_dev
from tests.http.browser import find_chromium, started
from tests.processes import OQ
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
DEFINITIONS = """
import os
import time
import dagster as dg
from orchestration_queue.dagster import queue_executor

@dg.op
def number(context):
    print("printed by the step")
    time.sleep(0.3)  # long enough to have its name on its bar
    context.log.info(f"done {{{body}}}")

@dg.job
def number_job():
    number()

defs = dg.Definitions(jobs=[number_job], executor=queue_executor)
"""
JOB = "number_job"
RELOAD = """
mutation { reloadRepositoryLocation(repositoryLocationName: "definitions.py") {
  ... on WorkspaceLocationEntry { loadStatus }
} }
"""


def test_a_project_without_a_home_gets_one(tmp_path: Path) -> None:
    assert find_home(tmp_path) == tmp_path / ".oq" / "dagster"
    assert (tmp_path / ".oq" / "dagster").is_dir()
    (tmp_path / "dagster.yaml").touch()
    assert find_home(tmp_path) == tmp_path


def test_the_storage_of_a_new_home_is_there_before_several_processes_open_it(
    tmp_path: Path, server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that create SQLite's tables at once end with errors of its migrations."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    look = (
        "import os, sqlite3\n"
        "for name in ('history/runs.db', 'history/runs/index.db', 'schedules/schedules.db'):\n"
        "    database = sqlite3.connect(os.path.join(os.environ['DAGSTER_HOME'], name))\n"
        "    assert len(database.execute('select * from alembic_version').fetchall()) == 1, name\n"
    )
    assert develop(parse_url(server_url), [sys.executable, "-c", look], []) == 0


def test_without_code_it_says_what_to_pass(tmp_path: Path) -> None:
    ended = subprocess.run([OQ, "dagster", "dev"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("No code to load; name a module with -m, a file with -f, or a workspace with -w,")


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """The command in a directory with nothing but the code."""
    directory = tmp_path_factory.mktemp("dev")
    write(directory, "os.getppid()")
    with running_dev([OQ, "dagster", "dev", "-f", "definitions.py"], directory, "http://console:8080") as running:
        yield running


def write(directory: Path, body: str) -> None:
    """Write the code."""
    (directory / "definitions.py").write_text(DEFINITIONS.format(body=body))


def test_code_reloaded_in_the_ui_is_what_the_next_run_does(dev: Dev) -> None:
    """Nothing is configured, and the second run's step does not run what the worker had loaded first."""
    (server,) = [int(found[1]) for text in dev.told(dev.launch(JOB)) if (found := re.fullmatch(r"done (\d+)", text))]
    assert Path(f"/proc/{server}/environ").exists(), "the step ran in the worker"
    write(dev.directory, "'by the new code'")
    assert dev.ask(RELOAD)["loadStatus"] == "LOADED"
    assert "done by the new code" in dev.told(dev.launch(JOB))
    wait_until_sync(lambda: not Path(f"/proc/{server}").exists(), "the process with the old code to end", 60)


@pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed; `.ci/run` installs it")
async def test_the_page_of_a_run_shows_its_steps_their_output_and_links(dev: Dev, tmp_path: Path) -> None:
    dev.ask("mutation { setNuxSeen }")  # else a dialog lies over the page
    run_id = await asyncio.to_thread(dev.launch, JOB)
    link = f"http://console:8080/ui/queues/dagster/jobs/dagster.{run_id}.number.1"
    elements = "[...document.querySelectorAll('{}')]"
    with started(tmp_path / "profile") as browser:
        async with browser.page() as page:
            await page.look(width=1400, height=1100)
            await page.open(f"{dev.url}/runs/{run_id}")
            await page.until("document.body.innerText.includes('Succeeded (1)')")
            await page.until(f"{elements.format('a')}.some((one) => one.href === '{link}')")
            bars = f"{elements.format('div')}.filter((one) => one.innerText === 'number')"
            color = "getComputedStyle(one).backgroundColor.match(/[0-9.]+/g).map(Number)"
            await page.until(f"{bars}.some((one) => (([red, green]) => green > red + 50)({color}))")
            output = await page.run(f"{elements.format('a')}.find((one) => one.href.includes('logFileKey')).href")
            await page.open(output.replace("logType=stderr", "logType=stdout"))
            await page.until("document.body.innerText.includes('printed by the step')")


def test_it_ends_with_all_that_it_started(dev: Dev) -> None:
    mine = processes_in(dev.directory)
    assert len(mine) > 3
    dev.process.send_signal(signal.SIGTERM)
    assert dev.process.wait(60) == 0
    wait_until_sync(lambda: not any(Path(f"/proc/{pid}").exists() for pid in mine), "what it has started to end", 60)


def processes_in(directory: Path) -> list[str]:
    """Return the processes whose working directory is this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "cwd").resolve() == directory:
                found.append(path.name)
    return found
