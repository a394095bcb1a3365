"""The page about `oq doctor`, from the docstrings of its checks."""

from __future__ import annotations

from orchestration_queue.doctor import CHECKS

__all__ = ["doctor"]


def doctor() -> str:
    """Return the page."""
    lines = ["# What `oq doctor` checks", ""]
    for where, checks in CHECKS.items():
        lines += [f"## {where}", "", "| Check | What it does |", "|---|---|"]
        lines += [f"| {check.__name__.replace('_', ' ')} | {_first_line(check)} |" for check in checks]
        lines.append("")
    return "\n".join(lines)


def _first_line(check: object) -> str:
    return (check.__doc__ or "").strip().splitlines()[0]
