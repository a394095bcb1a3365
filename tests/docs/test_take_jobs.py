"""The code and the calls of docs/how-to/take-jobs.md do what the page says."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from orchestration_queue.client import Queue
from orchestration_queue.states import JobState
from tests.docs.page import Page

PAGE = Page("how-to/take-jobs.md")


def test_the_code_of_the_page_takes_a_job(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    PAGE.run()
    assert capsys.readouterr().out == PAGE.blocks("text")[0]
    with Queue("mail", url=server_url) as queue:
        (job,) = queue.jobs("completed")
        assert job.result == "sent"


def test_the_calls_of_the_page_take_renew_and_settle_a_job(server_url: str, raw: Any) -> None:
    group, take, renew, settle = PAGE.blocks("text")[1:]

    def call(line: str, **values: object) -> Any:
        seconds, microseconds = raw.time()
        known = {"now": seconds * 1000 + microseconds // 1000, **values}
        words = [str(known[word[1:]]) if word.startswith("$") else word for word in shlex.split(line)]
        return raw.execute_command(*words)

    with Queue("mail", url=server_url) as queue:
        job = queue.add("send", {"to": "ada"})
        call(group)
        id_, entry, flat = call(take)[1]
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        assert (id_, fields["name"], fields["data"]) == (job.id, "send", '{"to":"ada"}')
        lease = {"id": id_, "processedOn": fields["processedOn"], "stalledCount": fields.get("stalledCount", "0")}
        assert call(renew, **lease) == [1]
        assert job.refresh().state is JobState.ACTIVE
        assert call(settle, entry=entry, **lease)[0] == "c"
        assert job.wait(60) == "sent"
        assert call(settle, entry=entry, **{**lease, "processedOn": "1"})[0] == "l"
        assert call(renew, **lease) == [0]
