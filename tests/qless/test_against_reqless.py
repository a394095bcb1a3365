"""The same random commands in the script inside reqless and in our library: replies, messages and keys are equal.

Its version differs from the core that we follow in what section 16 of our sheet of facts lists: jobs have throttles,
`peek` takes an offset, `ql:tags` drops to no less than zero, an exhausted `retry` publishes nothing, and a heartbeat
does not note the worker. A `retry` into another queue leaves the job's record with the old one, so that the lock of its
next run stays behind when that ends, and the job runs again. Ours takes the new queue down, so here each job is retried
in its own.
"""

from __future__ import annotations

import pytest

from tests.qless.fuzzing import Fuzzer
from tests.qless.oracle import Both, Outcome, is_same, parsed


def test_random_commands_do_the_same(both: Both, request: pytest.FixtureRequest) -> None:
    for seed in range(request.config.getoption("--fuzz-runs") or 40):
        if difference := _run(both, seed):
            pytest.fail(f"seed {seed}: {difference}", pytrace=False)


KEPT: dict[str, tuple[tuple[str | float, ...], ...]] = {
    "a group without a message": (
        ("put", 1, "w", "q", "J", "k", "{}", 0, "retries", 0),
        ("pop", 2, "q", "w", 1),
        ("retry", 3, "J", "q", "w", 0, "g1"),
        ("get", 3, "J"),
        ("failed", 3, "g1"),
        ("cancel", 4, "J"),
        ("failed", 5),
    ),
}
"""Sequences in which the two once differed: a command, when, and its arguments."""


@pytest.mark.parametrize("sequence", KEPT)
def test_what_once_differed_does_the_same(both: Both, sequence: str) -> None:
    both.clear()
    for command, now, *args in KEPT[sequence]:
        original, ours = both.run(str(command), float(now), *args)
        assert _agree(str(command), original, ours), (command, original, ours)
    assert is_same(both.keys(both.oracle), both.keys(both.ours))


def _run(both: Both, seed: int) -> str | None:
    """Run 100 commands in both. Return where they differ."""
    both.clear()
    fuzzer, said = Fuzzer(seed), []
    for number in range(100):
        command, *args = fuzzer.command()
        if command == "retry":
            args[1] = both.oracle.hget(f"ql:j:{args[0]}", "queue") or args[1]
        said.append((fuzzer.now, command, *args))
        original, ours = both.run(str(command), fuzzer.now, *args)
        if "attempt to" in str(original.reply):
            return None  # the original has broken down half-way, and left keys that no command leaves
        if not _agree(str(command), original, ours):
            return f"command {number}: {said}\n{original}\n{ours}"
    theirs, mine = both.keys(both.oracle), both.keys(both.ours)
    differing = {
        key: (theirs.get(key), mine.get(key)) for key in theirs | mine if not is_same(theirs.get(key), mine.get(key))
    }
    return f"{said}\n{differing}" if differing else None


def _agree(command: str, original: Outcome, ours: Outcome) -> bool:
    is_reply_same = original.is_error or is_same(parsed(original.reply), parsed(ours.reply))
    return (
        original.is_error == ours.is_error and is_reply_same and is_same(original.messages, _comparable(command, ours))
    )


def _comparable(command: str, ours: Outcome) -> list[tuple[str, object]]:
    if command == "retry":
        return [message for message in ours.messages if message[0] != "ql:failed"]
    return ours.messages
