"""What messages of a broadcast may ask for, and what a job may report of its tokens."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.broadcasts import check_length, check_options
from orchestration_queue.protocol.operations.usage import report_tokens


@pytest.mark.parametrize("options", [{}, {"job_id": "mine"}, {"delay": timedelta(seconds=5)}, {"attempts": 3}])
def test_options_that_messages_have(options: dict[str, Any]) -> None:
    given = JobOptions(**options)
    assert check_options(given) is given


@pytest.mark.parametrize("options", [{"priority": 1}, {"lifo": True}, {"job_id": "a||b"}, {"pools": {"p": 1}}])
def test_options_that_messages_do_not_have(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        check_options(JobOptions(**options))


def test_a_broadcast_keeps_one_message_or_more() -> None:
    assert (check_length(None), check_length(1), check_length(1000)) == (None, 1, 1000)
    for length in (0, -1, True, 1.5, "5"):
        with pytest.raises(InvalidOptionError):
            check_length(length)  # type: ignore[arg-type]


def test_tokens_are_a_whole_number() -> None:
    assert report_tokens(QueueKeys("q"), "1", 0).args == ("tpmTokens", 0)
    assert report_tokens(QueueKeys("q"), "1", 7).args == ("tpmTokens", 7)
    for tokens in (-1, True, 1.5, "5"):
        with pytest.raises(UsageError):
            report_tokens(QueueKeys("q"), "1", tokens)  # type: ignore[arg-type]
