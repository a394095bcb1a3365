"""`oq` in a process that somebody watches: it is told to stop when the watching process ends, however that ends."""

from __future__ import annotations

import signal
import sys

from orchestration_queue._process import die_with_parent
from orchestration_queue.cli.main import main

if __name__ == "__main__":
    parent = int(sys.argv.pop(1))
    die_with_parent(parent, signal.SIGTERM)
    main()
