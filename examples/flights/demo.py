"""The whole pipeline in one command: ``make demo``, or ``python -m examples.flights.demo``.

Starts a small installation: a server (embedded, in the demo's directory), two workers, a Spark Connect server, and a
Dagster daemon. Then it launches the Dagster job ``prepare_flights`` as a user would, and shows the progress. The run
submits a flow to the queue, whose jobs clean and check the landed files on Spark. When the flow completes, a sensor
requests a run of ``delay_report``, whose Spark work is also a job on the queue. Every process is stopped at the end,
even after a failure.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import sys
import time
import uuid
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType

import dagster as dg
from rich.console import Console

from examples.flights import settings, summary, verify
from examples.flights.fleet import DemoError, Fleet, find_free_port, is_free, take_alone
from examples.flights.kill import LeaderKiller
from examples.flights.screen import Screen, screen_for
from examples.flights.watch import Snapshot, Watch
from orchestration_queue.client import Queue
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.schedules import Cron, JobTemplate
from orchestration_queue.server import Connection

__all__ = ["main"]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DEFINITIONS = "examples.flights.definitions"
SENSOR = "flights_prepared"
WORKERS = ("worker-1", "worker-2")
TIME_LIMIT_S = 600.0
"""At scale 1, and again for every ten more."""
LOOK_EVERY_S = 0.4

INSTANCE = """\
nux:
  enabled: false
telemetry:
  enabled: false
sensors:            # a sensor that listens must not hold up the others
  use_threads: true
  num_workers: 4
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config:
    dequeue_interval_seconds: 1
"""


class Demo:
    """The demo's directory and processes.

    Args:
        directory: Where everything is kept.
        console: What to show it on.
    """

    def __init__(self, directory: Path, console: Console) -> None:
        self.directory = directory
        self.console = console
        self.logs = directory / "logs"
        self.data = directory / "data"
        self._stack = ExitStack()

    def __enter__(self) -> Demo:
        """Take the directory for ourselves, empty it of the last demo, and say where everything is.

        Raises:
            DemoError: Another demo runs in it.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(take_alone(self.directory))
        home = self.directory / "dagster"
        for old in (self.logs, self.data, home, self.directory / "oq"):
            shutil.rmtree(old, ignore_errors=True)
        for new in (self.logs, self.data, home):
            new.mkdir()
        (home / "dagster.yaml").write_text(INSTANCE)
        os.environ |= {
            "DAGSTER_HOME": str(home),
            "FLIGHTS_DATA": str(self.data),
            "OQ_URL": f"embedded://{self.directory / 'oq'}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1",
        }
        self.fleet = Fleet(self.logs)
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

    def start_workers(self) -> None:
        """Start the servers and workers, and register the repeatable job."""
        self.connection = self._stack.enter_context(Connection.open())
        queue = Queue(settings.QUEUE, connection=self.connection)
        for name in WORKERS:
            self.fleet.start(name, str(BIN / "oq"), "worker", "examples.flights.tasks:tasks", *WORKER_OPTIONS)
        server = importlib.import_module("examples.flights.tasks").SPARK  # it reads the environment that we set
        server.start()  # it warms up while the tables are fetched
        self._stack.callback(server.close)
        template = JobTemplate(data={"data_dir": str(self.data)})
        queue.schedulers.upsert(settings.FRESHNESS, Cron("*/5 * * * * *"), template)
        daily = Cron("30 6 * * *", tz="America/New_York")
        queue.schedulers.upsert(settings.DAILY, daily, JobTemplate(name=settings.FRESHNESS, data=template.data))

    def open_instance(self) -> dg.DagsterInstance:
        """Open the Dagster instance. Ours is the first, so that no two processes set up its tables at once."""
        return self._stack.enter_context(dg.DagsterInstance.get())

    def run(self, *, kill_worker: bool) -> Snapshot:
        """Run the pipeline to its end.

        Raises:
            DemoError: It did not end well.
        """
        with closing(screen_for(self.console)) as screen:
            screen.say("Starting an embedded server, two workers, Spark and a Dagster daemon ...")
            screen.say(
                f"The run {settings.PREPARE_JOB} lands five raw files and cleans twelve months on Spark; a sensor\n"
                f"sees it complete and launches {settings.REPORT_JOB}. On the way, one of the workers is killed."
            )
            self.start_workers()
            instance = self.open_instance()
            location = ("-m", DEFINITIONS, "-d", str(ROOT))
            run_id = str(uuid.uuid4())
            self.fleet.start("daemon", str(BIN / "dagster-daemon"), "run", *location)
            year = json.dumps(importlib.import_module(DEFINITIONS).WHOLE_YEAR)
            launch = ("job", "launch", *location, "-j", settings.PREPARE_JOB, "--run-id", run_id, "--tags", year)
            self.fleet.start("launch", str(BIN / "dagster"), *launch, expected_to_end=True)
            killer = LeaderKiller(self.connection, self.fleet, self.logs)
            return self._follow(Watch(self.connection, instance, run_id), screen, killer, in_month=kill_worker)

    def _follow(self, watch: Watch, screen: Screen, killer: LeaderKiller, *, in_month: bool) -> Snapshot:
        limit = TIME_LIMIT_S * (1 + settings.scale() // 10)
        deadline, successor = time.monotonic() + limit, ""
        while True:
            snapshot = watch.look()
            screen.show(snapshot)
            self.fleet.check()
            if not successor and (successor := killer.successor):
                screen.say(f"          {successor} leads the schedules now")
            for node in snapshot.failed:
                reason = node.record.failed_reason if node.record else None
                raise DemoError(f"Node {node.name} failed: {reason}.")
            for run in snapshot.runs:
                if run.is_over and run.status != "SUCCESS":
                    raise DemoError(f"The Dagster run of {run.job} ended as {run.status}.")
            if all(run.is_over for run in snapshot.runs):
                if in_month and not killer.victim:
                    raise DemoError("The scheduler leader was never caught with a month in its hands, and not killed.")
                if successor:
                    return snapshot
            if time.monotonic() > deadline:
                raise DemoError(f"It was not over after {limit:.0f} s: {snapshot.done} nodes are done.")
            if killer.victim or not snapshot.done:
                time.sleep(LOOK_EVERY_S)
            elif killer.watch(LOOK_EVERY_S) if in_month else snapshot.has_tables and killer.kill():
                at = f" while it is at {killer.lost_node}" if killer.lost_node else ""
                screen.say(f"          {killer.victim}, which led the schedules, is killed on purpose (SIGKILL){at}")
            elif not in_month:
                time.sleep(LOOK_EVERY_S)

    def serve(self, port: int) -> None:
        """Show the same pipeline in the browser, in Dagster's UI and the queue's console, until Ctrl-C.

        Raises:
            DemoError: A process exited unexpectedly.
        """
        port = find_free_port(port)
        console_port = find_free_port(port + 1)
        dagster, console = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{console_port}"
        os.environ["OQ_CONSOLE_URL"] = console  # by which Dagster's events link to the pages of their jobs
        self.start_workers()
        self.open_instance()
        address = ("-h", "127.0.0.1", "-p", str(port))
        self.fleet.start("dagster-dev", str(BIN / "dagster"), "dev", "-m", DEFINITIONS, "-d", str(ROOT), *address)
        self.fleet.start("console", str(BIN / "oq"), "ui", "--port", str(console_port), "--dagster", dagster)
        self.console.print("Starting Dagster's web server and the console; this takes some seconds ...")
        while is_free(port) or is_free(console_port):
            self.fleet.check()
            time.sleep(LOOK_EVERY_S)
        self.console.print(
            f"Open [bold]{dagster}[/], and launch the job {settings.PREPARE_JOB} for all twelve months in one "
            f"run. [bold]{console}/ui[/] shows its jobs. Ctrl-C ends."
        )
        while True:
            self.fleet.check()
            time.sleep(LOOK_EVERY_S)


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORKER_OPTIONS = (
    *("--queue", settings.QUEUE, "--concurrency", "1"),
    # A lost worker must be noticed within seconds here; the defaults (30 s) suit production.
    *("--lease", "6", "--stalled-interval", "2", "--promotion-interval", "1"),
)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights.demo", description="The flights pipeline.")
    parser.add_argument("--directory", type=Path, default=ROOT / ".demo", help="where to keep everything")
    parser.add_argument("--kill-worker", action="store_true", help="SIGKILL one of the two workers on the way")
    parser.add_argument(
        "--scale", type=int, default=1, help="how many times to take the year's flights; 30: 10 million"
    )
    parser.add_argument("--ui", action="store_true", help="open the pipeline in Dagster's UI and the console")
    parser.add_argument("--port", type=int, default=3000, help="the web server's port, if it is free")
    options = parser.parse_args(arguments)
    if options.scale < 1:
        parser.error(f"--scale must be 1 or more, got {options.scale}")
    os.environ["FLIGHTS_SCALE"] = str(options.scale)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    directory: Path = options.directory.absolute()
    started = time.monotonic()
    try:
        with Demo(directory, console) as demo:
            if options.ui:
                demo.serve(options.port)
            snapshot = demo.run(kill_worker=options.kill_worker)
            verify.verify_runs(snapshot, SENSOR)
            verify.verify_nodes(snapshot)
            verify.verify_checks(demo.open_instance())
            verify.verify_tables(demo.data, snapshot.table(settings.CLEAN_FLIGHTS))
            summary.show(console, snapshot, demo.logs, demo.open_instance())
    except (DemoError, OrchestrationQueueError) as error:
        console.print(f"[bold red]The demo failed.[/] {error} Logs: {directory / 'logs'}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 0 if options.ui else 130
    console.print(f"[bold green]All is well[/], and everything is stopped, after {time.monotonic() - started:.0f} s.")
    console.print("To see the same in the browser: [bold]make demo-ui[/].")
    return 0


if __name__ == "__main__":
    sys.exit(main())
