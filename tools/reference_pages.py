"""The site's reference pages, made from the code while MkDocs builds the site: no file holds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from reference_cli import cli
from reference_doctor import doctor
from reference_functions import functions
from reference_python import MODULES, error_tree, python_page
from reference_seeds import seed_statements

from orchestration_queue.http.app import API_ROUTES
from orchestration_queue.http.openapi import openapi
from orchestration_queue.protocol.keys import PERMANENT_KEYS, SHARED_KEYS
from orchestration_queue.states import TERMINAL, TRANSITIONS, JobState
from orchestration_queue.telemetry.names import METRICS, Metric
from orchestration_queue.wires import WIRES, Wire

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files


def states() -> str:
    """Return the page about states: a diagram, and a table of every way from one to another."""
    label = {state: state.value.replace("-", "_") for state in JobState}
    arrows = dict.fromkeys((arrow.source, arrow.target) for arrow in TRANSITIONS)
    diagram = [f"    {label[source]} --> {label[target]}" for source, target in arrows]
    diagram += [f"    {label[state]} --> [*]" for state in JobState if state in TERMINAL]
    rows = [f"| `{arrow.source}` | `{arrow.target}` | {arrow.trigger} |" for arrow in TRANSITIONS]
    return "\n".join(
        [
            "# States of a job",
            "",
            "```mermaid",
            "stateDiagram-v2",
            *diagram,
            "```",
            "",
            "| From | To | By |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def keys() -> str:
    """Return the page about keys without an expiry."""
    rows = [f"| `prefix:{{queue}}:{name}` | {meaning} |" for name, meaning in PERMANENT_KEYS.items()]
    rows += [f"| `prefix:{name}` | {meaning} |" for name, meaning in SHARED_KEYS.items()]
    return "\n".join(
        [
            "# Keys without a time to live",
            "",
            "Every other key expires by itself. The test-suite fails when a key is neither here nor expiring.",
            "",
            "| Key | Holds |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def metrics() -> str:
    """Return the page about metrics."""
    return "\n".join(
        [
            "# Metrics of a worker process",
            "",
            "`oq worker --metrics-port 9464` serves them at `/metrics`, beside `/livez` and `/readyz`. The",
            "metrics from `orchestration_queue_depth` on are read from the server on each scrape, and only with",
            "`--queue-metrics`.",
            "",
            *_metric_rows(METRICS),
            "",
            "Beyond 200 names of tasks or jobs, all others share the label `other`.",
            "",
            *(line for wire in WIRES for line in _of_wire(wire)),
        ]
    )


def _of_wire(wire: Wire) -> list[str]:
    metrics = wire.load("metrics")
    return [f"## {wire.title}", "", metrics.__doc__.replace("``", "`"), "", *_metric_rows(metrics.METRICS), ""]


def _metric_rows(metrics: Sequence[Metric]) -> list[str]:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.what} |"
        for metric in metrics
    ]
    return ["| Metric | Kind | Labels | |", "|---|---|---|---|", *rows]


def http_routes() -> str:
    """Return the OpenAPI document of the HTTP routes."""
    return json.dumps(openapi(API_ROUTES), indent=1) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/openapi.json": http_routes,
    "reference/states.md": states,
    "reference/keys.md": keys,
    "reference/metrics.md": metrics,
    "reference/cli.md": cli,
    "reference/doctor.md": doctor,
    "reference/errors.md": error_tree,
    "reference/functions.md": functions,
    "reference/seeds.md": seed_statements,
    **{f"reference/python/{name}.md": partial(python_page, name) for name in MODULES},
}
"""How each page is made, by its path below docs/."""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages to those of docs/. MkDocs calls it once for a build."""
    from mkdocs.structure.files import File

    for path, render in PAGES.items():
        files.append(File.generated(config, path, content=render()))
