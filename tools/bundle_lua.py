"""Builds the server's function libraries and the Python calls from lua/: ``python tools/bundle_lua.py [--check]``.

Each change of a library's text gives it the next number in lua/revisions, which tells servers and clients the newer of
two texts. After a merge that conflicts there, run this: it reads the lines of both sides.
"""

from __future__ import annotations

import re
import sys
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from lua_commands import write_commands
from lua_header import HeaderError, read_contract
from lua_library import number_text, write_library
from lua_python import write_module

from orchestration_queue.protocol.keys import QueueKeys

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = ROOT / "orchestration_queue" / "protocol"
LIBRARIES = {"glidemq": "glidemq_", "orchestration_queue_1": "oq1_", "chasquimq": "chasquimq_"}
"""Each library's name and what its function names begin with. The prefix without ``_`` names the Python module."""
_QUEUE_KEYS = frozenset(name for name, value in vars(QueueKeys).items() if isinstance(value, cached_property))
_REVISION = re.compile(r"^(\w+) (\d+) ([0-9a-f]{64})$", re.M)
_REVISIONS = """\
# Each library's number, and the SHA-256 of its text without it. Written by: python tools/bundle_lua.py
"""
_CALLS = '''"""The server's functions as typed calls. Generated."""

from typing import Final

__all__ = ["REVISIONS"]

REVISIONS: Final = {{
{entries}}}
"""Each library's number, which grows with every change of its text."""
'''


def outputs(sources: Path = ROOT / "lua", *, is_revised: bool = True) -> dict[Path, str]:
    """Every generated file and what it should say, if `sources` were the folder of the Lua sources.

    Args:
        sources: The folder.
        is_revised: Give each changed text the next number. False keeps the numbers.

    Raises:
        HeaderError: A source breaks the grammar or its own contract.
    """
    shared = _modules(sources / "lib")
    files, texts = {}, {}
    for library, prefix in LIBRARIES.items():
        queue_keys = () if library == "chasquimq" else _QUEUE_KEYS
        contracts = [read_contract(path, queue_keys) for path in sorted((sources / library).glob("*.lua"))]
        if not contracts:
            continue
        files[PROTOCOL / "functions" / f"{prefix[:-1]}.py"] = write_module(library, prefix, contracts)
        if all(contract.body for contract in contracts):
            modules = shared | _modules(sources / library / "lib")
            texts[library] = write_library(library, prefix, contracts, modules)
    commands = [read_contract(path) for path in sorted((sources / "qless").glob("*.lua"))]
    if commands:
        older = [read_contract(path) for path in sorted((sources / "qless" / "older").glob("*.lua"))]
        modules = _modules(sources / "qless" / "lib")
        texts["qless"] = write_commands("qless", commands, older, modules)
    record = sources / "revisions"
    known = _REVISION.findall(record.read_text()) if record.exists() else []
    digests = {library: sha256(text.encode()).hexdigest() for library, text in texts.items()}
    numbers = {library: _number(library, digests[library], known, is_revised=is_revised) for library in texts}
    for library, text in texts.items():
        files[PROTOCOL / "lua" / f"{library}.lua"] = number_text(text, numbers[library])
    entries = "".join(f'    "{library}": {number},\n' for library, number in sorted(numbers.items()))
    files[PROTOCOL / "functions" / "__init__.py"] = _CALLS.format(entries=entries)
    lines = (f"{library} {number} {digests[library]}\n" for library, number in sorted(numbers.items()))
    files[record] = _REVISIONS + "".join(lines)
    return files


def _number(library: str, digest: str, known: list[tuple[str, str, str]], *, is_revised: bool) -> int:
    """Return the number of a text: the highest known one if that has only this text, else the next."""
    entries = {(int(number), text) for name, number, text in known if name == library}
    highest = max((number for number, _ in entries), default=0)
    is_known = {text for number, text in entries if number == highest} == {digest}
    return highest if is_known or not is_revised else highest + 1


def _modules(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.lua"))}


def main(arguments: list[str]) -> int:
    """Write the outputs, or with ``--check`` say whether they are current."""
    try:
        files = outputs()
    except HeaderError as error:
        print(error, file=sys.stderr)
        return 1
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        if stale:
            names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
            print(f"Stale: {names}. Run: python tools/bundle_lua.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
