"""Run `oq` as a watched process, which is stopped when the watching process ends for any reason."""

from __future__ import annotations

import signal
import sys

from orchestration_queue._process import die_with_parent
from orchestration_queue.cli.main import main

if __name__ == "__main__":
    parent = int(sys.argv.pop(1))
    die_with_parent(parent, signal.SIGTERM)
    main()
