"""A wire of another system is its folder: without it the package works, and nothing speaks of the wire."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration_queue.wires import WIRES, Wire

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, sys

import httpx

import orchestration_queue
from orchestration_queue.cli.main import app
from orchestration_queue.doctor import CHECKS, run_checks
from orchestration_queue.http import create_app
from orchestration_queue.wires import WIRES
from typer.testing import CliRunner

url, home = sys.argv[1:]
assert orchestration_queue.__file__.startswith(home), orchestration_queue.__file__


async def pages():
    served = create_app(url, console=True, wires={wire.name: ["q"] for wire in WIRES})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://test") as client:
        for path in ("/ui", "/openapi.json", *(f"/ui/{wire.name}" for wire in WIRES)):
            answer = await client.get(path)
            assert answer.status_code == 200, answer.text
            print(answer.text)
    await served.aclose()


print(CliRunner().invoke(app, ["--help"]).stdout)
print(list(CHECKS), list(run_checks(url)))
asyncio.run(pages())
"""


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_without_its_folder_a_wire_is_gone(wire: Wire, tmp_path: Path, server_url: str) -> None:
    name = wire.name
    gone = {str(ROOT / "orchestration_queue" / "wires" / name)}
    shutil.copytree(
        ROOT / "orchestration_queue",
        tmp_path / "orchestration_queue",
        ignore=lambda folder, names: {each for each in names if f"{folder}/{each}" in gone or each == "__pycache__"},
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server_url, str(tmp_path)],
        cwd=tmp_path,  # before what is installed
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.lower()
    assert name not in said
    assert all(other.name in said for other in WIRES if other != wire)
