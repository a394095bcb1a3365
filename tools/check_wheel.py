"""Look into a built wheel: what must ship is in it, nothing else strays in, and every way of building gives the same.

``python tools/check_wheel.py FIRST OTHER...``: each is a folder with a wheel, and perhaps a source archive.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

REQUIRED = (
    "orchestration_queue/commit.txt",
    "orchestration_queue/http/console/static/console.css",
    "orchestration_queue/http/console/templates/base.html",
    "orchestration_queue/py.typed",
    "orchestration_queue/protocol/functions/__init__.py",
    "orchestration_queue/protocol/functions/chasquimq.py",
    "orchestration_queue/protocol/functions/glidemq.py",
    "orchestration_queue/protocol/functions/oq1.py",
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
ALLOWED_SUFFIXES = {".css", ".html", ".jar", ".js", ".lua", ".properties", ".py", ".svg", ".txt", ".typed"}


def problems(names: list[str]) -> list[str]:
    """Return what is wrong with a wheel of these files."""
    twins = [name.replace("/_async/", "/_sync/") for name in names if "/_async/" in name]
    missing = [f"lacks {name}" for name in (*REQUIRED, *twins) if name not in names]
    package = [name for name in names if ".dist-info/" not in name]
    stray = [
        f"holds {name}, which does not belong there"
        for name in package
        if name.partition("/")[0] not in PACKAGES or Path(name).suffix not in ALLOWED_SUFFIXES
    ]
    return missing + stray


def differences(ours: Path, theirs: Path) -> list[str]:
    """Return how two archives of one name differ; one entry if only their bytes do."""
    if ours.read_bytes() == theirs.read_bytes():
        return []
    one, other = contents(ours), contents(theirs)
    found = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return [f"differs from {theirs} in {name}" for name in found or ["its bytes"]]


def contents(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel or source archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as source:
        return {member.name: file.read() for member in source if (file := source.extractfile(member))}


def main(first: Path, *others: Path) -> int:
    """Check the one wheel in the first folder, and that archives of the others are the same; 0 when all is right."""
    (wheel,) = first.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    found = [f"{wheel.name} {problem}" for problem in problems(names)]
    for theirs in [path for other in others for path in sorted(other.glob("orchestration_queue-*"))]:
        found += [f"{theirs.name} {difference}" for difference in differences(first / theirs.name, theirs)]
    for problem in found:
        print(f"{problem}.", file=sys.stderr)
    if not found:
        print(f"{wheel.name}: {len(names)} files, all of them wanted, however it is built.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
