"""`oq doctor`: what is wrong, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, Yes, ask, console, fail, show_json
from orchestration_queue.cli.verbs import counted
from orchestration_queue.doctor import Finding, Severity, run_checks
from orchestration_queue.errors import StateError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["doctor"]

_SIGNS = {Severity.PROBLEM: "[bold red]✘[/]", Severity.HINT: "[yellow]•[/]"}


def doctor(
    queues: Annotated[list[str] | None, typer.Argument(help="Queues to look at; default all.")] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can safely be mended; asks before each.")] = False,
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Look for what is wrong with the server, the queues and this machine."""
    seen: list[tuple[Finding, str | None]] = []
    with Console(stderr=True).status("looking") as status:
        for finding in run_checks(url, queues or None, prefix=prefix, report=status.update):
            fixed = None
            if fix and finding.fix:
                status.stop()
                ask(yes, f"{finding.where}: {finding.what}. Mend it ({finding.action})?")
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
        lines = [
            f"{_SIGNS[finding.severity]} [bold]{escape(finding.where)}[/]: {escape(finding.what)}.",
            f"  [dim]Why it matters:[/] {escape(finding.why)}.",
            f"  [dim]What to do:[/] {escape(finding.action)}.",
        ]
        if fixed is not None:
            lines.append(f"  [green]Done:[/] {escape(fixed)}.")
        out.print("\n".join(lines), highlight=False)
    problems = sum(finding.severity is Severity.PROBLEM for finding, _ in seen)
    out.print(f"{counted(problems, 'problem')}, {counted(len(seen) - problems, 'hint')}.", highlight=False)
