"""Build the jar of Spark's progress listener from its source in java/, byte for byte the same each time.

The jar is committed and ships in the wheel: installing the package needs no compiler. Its manifest names the
digest of its sources, which shows whether it is stale; where the compiler is of the version that made it,
``--check`` compiles again and compares every byte. docs/decisions/0014-spark-listener.md says why.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "java"
JAR = ROOT / "orchestration_queue" / "spark" / "listener.jar"

_RELEASE = "17"
"""The oldest Java of Spark 4."""
_FLAGS = ("--release", _RELEASE, "-g:none", "-proc:none", "-Werror", "-Xlint:all,-classfile,-path")
_MANIFEST = "META-INF/MANIFEST.MF"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time that a zip knows


def source_digest(sources: Path = SOURCES) -> str:
    """Return the SHA-256 of all sources: names and contents, in order."""
    digest = hashlib.sha256()
    for path in _sources(sources):
        digest.update(f"{path.relative_to(sources).as_posix()}\0".encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def made_from(jar: Path = JAR) -> tuple[str, int]:
    """Return the digest of a jar's sources and its compiler's version; empty and 0 without a jar."""
    if not jar.exists():
        return "", 0
    with zipfile.ZipFile(jar) as archive:
        manifest = archive.read(_MANIFEST).decode()
    digest = re.search(r"^Source-SHA-256: (\w+)\r$", manifest.replace("\r\n ", ""), re.MULTILINE)
    version = re.search(r"^Build-Jdk-Spec: (\d+)\r$", manifest, re.MULTILINE)
    return (digest[1] if digest else ""), int(version[1] if version else 0)


def compiler_version() -> int:
    """Return the major version of the ``javac`` on the path; 0 without one."""
    if (javac := shutil.which("javac")) is None:
        return 0
    said = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True)
    return int((said.stdout + said.stderr).split()[1].partition(".")[0])


def build(version: int) -> bytes:
    """Compile, and pack the result.

    Args:
        version: That of the compiler.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SystemExit("The listener is compiled against Spark's jars; install pyspark, as `make` does.")
    jars = Path(spec.origin).parent / "jars"
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "classes")
        sources = [str(path) for path in _sources(SOURCES)]
        subprocess.run(["javac", *_FLAGS, "-cp", f"{jars}/*", "-d", str(out), *sources], check=True)  # noqa: S607
        files = {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*.class"))}
        jar = Path(directory, "listener.jar")
        with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
            for name, content in {_MANIFEST: _manifest(version), **files}.items():
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.create_system, entry.external_attr = 3, 0o644 << 16
                archive.writestr(entry, content)
        return jar.read_bytes()


def _manifest(version: int) -> bytes:
    digest = source_digest()
    # A line of a manifest holds 72 bytes; a longer one continues after a space.
    lines = ("Manifest-Version: 1.0", f"Build-Jdk-Spec: {version}", f"Source-SHA-256: {digest[:50]}", f" {digest[50:]}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def _sources(sources: Path) -> list[Path]:
    return sorted(sources.rglob("*.java"))


def is_stale() -> bool:
    """Whether the committed jar is not what its sources give, as far as can be told here."""
    digest, version = made_from()
    return digest != source_digest() or (version == compiler_version() and build(version) != JAR.read_bytes())


def main(arguments: list[str]) -> int:
    """Write the jar, or with ``--check`` say whether it is what its sources give."""
    if not is_stale():
        return 0
    if "--check" in arguments:
        print("Stale: orchestration_queue/spark/listener.jar. Run: python tools/build_listener.py", file=sys.stderr)
        return 1
    if not (version := compiler_version()):
        print("There is no javac, which makes the listener's jar; install a JDK of version 17.", file=sys.stderr)
        return 1
    JAR.write_bytes(build(version))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
