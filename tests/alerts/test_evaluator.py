"""One of several processes evaluates, what it wrote is sent even if it is killed, and rules are data."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.alerts import AlertEvaluator, evaluator
from orchestration_queue.client import AsyncAlerts, AsyncQueue
from orchestration_queue.errors import AlertNotFoundError, StateError, UsageError
from tests.alerts.alerting import (
    evaluating,
    eventually,
    wait_until_evaluated,
)
from tests.alerts.receivers import Hook, deaf_port
from tests.conftest import start_server
from tests.faces import Face
from tests.integration.test_cli import Oq
from tests.processes import OQ, running_process
from tests.waiting import wait_until


async def test_of_two_evaluators_one_evaluates_and_the_other_takes_over(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "keep_firing": 0, "queue": queue.name, "to": ["ops"]})
    async with AsyncExitStack() as first:
        one = await first.enter_async_context(evaluating(server_url, ops=ops.url))
        await wait_until(lambda: one.is_leader, "the first to lead")
        async with evaluating(server_url, ops=ops.url) as other:
            await queue.add("work")
            await wait_until(lambda: ops.states == ["firing r"], "the rule to fire")
            assert not other.is_leader
            await first.aclose()
            await wait_until(lambda: other.is_leader, "the second to lead")
            await queue.drain()
            await wait_until(lambda: ops.states == ["firing r", "resolved r"], "the rule to be resolved")
    assert await alerts.evaluator() is None


async def test_what_a_killed_leader_had_not_sent_is_sent(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, raw: redis.Redis, tmp_path: Path
) -> None:
    """The first leader records that the rule fires, and dies while its receiver keeps it waiting."""
    await queue.add("work")
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "keep_firing": 0, "queue": queue.name, "to": ["ops"]})
    async with deaf_port() as port:
        os.environ["OQ_ALERT_RECEIVER_OPS"] = f"http://127.0.0.1:{port}"
        try:
            with running_process([OQ, "alert", "run", "--interval", "1"], server_url, tmp_path / "log") as process:
                await wait_until(lambda: raw.hlen("glide:{:alerts}:outbox"), "the message to be written")
                process.send_signal(signal.SIGKILL)
                process.wait(60)
        finally:
            del os.environ["OQ_ALERT_RECEIVER_OPS"]
    assert (await alerts.get("r")).state == "firing"
    assert [event.event for event in await alerts.history()] == ["firing"]
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing r"], "the message to be sent")

        async def is_recorded() -> bool:
            return [event.event for event in await alerts.history()] == ["sent", "firing"]

        await eventually(is_recorded)
    assert ops.headers[0]["oq-delivery"].startswith((await alerts.get("r")).incident)


async def test_an_outage_of_the_server_ends_no_evaluator(tmp_path: Path, ops: Hook) -> None:
    process = start_server(tmp_path / "s", "--appendonly", "yes")
    url = f"unix://{tmp_path / 's'}?timeout=1"
    async with AsyncAlerts(url=url) as alerts, AsyncQueue("q", url=url) as queue:
        await alerts.set("r", {"kind": "backlog", "threshold": 0, "keep_firing": 0, "queue": "q", "to": ["ops"]})
        async with evaluating(url, ops=ops.url) as found:
            await wait_until(lambda: found.is_leader, "it to lead")
            process.kill()
            process.wait(60)
            await wait_until(lambda: not found.is_leader, "it to notice the outage")
            process = start_server(tmp_path / "s", "--appendonly", "yes")
            await queue.add("work")
            await wait_until(lambda: ops.states == ["firing r"], "the rule to fire after the outage")
    process.kill()
    process.wait(60)


async def test_a_leader_that_was_refused_once_leads_again_at_once(
    server_url: str, ops: Hook, raw: redis.Redis, alerts: AsyncAlerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator, "_LOCK_MS", 600_000)  # waiting for its end would take too long
    async with evaluating(server_url, ops=ops.url) as found:
        await wait_until(lambda: found.is_leader, "it to lead")
        raw.set("glide:{:alerts}:due", "damaged", ex=600)
        await wait_until(lambda: not found.is_leader, "it to be refused")
        raw.delete("glide:{:alerts}:due")
        await wait_until(lambda: found.is_leader, "it to lead again")
        raw.set("glide:{:alerts}:due", "damaged", ex=600)
        await wait_until(lambda: not found.is_leader, "it to be refused")
    assert not raw.exists("glide:{:alerts}:lock"), "it is released at the end"


@pytest.mark.parametrize("face", ["async", "sync"])
async def test_rules_are_set_read_silenced_and_removed(face: str, server_url: str, raw: redis.Redis) -> None:
    async with Face(face, server_url).alerts() as alerts:
        made = await alerts.set("mail", {"kind": "backlog", "to": ["ops"]})
        assert (made.rule.threshold, made.state, made.since) == (1000, "ok", None)
        assert (await alerts.set("mail", {"kind": "backlog", "to": ["ops"], "threshold": 5})).rule.threshold == 5
        assert [alert.name for alert in await alerts.list()] == ["mail"]
        until = await alerts.silence("mail", 60, by="Ada")
        assert (await alerts.get("mail")).silenced_until == until
        assert (await alerts.get("mail")).silenced_by == "Ada"
        assert await alerts.silence("mail", 0) is None
        assert (await alerts.get("mail")).silenced_until is None
        await alerts.silence("mail", 60)
        with pytest.raises(StateError, match="No process evaluates"):
            await alerts.test("mail")
        assert await alerts.remove("mail") is True
        assert await alerts.remove("mail") is False
        assert await alerts.find("mail") is None
        assert raw.keys("*alerts*") == []
        for missing in (alerts.get("mail"), alerts.silence("mail", 5), alerts.test("mail")):
            with pytest.raises(AlertNotFoundError):
                await missing


@pytest.mark.parametrize("interval", [0.5, 3601, -1, "15", True, None])
def test_a_wrong_interval_is_refused(interval: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_SHORTEST", timedelta(seconds=1))
    with pytest.raises(UsageError, match="interval"):
        AlertEvaluator({}, url="redis://nowhere", interval=interval)


async def test_rules_cost_queues_without_them_nothing(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, raw: Any, ops: Hook
) -> None:
    async with evaluating(server_url, ops=ops.url):
        await wait_until_evaluated(alerts)
        with raw.monitor() as monitor:
            raw.execute_command("ECHO", "begin")
            for _ in range(30):
                await asyncio.sleep(0.01)
            raw.execute_command("ECHO", "end")
            seen = []
            for command in monitor.listen():
                seen.append(command["command"])
                if command["command"].startswith("ECHO end"):
                    break
    assert {line for line in seen if ":alerts}" not in line and not line.startswith(("ECHO", "CLIENT"))} == set(), seen
    assert json.dumps(seen).count("HGETALL")


async def test_rules_of_a_file_are_set_when_the_process_starts(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"filed": {"kind": "no_worker", "queue": queue.name, "to": ["ops"]}}
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    await alerts.set("typed", {"kind": "backlog", "to": ["ops"]})
    monkeypatch.setenv("OQ_ALERT_RECEIVER_OPS", ops.url)
    command = [OQ, "alert", "run", "--interval", "1", "--rules", str(tmp_path / "rules.json")]
    with running_process(command, server_url, tmp_path / "log") as process:
        await wait_until(lambda: ops.states == ["firing filed"], "the rule to fire")
        assert [alert.name for alert in await alerts.list()] == ["filed", "typed"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "hidden" not in (tmp_path / "log").read_text()
    assert await alerts.evaluator() is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a b": {}}', '{"r": 5}', '{"r": {}}', '{"r": {"kind": "weather"}}'])
def test_a_wrong_file_of_rules_sets_none(
    server_url: str, raw: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("OQ_ALERT_RECEIVER_OPS", "http://127.0.0.1:1")
    path = tmp_path / "rules.json"
    path.write_text(text)
    result = Oq(server_url)("alert", "run", "--rules", str(path))
    assert result.exit_code == 2, result.stderr
    assert result.stderr.count("\n") == 1
    assert raw.keys("*:alerts*") == []
