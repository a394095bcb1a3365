"""Alerts on a real server: each kind of rule fires and is resolved, and every message arrives, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.alerts import AlertEvaluator, evaluator, read_receivers, sending, verify
from orchestration_queue.client import AsyncAlerts, AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import AlertNotFoundError, StateError, UsageError
from orchestration_queue.flows import Dag, FlowOptions, Node
from orchestration_queue.options import AlertKind, Retention
from orchestration_queue.schedules import Every
from orchestration_queue.testing import TimeMachine
from orchestration_queue.worker import ActiveJob
from tests.conftest import start_server
from tests.faces import Face
from tests.integration.test_cli import Oq
from tests.processes import OQ, running_process
from tests.receivers import Hook, deaf_port, hook, mailbox
from tests.waiting import wait_until
from tests.workers import working

CERTIFICATES = Path(__file__).with_name("certificates")
SIGNING = "0123456789abcdef"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate and send again a moment later."""
    monkeypatch.setattr(evaluator, "_TURN_S", 0.02)
    monkeypatch.setattr(evaluator, "_SHORTEST", timedelta(0))
    monkeypatch.setattr(evaluator, "_NAMES_S", 0.0)
    monkeypatch.setattr(evaluator, "_NAMES_REST", 0)
    monkeypatch.setattr(evaluator, "_FIRST_PAUSE_MS", 20)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue
    raw.flushall()


@pytest.fixture
async def alerts(server_url: str, queue: AsyncQueue) -> AsyncIterator[AsyncAlerts]:
    async with AsyncAlerts(url=server_url) as alerts:
        yield alerts


@pytest.fixture
async def ops() -> AsyncIterator[Hook]:
    async with hook() as ops:
        yield ops


@asynccontextmanager
async def evaluating(url: str, **receivers: str) -> AsyncIterator[AlertEvaluator]:
    """Evaluate rules until the block ends."""
    variables = {f"OQ_ALERT_RECEIVER_{name.upper()}": value for name, value in receivers.items()}
    found = AlertEvaluator(read_receivers(variables), url=url, interval=0.02)
    running = asyncio.ensure_future(found.run())
    try:
        yield found
    finally:
        found.stop()
        await asyncio.wait_for(running, 60)


async def nothing(job: ActiveJob) -> None:
    """A handler."""


async def fails(job: ActiveJob) -> None:
    raise ValueError("as told")


Scene = Callable[[AsyncQueue, str, TimeMachine], Coroutine[Any, Any, Callable[[], Coroutine[Any, Any, Any]]]]
"""Makes something go wrong in a queue, and returns what makes it good again."""


async def fail_often(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    jobs = [await queue.add("work") for _ in range(10)]
    async with working(queue, fails, url):
        for job in jobs:
            await wait_until_state(job, "failed")

    async def later() -> None:
        clock.travel(timedelta(minutes=6))

    return later


async def eventually(is_so: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Ask again until it is so."""
    async with asyncio.timeout(60):
        while True:
            if await is_so():
                return
            await asyncio.sleep(0.01)


async def wait_until_state(job: Any, state: str) -> None:
    async def is_so() -> bool:
        return bool(await job.read_state() == state)

    await eventually(is_so)


async def wait_long(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    await queue.add("work")
    clock.travel(timedelta(minutes=11))
    return queue.drain


async def lose_workers(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    await queue.add("work")
    return queue.pause


async def die(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    job = await queue.add("work")
    async with working(queue, fails, url, dead_letter_queue=f"{queue.name}-dead"):
        await wait_until_state(job, "failed")
    return queue.dead_letters.purge


async def miss_a_run(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    await queue.schedulers.upsert("nightly", Every(3600))
    clock.travel(timedelta(hours=2))

    async def pause() -> None:
        await queue.schedulers.pause("nightly")

    return pause


async def be_late(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    async with AsyncFlowProducer(url=url) as flows:
        kept = FlowOptions(retention=Retention(age=timedelta(days=1)))
        await flows.submit(Dag("etl", [Node("a"), Node("b", deps=("a",))], queue.name, kept), flow_id="etl-1")

    async def cancel() -> None:
        await (await queue.flows.get("etl-1")).cancel()

        async def has_ended() -> bool:
            await queue.flows.reconcile()  # by the server's clock
            return (await queue.flows.list())[0].state.is_final

        await eventually(has_ended)

    return cancel


async def grow(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    for _ in range(3):
        await queue.add("work")
    return queue.drain


async def fill(queue: AsyncQueue, url: str, clock: TimeMachine) -> Callable[[], Coroutine[Any, Any, Any]]:
    client = redis.Redis(unix_socket_path=url.removeprefix("unix://"))
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", int(used * 1.1))

    async def enlarge() -> None:
        client.config_set("maxmemory", 0)
        client.close()

    return enlarge


SCENES: dict[AlertKind, tuple[Scene, dict[str, Any], str]] = {
    AlertKind.FAILURE_RATE: (fail_often, {}, "100% of 10 jobs failed within 5 min"),
    AlertKind.OLDEST_WAITING: (wait_long, {}, "The oldest waiting job has been ready for 11 min"),
    AlertKind.NO_WORKER: (lose_workers, {}, "No worker serves the queue"),
    AlertKind.DEAD_LETTERS: (die, {}, "1 dead letter is stored there"),
    AlertKind.SCHEDULE_OVERDUE: (miss_a_run, {}, "A run of the schedule is 1 h overdue"),
    AlertKind.FLOW_LATE: (be_late, {"threshold": 0}, "The flow has run for 0 s"),
    AlertKind.BACKLOG: (grow, {"threshold": 2}, "3 jobs wait for a worker"),
    AlertKind.MEMORY: (fill, {}, "of maxmemory is in use"),
}


@pytest.mark.parametrize("is_pattern", [False, True], ids=["named", "pattern"])
@pytest.mark.parametrize("kind", list(AlertKind))
async def test_each_kind_fires_and_is_resolved(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, kind: AlertKind, is_pattern: bool
) -> None:
    scene, options, says = SCENES[kind]
    pattern = f"{queue.name[:8]}*" if is_pattern else queue.name
    with TimeMachine() as clock:
        if is_pattern:
            await (await queue.add("first")).remove()  # so that the queue exists
        await alerts.set("r", {"kind": kind, "queue": pattern, "to": ["ops"], **options})
        async with evaluating(server_url, ops=ops.url):
            await wait_until_evaluated(alerts)
            before = list(ops.states)
            if is_pattern or kind is not AlertKind.NO_WORKER:
                assert before == []
            repair = await scene(queue, server_url, clock)
            await wait_until(lambda: ops.states[:1] == ["firing r"] and says in str(ops.bodies), "the rule to fire")
            assert (await alerts.get("r")).state == "firing"
            await repair()
            await wait_until(lambda: ops.states[-1] == "resolved r", "the rule to be resolved")
        assert (await alerts.get("r")).state == "ok"
        assert [event.event for event in await alerts.history("r")][::-1][:2] == ["firing", "sent"]


async def wait_until_evaluated(alerts: AsyncAlerts) -> None:
    async def has_evaluated() -> bool:
        found = await alerts.evaluator()
        return found is not None and found.evaluated_ms > 0 and not found.error

    await eventually(has_evaluated)


async def test_an_idle_queue_without_a_worker_fires_only_for_a_rule_that_names_it(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    await alerts.set("exact", {"kind": "no_worker", "queue": queue.name, "to": ["ops"]})
    await alerts.set("all", {"kind": "no_worker", "to": ["ops"]})
    await (await queue.add("first")).remove()
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing exact"], "the rule to fire")
        await queue.add("work")
        await wait_until(lambda: ops.states == ["firing exact", "firing all"], "the other to fire")
        async with working(queue, nothing, server_url):
            await wait_until(lambda: len(ops.states) == 4, "both to be resolved")


async def test_queues_of_a_pattern_are_one_message(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    async with AsyncExitStack() as stack:
        for name in ("mail-a", "mail-b", "print"):
            other = await stack.enter_async_context(AsyncQueue(name, url=server_url))
            await other.add("work")
        await alerts.set("r", {"kind": "backlog", "queue": "mail-*", "threshold": 0, "to": ["ops"]})
        async with evaluating(server_url, ops=ops.url):
            await wait_until(lambda: ops.posted, "the rule to fire")
            assert [each["subject"] for each in ops.posted[0]["breaches"]] == ["mail-a", "mail-b"]


async def test_a_damaged_queue_does_not_keep_others_from_being_watched(
    server_url: str,
    queue: AsyncQueue,
    alerts: AsyncAlerts,
    ops: Hook,
    raw: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await queue.add("work")
    async with AsyncQueue("broken", url=server_url) as broken:
        await broken.add("work")
        raw.delete(broken.keys.stream)
        raw.set(broken.keys.stream, "text", ex=600)
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "to": ["ops"]})
    raw.hset("glide:{:alerts}:rules", mapping={"odd": "no json", "later": '{"kind": "weather", "to": ["ops"]}'})
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing r"], "the rule to fire")
    assert "Queue broken cannot be watched" in caplog.text
    assert [alert.name for alert in await alerts.list()] == ["r"]


async def test_a_message_is_signed(server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook) -> None:
    await alerts.set("r", {"kind": "no_worker", "queue": queue.name, "to": ["ops"]})
    receivers = read_receivers({"OQ_ALERT_RECEIVER_OPS": ops.url, "OQ_ALERT_KEY_OPS": SIGNING})
    found = AlertEvaluator(receivers, url=server_url, interval=0.02)
    running = asyncio.ensure_future(found.run())
    await wait_until(lambda: ops.posted, "the message")
    found.stop()
    await running
    headers = ops.headers[0]
    assert verify(SIGNING, headers["oq-timestamp"], headers["oq-signature"], ops.bodies[0])
    assert headers["oq-delivery"] == f"{ops.posted[0]['id']}.ops"


async def test_of_two_evaluators_one_evaluates_and_the_other_takes_over(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "queue": queue.name, "to": ["ops"]})
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
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "queue": queue.name, "to": ["ops"]})
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


async def test_a_receiver_that_hangs_delays_no_other(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_MESSAGE_S", 0.3)
    await alerts.set("r", {"kind": "no_worker", "queue": queue.name, "to": ["deaf", "ops", "deafmail"]})
    async with deaf_port() as port:
        mail = f"smtp://127.0.0.1:{port}?from=oq@x.org&to=a@x.org"
        async with evaluating(server_url, deaf=f"http://127.0.0.1:{port}/hidden", ops=ops.url, deafmail=mail):
            await wait_until(lambda: ops.states == ["firing r"], "the other to get it")

            async def were_tried_twice() -> bool:
                return all(each.attempts >= 2 for each in (await alerts.get("r")).unsent)

            await eventually(were_tried_twice)
            unsent = (await alerts.get("r")).unsent
            assert {each.to: each.error for each in unsent} == dict.fromkeys(
                ("deaf", "deafmail"), "it did not take the message within 0.3 s"
            )
            async with working(queue, nothing, server_url):
                await wait_until(lambda: ops.states == ["firing r", "resolved r"], "the other to get the end, too")


async def test_a_receiver_that_refuses_gets_the_message_later_and_in_order(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    ops.status = 500
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "queue": queue.name, "to": ["ops"]})
    await queue.add("work")
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: len(ops.posted) >= 3, "some attempts")
        (unsent,) = (await alerts.get("r")).unsent
        assert unsent.error == "it answered 500"
        await queue.drain()

        async def is_over() -> bool:
            return (await alerts.get("r")).state == "ok"

        await eventually(is_over)
        assert set(ops.states) == {"firing r"}, "the end is not told before the beginning"
        ops.status = 200
        await wait_until(lambda: ops.states[-2:] == ["firing r", "resolved r"], "both messages, in order")
    assert len({headers["oq-delivery"] for headers in ops.headers}) == 2, "attempts have the id of the message"


async def test_a_redirection_is_not_followed(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    async with hook() as elsewhere:
        ops.status, ops.more = 302, f"Location: {elsewhere.url}\r\n"
        await alerts.set("r", {"kind": "no_worker", "queue": queue.name, "to": ["ops"]})
        async with evaluating(server_url, ops=ops.url):
            await wait_until_evaluated(alerts)
            (outcome,) = await alerts.test("r")
        assert (outcome.event, outcome.text) == ("unsent", "test: it answered 302")
        assert elsewhere.posted == []
    assert "hidden" not in caplog.text


async def test_no_failure_shows_where_the_receiver_is(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with hook() as gone:
        pass
    async with AsyncExitStack() as stack:
        odd = await stack.enter_async_context(hook())
        odd.more = "x" * 70_000
        box = await stack.enter_async_context(mailbox())
        names = ["gone", "odd", "name", "mail", "missing"]
        await alerts.set("r", {"kind": "backlog", "queue": queue.name, "to": names})
        receivers = {
            "gone": gone.url,
            "odd": odd.url,
            "name": "https://hidden.invalid/hidden",
            "mail": f"smtp://hidden:hidden@127.0.0.1:{box.port}?from=oq@x.org&to=a@x.org",
        }
        async with evaluating(server_url, **receivers):
            await wait_until_evaluated(alerts)
            outcomes = {event.receiver: event.text for event in await alerts.test("r", timeout=60)}
    assert outcomes["gone"] == "test: it cannot be reached (Connection refused)"
    assert outcomes["mail"] == "test: the mail server offers no TLS, and the password is not sent without it"
    assert outcomes["missing"] == "test: OQ_ALERT_RECEIVER_MISSING is not set where alerts are evaluated"
    stored = str([raw.dump(key) for key in raw.keys("*:alerts*")])
    assert "hidden" not in stored + caplog.text + str(outcomes)


async def test_mail_is_sent_by_a_real_conversation(server_url: str, queue: AsyncQueue, alerts: AsyncAlerts) -> None:
    note = "see http://wiki"
    await alerts.set("r", {"kind": "no_worker", "queue": queue.name, "to": ["mail"], "note": note})
    async with mailbox() as box:
        url = f"smtp://127.0.0.1:{box.port}?from=oq@x.org&to=a@x.org,b@x.org"
        async with evaluating(server_url, mail=url):
            await wait_until(lambda: box.mails, "the mail")
            box.refuses = "451 later"
            (outcome,) = await alerts.test("r")
    assert outcome.text == "test: the mail server answered 451"
    assert f"Subject: Firing: r: {queue.name}: No worker serves the queue" in box.mails[0]
    assert note in box.mails[0]
    recipients = [line.lower() for line in box.commands if line.upper().startswith("RCPT")]
    assert recipients[:2] == ["rcpt to:<a@x.org>", "rcpt to:<b@x.org>"]


async def test_mail_over_tls_checks_the_certificate_and_signs_in(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    await alerts.set("r", {"kind": "backlog", "queue": queue.name, "to": ["mail"]})
    async with mailbox(tls) as box:
        url = f"smtps://oq%40x.org:hidden@localhost:{box.port}?from=oq@x.org&to=a@x.org"
        async with evaluating(server_url, mail=url):
            await wait_until_evaluated(alerts)
            (outcome,) = await alerts.test("r")
            assert outcome.text.startswith("test: its certificate is not trusted")
            assert box.commands == []
            monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "localhost.pem"))
            (outcome,) = await alerts.test("r")
    assert outcome.event == "sent", outcome.text
    credentials = b64encode(b"\0oq@x.org\0hidden").decode()
    assert f"AUTH PLAIN {credentials}" in box.commands
    assert "This is a test: nothing is wrong." in box.mails[0]


async def test_slack_and_pagerduty_get_their_own_formats(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook
) -> None:
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "queue": queue.name, "to": ["chat", "pager"]})
    await queue.add("work")
    pager = ops.url.replace("//", "//ROUTING@")
    async with evaluating(server_url, chat=f"slack+{ops.url}", pager=f"pagerduty+{pager}"):
        await wait_until(lambda: len(ops.posted) == 2, "both messages")
        await queue.drain()
        await wait_until(lambda: len(ops.posted) == 4, "their ends")
    slack = [each for each in ops.posted if "attachments" in each]
    events = [each for each in ops.posted if "routing_key" in each]
    assert [each["event_action"] for each in events] == ["trigger", "resolve"]
    assert len({each["dedup_key"] for each in events}) == 1
    assert [each["routing_key"] for each in events] == ["ROUTING", "ROUTING"]
    assert [each["text"].split(":")[0] for each in slack] == ["Firing", "Resolved"]
    assert not any("oq-signature" in headers for headers in ops.headers)


async def test_an_outage_of_the_server_ends_no_evaluator(tmp_path: Path, ops: Hook) -> None:
    process = start_server(tmp_path / "s", "--appendonly", "yes")
    url = f"unix://{tmp_path / 's'}?timeout=1"
    async with AsyncAlerts(url=url) as alerts, AsyncQueue("q", url=url) as queue:
        await alerts.set("r", {"kind": "backlog", "threshold": 0, "queue": "q", "to": ["ops"]})
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


async def test_rules_are_set_read_silenced_and_removed(face: Face, queue_name: str, raw: redis.Redis) -> None:
    async with face.alerts() as alerts:
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
