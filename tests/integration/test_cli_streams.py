"""Whatever stdout, stderr, the locale and the working directory are: one sentence, and a documented exit code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from orchestration_queue.client import Queue
from tests.processes import OQ

NAME: Final = "zürich→"
ENCODINGS: Final = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LANG": "C", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
]
READS: Final = [
    "queue ls", f"queue show {NAME}", f"queue config {NAME}", f"job ls {NAME}", f"job show {NAME} 1",
    f"job why {NAME} 1", "usage", "doctor", "--help", "job add --help", "--version",
]  # fmt: skip


@pytest.fixture
def environment(server_url: str, raw: Any) -> Iterator[dict[str, str]]:
    with Queue(NAME, url=server_url) as queue:
        queue.add("näme", {"to": "zoë→"})
        yield os.environ | {"OQ_URL": server_url}
        queue.obliterate(force=True)


def run(words: str, environment: dict[str, str], **streams: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([OQ, *words.split()], env=environment, timeout=100, check=False, **streams)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["ascii", "latin-1", "C"])
def test_characters_that_the_output_lacks_are_replaced(encoding: dict[str, str], environment: dict[str, str]) -> None:
    for words in READS[:6]:
        ended = run(words, environment | encoding, capture_output=True)
        assert (ended.returncode, ended.stderr) == (0, b""), words
        if words.startswith("job show"):
            assert "näme".encode("latin-1" if "latin-1" in encoding.values() else "ascii", "replace") in ended.stdout


@pytest.mark.parametrize("words", READS)
def test_output_that_cannot_be_written_ends_in_a_sentence(words: str, environment: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run(words, environment, stdout=full, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr.count(b"\n")) == (5, 1), ended.stderr
    assert b"The output cannot be written (No space left on device)" in ended.stderr


def test_a_reader_that_leaves_ends_the_command_quietly(environment: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = run("queue ls", environment, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_closed_streams_take_nothing_from_the_command(environment: dict[str, str]) -> None:
    def close() -> None:
        for descriptor in (0, 1, 2):
            os.close(descriptor)

    for words, code in ((f"job add {NAME} n", 0), ("queue show nix", 3), ("queue nix", 2)):
        ended = subprocess.run([OQ, *words.split()], env=environment, timeout=100, check=False, preexec_fn=close)
        assert ended.returncode == code, words


def test_a_full_stderr_does_not_change_the_exit_code(environment: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        assert run("queue show nix", environment, stderr=full).returncode == 3


@pytest.mark.parametrize("words", ["queue ls", "worker tasks:tasks --queue q", "worker tasks:tasks --reload", "doctor"])
def test_a_deleted_working_directory_is_said(words: str, tmp_path: Path, environment: dict[str, str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["/bin/sh", "-c", f"rmdir {gone} && exec {OQ} {words}"]
    without = {name: value for name, value in environment.items() if name != "OQ_URL"}
    ended = subprocess.run(command, cwd=gone, env=without, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert "working directory" in ended.stderr
    assert "no longer exists" in ended.stderr
