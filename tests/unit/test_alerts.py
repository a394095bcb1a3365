"""Rules, what a measurement means for them, receivers of the environment, and how messages are written."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.alerts import formats, read_receivers, verify
from orchestration_queue.alerts.evaluation import MOST_BREACHES, evaluate
from orchestration_queue.alerts.measuring import span
from orchestration_queue.alerts.receivers import Receiver
from orchestration_queue.alerts.webhook import sign
from orchestration_queue.errors import UsageError
from orchestration_queue.options import AlertKind, AlertRule
from orchestration_queue.options.alert import check_alert
from orchestration_queue.protocol.alerts import (
    AlertEvaluation,
    AlertState,
    Breach,
    Silence,
    StoredAlerts,
    compose,
)
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server.clock import now_ms

KEYS = QueueKeys("alerts")
RULE = AlertRule(kind="backlog", to=["ops", "mail"], threshold=5, keep_firing=0, note="see http://wiki/backlog")
HIDDEN = "s3cret-token"


class Life:
    """A rule over time: each measurement is evaluated, and what it changes is kept."""

    def __init__(self, rule: AlertRule | None = RULE) -> None:
        self.rules = {} if rule is None else {"r": rule}
        self.state: AlertState | None = None
        self.silences: dict[str, Silence] = {}
        self.at_ms = 1_000_000

    def see(self, *subjects: str, after: float = 10) -> list[tuple[str, ...]]:
        """Return the messages, each as its state and the subjects that it names."""
        self.at_ms += round(after * 1000)
        states = {} if self.state is None else {"r": self.state}
        stored = StoredAlerts(self.rules, self.silences, states, [], None)
        breaches = [Breach(subject, 9, "9 jobs wait") for subject in subjects]
        self.last: AlertEvaluation = evaluate(KEYS, stored, {"r": breaches} if self.rules else {}, self.at_ms)
        if "r" in self.last.states:
            self.state = self.last.states["r"]
        first = [each.message for each in self.last.deliveries if each.to == "ops"]
        return [(each["state"], *(breach["subject"] for breach in each["breaches"])) for each in first]

    @property
    def word(self) -> str:
        return "ok" if self.state is None else self.state.state

    @property
    def events(self) -> list[str]:
        return [event.event for event in self.last.events]


def test_a_rule_fires_once_and_is_resolved_when_it_is_over() -> None:
    life = Life()
    assert life.see() == []
    assert life.last.states == {}, "a rule that is ok costs no write"
    assert life.see("a") == [("firing", "a")]
    assert [(each.to, each.message["id"]) for each in life.last.deliveries] == [
        ("ops", "r.1020000.1"),
        ("mail", "r.1020000.1"),
    ]
    assert len({each.id for each in life.last.deliveries}) == 2
    assert (life.see("a"), life.word) == ([], "firing")
    assert life.see() == [("resolved", "a")]
    assert (life.word, life.events) == ("ok", ["resolved"])


def test_a_rule_with_a_pending_time_fires_after_it() -> None:
    life = Life(RULE.model_copy(update={"pending": timedelta(seconds=30)}))
    assert (life.see("a"), life.word, life.events) == ([], "pending", ["pending"])
    assert (life.see("a"), life.events) == ([], [])
    assert (life.see(), life.word, life.events) == ([], "ok", []), "it was short: nothing is sent"
    life.see("a")
    assert life.see("a", "b", after=30) == [("firing", "a")], "b is new"
    assert life.see("a", "b", after=10) == []
    assert life.see("a", "b", after=30) == [("firing", "a", "b")]
    assert life.see("b") == []
    assert life.see() == [("resolved", "b")]


def test_what_is_new_while_a_rule_fires_is_one_message_with_all() -> None:
    life = Life()
    life.see("a")
    assert life.see("c", "a", "b") == [("firing", "a", "b", "c")]
    assert life.see("a") == []
    assert life.see("a", "b") == [("firing", "a", "b")], "b was over meanwhile"


def test_a_value_that_flaps_is_one_incident() -> None:
    life = Life(RULE.model_copy(update={"keep_firing": timedelta(seconds=60)}))
    sent = [life.see("a")]
    for _ in range(100):
        sent += [life.see(after=15), life.see("a", after=15)]
    assert [each for each in sent if each] == [[("firing", "a")]]
    assert life.state is not None
    assert life.state.since_ms == 1_010_000
    assert (life.see(after=15), life.word) == ([], "firing")
    assert (life.see(after=59), life.word, life.last.states) == ([], "firing", {}), "written though unchanged"
    assert (life.see(after=1), life.word) == ([("resolved", "a")], "ok")


def test_a_queue_that_flaps_beside_one_that_fires_is_named_once() -> None:
    life = Life(RULE.model_copy(update={"keep_firing": timedelta(seconds=60)}))
    sent = [life.see("a")]
    for _ in range(10):
        sent += [life.see("a", "b"), life.see("a")]
    assert [each for each in sent if each] == [[("firing", "a")], [("firing", "a", "b")]]
    assert life.state is not None
    assert [each.below_ms > 0 for each in life.state.breaches] == [False, True]
    life.see("a", after=60)
    assert life.see("a", "b") == [("firing", "a", "b")], "it was over for longer"


def test_what_was_pending_is_not_kept() -> None:
    life = Life(RULE.model_copy(update={"pending": timedelta(seconds=30), "keep_firing": timedelta(seconds=60)}))
    assert (life.see("a"), life.word) == ([], "pending")
    assert (life.see(after=40), life.word) == ([], "ok")
    life.see("a")
    assert life.see("a", after=30) == [("firing", "a")]
    life.see("a", "b")
    assert life.see("a", after=40) == [], "b was pending, and is over"
    assert life.see(after=40) == []
    assert life.see("b", after=40) == [], "b is pending again"
    assert life.see("b", after=30) == [("firing", "b")], "a is over, and b began within its time"


def test_a_clock_that_was_ahead_keeps_nothing_for_longer() -> None:
    life = Life(RULE.model_copy(update={"keep_firing": timedelta(seconds=60)}))
    life.see("a")
    life.see()
    assert life.state is not None
    (breach,) = life.state.breaches
    life.state = replace(life.state, breaches=(replace(breach, below_ms=life.at_ms + 3_600_000),))
    assert life.see() == []
    assert life.see(after=60) == [("resolved", "a")]


def test_an_incident_that_ends_while_another_begins_pending_is_resolved() -> None:
    life = Life(RULE.model_copy(update={"pending": timedelta(seconds=30)}))
    life.see("a")
    life.see("a", after=30)
    first = life.state
    assert life.see("b") == [("resolved", "a")]
    assert life.word == "pending"
    assert life.state is not None
    assert first is not None
    assert life.state.incident != first.incident


def test_a_silenced_rule_sends_nothing_until_it_may() -> None:
    life = Life()
    life.silences["r"] = Silence(life.at_ms + 25_000)
    assert (life.see("a"), life.word) == ([], "firing")
    assert life.see("a") == []
    assert life.see("a") == [("firing", "a")], "it still fires"
    life.silences["r"] = Silence(life.at_ms + 60_000)
    assert life.see() == [("resolved", "a")], "a receiver that got the beginning gets the end"
    life.see("a")
    assert life.see() == [], "nothing was said of this one"


def test_a_removed_rule_ends_its_incident() -> None:
    life = Life()
    life.see("a")
    life.rules.clear()
    assert life.see() == [("resolved", "a")]
    assert life.last.events[0].text == "The rule was removed"
    assert life.word == "ok"


def test_a_rule_that_could_not_be_measured_stays_as_it_is() -> None:
    life = Life()
    life.see("a")
    state = {} if life.state is None else {"r": life.state}
    unchanged = AlertEvaluation({}, [], [])
    assert evaluate(KEYS, StoredAlerts(life.rules, {}, state, [], None), {}, life.at_ms) == unchanged
    of_later_version = StoredAlerts({}, {}, state, [], None, frozenset({"r"}))
    assert evaluate(KEYS, of_later_version, {}, life.at_ms) == unchanged


def test_a_leader_whose_clock_is_behind_resolves_nothing() -> None:
    life = Life()
    life.see("a")
    assert (life.see("a", after=-60), life.word) == ([], "firing")


def test_new_receivers_of_a_firing_rule_are_told_of_what_is_new_and_all_of_the_end() -> None:
    life = Life()
    life.see("a")
    life.rules["r"] = RULE.model_copy(update={"to": ("ops", "chat")})
    life.see("a", "b")
    assert [each.to for each in life.last.deliveries] == ["ops", "chat"]
    life.see()
    assert [each.to for each in life.last.deliveries] == ["ops", "mail", "chat"]


def test_two_leaders_at_a_time_write_the_same_messages() -> None:
    life = Life(RULE.model_copy(update={"pending": timedelta(seconds=5)}))
    life.see("a")
    other = Life(RULE.model_copy(update={"pending": timedelta(seconds=5)}))
    other.state, other.at_ms = life.state, life.at_ms + 700
    life.see("a")
    other.see("a")
    assert {each.id for each in life.last.deliveries} == {each.id for each in other.last.deliveries}


def test_thousands_of_queues_are_bounded() -> None:
    life = Life()
    (sent,) = life.see(*(f"q{number:04}" for number in range(3000)))
    assert life.state is not None
    assert len(life.state.breaches) == MOST_BREACHES
    assert len(sent) == 21
    assert life.last.deliveries[0].message["more"] == MOST_BREACHES - 20
    assert life.see(*(f"q{number:04}" for number in range(3000))) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "needs `kind`"),
        ({"kind": "backlog"}, "needs `to`"),
        ({"kind": "fire", "to": ["ops"]}, "kind"),
        ({"kind": "backlog", "to": "ops"}, "`to` must be a list"),
        ({"kind": "backlog", "to": []}, "1 to 10 receivers"),
        ({"kind": "backlog", "to": [f"r{n}" for n in range(11)]}, "1 to 10 receivers"),
        ({"kind": "backlog", "to": ["OPS"]}, "small letters"),
        ({"kind": "backlog", "to": ["https://hooks.example.com"]}, "small letters"),
        ({"kind": "backlog", "to": [5]}, "small letters"),
        ({"kind": "backlog", "to": ["ops"], "queue": "a:b"}, "contains ':'"),
        ({"kind": "backlog", "to": ["ops"], "queue": ""}, "is empty"),
        ({"kind": "backlog", "to": ["ops"], "queue": 5}, "queue"),
        ({"kind": "backlog", "to": ["ops"], "threshold": -1}, "threshold"),
        ({"kind": "backlog", "to": ["ops"], "threshold": "5"}, "threshold"),
        ({"kind": "backlog", "to": ["ops"], "threshold": float("nan")}, "threshold"),
        ({"kind": "backlog", "to": ["ops"], "threshold": True}, "threshold"),
        ({"kind": "failure_rate", "to": ["ops"], "threshold": 20.0}, "pass 0.2 for 20 %"),
        ({"kind": "memory", "to": ["ops"], "threshold": 1.0}, "pass 0.2 for 20 %"),
        ({"kind": "no_worker", "to": ["ops"], "threshold": 1.0}, "has no `threshold`"),
        ({"kind": "backlog", "to": ["ops"], "window": 60}, "`window` applies to rules of kind failure_rate"),
        ({"kind": "backlog", "to": ["ops"], "minimum": 5}, "`minimum` applies to rules of kind failure_rate"),
        ({"kind": "failure_rate", "to": ["ops"], "window": 1}, "window"),
        ({"kind": "failure_rate", "to": ["ops"], "window": 86_401}, "window"),
        ({"kind": "failure_rate", "to": ["ops"], "minimum": 0}, "minimum"),
        ({"kind": "backlog", "to": ["ops"], "pending": -1}, "pending"),
        ({"kind": "backlog", "to": ["ops"], "keep_firing": -1}, "keep_firing"),
        ({"kind": "backlog", "to": ["ops"], "keep_firing": 86_401}, "keep_firing"),
        ({"kind": "backlog", "to": ["ops"], "keep_firing": "5m"}, "keep_firing"),
        ({"kind": "backlog", "to": ["ops"], "keep_firing": float("nan")}, "keep_firing"),
        ({"kind": "backlog", "to": ["ops"], "keep_firing": None}, "keep_firing"),
        ({"kind": "backlog", "to": ["ops"], "note": "a\nb"}, "printable"),
        ({"kind": "backlog", "to": ["ops"], "note": "x" * 501}, "at most 500"),
        ({"kind": "backlog", "to": ["ops"], "receiver": "ops"}, "no option 'receiver'"),
    ],
)
def test_a_wrong_rule_is_refused_in_one_sentence(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        AlertRule(**fields)
    assert says in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "ä", "x" * 101, 5, None, "a\n"])
def test_a_wrong_name_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="1 to 100 letters"):
        check_alert(name)


@pytest.mark.parametrize("kind", list(AlertKind))
def test_a_rule_and_its_description_are_the_same(kind: AlertKind) -> None:
    rule = AlertRule(kind=kind, to=["ops"])
    assert AlertRule(**json.loads(json.dumps(rule.describe()))) == rule
    assert (rule.threshold is None) is (kind is AlertKind.NO_WORKER)


def test_receivers_come_from_the_environment() -> None:
    found = read_receivers(
        {
            "OQ_URL": "redis://x",
            "OQ_ALERT_RECEIVER_OPS": f"https://hooks.example.com:8443/in?token={HIDDEN}",
            "OQ_ALERT_KEY_OPS": "0123456789abcdef",
            "OQ_ALERT_RECEIVER_TEAM_CHAT": f"slack+https://hooks.slack.com/services/{HIDDEN}",
            "OQ_ALERT_RECEIVER_PAGER": f"pagerduty+https://{HIDDEN}@events.pagerduty.com/v2/enqueue",
            "OQ_ALERT_RECEIVER_MAIL": f"smtps://u%40x:{HIDDEN}@[::1]?from=oq@x.org&to=a@x.org,b@x.org",
        }
    )
    assert sorted(found) == ["mail", "ops", "pager", "team-chat"]
    assert found["ops"].url == f"https://hooks.example.com:8443/in?token={HIDDEN}"
    assert found["team-chat"].url == f"https://hooks.slack.com/services/{HIDDEN}"
    assert (found["pager"].url, found["pager"].key) == ("https://events.pagerduty.com/v2/enqueue", HIDDEN)
    mail = found["mail"]
    assert (mail.user, mail.password, mail.sender, mail.to) == ("u@x", HIDDEN, "oq@x.org", ("a@x.org", "b@x.org"))
    assert mail.url == "smtps://[::1]:465"
    assert HIDDEN not in repr(found)


@pytest.mark.parametrize(
    "value",
    [
        "",
        HIDDEN,
        f"ftp://x/{HIDDEN}",
        f"https:///{HIDDEN}",
        f"https://x:port/{HIDDEN}",
        f"https://x/ {HIDDEN}",
        f"https://x/\n{HIDDEN}",
        f"https://user:{HIDDEN}@x/",
        f"https://[{HIDDEN}/",
        f"slack+https://{HIDDEN}@x/",
        "pagerduty+https://events.pagerduty.com/v2/enqueue",
        f"smtp://u:{HIDDEN}@x",
        f"smtp://u:{HIDDEN}@x?from=oq@x.org",
        f"smtp://u:{HIDDEN}@x?from=oq@x.org&to=someone",
        f"smtp://u:{HIDDEN}@x?from=oq@x.org&to=a@x.org&bcc=b@x.org",
        f"smtp://{HIDDEN}@x?from=oq@x.org&to=a@x.org",
        f"smtp://x/{HIDDEN}?from=oq@x.org&to=a@x.org",
        "smtp://x?from=oq@x.org%0d%0aBcc:b@x.org&to=a@x.org",
    ],
)
def test_a_wrong_receiver_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_receivers({"OQ_ALERT_RECEIVER_OPS": value})
    assert "OQ_ALERT_RECEIVER_OPS must" in str(caught.value)
    assert HIDDEN not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "environment",
    [
        {"OQ_ALERT_KEY_OPS": "0123456789abcdef"},
        {"OQ_ALERT_RECEIVER_OPS": "https://x", "OQ_ALERT_KEY_OPS": "short"},
        {"OQ_ALERT_RECEIVER_OPS": "slack+https://x", "OQ_ALERT_KEY_OPS": "0123456789abcdef"},
        {"OQ_ALERT_RECEIVER_": "https://x"},
        {"OQ_ALERT_RECEIVER_Ä": "https://x"},
    ],
)
def test_a_wrong_key_or_name_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read_receivers(environment)


def test_a_signature_holds_for_its_body_time_and_key_alone() -> None:
    key, body, now = "0123456789abcdef", b'{"a": 1}', str(now_ms() // 1000)
    signature = sign(key, now, body)
    assert verify(key, now, signature, body)
    assert not verify(key, now, signature, body + b" ")
    assert not verify("0123456789abcdeX", now, signature, body)
    assert not verify(key, str(int(now) - 1), signature, body)
    old = str(int(now) - 400)
    assert not verify(key, old, sign(key, old, body), body)
    assert verify(key, old, sign(key, old, body), body, tolerance=500)
    for broken in ("", "v1=", "ä", "\udcff", "v2=" + signature):
        assert not verify(key, now, broken, body)
        assert not verify(key, f"{now}{broken}.", signature, body)
    assert not verify(key, "soon", sign(key, "soon", body), body)


def message(event: str = "firing", text: str = "9 jobs wait", subject: str = "mail") -> dict[str, Any]:
    state = AlertState("firing", "r.1", 1_700_000_000_000, (Breach(subject, 9, text),), (subject,), ("ops",), 1)
    return compose(KEYS, "r", RULE, state, event, 1_700_000_060_000)


def test_a_webhook_gets_what_a_program_needs() -> None:
    body = formats.webhook(message())
    assert body["text"] == "Firing: r: mail: 9 jobs wait"
    assert body["since"] == "2023-11-14T22:13:20+00:00"
    assert {name: body[name] for name in ("id", "state", "rule", "kind", "incident", "note", "prefix")} == {
        "id": "r.1.1", "state": "firing", "rule": "r", "kind": "backlog", "incident": "r.1",
        "note": "see http://wiki/backlog", "prefix": "glide",
    }  # fmt: skip


def test_slack_gets_no_mention_link_or_format_from_names() -> None:
    written = json.dumps(formats.slack(message(subject="<!channel> <http://evil|x> *b* `c`")))
    assert "<!channel>" not in written
    assert "<http" not in written
    assert "*b*" not in written
    assert "&lt;!channel&gt;" in written


def test_pagerduty_opens_and_resolves_one_incident() -> None:
    receiver = Receiver("pager", "pagerduty", "https://x", key="K")
    opened, closed = (formats.pagerduty(message(event), receiver) for event in ("firing", "resolved"))
    assert (opened["event_action"], closed["event_action"]) == ("trigger", "resolve")
    assert opened["dedup_key"] == closed["dedup_key"] == "r.1"
    assert opened["routing_key"] == "K"
    assert opened["payload"]["severity"] == "error"
    assert opened["payload"]["source"] == "mail"


def test_an_email_has_one_subject_line_whatever_names_hold() -> None:
    receiver = Receiver("mail", "email", "smtp://x:25", sender="oq@x.org", to=("a@x.org", "b@x.org"))
    mail = formats.email(message(subject="a\r\nBcc: evil@x.org\r\n\r\n<b>x"), receiver)
    assert mail["Bcc"] is None
    assert mail["To"] == "a@x.org, b@x.org"
    assert "\n" not in mail["Subject"]
    assert mail.get_content_type() == "text/plain"
    assert "see http://wiki/backlog" in mail.get_content()
    assert "Since 2023-11-14 22:13:20 UTC" in mail.get_content()
    removed = formats.email(replace_rule(message("resolved")), receiver)
    assert "Rule r (removed)" in removed.get_content()


def replace_rule(about: dict[str, Any]) -> dict[str, Any]:
    return about | {"kind": "", "note": ""}


def test_a_title_is_short() -> None:
    long = formats.title(message(text="x" * 5000))
    assert len(long) <= 200
    state = AlertState("firing", "r.1", 1, tuple(Breach(f"q{n}", 1, "x" * 300) for n in range(30)), (), (), 1)
    assert formats.title(compose(KEYS, "r", RULE, state, "firing", 1)).endswith(", and 29 more")
    assert formats.title(compose(KEYS, "r", RULE, replace(state, breaches=()), "test", 1)) == "Test: r"


@pytest.mark.parametrize(
    ("length_s", "words"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3600, "1 h"),
        (7860, "2 h 11 min"),
        (172_800, "2 d"),
        (190_000, "2 d 4 h"),
    ],
)
def test_a_duration_is_short(length_s: float, words: str) -> None:
    assert span(length_s) == words
