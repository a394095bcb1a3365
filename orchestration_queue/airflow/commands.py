"""The command ``airflow queue worker``, which is ``oq airflow worker`` with the server of Airflow's configuration."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER, Namespace

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand
from airflow.executors.base_executor import ExecutorConf

from orchestration_queue.airflow.configuration import AirflowOptions
from orchestration_queue.options import as_timedelta

__all__ = ["commands", "work"]

_OPTIONS = Arg(
    ("options",), nargs=REMAINDER, help="Options of `oq airflow worker`, such as `--queue gpu --concurrency 8`."
)


def work(arguments: Namespace) -> None:
    """Become ``oq airflow worker`` for the server and prefix of Airflow's configuration.

    Raises:
        UsageError: The configuration is invalid.
    """
    options = AirflowOptions.of(ExecutorConf())
    if options.url is not None:
        os.environ["OQ_URL"] = options.url  # not an argument, which every user of the machine could read
    words = [
        *arguments.options,
        "--prefix",
        options.prefix,
        "--lease",
        str(as_timedelta(options.lease).total_seconds()),
    ]
    program = "from orchestration_queue.cli import run; run()"
    os.execv(sys.executable, [sys.executable, "-c", program, "airflow", "worker", *words])  # noqa: S606


def commands() -> list[GroupCommand]:
    """Return the commands for Airflow's command line."""
    worker = ActionCommand("worker", "Run tasks as jobs of a queue", work, (_OPTIONS,))
    return [GroupCommand("queue", "Workers of orchestration_queue", (worker,))]
