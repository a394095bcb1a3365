"""Every command with too few words, and with wrong ones: what the original refuses is refused, and changes nothing.

The original is the script inside reqless. It has changed records half-way before it refuses; ours must not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.qless.oracle import Both

NOW = 1_000.0
NUMBERS, JSON = ("soon", "nan1", ""), ("{", "", "nil")

# The words of each command: `#` marks a number, `{` JSON, `?` the first that may be left out.
COMMANDS: dict[str, tuple[str, ...]] = {
    "put": ("me", "q", "new", "K", "{}", "#0"),
    "requeue": ("me", "q", "ready", "K", "{}", "#0"),
    "pop": ("q", "w", "#1"),
    "peek": ("q", "#1"),
    "complete": ("runs", "w", "q", "{}"),
    "fail": ("runs", "w", "g", "m", "?", "{}"),
    "retry": ("runs", "q", "w", "?", "#0"),
    "heartbeat": ("runs", "w", "?", "{}"),
    "get": ("ready",),
    "priority": ("ready", "#3"),
    "log": ("ready", "m", "?", "{}"),
    "depends": ("waits", "on", "runs"),
    "tag": ("add", "ready", "t"),
    "recur": ("q", "r", "K", "{}", "interval", "#60", "#0"),
    "recur.get": ("often",),
    "recur.update": ("often", "priority", "#3"),
    "recur.tag": ("often", "t"),
    "recur.untag": ("often", "t"),
    "unrecur": ("often",),
    "unfail": ("q", "g", "?", "#5"),
    "failed": ("g", "?", "#0", "#5"),
    "jobs": ("running", "q", "?", "#0", "#5"),
    "length": ("q",),
    "stats": ("q", "#1000"),
    "track": ("track", "ready"),
    "config.set": ("heartbeat", "60"),
    "config.unset": ("heartbeat",),
}


def malformed(command: str) -> Iterator[tuple[str, ...]]:
    """Make the wrong calls of a command: each word left out with all after it, and each number and JSON spoilt."""
    words = COMMANDS[command]
    least = words.index("?") if "?" in words else len(words)
    plain = tuple(word.lstrip("#") for word in words if word != "?")
    for length in range(least):
        yield plain[:length]
    for place, word in enumerate(word for word in words if word != "?"):
        for wrong in NUMBERS if word.startswith("#") else JSON if word == "{}" else ():
            yield (*plain[:place], wrong, *plain[place + 1 :])


def prepare(both: Both) -> None:
    """Have jobs of every kind in both."""
    both.clear()
    put = ("me", "q")
    both.run("put", NOW - 9, *put, "runs", "K", "{}", 0, "tags", '["t"]', "priority", 5)
    both.run("pop", NOW - 8, "q", "w", 1)
    both.run("put", NOW - 7, *put, "ready", "K", "{}", 0)
    both.run("put", NOW - 6, *put, "waits", "K", "{}", 0, "depends", '["ready"]')
    both.run("recur", NOW - 5, "q", "often", "K", "{}", "interval", 60, 600)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_original_refuses_is_refused_and_changes_nothing(both: Both, command: str) -> None:
    refused = 0
    for words in malformed(command):
        prepare(both)
        before = both.keys(both.ours)
        original, ours = both.run(command, NOW, *words)
        if original.is_error:
            assert ours.is_error, (words, original.reply, ours.reply)
        if ours.is_error:
            refused += 1
            assert both.keys(both.ours) == before, words
            assert ours.messages == [], words
    assert refused
