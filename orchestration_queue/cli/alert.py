"""`oq alert`: rules that notify who is on call, and the process that evaluates them."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestration_queue.alerts.describing import describe, describe_evaluator, describe_event
from orchestration_queue.cli.common import JsonFlag, Prefix, Url, Yes, ask, moment_text, report, show_json, show_table
from orchestration_queue.cli.drawing import span_text
from orchestration_queue.cli.text import Cell, print_line, styled
from orchestration_queue.cli.worker import log_to_stderr
from orchestration_queue.client import Alert, Alerts
from orchestration_queue.errors import StateError, UsageError
from orchestration_queue.options import AlertKind, AlertRule
from orchestration_queue.options.alert import check_alert
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

if TYPE_CHECKING:
    from orchestration_queue.alerts import AlertEvaluator

__all__ = ["app"]

app = typer.Typer(help="Notify who is on call: rules, incidents, silences.", no_args_is_help=True)

RuleName = Annotated[str, typer.Argument(metavar="NAME", help="The rule.")]
Kind = StrEnum("Kind", {kind.name: kind.value.replace("_", "-") for kind in AlertKind})  # type: ignore[misc]  # no literal
_COLORS = {"firing": "red", "unsent": "red", "pending": "yellow", "resolved": "green", "sent": "green", "ok": "green"}


@app.callback()
def _noun() -> None:
    pass


@app.command("add")
def add(
    name: RuleName,
    kind: Annotated[Kind, typer.Option(help="What it watches.")],
    to: Annotated[list[str], typer.Option(help="A receiver; can be repeated. See `oq alert run`.")],
    queue: Annotated[str, typer.Option(envvar="OQ_QUEUE", help="A queue, or a pattern such as 'mail-*'.")] = "*",
    threshold: Annotated[
        float | None, typer.Option(help="It fires above this: a number of jobs, seconds, or a part from 0 to 1.")
    ] = None,
    window: Annotated[
        float | None, typer.Option(help="Of a failure rate: the period that counts, in seconds; default 300.")
    ] = None,
    minimum: Annotated[
        int | None, typer.Option(help="Of a failure rate: at least this many jobs must have ended; default 10.")
    ] = None,
    pending: Annotated[float, typer.Option(help="Seconds that it must stay above the threshold.")] = 0,
    keep_firing: Annotated[
        float, typer.Option(help="Seconds that it must not be above the threshold before it is resolved.")
    ] = 300,
    note: Annotated[str, typer.Option(help="Text for who receives it, such as a runbook's address.")] = "",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Add or replace a rule."""
    rule = AlertRule(
        kind=AlertKind(kind.value.replace("-", "_")), to=to, queue=queue, threshold=threshold, window=window,
        minimum=minimum, pending=pending, keep_firing=keep_firing, note=note,
    )  # fmt: skip
    with Alerts(url=url, prefix=prefix) as alerts:
        alert = alerts.set(name, rule)
        evaluator = alerts.evaluator()
    if as_json:
        show_json(describe(alert))
        return
    print_line(f"Rule {name} notifies {', '.join(rule.to)}.")
    if evaluator is None:
        print_line("No process evaluates rules; start `oq alert run`.")
    elif unknown := [each for each in rule.to if each not in evaluator.receivers]:
        print_line(f"The process that evaluates rules does not know {', '.join(unknown)}; see `oq alert run --help`.")


@app.command("ls")
def ls(url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """List all rules, what they do at present, and who evaluates them."""
    with Alerts(url=url, prefix=prefix) as client:
        alerts, evaluator = client.list(), client.evaluator()
    if as_json:
        show_json(
            {"evaluator": describe_evaluator(evaluator), "alerts": [describe(alert) for alert in alerts]},
        )
        return
    show_table(
        ("rule", "watches", "queue", "above", "state", "since", "to", ""),
        [
            [
                alert.name,
                str(alert.rule.kind).replace("_", " "),
                alert.rule.queue,
                "-" if alert.rule.threshold is None else f"{alert.rule.threshold:g}",
                styled(alert.state, _COLORS.get(alert.state, "")),
                moment_text(alert.since),
                ", ".join(alert.rule.to),
                _remark(alert),
            ]
            for alert in alerts
        ],
    )
    if evaluator is None:
        print_line("No process evaluates rules; start `oq alert run`.")
    elif evaluator.error:
        print_line(f"The last evaluation failed: {evaluator.error}")


def _remark(alert: Alert) -> str:
    parts = []
    if alert.silenced_until:
        by = f" by {alert.silenced_by}" if alert.silenced_by else ""
        parts.append(f"silenced until {moment_text(alert.silenced_until)}{by}")
    if alert.unsent:
        parts.append(
            f"{len(alert.unsent)} to be sent" + (f": {alert.unsent[0].error}" if alert.unsent[0].error else "")
        )
    parts += [
        f"{each.subject}: {each.text}" + (f" (until {moment_text(each.below_since)})" if each.below_ms else "")
        for each in sorted(alert.breaches, key=lambda each: each.below_ms > 0)[:1]
    ]
    return "; ".join(parts)


@app.command("rm")
def rm(
    name: RuleName, yes: Yes = False, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Remove a rule. If it fires, its receivers get a message that it is over."""
    with Alerts(url=url, prefix=prefix) as alerts:
        alerts.get(name)
        ask(yes, f"Remove rule {name}?")
        removed = alerts.remove(name)
    report(as_json, f"Rule {name} is removed.", name=name, is_removed=removed)


@app.command("silence")
def silence(
    name: RuleName,
    length: Annotated[float, typer.Option("--for", help="Seconds from now; 0 ends a silence.")] = 3600,
    by: Annotated[str | None, typer.Option(help="Who silences it; default the user of this terminal.")] = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Send no messages of a rule for a time. A message about what still fires follows then."""
    with Alerts(url=url, prefix=prefix) as alerts:
        until = alerts.silence(name, length, by=_user() if by is None else by)
    sentence = f"Rule {name} is silenced until {moment_text(until)}." if until else f"Rule {name} is not silenced."
    report(as_json, sentence, name=name, silenced_until=until)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""  # a user without a name, as in some containers


@app.command("test")
def send_test(
    name: RuleName,
    timeout: Annotated[float, typer.Option(help="Maximum seconds to wait for the outcomes.")] = 30,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Send a test message to each receiver of a rule; the exit code is 3 if one could not be sent."""
    with Alerts(url=url, prefix=prefix) as alerts:
        events = alerts.test(name, timeout=timeout)
    if as_json:
        show_json([describe_event(event) for event in events])
    else:
        for event in events:
            print_line(f"{event.receiver}: {event.event}" + ("" if event.event == "sent" else f" ({event.text})"))
    if unsent := [event.receiver for event in events if event.event != "sent"]:
        raise StateError(f"The test message was not sent to {', '.join(unsent)}; correct it and try again.")


@app.command("history")
def history(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this rule; default all.")] = None,
    limit: Annotated[int, typer.Option(min=0, max=10_000, help="How many of the last events of all rules.")] = 50,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List what rules did and what was sent, newest first."""
    with Alerts(url=url, prefix=prefix) as alerts:
        events = alerts.history(name, limit=limit)
    if as_json:
        show_json([describe_event(event) for event in events])
        return
    now = datetime.now(UTC)
    rows: list[list[Cell]] = [
        [
            moment_text(event.at),
            "-" if event.at is None else span_text((now - event.at).total_seconds()),
            event.rule,
            styled(event.event, _COLORS.get(event.event, "")),
            event.receiver,
            event.text,
        ]
        for event in events
    ]
    show_table(("at", "ago", "rule", "event", "receiver", ""), rows)


@app.command("run")
def run(
    interval: Annotated[float, typer.Option(help="Seconds between two evaluations, 1 to 3,600.")] = 15,
    rules: Annotated[
        Path | None, typer.Option(help="File of rules to add or replace at the start: a JSON object of rules by name.")
    ] = None,
    log_level: Annotated[str, typer.Option(envvar="OQ_LOG_LEVEL", help="debug, info, warning or error.")] = "info",
    log_format: Annotated[
        Literal["text", "json"], typer.Option(envvar="OQ_LOG_FORMAT", help="text, or json: one line per record.")
    ] = "text",
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Evaluate the rules and send messages, until SIGTERM or SIGINT. Of several such processes one does it.

    Receivers are variables of its environment: OQ_ALERT_RECEIVER_OPS is the URL of the receiver `ops`. It begins with
    https:// (a webhook, signed if OQ_ALERT_KEY_OPS is set), slack+https://, pagerduty+https://, smtps:// or smtp://.
    """
    from orchestration_queue.alerts import AlertEvaluator, read_receivers  # only this command sends

    log_to_stderr(log_level, as_json=log_format == "json")
    given = {} if rules is None else _read_rules(rules)
    receivers = read_receivers(os.environ)
    if not receivers:
        raise UsageError(
            "No receiver is defined; set OQ_ALERT_RECEIVER_OPS to a URL such as https://hooks.example.com/alerts, and "
            "name it `ops` in rules."
        )
    evaluator = AlertEvaluator(receivers, url=url, prefix=prefix, interval=interval)
    if given:
        with Alerts(url=url, prefix=prefix) as alerts:
            for name, rule in given.items():
                alerts.set(name, rule)
    asyncio.run(_run(evaluator))


def _read_rules(path: Path) -> dict[str, AlertRule]:
    """Read a file of rules; all of them are checked before any is stored."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"The file of rules {str(path)!r} cannot be read ({error}); write a JSON object.") from None
    if not isinstance(found, dict):
        raise UsageError(f"The file of rules {str(path)!r} must hold a JSON object of rules by name.")
    return {check_alert(name): AlertRule.coerce(rule or {}, name) for name, rule in found.items()}


async def _run(evaluator: AlertEvaluator) -> None:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, evaluator.stop)
    await evaluator.run()
