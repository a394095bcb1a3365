"""When a function library is loaded: never over a newer one."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.library import (
    LIBRARIES,
    Library,
    Step,
    is_missing_function,
    is_ours,
    library_texts,
    next_step,
    server_version,
)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("93", None, Step.LOAD),
        ("93", "93", Step.KEEP),
        ("93", "94", Step.KEEP),
        ("93", "100", Step.KEEP),
        ("93", "92", Step.REPLACE),
        ("93", "9", Step.REPLACE),
        ("1.10", "1.9", Step.REPLACE),
        ("1.9", "1.10", Step.KEEP),
        ("93", "nightly", Step.KEEP),
        ("93", "", Step.KEEP),
        ("93.5", "93.4", Step.REPLACE),
        ("93.5", "93.5", Step.KEEP),
        ("93.5", "93.10", Step.KEEP),
        ("93.5", "94.1", Step.KEEP),
        ("93.5", "93", Step.READ),
        ("93.5", "92", Step.READ),
        ("93.5", "94", Step.READ),
    ],
)
def test_policy(ours: str, theirs: str | None, expected: Step) -> None:
    assert next_step(ours, theirs) is expected


def test_of_two_releases_at_most_one_replaces_the_other() -> None:
    versions = [f"{wire}.{number}" for wire in (93, 94) for number in (1, 2, 9, 10)]
    for ours in versions:
        for theirs in versions:
            steps = [next_step(ours, theirs), next_step(theirs, ours)]
            assert steps.count(Step.REPLACE) == (ours != theirs), (ours, theirs)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_a_text_of_ours_is_recognized_by_its_second_line(library: Library) -> None:
    assert is_ours(library.text)
    first, _, rest = library.text.split("\n", 2)
    assert not is_ours(f"{first}\n{rest}")
    assert not is_ours(f"{first}\n\n-- Not by python tools/bundle_lua.py\n{rest}")


@pytest.mark.parametrize("source", ["", "#!lua name=demo"])
def test_a_text_of_one_line_is_not_ours(source: str) -> None:
    assert not is_ours(source)


def test_the_texts_on_a_server_are_read_by_name() -> None:
    row = [b"library_name", b"demo", b"engine", b"LUA", b"functions", [], b"library_code", b"#!lua name=demo"]
    assert library_texts([row]) == {"demo": "#!lua name=demo"}
    assert library_texts([]) == {}


def test_a_library_that_exists_but_cannot_say_its_version_is_replaced() -> None:
    assert next_step("93", None, load_refused=True) is Step.REPLACE


def test_a_library_that_somebody_else_just_loaded_is_judged_by_its_version() -> None:
    assert next_step("93", "94", load_refused=True) is Step.KEEP


@pytest.mark.parametrize("text", ["ERR Function not found", "Function not loaded", "NOSCRIPT No matching script."])
def test_the_ways_a_server_says_that_a_function_is_missing(text: str) -> None:
    assert is_missing_function(text)


def test_other_errors_do_not_mean_that_a_function_is_missing() -> None:
    assert not is_missing_function("NOPERM this user has no permissions to run the 'fcall' command")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ("# Server\r\nredis_version:6.2.9\r\nredis_mode:standalone\r\n", ("Redis 6.2.9", 6)),
        ("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\n", ("Valkey 9.1.2", 9)),
        ("", ("server of unknown version", 0)),
    ],
)
def test_valkey_counts_by_its_own_version(info: str, expected: tuple[str, int]) -> None:
    assert server_version(info) == expected


def test_loading_sends_the_text_and_replaces_only_when_told() -> None:
    library = Library("demo", "1", "demo_version", "#!lua name=demo")
    assert library.load(replace=False).words == ("FUNCTION", "LOAD", "#!lua name=demo")
    assert library.load(replace=True).words == ("FUNCTION", "LOAD", "REPLACE", "#!lua name=demo")
    assert library.ask.words == ("FCALL", "demo_version", 0)
