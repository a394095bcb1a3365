"""The command `oq`."""

from __future__ import annotations

import sys

from orchestration_queue._extras import named_extra
from orchestration_queue.errors import MissingExtraError

__all__ = ["run"]


def run() -> None:
    """Run the command, or say which extra it needs: this package is installed without the packages of its terminal."""
    try:
        with named_extra():
            from orchestration_queue.cli.main import main
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    main()
