"""Builds the server's function libraries and the Python calls from lua/: ``python tools/bundle_lua.py [--check]``."""

from __future__ import annotations

import sys
from functools import cached_property
from pathlib import Path

from lua_commands import write_commands
from lua_header import HeaderError, read_contract
from lua_library import write_library
from lua_python import write_module

from orchestration_queue.protocol.keys import QueueKeys

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = ROOT / "orchestration_queue" / "protocol"
LIBRARIES = {"glidemq": "glidemq_", "orchestration_queue_1": "oq1_", "chasquimq": "chasquimq_"}
"""Each library's name and what its function names begin with. The prefix without ``_`` names the Python module."""
_QUEUE_KEYS = frozenset(name for name, value in vars(QueueKeys).items() if isinstance(value, cached_property))


def outputs(sources: Path = ROOT / "lua") -> dict[Path, str]:
    """Every generated file and what it should say, if `sources` were the folder of the Lua sources.

    Raises:
        HeaderError: A source breaks the grammar or its own contract.
    """
    shared = _modules(sources / "lib")
    files = {PROTOCOL / "functions" / "__init__.py": '"""The server\'s functions as typed calls. Generated."""\n'}
    for library, prefix in LIBRARIES.items():
        queue_keys = () if library == "chasquimq" else _QUEUE_KEYS
        contracts = [read_contract(path, queue_keys) for path in sorted((sources / library).glob("*.lua"))]
        if not contracts:
            continue
        files[PROTOCOL / "functions" / f"{prefix[:-1]}.py"] = write_module(library, prefix, contracts)
        if all(contract.body for contract in contracts):
            modules = shared | _modules(sources / library / "lib")
            files[PROTOCOL / "lua" / f"{library}.lua"] = write_library(library, prefix, contracts, modules)
    commands = [read_contract(path) for path in sorted((sources / "qless").glob("*.lua"))]
    if commands:
        older = [read_contract(path) for path in sorted((sources / "qless" / "older").glob("*.lua"))]
        modules = _modules(sources / "qless" / "lib")
        files[PROTOCOL / "lua" / "qless.lua"] = write_commands("qless", "3", commands, older, modules)
    return files


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
