"""The measurements as tables in Markdown, as docs/explanation/performance.md shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.bench.contenders import guarantees
from tests.bench.rows import LIMIT, ROWS

__all__ = ["is_shown", "tables"]

_COSTS = ("client_us", "server_us", "commands")
_SHOWN = {"jobs_per_s": "", "p50_ms": ", p50", "p99_ms": ", p99"}
_BY_HAND = "redis-py"


def is_shown(figure: str) -> bool:
    """Whether a figure has a row of its own, in which contenders are compared."""
    return figure in _SHOWN


def tables(report: dict[str, Any]) -> str:
    """Return three tables, what each limit is, and what each contender promises."""
    rows, peers = report["rows"], report["peers"]
    others = [*peers, _BY_HAND] if any(_BY_HAND in row["median"] for row in rows.values()) else peers
    parts = [
        _table(("", "Ours", *others, "Limit", "Client, µs", "Server, µs", "Commands"), _figures(rows, others)),
        "The limits are",
        "\n".join(_limits(rows)),
        _table(("Function", "Server, µs per job", "Its commands alone", "Ratio", "Commands"), _functions(report)),
        "\n".join(f"* {guarantees(name)}" for name in ("ours", *peers)),
    ]
    return "\n\n".join(part for part in parts if part)


def _figures(rows: dict[str, Any], others: list[str]) -> Iterable[tuple[str, ...]]:
    for name, row in rows.items():
        medians, ratios, title = row["median"], row["ours_to"], ROWS[name].title
        ours = medians.get("ours", {})
        costs = [f"{ours[cost]:,}" if cost in ours else "" for cost in _COSTS]
        for figure in filter(is_shown, ours):
            compared = (
                f"{_text(figure, medians[other][figure])} ({ratios[other][figure]})" if other in medians else ""
                for other in (*others, LIMIT)
            )
            yield (title + _SHOWN[figure], _text(figure, ours[figure]), *compared, *costs)
            title, costs = "the same", [""] * len(_COSTS)
        if "ours" in row.get("failed", {}):
            yield (title, "failed", *[""] * (len(others) + 1 + len(_COSTS)))


def _limits(rows: Iterable[str]) -> Iterable[str]:
    titles: dict[str, list[str]] = {}
    for name in rows:
        titles.setdefault(ROWS[name].limit, []).append(ROWS[name].title)
    for limit, limited in titles.items():
        yield f"* {'; '.join(limited)}: {limit}."


def _text(figure: str, value: float) -> str:
    return f"{value:,.2f} ms" if figure.endswith("_ms") else f"{value:,.0f}/s"


def _functions(report: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    fields = ("server_us", "bare_commands_us", "to_bare_commands", "commands")
    for name, cost in report["functions"].items():
        yield (f"`{name}`", *(f"{cost[field]}" for field in fields))


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---", *["---:"] * (len(heads) - 1)), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
