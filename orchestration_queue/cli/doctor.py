"""`oq doctor`: what is wrong, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, Yes, ask, console, fail, show_json
from orchestration_queue.cli.text import clean, styled
from orchestration_queue.cli.verbs import format_count, require_queue
from orchestration_queue.client import Queue
from orchestration_queue.doctor import Finding, Severity, run_checks
from orchestration_queue.errors import ServerError, StateError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection

__all__ = ["doctor"]

_SIGNS = {Severity.PROBLEM: ("✘", "bold red"), Severity.HINT: ("•", "yellow")}


def doctor(
    queues: Annotated[list[str] | None, typer.Argument(help="Queues to check; default all.")] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair what can be repaired safely; asks before each repair.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Check the server, the queues and this machine for problems.

    The exit code is 1 when there are problems, 0 when there are only hints. At most 10,000 jobs of a queue are read.
    Without --fix nothing is changed.
    """
    _require_queues(queues or (), url, prefix)
    seen: list[tuple[Finding, str | None]] = []
    with Console(stderr=True).status("checking") as status:
        for finding in run_checks(url, queues or None, prefix=prefix, report=lambda what: status.update(styled(what))):
            fixed = None
            if fix and finding.fix:
                status.stop()
                ask(yes, f"{finding.where}: {finding.what}. Repair it ({finding.action})?")
                try:
                    fixed = finding.fix()
                except StateError as error:
                    fail(str(error))
                status.start()
            seen.append((finding, fixed))
    if as_json:
        show_json([_plain(finding, fixed) for finding, fixed in seen])
    else:
        _show(seen)
    if any(finding.severity is Severity.PROBLEM and fixed is None for finding, fixed in seen):
        raise typer.Exit(1)


def _require_queues(names: Sequence[str], url: str | None, prefix: str) -> None:
    """Refuse unknown queues; whether the user may read keys at all is one of the checks."""
    with Connection.open(url, libraries=()) as connection, suppress(ServerError):
        for name in names:
            require_queue(connection, Queue(name, connection=connection, prefix=prefix))


def _plain(finding: Finding, fixed: str | None) -> dict[str, object]:
    return {
        "severity": finding.severity,
        "where": finding.where,
        "what": finding.what,
        "why": finding.why,
        "action": finding.action,
        "can_be_fixed": finding.fix is not None,
        "fixed": fixed,
    }


def _show(seen: Sequence[tuple[Finding, str | None]]) -> None:
    out = console()
    for finding, fixed in seen:
        out.print(
            Text.assemble(_SIGNS[finding.severity], " ", styled(finding.where, "bold"), f": {clean(finding.what)}.")
        )
        out.print(_line("Why it matters", finding.why, "dim"))
        out.print(_line("What to do", finding.action, "dim"))
        if fixed is not None:
            out.print(_line("Done", fixed, "green"))
    problems = sum(finding.severity is Severity.PROBLEM for finding, _ in seen)
    out.print(f"{format_count(problems, 'problem')}, {format_count(len(seen) - problems, 'hint')}.", highlight=False)


def _line(title: str, sentence: str, style: str) -> Text:
    return Text.assemble("  ", (f"{title}:", style), f" {clean(sentence)}.")
