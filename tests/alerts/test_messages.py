"""Messages reach real receivers: those that hang, refuse, redirect or are gone delay no other."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from orchestration_queue.alerts import AlertEvaluator, evaluator, read_receivers, sending, verify
from orchestration_queue.client import AsyncAlerts, AsyncQueue
from orchestration_queue.protocol.alerts import AlertState, compose, deliveries_of
from orchestration_queue.protocol.operations import alerts as operations
from orchestration_queue.server.clock import now_ms
from tests.alerts.alerting import (
    evaluated_again,
    evaluating,
    eventually,
    nothing,
    wait_until_evaluated,
)
from tests.alerts.receivers import Hook, deaf_port, hook, mailbox
from tests.waiting import wait_until
from tests.workers import working

CERTIFICATES = Path(__file__).parents[1] / "integration" / "certificates"
SIGNING = "0123456789abcdef"


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


async def test_messages_for_a_receiver_that_is_gone_for_long_are_bounded(
    server_url: str,
    queue: AsyncQueue,
    alerts: AsyncAlerts,
    ops: Hook,
    raw: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluator, "_MOST_UNSENT", 2)
    rule = (await alerts.set("r", {"kind": "backlog", "queue": queue.name, "to": ["ops"]})).rule
    for number in range(5):
        state = AlertState("firing", f"r.{number}", number)
        unsent = deliveries_of(compose(queue.keys, "r", rule, state, "firing", number), ["ops"], now_ms() + number)
        await queue._connection.pipeline(operations.put_deliveries(queue.keys, unsent))
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: len(ops.posted) == 2, "the newest to be sent")

        async def are_settled() -> bool:
            return not (await alerts.get("r")).unsent

        await eventually(are_settled)
    assert [each["incident"] for each in ops.posted] == ["r.3", "r.4"]
    given_up = [event for event in await alerts.history() if event.event == "unsent"]
    assert [event.text for event in given_up] == ["firing: more than 2 messages wait for this receiver"] * 3


async def test_a_receiver_that_hangs_delays_no_other(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_MESSAGE_S", 0.3)
    await alerts.set(
        "r", {"kind": "no_worker", "queue": queue.name, "keep_firing": 0, "to": ["deaf", "ops", "deafmail"]}
    )
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
    await alerts.set("r", {"kind": "backlog", "threshold": 0, "keep_firing": 0, "queue": queue.name, "to": ["ops"]})
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


async def test_a_message_of_a_leader_whose_clock_was_ahead_is_sent(
    server_url: str, queue: AsyncQueue, ops: Hook
) -> None:
    state = AlertState("firing", "r.1", now_ms())
    ahead = deliveries_of(compose(queue.keys, "r", None, state, "firing", now_ms()), ["ops"], now_ms() + 3_600_000)
    await queue._connection.pipeline(operations.put_deliveries(queue.keys, ahead))
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing r"], "the message")


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
    await alerts.set(
        "r", {"kind": "backlog", "threshold": 0, "keep_firing": 0, "queue": queue.name, "to": ["chat", "pager"]}
    )
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


async def test_messages_that_wait_are_not_read_each_second(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, raw: redis.Redis
) -> None:
    """300 messages wait for a receiver whose turn comes later; of them only those that are due are read."""
    rule = (await alerts.set("r", {"kind": "backlog", "queue": queue.name, "to": ["gone"]})).rule
    later = now_ms() + 240_000
    for number in range(300):
        state = AlertState("firing", f"r.{number}", number)
        (unsent,) = deliveries_of(compose(queue.keys, "r", rule, state, "firing", number), ["gone"], now_ms())
        waiting = replace(unsent, next_ms=later, error="it answered 500")
        await queue._connection.pipeline(operations.put_deliveries(queue.keys, [waiting]))
    async with evaluating(server_url, ops=ops.url):
        await wait_until_evaluated(alerts)
        with raw.monitor() as monitor:  # type: ignore[no-untyped-call]  # of redis-py
            raw.echo("begin")
            await evaluated_again(alerts)
            raw.echo("end")
            seen = []
            for command in monitor.listen():
                if command["command"].startswith("ECHO end"):
                    break
                seen.append(command["command"])
        asked = {line.split()[0] for line in seen if ":due" in line}
        assert asked == {"ZRANGEBYSCORE", "ZRANGE"}, "ZRANGE is that of evaluations and pages"
        assert not [line for line in seen if "HGETALL" in line and "outbox" in line]
        assert not [line for line in seen if "WITHSCORES" in line]
        await alerts.set("s", {"kind": "backlog", "threshold": 0, "queue": queue.name, "to": ["ops"]})
        await queue.add("work")
        await wait_until(lambda: ops.states == ["firing s"], "what is due to be sent, while others wait")
    assert raw.hlen("glide:{:alerts}:outbox") == raw.zcard("glide:{:alerts}:due") == 300
    assert len((await alerts.get("r")).unsent) == 300


async def test_damaged_messages_are_forgotten(
    server_url: str, queue: AsyncQueue, alerts: AsyncAlerts, ops: Hook, raw: redis.Redis
) -> None:
    state = AlertState("firing", "r.1", now_ms())
    unsent = deliveries_of(compose(queue.keys, "r", None, state, "firing", now_ms()), ["ops"], now_ms())
    await queue._connection.pipeline(operations.put_deliveries(queue.keys, unsent))
    raw.hset("glide:{:alerts}:outbox", "damaged", "no json")
    raw.zadd("glide:{:alerts}:due", {"1:r.0.1.ops": 5, "2:damaged": 6, "odd": 7})
    async with evaluating(server_url, ops=ops.url):
        await wait_until(lambda: ops.states == ["firing r"], "the message")
        await wait_until(lambda: not raw.exists("glide:{:alerts}:due"), "the others to be forgotten")
