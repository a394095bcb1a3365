"""Look into a built wheel: what must ship is in it, and nothing else strays in."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

REQUIRED = (
    "orchestration_queue/http/console/static/console.css",
    "orchestration_queue/http/console/templates/base.html",
    "orchestration_queue/py.typed",
    "orchestration_queue/protocol/lua/chasquimq.lua",
    "orchestration_queue/protocol/lua/glidemq.lua",
    "orchestration_queue/protocol/lua/orchestration_queue_1.lua",
    "orchestration_queue/protocol/lua/qless.lua",
    "orchestration_queue/spark/listener.jar",
    "orchestration_queue/spark/log4j2.properties",
    "pyspark_orchestration_queue/__init__.py",
    "pyspark_orchestration_queue/worker.py",
    "pyspark_orchestration_queue_chasquimq/__init__.py",
    "pyspark_orchestration_queue_qless/__init__.py",
)
PACKAGES = (
    "orchestration_queue",
    "pyspark_orchestration_queue",
    "pyspark_orchestration_queue_chasquimq",
    "pyspark_orchestration_queue_qless",
)
ALLOWED_SUFFIXES = {".css", ".html", ".jar", ".js", ".lua", ".properties", ".py", ".svg", ".typed"}


def problems(names: list[str]) -> list[str]:
    """Return what is wrong with a wheel of these files."""
    missing = [f"lacks {name}" for name in REQUIRED if name not in names]
    package = [name for name in names if ".dist-info/" not in name]
    stray = [
        f"holds {name}, which does not belong there"
        for name in package
        if name.partition("/")[0] not in PACKAGES or Path(name).suffix not in ALLOWED_SUFFIXES
    ]
    return missing + stray


def main(directory: str) -> int:
    """Check the one wheel in the directory; 0 when it is right."""
    (wheel,) = Path(directory).glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    found = problems(names)
    for problem in found:
        print(f"{wheel.name} {problem}.", file=sys.stderr)
    if not found:
        print(f"{wheel.name}: {len(names)} files, all of them wanted.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
