"""What the server's functions take, as `lua/signatures` records it: releases side by side call the same library.

After an addition, record it: ``python -m tests.unit.test_signatures``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tools"))

from bundle_lua import LIBRARIES, _queue_keys  # noqa: E402  # needs the path
from lua_header import Argument, Contract, Key, Repeated, read_contract  # noqa: E402

RECORD = ROOT / "lua" / "signatures"
RECORDED = ("orchestration_queue_1", "chasquimq")
"""Libraries that only this package calls; the others follow what their documents and originals say."""
_HEAD = """\
# What the server's functions take: keys and arguments in their order. Written by: python -m tests.unit.test_signatures
# Old and new releases call one library side by side, so a function only gains optional words at its end.
"""

Signatures = dict[str, list[str]]
"""By function: its keys, then its arguments, a line each."""


def signatures() -> Signatures:
    """Return what the sources say."""
    found: Signatures = {}
    for library in RECORDED:
        queue_keys = () if library == "chasquimq" else _queue_keys()
        for path in sorted((ROOT / "lua" / library).glob("*.lua")):
            contract = read_contract(path, queue_keys)
            found[f"{LIBRARIES[library]}{contract.name}"] = [*_keys(contract), *_arguments(contract)]
    return found


def _keys(contract: Contract) -> Iterator[str]:
    yield from map(_key, contract.keys)
    for listed in contract.lists:
        yield from (f"{_key(key)} of {listed.name}" for key in listed.keys)


def _key(key: Key) -> str:
    return f"key {key.name}{'?' if key.optional else ''}"


def _arguments(contract: Contract) -> Iterator[str]:
    for place in range(len(contract.arguments) + 1):
        yield from (word for listed in contract.lists if listed.after == place for word in _items(listed))
        if place < len(contract.arguments):
            yield _argument(contract.arguments[place])


def _items(listed: Repeated) -> Iterator[str]:
    yield from (f"{_argument(each)} of {listed.name}" for each in listed.arguments)


def _argument(each: Argument) -> str:
    mark = "*" if each.repeats else "?" if each.maybe else "" if each.default is None else f"={each.default}"
    return f"arg {each.name} {each.type}{mark}"


def read_record(text: str) -> Signatures:
    found: Signatures = {}
    words: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            words.append(line.strip())
        elif line and line[0] != "#":
            words = found[line] = []
    return found


def breaks(recorded: Signatures, now: Signatures) -> Iterator[str]:
    """Return, for each function that older callers could no longer call, a sentence that says what to do."""
    advice = (
        "Processes of the last release call it as recorded, while this library serves them: keep it, add optional keys "
        "and arguments at its end only, or add a function with another name."
    )
    for name, words in recorded.items():
        if name not in now:
            yield f"{name} is gone. {advice}"
            continue
        for kind in ("key", "arg"):
            before, after = ([word for word in each if word.startswith(kind)] for each in (words, now[name]))
            for place, (old, new) in enumerate(zip_longest(before, after), 1):
                is_added = old is None and new is not None and " of " not in new and any(mark in new for mark in "?=*")
                if old != new and not is_added:
                    yield f"{name}: {kind} {place} is {new or 'gone'}, and was {old or 'not there'}. {advice}"
                    break


def test_no_function_takes_what_older_releases_do_not_send() -> None:
    recorded, now = read_record(RECORD.read_text("utf-8")), signatures()
    assert not list(breaks(recorded, now))
    assert recorded == now, "Record what was added: python -m tests.unit.test_signatures"


KNOWN: Signatures = {"oq1_a": ["key stream", "arg now_ms int", "arg name text"], "oq1_b": []}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["key stream", "arg now_ms int", "arg name text", "arg most int=5"], ""),
        (["key stream", "key lock?", "arg now_ms int", "arg name text", "arg more text*"], ""),
        (["key stream", "arg name text", "arg now_ms int"], "arg 1 is arg name text, and was arg now_ms int"),
        (["key stream", "arg now_ms int"], "arg 2 is gone"),
        (["key stream", "arg now_ms int", "arg name json"], "arg 2 is arg name json"),
        (["key stream", "arg now_ms int", "arg name text", "arg most int"], "arg 3 is arg most int, and was not there"),
        (["key stream", "key lock", "arg now_ms int", "arg name text"], "key 2 is key lock"),
        (["key stream", "arg now_ms int", "arg name text", "arg x int=0 of jobs"], "arg 3 is arg x int=0 of jobs"),
        (["arg now_ms int", "arg name text"], "key 1 is gone"),
    ],
)
def test_a_change_that_is_no_addition_is_noticed(words: list[str], says: str) -> None:
    found = list(breaks(KNOWN, KNOWN | {"oq1_a": words}))
    assert len(found) == bool(says)
    assert not found or says in found[0]
    assert not found or found[0].endswith("or add a function with another name.")


def test_a_function_that_is_gone_is_noticed_and_a_new_one_is_not() -> None:
    assert [found[:13] for found in breaks(KNOWN, {"oq1_b": [], "oq1_c": ["arg x int"]})] == ["oq1_a is gone"]


def main() -> None:
    """Record additions."""
    now = signatures()
    recorded = read_record(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    if found := list(breaks(recorded, now)):
        raise SystemExit("\n".join(found))
    lines = (f"{name}\n" + "".join(f"  {word}\n" for word in words) for name, words in now.items())
    RECORD.write_text(_HEAD + "".join(lines), "utf-8")


if __name__ == "__main__":
    main()
