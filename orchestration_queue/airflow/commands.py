"""The command ``airflow queue worker``, which is ``oq airflow worker`` with the server of Airflow's configuration.

Airflow imports this for each of its commands: import no more than they all do.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

__all__ = ["commands", "work"]

_PASSED = (
    *("queue", "concurrency", "stalled-interval", "drain", "grace", "max-items", "max-memory", "bundles"),
    *("metrics-port", "metrics-host", "log-level"),
)
"""Options of ``oq airflow worker``, which checks their values."""
_HELP = "See `oq airflow worker --help`."
_OPTIONS = [
    *(Arg((f"--{name}",), help=_HELP) for name in _PASSED),
    Arg(("--serve-logs",), help=_HELP, action="store_true"),
    Arg(("--team",), help="Take the server and prefix that the executor of this team has."),
]


def work(arguments: Namespace) -> None:
    """Become ``oq airflow worker`` for the server and prefix of Airflow's configuration.

    Raises:
        UsageError: The configuration is invalid.
    """
    from airflow.executors.base_executor import ExecutorConf

    from orchestration_queue.airflow.configuration import AirflowOptions
    from orchestration_queue.options import as_timedelta

    options = AirflowOptions.of(ExecutorConf(arguments.team))
    if options.url is not None:
        os.environ["OQ_URL"] = options.url  # not an argument, which every user of the machine could read
    own = ["--prefix", options.prefix, "--lease", str(as_timedelta(options.lease).total_seconds())]
    own += ["--serve-logs"] * bool(arguments.serve_logs)
    for name in _PASSED:
        if (value := getattr(arguments, name.replace("-", "_"))) is not None:
            own += [f"--{name}", value]
    program = "from orchestration_queue.cli import run; run()"
    os.execv(sys.executable, [sys.executable, "-c", program, "airflow", "worker", *own])  # noqa: S606


def commands() -> list[GroupCommand]:
    """Return the commands for Airflow's command line."""
    worker = ActionCommand("worker", "Run tasks as jobs of a queue", work, _OPTIONS)
    return [GroupCommand("queue", "Workers of orchestration_queue", (worker,))]
