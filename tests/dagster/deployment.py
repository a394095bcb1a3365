"""The Dagster part of the Helm chart as processes of this machine: its commands, environment and configuration."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import helm_python
import yaml

from tests.dagster.test_webserver import ask
from tests.helm.test_chart import CHART
from tests.waiting import wait_until_sync

__all__ = ["Deployment", "deployment"]

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
VALUES = {
    "server": {"existingSecret": "server"},
    "dagster": {
        "enabled": True,
        "module": "tests.dagster_project.definitions",
        "postgres": {"existingSecret": "postgres"},
    },
}
_LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries { locationOrLoadError { __typename } } } } }
"""
FASTER: dict[str, Any] = {
    "run_launcher": {"config": {"lease": 8.0}},
    "run_monitoring": {"poll_interval_seconds": 1},
}
"""What the chart leaves at minutes, so that the tests need not wait as long."""


def _rendered() -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the containers of Dagster's deployments by their names, and the files of the config map."""
    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(VALUES, name="trial", namespace="data")
    (text,) = [text for name, text in texts.items() if name.endswith("dagster.yaml")]
    objects = [made for made in yaml.safe_load_all(text) if made]
    containers = [
        container
        for made in objects
        if made["kind"] == "Deployment"
        for container in made["spec"]["template"]["spec"]["containers"]
    ]
    (config,) = [made["data"] for made in objects if made["kind"] == "ConfigMap"]
    return {container["name"]: container for container in containers}, config


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return str(taken.getsockname()[1])


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        merged[name] = _merge(merged.get(name, {}), value) if isinstance(value, Mapping) else value
    return merged


@dataclass
class Deployment:
    """The running parts, by the names of their containers.

    Attributes:
        home: Where the configuration and the logs are.
        web: The address of the webserver's GraphQL.
        commands: What each part runs.
        environment: What all parts have in their environment.
        processes: The parts that run.
    """

    home: Path
    web: str
    commands: dict[str, list[str]]
    environment: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]]

    def start(self, part: str) -> None:
        """Start a part, as Kubernetes does again when it has died."""
        with (self.home / f"{part}.log").open("ab") as log:
            self.processes[part] = subprocess.Popen(
                self.commands[part],
                env={**self.environment, "PGAPPNAME": part},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=ROOT,
            )

    def kill(self, part: str) -> None:
        """Kill the process of a part, and none that it has started."""
        self.processes[part].kill()
        self.processes[part].wait(60)

    def end(self) -> None:
        """Kill all parts with what they have started."""
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    def answers(self) -> bool:
        """Return whether the webserver has loaded the code location."""
        with suppress(OSError):
            entries = ask(self.web, _LOCATIONS)["workspaceOrError"]["locationEntries"]
            return [entry["locationOrLoadError"]["__typename"] for entry in entries] == ["RepositoryLocation"]
        return False

    def is_ready(self, part: str) -> bool:
        """Return whether a worker takes jobs."""
        return "takes jobs of queue" in (self.home / f"{part}.log").read_text()


@contextmanager
def deployment(home: Path, url: str, database: str | None, scratch: Path) -> Iterator[Deployment]:
    """All of it, ready; with Dagster's SQLite where there is no database."""
    containers, config = _rendered()
    ports = {"4000": _free_port(), "3000": _free_port()}
    settings = _merge(yaml.safe_load(config["dagster.yaml"]), FASTER)
    if database is None:
        del settings["storage"]
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings))
    workspace = re.sub(r"host: \S+", "host: 127.0.0.1", config["workspace.yaml"]).replace("4000", ports["4000"])
    (home / "workspace.yaml").write_text(workspace)
    values = {"OQ_URL": url, "DAGSTER_POSTGRES_URL": database or "", "DAGSTER_HOME": str(home), "SCRATCH": str(scratch)}
    values["FRESHNESS_DAEMON_INTERVAL_SECONDS"] = "2"

    def here(word: str) -> str:
        word = word.replace("/opt/dagster", str(home)).replace("0.0.0.0", "127.0.0.1")
        return ports.get(word, word)

    commands: dict[str, list[str]] = {}
    for name, container in containers.items():
        program, *arguments = container["command"]
        if "--metrics-port" in arguments:
            arguments[arguments.index("--metrics-port") + 1] = _free_port()
        assert {each["name"] for each in container["env"]} <= set(values), "the test must set what the chart sets"
        commands[name] = [str(BIN / program), *map(here, arguments)]
    stack = ExitStack()
    made = Deployment(home, f"http://127.0.0.1:{ports['3000']}/graphql", commands, {**os.environ, **values}, {})
    with stack:
        stack.callback(made.end)
        # The first process makes the tables; Kubernetes restarts those that were too early.
        made.start("dagster-code")
        made.start("dagster-worker")
        wait_until_sync(partial(made.is_ready, "dagster-worker"), f"the worker, see {home}", 150)
        for name in commands.keys() - made.processes.keys():
            made.start(name)
        wait_until_sync(partial(made.is_ready, "dagster-runs"), f"the runs' worker, see {home}", 150)
        wait_until_sync(made.answers, f"the webserver, see {home}", 150)
        yield made
