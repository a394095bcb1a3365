"""Write what is drawn from the code into files that are read where they are: ``python tools/write_drawn.py``.

A unit test fails while one of them is stale. docs/decisions/0024-generated-files.md says why they are in Git.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dashboard import dashboard
from import_graph import page
from reference_python import errors_module

__all__ = ["DRAWN"]

DRAWN: dict[Path, Callable[[], str]] = {
    Path("orchestration_queue/errors.py"): errors_module,
    Path("docs/explanation/architecture.md"): page,
    Path("helm/orchestration-queue/files/dashboard.json"): dashboard,
}
"""How the text of each file is made, by its path in the checkout."""


def main() -> None:
    """Write the files that differ."""
    root = Path(__file__).resolve().parent.parent
    for name, draw in DRAWN.items():
        if (root / name).read_text("utf-8") != (text := draw()):
            (root / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
