"""One real server per data directory."""

from __future__ import annotations
from datetime import timedelta
from pathlib import Path


class EmbeddedServer:
    def __init__(self, directory: Path, grace: timedelta) -> None: ...
    def ensure(self) -> Path:
        raise NotImplementedError

    def leave(self) -> None: ...
