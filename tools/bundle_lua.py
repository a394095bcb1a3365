"""Builds the server's function libraries and the Python calls from lua/. ``tools/generate.py`` writes them.

Each change of a library's text gives it the next number, which tells servers and clients the newer of two texts.
``python tools/bundle_lua.py`` records the numbers in lua/revisions; with ``--check`` it only says whether they are
recorded. After a merge that conflicts there, run it: it reads the lines of both sides.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from lua_commands import write_commands
from lua_header import HeaderError, read_contract
from lua_library import number_text, write_library
from lua_python import write_module

__all__ = ["LIBRARIES", "PROTOCOL", "ROOT", "outputs"]

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = Path("orchestration_queue", "protocol")
LIBRARIES = {"glidemq": "glidemq_", "orchestration_queue_1": "oq1_", "chasquimq": "chasquimq_"}
"""Each library's name and what its function names begin with. The prefix without ``_`` names the Python module."""
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


def outputs(root: Path = ROOT, *, is_revised: bool = True) -> tuple[dict[Path, str], str]:
    """Return the files that are made from Lua sources, by their paths in the checkout, and the text of lua/revisions.

    Args:
        root: The folder that holds the folder `lua`.
        is_revised: Give each changed text the next number. False keeps the numbers.

    Raises:
        HeaderError: A source breaks the grammar or its own contract.
    """
    sources = root / "lua"
    shared = _modules(sources / "lib")
    files, texts = {}, {}
    for library, prefix in LIBRARIES.items():
        queue_keys = () if library == "chasquimq" else _queue_keys()
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
    known = _REVISION.findall(record.read_text("utf-8")) if record.exists() else []
    digests = {library: sha256(text.encode()).hexdigest() for library, text in texts.items()}
    numbers = {library: _number(library, digests[library], known, is_revised=is_revised) for library in texts}
    for library, text in texts.items():
        files[PROTOCOL / "lua" / f"{library}.lua"] = number_text(text, numbers[library])
    entries = "".join(f'    "{library}": {number},\n' for library, number in sorted(numbers.items()))
    files[PROTOCOL / "functions" / "__init__.py"] = _CALLS.format(entries=entries)
    lines = (f"{library} {number} {digests[library]}\n" for library, number in sorted(numbers.items()))
    return files, _REVISIONS + "".join(lines)


@cache
def _queue_keys() -> frozenset[str]:
    """Return the names of the keys that a queue has one of, read as text: builds cannot import the package."""
    module = ast.parse((ROOT / PROTOCOL / "keys.py").read_text("utf-8"))
    (keys,) = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "QueueKeys")
    return frozenset(
        node.name
        for node in keys.body
        if isinstance(node, ast.FunctionDef) and "cached_property" in map(ast.unparse, node.decorator_list)
    )


def _number(library: str, digest: str, known: list[tuple[str, str, str]], *, is_revised: bool) -> int:
    """Return the number of a text: the highest known one if that has only this text, else the next."""
    entries = {(int(number), text) for name, number, text in known if name == library}
    highest = max((number for number, _ in entries), default=0)
    is_known = {text for number, text in entries if number == highest} == {digest}
    return highest if is_known or not is_revised else highest + 1


def _modules(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.lua"))}


def main(arguments: list[str]) -> int:
    """Write the outputs and record their numbers, or with ``--check`` report whether the numbers are recorded."""
    try:
        files, revisions = outputs()
    except HeaderError as error:
        print(error, file=sys.stderr)
        return 1
    record = ROOT / "lua" / "revisions"
    if "--check" in arguments:
        if is_stale := record.read_text("utf-8") != revisions:
            print("Stale: lua/revisions. Run: python tools/bundle_lua.py", file=sys.stderr)
        return int(is_stale)
    for path, text in {**{ROOT / name: text for name, text in files.items()}, record: revisions}.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
