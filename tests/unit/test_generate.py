"""Files that are made from others: not in Git, always what their sources say, and gone when a source is gone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))
generate = import_module("generate")
LUA = Path("lua/glidemq/tryLock.lua")
ASYNC = Path("orchestration_queue/client/_async/tags.py")
TWIN = Path("orchestration_queue/client/_sync/tags.py")
TEXT = Path("orchestration_queue/protocol/lua/glidemq.lua")


def git(root: Path, *words: str) -> list[str]:
    """Run Git; returns the lines that it prints."""
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *words]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True, timeout=100
    ).stdout.splitlines()


def run(root: Path) -> subprocess.CompletedProcess[str]:
    """Write the files of a checkout, as the build hook, `make` and pytest do."""
    command = [sys.executable, str(root / "tools" / "generate.py")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the committed sources of this one, as they are on disk now."""
    try:
        names = git(
            ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "lua", "tools", "orchestration_queue"
        )
    except subprocess.CalledProcessError:
        pytest.skip("not a checkout of the repository")
    for name in (".gitignore", *names):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message=All")
    assert run(tmp_path).returncode == 0
    assert git(tmp_path, "status", "--porcelain") == []
    return tmp_path


def test_no_file_that_is_made_is_in_git() -> None:
    try:
        assert git(ROOT, "ls-files", "--cached", "--ignored", "--exclude-standard") == []
    except subprocess.CalledProcessError:
        pytest.skip("not a checkout of the repository")


def test_a_fresh_checkout_gets_what_this_one_has(checkout: Path) -> None:
    made = generate.made(checkout)
    assert [path.relative_to(checkout) for path in made] == [path.relative_to(ROOT) for path in generate.made()]
    assert len(made) > 50
    for path in made:
        assert path.read_bytes() == (ROOT / path.relative_to(checkout)).read_bytes(), path


def test_every_file_that_is_made_gets_into_the_wheel(checkout: Path) -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["artifacts"]
    for path in generate.made(checkout):
        assert any(fnmatchcase(str(path.relative_to(checkout)), pattern) for pattern in patterns), path


@pytest.mark.parametrize("name", [LUA, Path("lua/lib/record.lua"), Path("lua/qless/lib/calls.lua"), ASYNC], ids=str)
def test_a_changed_source_changes_no_other_file_in_git(checkout: Path, name: Path) -> None:
    mark = "changed_by_a_test"
    comment = "--" if name.suffix == ".lua" else "#"
    (checkout / name).write_text(f"{(checkout / name).read_text().rstrip()}  {comment} {mark}\n")
    assert run(checkout).returncode == 0
    assert git(checkout, "status", "--porcelain") == [f" M {name}"]
    assert any(mark in path.read_text() for path in generate.made(checkout))


@pytest.mark.parametrize(
    "spoil",
    [Path.unlink, lambda path: path.write_text("edited"), lambda path: path.with_name("stray.py").write_text("")],
    ids=["removed", "edited", "strayed"],
)
@pytest.mark.parametrize("name", [TWIN, TEXT], ids=str)
def test_what_is_not_as_made_is_made_again(checkout: Path, name: Path, spoil: Callable[[Path], object]) -> None:
    spoil(checkout / name)
    assert run(checkout).returncode == 0
    assert (checkout / name).read_bytes() == (ROOT / name).read_bytes()
    assert not (checkout / name).with_name("stray.py").exists()


def test_several_processes_may_make_them_at_a_time(checkout: Path) -> None:
    for path in generate.made(checkout):
        path.unlink()
    command = [sys.executable, str(checkout / "tools" / "generate.py")]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(100) for process in processes] == [0] * 4
    test_a_fresh_checkout_gets_what_this_one_has(checkout)


def test_a_twin_ends_with_its_source(checkout: Path) -> None:
    (checkout / ASYNC).unlink()
    assert run(checkout).returncode == 0
    assert not (checkout / TWIN).exists()
    git(checkout, "checkout", "--quiet", "--", str(ASYNC))
    assert run(checkout).returncode == 0
    assert (checkout / TWIN).exists()


def test_a_package_that_moves_leaves_nothing_behind(checkout: Path) -> None:
    """Git removes its files but no ignored ones, which a wheel would take in."""
    package = checkout / "orchestration_queue" / "wires" / "qless"
    shutil.copytree(package, checkout / "orchestration_queue" / "moved", ignore=shutil.ignore_patterns("_sync"))
    git(checkout, "rm", "-r", "--quiet", "orchestration_queue/wires/qless")
    assert (package / "_sync" / "client.py").exists()
    assert run(checkout).returncode == 0
    assert not [path for path in package.rglob("*") if path.is_file()]
    assert (checkout / "orchestration_queue" / "moved" / "_sync" / "client.py").exists()


def test_files_as_made_are_left_alone(checkout: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in generate.made(checkout)}
    (checkout / ".generated").unlink()
    assert run(checkout).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("code", ["import asyncio\nasyncio.gather()", "await(later)", "async = 1"])
def test_a_source_without_a_counterpart_is_refused_in_one_line(checkout: Path, code: str) -> None:
    (checkout / ASYNC).write_text(code)
    result = run(checkout)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert f"{ASYNC}: {code.splitlines()[-1]!r} has no twin" in result.stderr
    assert (checkout / TWIN).read_bytes() == (ROOT / TWIN).read_bytes()


def test_what_is_drawn_into_committed_files_is_current() -> None:
    for name, draw in import_module("write_drawn").DRAWN.items():
        assert (ROOT / name).read_text() == draw(), f"{name} is stale; run: make generate"
