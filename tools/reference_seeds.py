"""The page about the documents that this package implements, from the register in tests/seeds."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.seeds.register import Seed, Statement, seeds

__all__ = ["seed_statements"]

_KINDS = ("shown", "different", "contradictory")


def seed_statements() -> str:
    """Return the page."""
    found = list(seeds())
    counts = [[seed.count(kind) for kind in _KINDS] for seed in found]
    rows = [
        _row(f"[{seed.title}](#{_anchor(seed.title)})", str(sum(numbers)), *map(str, numbers))
        for seed, numbers in zip(found, counts, strict=True)
    ]
    totals = [sum(column) for column in zip(*counts, strict=True)]
    lines = [
        "# Statements of the original documents",
        "",
        "ChasquiMQ, glide-mq, and qless are described by public documents. Each statement of those below is in a",
        "table, with what happens here and the test that shows it. A *different* one is deliberately not followed.",
        "A *contradictory* one contradicts another statement, or what the original does; the row names both, and",
        "which decides.",
        "",
        "Random runs compare what no single statement shows: the life of our own queue's jobs with a model of",
        "glide-mq's documents, qless's older form with a model of its document, its newer form with the script in",
        "reqless, and our ChasquiMQ client and worker with the published ones. 1,000 of each passed on 2026-11-29,",
        "those of ChasquiMQ, and all its other tests, on Redis 8.6.2. `make test` runs some of them, and with",
        "`--fuzz-runs=1000` as many.",
        "",
        _row("Document", "Statements", *(kind.capitalize() for kind in _KINDS)),
        _row("---", *["---:"] * 4),
        *rows,
        _row("**All**", *(f"**{number}**" for number in (sum(totals), *totals))),
        "",
    ]
    for seed in found:
        lines += _table(seed)
    return "\n".join(lines)


def _table(seed: Seed) -> list[str]:
    return [
        f"## {seed.title}",
        "",
        f"{seed.source}.",
        "",
        _row("Place", "Statement", "Here", "Test"),
        _row(*["---"] * 4),
        *(_row(row.place, row.says, _behavior(row), f"`{row.test.removeprefix('tests/')}`") for row in seed.statements),
        "",
    ]


def _behavior(row: Statement) -> str:
    """Return what happens; of a difference or contradiction also its kind."""
    if row.contradicts:
        return f"*Contradictory*, with {row.contradicts}. {row.does}"
    return f"*Different* ([more](../{row.page})): {row.does}" if row.page else row.does


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")
