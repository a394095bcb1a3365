"""Write the files that are made from others and are not in Git: ``python tools/generate.py``.

They are the function libraries and their calls, made from lua/, and the sync twins of the `_async` packages. The build
hook runs this for each wheel, source archive and editable installation, `make` and pytest before they use the files. It
needs the standard library alone. Nothing is read while no source and no written file has changed since the last time.
"""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import bundle_lua
import generate_sync
from lua_header import HeaderError

__all__ = ["generate", "made"]

ROOT = Path(__file__).resolve().parent.parent
_STAMP = ".generated"
"""What was read and written last; locked while files are written, as `make --jobs` and several pytests do at a time."""


def generate(root: Path = ROOT) -> None:
    """Write each file that is missing or differs from what its sources give, and remove those without a source.

    Args:
        root: The checkout.

    Raises:
        HeaderError: A Lua source breaks the grammar or its own contract.
        ValueError: An async source uses what has no synchronous counterpart.
    """
    with (root / _STAMP).open("a+", encoding="utf-8") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        sources = _fingerprint(_sources(root))  # taken before they are read: they may be edited meanwhile
        if stamp.read() != sources + _fingerprint(made(root)):
            _write(root)
            stamp.truncate(0)
            stamp.write(sources + _fingerprint(made(root)))


def made(root: Path = ROOT) -> list[Path]:
    """Return the files of all folders whose whole content is made here; .gitignore and pyproject.toml name them, too.

    Args:
        root: The checkout.
    """
    package = root / "orchestration_queue"
    twins = sorted(package.rglob(generate_sync.TARGET))
    return _files([*twins, package / "protocol" / "functions", package / "protocol" / "lua"])


def _sources(root: Path) -> list[Path]:
    package = root / "orchestration_queue"
    asynchronous = sorted(package.rglob(generate_sync.SOURCE))
    return [package / "protocol" / "keys.py", *_files([*asynchronous, root / "lua", root / "tools"])]


def _files(folders: Iterable[Path]) -> list[Path]:
    """Return the files below these folders, in order, without compiled ones."""
    found = (path for folder in folders for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    return [path for path in found if path.is_file()]


def _write(root: Path) -> None:
    wanted = dict(generate_sync.twins(root))
    wanted |= {root / name: text for name, text in bundle_lua.outputs(root)[0].items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    orphans = [path for path in made(root) if path not in wanted]
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = root / f"{_STAMP}.part"
        part.write_text(wanted[path], "utf-8")
        part.replace(path)  # in one step, for processes that read the old one
    for path in orphans:
        path.unlink()


def _fingerprint(files: Iterable[Path]) -> str:
    """Return a digest of the names, sizes and times of these files."""
    digest = sha256()
    for path in files:
        facts = path.stat()
        digest.update(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def main() -> int:
    """Write the files; print a source that cannot be read."""
    try:
        generate()
    except (HeaderError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
