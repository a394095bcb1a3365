"""The Grafana dashboard, drawn from the metrics' own names."""

from __future__ import annotations

import json
from typing import Any

from orchestration_queue.telemetry.names import Metric, metric
from orchestration_queue.wires import WIRES, Wire

__all__ = ["dashboard"]

_WIDTH, _HEIGHT = 12, 8
_RATE = "[$__rate_interval]"


def _name(short: str) -> str:
    return metric(short).name


def _quantiles(short: str, of: str = '{queue=~"$queue"}') -> dict[str, str]:
    bucket = f"sum by (le) (rate({_name(short)}_bucket{of}{_RATE}))"
    return {f"p{quantile}": f"histogram_quantile(0.{quantile}, {bucket})" for quantile in ("50", "95", "99")}


def _of_queue(short: str, by: str, function: str = "sum") -> str:
    return f'{function} by ({by}) ({_name(short)}{{queue=~"$queue"}})'


def _rate(short: str, by: str) -> str:
    return f'sum by ({by}) (rate({_name(short)}{{queue=~"$queue"}}{_RATE}))'


def _panels() -> dict[str, tuple[str, dict[str, str]]]:
    """By title: the unit, and the queries by their legends."""
    return {
        "Jobs by state": ("short", {"{{queue}} {{state}}": _of_queue("depth", "queue, state", "max")}),
        "Age of the oldest ready job": ("s", {"{{queue}}": _of_queue("oldest_ready_age_seconds", "queue", "max")}),
        "Attempts that began and ended, a second": (
            "ops",
            {
                "{{task}} began": _rate("jobs_started_total", "task"),
                "{{task}} {{outcome}}": _rate("jobs_finished_total", "task, outcome"),
            },
        ),
        "Jobs that run": ("short", {"{{queue}}": _of_queue("jobs_running", "queue")}),
        "How long attempts take": ("s", _quantiles("job_duration_seconds")),
        "How long jobs wait": ("s", _quantiles("job_wait_seconds")),
        "Dead letters and lost workers, a second": (
            "ops",
            {
                "dead letters {{task}}": _rate("dead_letters_total", "task"),
                "redeliveries {{task}}": _rate("redeliveries_total", "task"),
            },
        ),
        "How long the server takes to answer": ("s", _quantiles("server_call_duration_seconds", "")),
        "Calls that failed, a second": (
            "ops",
            {"{{call}} {{code}}": f"sum by (call, code) (rate({_name('server_call_errors_total')}{_RATE}))"},
        ),
        "Renewed leases and retried calls of workers, a second": (
            "ops",
            {
                "renewals of {{queue}}": _rate("lease_renewals_total", "queue"),
                "retried calls of {{queue}}": _rate("errors_total", "queue"),
            },
        ),
        "Slots of pools, and jobs that wait for them": (
            "short",
            {
                f"{{{{pool}}}} {what}": f"max by (pool) ({_name(short)})"
                for what, short in (("has", "pool_slots"), ("used", "pool_slots_used"), ("wait", "pool_jobs_waiting"))
            },
        ),
        "Jobs that wait in shares": (
            "short",
            {"{{queue}} {{share}}": _of_queue("share_jobs_waiting", "queue, share", "max")},
        ),
        "Workers, and whether the server answers": (
            "short",
            {
                "paused {{queue}}": _of_queue("paused", "queue", "max"),
                "workers of {{queue}}": _of_queue("workers", "queue", "max"),
                "server up for {{queue}}": _of_queue("server_up", "queue", "min"),
            },
        ),
    }


def _wire_panels(wire: Wire) -> dict[str, tuple[str, dict[str, str]]]:
    """Return panels of a wire, as its metrics are declared, for all queues: the variable has only our own."""
    metrics: tuple[Metric, ...] = wire.load("metrics").METRICS

    def queries(kind: str, query: str) -> dict[str, str]:
        found = {}
        for each in (each for each in metrics if each.kind == kind):
            of_queue = ("queue",) if "queue" in each.labels else each.labels
            by = each.labels if kind == "gauge" else of_queue
            legend = " ".join([each.name.removeprefix(f"{wire.name}_"), *(f"{{{{{label}}}}}" for label in by)])
            found[legend] = query.format(name=each.name, by=", ".join(by), le=", ".join(("le", *by)))
        return found

    counted = queries("counter", f"sum by ({{by}}) (rate({{name}}{_RATE}))")
    quantile = f"histogram_quantile(0.95, sum by ({{le}}) (rate({{name}}_bucket{_RATE})))"
    panels = {
        f"{wire.title}: what happens, a second": ("ops", counted),
        f"{wire.title}: how long or large, p95": ("short", queries("histogram", quantile)),
        f"{wire.title}: what is there": ("short", queries("gauge", "max by ({by}) ({name})")),
    }
    return {title: panel for title, panel in panels.items() if panel[1]}


def _panel(place: int, title: str, unit: str, queries: dict[str, str]) -> dict[str, Any]:
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": place % 2 * _WIDTH, "y": place // 2 * _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend}
            for number, (legend, query) in enumerate(queries.items())
        ],
    }


def dashboard() -> str:
    """Return the dashboard as JSON for an import into Grafana."""
    queues = f"label_values({_name('jobs_running')}, queue)"
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        {
            "name": "queue",
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": queues,
            "definition": queues,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        },
    ]
    drawn_panels = _panels()
    for wire in WIRES:
        drawn_panels |= _wire_panels(wire)
    panels = [_panel(place, title, *queries) for place, (title, queries) in enumerate(drawn_panels.items())]
    drawn = {
        "uid": "orchestration-queue",
        "title": "orchestration_queue",
        "tags": ["orchestration-queue"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": variables},
        "panels": panels,
    }
    return json.dumps(drawn, indent=2) + "\n"
