"""The same random commands in the script inside reqless and in our library: replies, messages and keys are equal.

Its version differs from the core that we follow in what section 16 of our sheet of facts lists: jobs have throttles,
`peek` takes an offset, `ql:tags` drops to no less than zero, an exhausted `retry` publishes nothing, and a heartbeat
does not note the worker.
"""

from __future__ import annotations

import pytest

from tests.qless.fuzzing import Fuzzer
from tests.qless.oracle import Both, Outcome, is_same, parsed


def test_random_commands_do_the_same(both: Both, request: pytest.FixtureRequest) -> None:
    for seed in range(request.config.getoption("--qless-runs")):
        both.clear()
        fuzzer, said = Fuzzer(seed), []
        for number in range(100):
            command, *args = fuzzer.command()
            said.append((fuzzer.now, command, *args))
            original, ours = both.run(str(command), fuzzer.now, *args)
            if "attempt to" in str(original.reply):
                break  # the original has broken down half-way, and left keys that no command leaves
            if not _agree(str(command), original, ours):
                pytest.fail(f"seed {seed}, command {number}: {said}\n{original}\n{ours}", pytrace=False)
        else:
            _compare_keys(both, f"seed {seed}: {said}")


def _compare_keys(both: Both, place: str) -> None:
    theirs, mine = both.keys(both.oracle), both.keys(both.ours)
    differing = {
        key: (theirs.get(key), mine.get(key)) for key in theirs | mine if not is_same(theirs.get(key), mine.get(key))
    }
    if differing:
        pytest.fail(f"{place}\n{differing}", pytrace=False)


def _agree(command: str, original: Outcome, ours: Outcome) -> bool:
    is_reply_same = original.is_error or is_same(parsed(original.reply), parsed(ours.reply))
    return (
        original.is_error == ours.is_error and is_reply_same and is_same(original.messages, _comparable(command, ours))
    )


def _comparable(command: str, ours: Outcome) -> list[tuple[str, object]]:
    if command == "retry":
        return [message for message in ours.messages if message[0] != "ql:failed"]
    return ours.messages
