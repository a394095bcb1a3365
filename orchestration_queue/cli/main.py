"""The command's entry point: its nouns, and how errors end."""

from __future__ import annotations

import os
import re
import sys
from importlib import resources
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from orchestration_queue import __version__
from orchestration_queue.cli import (
    airflow,
    alert,
    bench,
    broadcast,
    dagster,
    dead,
    doctor,
    flow,
    job,
    job_control,
    limits,
    monitor,
    queue,
    scheduler,
    serve,
    server,
    spark,
    tag,
    worker,
)
from orchestration_queue.cli.common import fail
from orchestration_queue.cli.output import OUTPUT_LOST, READER_GONE, OutputError, drop_output, prepare_streams
from orchestration_queue.cli.targets import TargetImportError
from orchestration_queue.cli.text import clean
from orchestration_queue.errors import OrchestrationQueueError, ServerError, StateError, TransportError, UsageError
from orchestration_queue.wires import WIRES

__all__ = ["app", "main"]

VERB_MODULES = (job_control,)
"""Importing them adds their verbs to a noun of another module."""

_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (UsageError, 2),
    (StateError, 3),
    (ServerError, 4),
    (TransportError, 4),
    (OrchestrationQueueError, 1),
    (TimeoutError, 1),
)


class _Commands(TyperGroup):
    """The commands; errors that a user can repair end in one sentence and an exit code by kind."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        try:
            code = super().main(*args, **{**options, "prog_name": "oq", "standalone_mode": False})
        except (OrchestrationQueueError, TimeoutError) as error:
            if isinstance(error, TargetImportError) and error.frames:
                typer.echo(clean(error.frames, lines=True), err=True, nl=False)
            fail(str(error))
            sys.exit(next(code for kind, code in _EXIT_CODES if isinstance(error, kind)))
        except typer.Abort:
            sys.exit(1)
        except FileNotFoundError as error:
            if not _is_directory_there():
                fail("The working directory no longer exists; change to one that does.")
            elif "No usable temporary directory" in str(error):  # as tempfile says
                fail("No directory for temporary files can be written; mount one at /tmp, or set TMPDIR to one.")
            else:
                raise
            sys.exit(2)
        except Exception as error:
            # Typer brings its own copy of click in some versions; only the shape of their errors is common.
            if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
                raise
            _explain(error)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def _is_directory_there() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  only whether it raises counts
    except FileNotFoundError:
        return False
    return True


def _explain(error: Any) -> None:
    """Print in one sentence what is wrong with a command line; without any command, show the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    sentence = _number_problem(error) or " ".join(error.format_message().split()).rstrip(".")
    fail(f"{sentence}; see `{context.command_path if context else 'oq'} --help`.")


def _number_problem(error: Any) -> str | None:
    """Say what an option that needs a number needs; None for other problems. Each version of typer has other words."""
    parameter, option = getattr(error, "param", None), getattr(error, "param_hint", None)
    found = re.search(r"valid (number|float|integer)", error.format_message())
    if parameter is None or not found:
        return None
    option = option or parameter.opts[0]
    wanted = "a whole number" if found[1] == "integer" else "a number"
    if "second" in (getattr(parameter, "help", None) or "").lower():
        wanted += " of seconds, such as 300 for five minutes"
    return f"{option} must be {wanted}"


app = typer.Typer(
    cls=_Commands,
    help="Queues, jobs, flows and workers of orchestration_queue.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "OQ"},
)


def _show_version(value: bool) -> None:
    if value:
        # A build records its commit there, except in an editable installation, whose commit changes.
        record = resources.files("orchestration_queue").joinpath("commit.txt")
        typer.echo(f"{__version__} ({record.read_text('utf-8').strip()})" if record.is_file() else __version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_show_version,
        is_eager=True,
        allow_from_autoenv=False,  # OQ_VERSION often names an installed version
        help="Print the version, and the commit it was built from.",
    ),
) -> None:
    pass


app.add_typer(queue.app, name="queue")
app.add_typer(job.app, name="job")
app.add_typer(dead.app, name="dead")
app.add_typer(tag.app, name="tag")
app.add_typer(limits.pool_app, name="pool")
app.add_typer(limits.share_app, name="share")
app.add_typer(flow.app, name="flow")
app.add_typer(broadcast.app, name="broadcast")
app.add_typer(scheduler.app, name="scheduler")
app.add_typer(alert.app, name="alert")
app.add_typer(server.app, name="server")
app.add_typer(server.library_app, name="library")
for wire in WIRES:
    commands = wire.load("cli")
    app.add_typer(commands.app, name=commands.NAME)
app.add_typer(airflow.app, name="airflow")
app.add_typer(dagster.app, name="dagster")
app.add_typer(spark.app, name="spark")
app.add_typer(worker.app, name="worker")
queue.app.command("events")(monitor.events)
queue.app.command("top")(monitor.top)
server.app.command("bench")(bench.bench)
app.command("usage")(monitor.usage)
app.command("doctor")(doctor.doctor)
app.command("serve")(serve.serve)
app.command("token")(serve.token)
app.command("ui")(serve.ui)


def main() -> None:
    """Run the command, whatever its standard output is."""
    prepare_streams()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OutputError as error:
        drop_output()
        if error.reader_gone:
            sys.exit(READER_GONE)
        fail(str(error))
        sys.exit(OUTPUT_LOST)
