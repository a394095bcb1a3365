"""`oq1_reportUsage`: what a job used is on the job and in its minute, once, however often it is reported."""

from __future__ import annotations

import pytest

from orchestration_queue.options import Usage
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import usage
from tests.lua.oq1 import Own
from tests.lua.wire import MINUTE, NOW, Wire, Word, event

KEYS = QueueKeys("q")
ANSWER = Usage(
    model="m-1",
    provider="p",
    tokens={"input": 100, "output": 40},
    costs={"input": 0.1, "output": 0.2},
    cost_unit="usd",
    latency=1.5,
    cached=False,
)
TOLD = (
    '{"model":"m-1","provider":"p","tokens":{"input":100,"output":40},"totalTokens":140,'
    '"costs":{"input":0.1,"output":0.2},"totalCost":0.30000000000000004,"costUnit":"usd","latencyMs":1500,"cached":false}'
)
ON_THE_JOB = {
    "usage:model": "m-1",
    "usage:provider": "p",
    "usage:tokens": '{"input":100,"output":40}',
    "usage:totalTokens": "140",
    "usage:costs": '{"input":0.1,"output":0.2}',
    "usage:totalCost": "0.30000000000000004",
    "usage:costUnit": "usd",
    "usage:latencyMs": "1500",
    "usage:cached": "0",
    "usage:bucketTs": str(MINUTE),
}
IN_ITS_MINUTE = {
    "jobCount": "1",
    "totalTokens": "140",
    "totalCost": "0.30000000000000004",
    "tokens:input": "100",
    "tokens:output": "40",
    "costs:input": "0.1",
    "costs:output": "0.2",
    "models:m-1": "1",
    "costUnit": "usd",
}


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.make_job("1", name="ask")
    return Own(wire)


def report(own: Own, used: Usage, job_id: str = "1", now: int = NOW) -> object:
    return own.send(usage.report(KEYS, job_id, used, now).call)


def minute(own: Own, at: int = MINUTE) -> dict[str, str]:
    return own.wire.hash(f"usage:{at}")


def test_a_report_stands_on_the_job_in_its_minute_and_in_the_events(own: Own) -> None:
    assert report(own, ANSWER) == "ok"
    assert own.wire.hash("job:1") == {"name": "ask", **ON_THE_JOB}
    assert minute(own) == IN_ITS_MINUTE
    assert own.wire.ask("TTL", own.wire.key(f"usage:{MINUTE}")) == 30 * 24 * 3600
    assert own.wire.events() == [event("usage", "1", data=TOLD)]


def test_the_same_report_again_changes_nothing_but_is_told(own: Own) -> None:
    report(own, ANSWER)
    report(own, ANSWER)
    assert own.wire.hash("job:1") == {"name": "ask", **ON_THE_JOB}
    assert minute(own) == IN_ITS_MINUTE
    assert len(own.wire.events()) == 2


def test_a_later_report_takes_the_earlier_one_out_of_its_minute(own: Own) -> None:
    report(own, ANSWER)
    report(own, Usage(model="m-2", tokens={"input": 5}), now=NOW + 60_000)
    assert set(minute(own).values()) == {"0", "usd"}
    assert minute(own, MINUTE + 60_000) == {"jobCount": "1", "totalTokens": "5", "tokens:input": "5", "models:m-2": "1"}
    assert own.wire.hash("job:1") == {
        "name": "ask",
        "usage:model": "m-2",
        "usage:tokens": '{"input":5}',
        "usage:totalTokens": "5",
        "usage:bucketTs": str(MINUTE + 60_000),
    }


def test_several_jobs_add_up(own: Own) -> None:
    own.wire.make_job("2", name="ask")
    report(own, ANSWER)
    report(own, ANSWER.model_copy(update={"model": "m-2"}), job_id="2")
    totals = minute(own)
    assert (totals["jobCount"], totals["tokens:input"], totals["models:m-1"], totals["models:m-2"]) == (
        "2",
        "200",
        "1",
        "1",
    )


@pytest.mark.parametrize("amount", [0.1, 1 / 3, 1e-7, 123456789.123456789, 2**53 - 1, 1e15])
def test_what_is_taken_away_is_exactly_what_was_added(own: Own, amount: float) -> None:
    own.wire.make_job("2", name="ask")
    report(own, Usage(costs={"a": 1}), job_id="2")
    report(own, Usage(costs={"a": amount}))
    report(own, Usage())
    assert float(minute(own)["costs:a"]) == 1
    assert float(minute(own)["totalCost"]) == 1


def test_an_empty_report_takes_the_earlier_one_back(own: Own) -> None:
    report(own, ANSWER)
    assert report(own, Usage()) == "ok"
    assert own.wire.hash("job:1") == {"name": "ask"}
    assert set(minute(own).values()) == {"0", "usd"}


def test_what_another_client_reported_is_replaced(own: Own) -> None:
    old = MINUTE - 60_000
    own.wire.set_fields("job:1", **{"usage:totalTokens": "7", "usage:tokens": '{"a":7}', "usage:bucketTs": str(old)})
    own.wire.set_fields(f"usage:{old}", jobCount=3, totalTokens=20, **{"tokens:a": 20})
    report(own, ANSWER)
    assert minute(own, old) == {"jobCount": "2", "totalTokens": "13", "tokens:a": "13"}
    assert minute(own) == IN_ITS_MINUTE


@pytest.mark.parametrize("stored", ["{", "[]", "3", '{"a":"x","b":null,"c":-1}', '{"a":1e999}'])
def test_an_unreadable_earlier_report_stops_nothing(own: Own, stored: str) -> None:
    old = MINUTE - 60_000
    own.wire.set_fields("job:1", **{"usage:tokens": stored, "usage:totalTokens": "nan", "usage:bucketTs": str(old)})
    own.wire.set_fields(f"usage:{old}", jobCount=1)
    assert report(own, ANSWER) == "ok"
    assert minute(own, old) == {"jobCount": "0"}
    assert minute(own) == IN_ITS_MINUTE


def test_a_minute_that_is_over_for_good_is_not_made_again(own: Own) -> None:
    own.wire.set_fields("job:1", **{"usage:totalTokens": "7", "usage:bucketTs": "60000"})
    report(own, ANSWER)
    assert not own.wire.ask("EXISTS", own.wire.key("usage:60000"))


def test_nothing_is_written_while_another_client_is_half_way_through(own: Own) -> None:
    own.wire.ask("SET", own.wire.key("job:1:usage-lock"), "theirs")
    with own.wire.unchanged():
        assert report(own, ANSWER) == "locked"


def test_a_job_that_is_gone_is_not_made_again(own: Own) -> None:
    with own.wire.unchanged():
        assert report(own, ANSWER, job_id="2") == "missing"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["1", "x", "{}", 0], "'minute_ms' is not a whole number"),
        (["1", MINUTE, "{}", 1], "takes 1 keys and 6 arguments, not 1 and 4"),
        (["1", MINUTE, "{}", 1, "bucketTs", "1"], "'bucketTs' is no part of a report"),
        (["1", MINUTE, "{}", 1, "flavor", "red"], "'flavor' is no part of a report"),
        (["1", MINUTE], "'field_count' is not a whole number"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[Word], why: str) -> None:
    own.refused("reportUsage", [own.wire.key("events")], args, why)


def test_another_key_is_refused(own: Own) -> None:
    own.refused("reportUsage", [own.wire.key("stream")], ["1", MINUTE, "{}", 0], ":events")
