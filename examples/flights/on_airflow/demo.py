"""The flights pipeline as a DAG in one command: ``make demo-airflow``.

Starts a whole Airflow (API server, scheduler, DAG processor) with QueueExecutor, an embedded server, two workers, and
a Spark Connect server. Then it starts a run of the DAG ``flights_2013`` as a user would, kills one of the workers in
the middle of a month, and shows how Airflow retries that month on the other. Every process is stopped at the end, even
after a failure.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

import pandas as pd
from rich.console import Console
from rich.table import Table

from examples.flights import settings
from examples.flights.fleet import DemoError, Fleet, take_alone
from examples.flights.on_airflow.deployment import DAG, ROOT, Deployment, TaskView
from examples.flights.screen import result_table
from examples.flights.verify import verify_tables
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.server import Connection

__all__ = ["main"]

TIME_LIMIT_S = 1_500.0
LOOK_EVERY_S = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Demo:
    """The demo's directory, processes and run.

    Args:
        directory: Where everything is kept.
        console: What to show it on.
    """

    def __init__(self, directory: Path, console: Console) -> None:
        self.directory = directory
        self.victim = self.lost = ""
        """The worker that was killed, and the task that it ran."""
        self.places: dict[tuple[str, int], str] = {}
        """The worker of each try of each task, as far as it was seen."""
        self._console = console
        self._stack = ExitStack()

    def __enter__(self) -> Demo:
        """Take the directory for ourselves, and empty it of the last demo.

        Raises:
            DemoError: Another demo runs in it.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(take_alone(self.directory))
        for name in ("logs", "data", "airflow", "oq"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for name in ("logs", "data", "airflow"):
            (self.directory / name).mkdir()
        self.fleet = Fleet(self.directory / "logs")
        self.airflow = Deployment.configure(self.fleet, self.directory)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything, and release the directory."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it running
        try:
            self.fleet.stop()
        finally:
            self._stack.close()
            self.fleet.sweep()

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def run(self) -> str:
        """Run the pipeline to its end, and return the run's id.

        Raises:
            DemoError: It did not end well.
        """
        self.say("Starting Airflow (database, API server, scheduler, DAG processor), two workers, and Spark ...")
        self._stack.enter_context(Connection.open())  # the embedded server lives as long as we do
        server = importlib.import_module("examples.flights.tasks").SPARK  # it reads the environment that is set
        server.start()  # it warms up meanwhile
        self._stack.callback(server.close)
        self.airflow.start()
        # By its address, because Airflow's tasks have another import path, and so would start a server of their own.
        lease = server.lease_session("demo")
        self._stack.callback(lease.release)
        os.environ["FLIGHTS_SPARK"] = lease.url
        self.airflow.start_workers()
        run = self.airflow.trigger()
        self.say(f"The run {run} of {DAG} has begun; its tasks are shown at {self.airflow.url} while it lasts.")
        self._follow(run)
        return run

    def _follow(self, run: str) -> None:
        started, seen = time.monotonic(), dict[str, tuple[str, int]]()
        while (state := self.airflow.state(run)) not in ("success", "failed"):
            self.fleet.check()
            tasks = self.airflow.tasks(run)
            seen = self._show(time.monotonic() - started, tasks, seen)
            if not self.victim:
                self._kill_worker(run, tasks)
            if time.monotonic() - started > TIME_LIMIT_S:
                raise DemoError(f"The run was not over after {TIME_LIMIT_S:.0f} s.")
            time.sleep(LOOK_EVERY_S)
        self._show(time.monotonic() - started, self.airflow.tasks(run), seen)
        if state == "failed":
            raise DemoError(f"The run {run} failed.")
        if not self.victim:
            raise DemoError("No worker was seen in the middle of a month, and so none was killed.")

    def _show(
        self, elapsed_s: float, tasks: dict[str, TaskView], seen: dict[str, tuple[str, int]]
    ) -> dict[str, tuple[str, int]]:
        """Print what has changed, and return what was seen."""
        for name, task in tasks.items():
            if task.state == "running" and (worker := self.airflow.worker_of(task.pid)):
                self.places.setdefault((name, task.tries), worker)
            if task.state in ("none", "scheduled", "queued") or seen.get(name) == (task.state, task.tries):
                continue
            place = self.places.get((name, task.tries))
            details = [f"try {task.tries}"] * (task.tries > 1) + [f"on {place}"] * (place is not None)
            took = f", {task.seconds:.1f} s" if task.state == "success" and task.seconds is not None else ""
            self.say(f"{elapsed_s:6.1f} s  {name}: {' '.join([task.state, *details])}{took}")
        return {name: (task.state, task.tries) for name, task in tasks.items()}

    def _kill_worker(self, run: str, tasks: dict[str, TaskView]) -> None:
        """Kill a worker that runs a month. Its task is held meanwhile, so that it does not end just before."""
        for name in settings.MONTH_NODES.values():
            task = tasks[name]
            worker = self.airflow.worker_of(task.pid) if task.state == "running" else ""
            if not worker or task.pid is None:
                continue
            with suppress(ProcessLookupError):
                os.kill(task.pid, signal.SIGSTOP)
                time.sleep(LOOK_EVERY_S)
                if self.airflow.tasks(run)[name].state == "running":
                    self.fleet.signal(worker, signal.SIGKILL)
                    self.victim, self.lost = worker, name
                    self.say(f"          {worker} is killed on purpose (SIGKILL) while it runs {name}")
                    return
                os.kill(task.pid, signal.SIGCONT)

    def summarize(self, run: str) -> None:
        """Print what was seen, and where the results are.

        Raises:
            DemoError: A task has another state than success, or a table is not what it should be.
        """
        tasks = self.airflow.tasks(run)
        if bad := [task for task in tasks.values() if task.state != "success"]:
            raise DemoError(f"The task {bad[0].name} ended as {bad[0].state}.")
        data = self.directory / "data"
        verify_tables(data, data / "clean" / settings.CLEAN_FLIGHTS)
        self._console.print(self._task_table(run, tasks))
        delays = self.airflow.result(run, settings.DELAYS)
        worst = pd.DataFrame(delays["worst"])
        self._console.print(result_table(worst, "Where and when to expect a late departure (2013)"))
        lost = tasks[self.lost]
        self.say(
            f"{self.victim} was killed while it ran {self.lost}, which succeeded in try {lost.tries}"
            f" on {self.places.get((self.lost, lost.tries), 'the other worker')}."
        )
        report = self.airflow.result(run, settings.REPORT)
        for what, path in {"Clean flights": data / "clean" / settings.CLEAN_FLIGHTS, "Report": report["path"]}.items():
            self.say(f"{what + ':':<15}{path}")

    def _task_table(self, run: str, tasks: dict[str, TaskView]) -> Table:
        table = Table(title=f"{DAG}, run {run}", title_justify="left", title_style="bold")
        for column in ("task", "state", "tries", "seconds", "worker"):
            table.add_column(column, justify="right" if column in ("tries", "seconds") else "left")
        for name in (
            *settings.RAW_NODES.values(),
            *settings.MONTH_NODES.values(),
            *(settings.CLEAN_FLIGHTS, settings.CLEAN_WEATHER, settings.DELAYS, settings.REPORT),
        ):
            task = tasks[name]
            workers = [self.places.get((name, number), "?") for number in range(1, task.tries + 1)]
            table.add_row(name, task.state, str(task.tries), f"{task.seconds or 0:.1f}", ", ".join(workers))
        return table


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description="The flights pipeline as a DAG of Airflow.")
    parser.add_argument("--directory", type=Path, default=ROOT / ".demo" / "airflow", help="where to keep everything")
    directory: Path = parser.parse_args(arguments).directory.absolute()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    started = time.monotonic()
    try:
        with Demo(directory, console) as demo:
            demo.summarize(demo.run())
    except (DemoError, OrchestrationQueueError, OSError) as error:
        console.print(f"[bold red]The demo failed.[/] {error} Logs: {directory / 'logs'}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    console.print(f"[bold green]All is well[/], and everything is stopped, after {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
