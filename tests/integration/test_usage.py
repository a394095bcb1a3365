"""What jobs report to have used, what flows may use, and how clients of both faces see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncJob, UsageTotals
from orchestration_queue.errors import (
    InvalidNameError,
    InvalidOptionError,
    JobNotFoundError,
    StateError,
    UsageError,
)
from orchestration_queue.options import Budget, JobOptions, Usage
from orchestration_queue.server._async import reporting as async_reporting
from orchestration_queue.server._sync import reporting as sync_reporting
from tests.faces import Face

MINUTE = timedelta(minutes=1)
WRONG: dict[str, Any] = {"words": 5}
ANSWER = Usage(model="m-1", tokens={"input": 100, "output": 40}, costs={"all": 0.5}, cost_unit="usd")


async def tree(face: Face, queue_name: str) -> list[AsyncJob]:
    """A root, a child that waits for a grandchild, and a child in another queue."""
    async with face.queue(queue_name) as queue, face.queue(f"{queue_name}-b") as other:
        root = await queue.add("root")
        child = await queue.add("child", parent=root.ref)
        grandchild = await queue.add("grandchild", parent=child.ref)
        foreign = await other.add("foreign", parent=root.ref)
        return [root, child, grandchild, foreign]


# -- Reports


async def test_a_report_is_stored_told_and_counted_as_every_client_does(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        before = datetime.now(UTC)
        await job.report_usage(ANSWER)
        record = await job.refresh()
        minute = int(record.fields["usage:bucketTs"])
        assert minute % 60_000 == 0
        assert before - MINUTE < datetime.fromtimestamp(minute / 1000, UTC) <= datetime.now(UTC)
        assert json.loads(record.fields["usage:tokens"]) == {"input": 100, "output": 40}
        assert (record.fields["usage:totalTokens"], record.fields["usage:totalCost"]) == ("140", "0.5")
        assert raw.hget(queue.keys.usage(minute), "jobCount") == "1"
        assert raw.smembers("glide:usage:queues") == {queue_name}
        _, told = raw.xrevrange(queue.keys.events, count=1)[0]
        assert (told["event"], told["jobId"]) == ("usage", job.id)
        assert json.loads(told["data"]) == ANSWER.wire()


async def test_a_report_waits_until_another_client_is_through(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        raw.set(f"{queue.keys.job(job.id)}:usage-lock", "theirs", px=150)
        await job.report_usage(ANSWER)
        assert not raw.exists(f"{queue.keys.job(job.id)}:usage-lock")
        assert (await queue.usage.summary()).total.jobs == 1


async def test_a_report_does_not_wait_for_ever(
    face: Face, queue_name: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (async_reporting, sync_reporting):
        monkeypatch.setattr(module, "_TRIES", 2)
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        raw.set(f"{queue.keys.job(job.id)}:usage-lock", "theirs", ex=60)
        with pytest.raises(StateError, match="stayed locked by another process"):
            await job.report_usage(ANSWER)
        assert (await queue.usage.summary()).total == UsageTotals()


async def test_a_job_that_is_gone_reports_nothing(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        await job.remove()
        with pytest.raises(JobNotFoundError):
            await job.report_usage(ANSWER)
        with pytest.raises(JobNotFoundError):
            await job.report_tokens(5)
        assert not raw.exists(queue.keys.job(job.id))


async def test_tokens_are_stored_for_the_limit_of_workers(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        await job.report_tokens(500)
        await job.report_tokens(700)
        assert (await job.refresh()).fields["tpmTokens"] == "700"


@pytest.mark.parametrize("tokens", [-1, 1.5, "5", None, True])
async def test_what_is_no_number_of_tokens_is_refused(face: Face, queue_name: str, raw: Any, tokens: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        with pytest.raises(UsageError, match="`tokens` must be"):
            await job.report_tokens(tokens)
        assert "tpmTokens" not in (await job.refresh()).fields


@pytest.mark.parametrize("used", [{"tokens": {"a": 1}}, None, 5])
async def test_what_is_no_usage_is_refused(face: Face, queue_name: str, raw: Any, used: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        with pytest.raises(InvalidOptionError, match="`usage` must be a Usage"):
            await job.report_usage(used)
        assert not raw.exists("glide:usage:queues")


# -- Summaries


async def test_a_second_report_replaces_the_first_in_summaries(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("ask")
        await job.report_usage(ANSWER)
        await job.report_usage(Usage(model="m-2", tokens={"input": 7}))
        summary = await queue.usage.summary()
    assert summary.total == UsageTotals(jobs=1, tokens=7, tokens_by={"input": 7}, models={"m-2": 1}, cost_unit="usd"), (
        "a unit once named stays, as with every client"
    )


async def test_queues_are_summed_apart_and_together(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue, face.queue(f"{queue_name}-b") as other:
        for client, number in ((queue, 2), (other, 1)):
            for _ in range(number):
                await (await client.add("ask")).report_usage(ANSWER)
        everything = await queue.usage.summary()
        assert everything.total == UsageTotals(
            jobs=3,
            tokens=420,
            cost=1.5,
            cost_unit="usd",
            tokens_by={"input": 300, "output": 120},
            cost_by={"all": 1.5},
            models={"m-1": 3},
        )
        assert {name: totals.jobs for name, totals in everything.queues.items()} == {queue.name: 2, other.name: 1}
        one = await queue.usage.summary([other.name, other.name, "silent"])
        assert list(one.queues) == [other.name]
        assert one.total.jobs == 1


async def test_a_summary_covers_the_minutes_asked_for(face: Face, queue_name: str, raw: Any) -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    async with face.queue(queue_name) as queue:
        for minutes in (-61, -60, -1, 0, 1):
            at_ms = int((noon + minutes * MINUTE).timestamp() * 1000)
            raw.hset(queue.keys.usage(at_ms), mapping={"jobCount": 1, "totalTokens": 1})
            raw.expire(queue.keys.usage(at_ms), 60)

        async def jobs(start: datetime | None, end: datetime) -> int:
            return (await queue.usage.summary([queue_name], start, end)).total.jobs

        assert await jobs(None, noon) == 3, "the last hour"
        assert await jobs(noon, noon) == 1
        assert await jobs(noon + timedelta(seconds=59), noon + timedelta(seconds=59)) == 1, "minutes are whole"
        assert await jobs(noon - 90 * MINUTE, noon + MINUTE) == 5
        summary = await queue.usage.summary([queue_name], datetime(2020, 1, 1, tzinfo=UTC), noon)
        assert (summary.start, summary.end) == (noon - timedelta(days=30), noon + MINUTE), "that is all that is kept"


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        (("one",), UsageError, "must be a list of str"),
        ((["a:b"],), InvalidNameError, "contains ':'"),
        ((None, datetime(2026, 1, 1)), UsageError, "must be a datetime with a time zone"),  # noqa: DTZ001  that is wrong
        ((None, datetime.max.replace(tzinfo=UTC)), UsageError, "end before it starts"),
        (
            ([f"q{number}" for number in range(3)], datetime(2020, 1, 1, tzinfo=UTC)),
            UsageError,
            "129,603 minutes of 3 queues, more than the 100,000",
        ),
    ],
)
async def test_a_summary_that_makes_no_sense_is_refused(
    face: Face, queue_name: str, raw: Any, arguments: Any, error: type[Exception], why: str
) -> None:
    async with face.queue(queue_name) as queue:
        with pytest.raises(error, match=why):
            await queue.usage.summary(*arguments)


async def test_a_flow_is_summed_at_all_its_levels(face: Face, queue_name: str, raw: Any) -> None:
    jobs = await tree(face, queue_name)
    async with face.queue(queue_name) as queue, face.queue(f"{queue_name}-b") as other:
        for job in jobs[:3]:
            await (await queue.get(job.id)).report_usage(ANSWER)
        await (await other.get(jobs[3].id)).report_usage(Usage(tokens={"input": 1}))
        used = await queue.usage.of_flow(jobs[0].id)
        assert (used.jobs, used.tokens, used.cost, dict(used.models)) == (4, 421, 1.5, {"m-1": 3})
        assert await queue.usage.of_flow("unknown") == UsageTotals()


# -- Budgets


async def test_a_budget_is_stored_as_every_client_reads_it_and_named_by_each_job(
    face: Face, queue_name: str, raw: Any
) -> None:
    jobs = await tree(face, queue_name)
    budget = Budget(
        max_tokens=1000,
        max_tokens_by={"output": 200},
        token_weights={"output": 2.5},
        max_cost=0.5,
        cost_unit="usd",
        on_exceeded="pause",
    )
    async with face.queue(queue_name) as queue:
        state = await queue.usage.set_budget(jobs[0].id, budget)
        assert (state.budget, state.tokens, state.cost, state.is_exceeded) == (budget, 0, 0, False)
        key = f"glide:{{{queue_name}}}:budget:{jobs[0].id}"
        assert raw.hgetall(key) == {
            "usedTokens": "0",
            "usedCost": "0",
            "exceeded": "0",
            "onExceeded": "pause",
            "maxTotalTokens": "1000",
            "maxTokens": '{"output":200}',
            "tokenWeights": '{"output":2.5}',
            "maxTotalCost": "0.5",
            "costUnit": "usd",
        }
        named = [raw.hget(f"glide:{{{job.queue}}}:job:{job.id}", "budgetKey") for job in jobs]
        assert named == [key] * 4
        assert await queue.usage.budget(jobs[0].id) == state


async def test_a_raised_budget_lets_the_flow_go_on(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        root = await queue.add("root")
        await queue.usage.set_budget(root.id, Budget(max_tokens=100, max_cost=1))
        spent = {"usedTokens": 150, "usedTokens:input": 150, "exceeded": 1}
        raw.hset(queue.keys.budget(root.id), mapping=spent)
        raised = await queue.usage.set_budget(root.id, Budget(max_tokens=200))
        assert (raised.is_exceeded, raised.tokens, dict(raised.tokens_by)) == (False, 150, {"input": 150})
        assert raised.budget == Budget(max_tokens=200), "nothing of the earlier one is left"


@pytest.mark.parametrize(
    "budget",
    [Budget(max_tokens=149), Budget(max_tokens_by={"input": 1}), Budget(max_cost=2), Budget(max_cost_by={"a": 2})],
)
async def test_a_budget_below_what_is_used_is_exceeded_at_once(
    face: Face, queue_name: str, raw: Any, budget: Budget
) -> None:
    async with face.queue(queue_name) as queue:
        root = await queue.add("root")
        used = {"usedTokens": 150, "usedTokens:input": 150, "usedCost": 3, "usedCost:a": 3}
        raw.hset(queue.keys.budget(root.id), mapping=used)
        assert (await queue.usage.set_budget(root.id, budget)).is_exceeded


async def test_jobs_that_are_gone_are_not_made_again_by_a_budget(face: Face, queue_name: str, raw: Any) -> None:
    jobs = await tree(face, queue_name)
    async with face.queue(queue_name) as queue:
        assert await queue.remove(jobs[2].id)
        await queue.usage.set_budget(jobs[0].id, Budget(max_tokens=1))
        assert not raw.exists(queue.keys.job(jobs[2].id))
        with pytest.raises(JobNotFoundError):
            await queue.usage.set_budget("unknown", Budget(max_tokens=1))
        assert await queue.usage.budget("unknown") is None


async def test_what_is_no_budget_is_refused(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        root = await queue.add("root", options=JobOptions(job_id="root"))
        budgets: list[Any] = [None, {"maxTotalTokens": 5}, 5]
        for budget in budgets:
            with pytest.raises(InvalidOptionError, match="`budget` must be a Budget"):
                await queue.usage.set_budget(root.id, budget)
        assert not raw.exists(queue.keys.budget(root.id))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Usage(tokens={"input": -1}), "Usage.tokens.input"),
        (lambda: Usage(tokens={"input": float("nan")}), "Usage.tokens.input"),
        (lambda: Usage(costs={"": 1}), "Usage.costs"),
        (lambda: Usage(total_tokens=float("inf")), "Usage.total_tokens"),
        (lambda: Usage(total_cost=-0.1), "Usage.total_cost"),
        (lambda: Usage(total_tokens=2**54), "Usage.total_tokens"),
        (lambda: Usage(latency=-1), "Usage.latency"),
        (lambda: Usage(model=""), "Usage.model"),
        (lambda: Usage(**WRONG), "has no option 'words'"),
        (lambda: Budget(max_tokens=0), "Budget.max_tokens"),
        (lambda: Budget(max_cost=float("nan")), "Budget.max_cost"),
        (lambda: Budget(max_cost_by={"a": 0}), "Budget.max_cost_by.a"),
        (lambda: Budget(token_weights={"a": -1}), "Budget.token_weights.a"),
        (lambda: Budget(on_exceeded="wait"), "Budget.on_exceeded"),
    ],
)
def test_amounts_that_are_none_are_refused_in_one_sentence(make: Callable[[], object], why: str) -> None:
    with pytest.raises(InvalidOptionError, match=why) as refusal:
        make()
    assert "\n" not in str(refusal.value)
