"""Connection URLs: what each spelling means, what is refused, and that no secret ever shows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from orchestration_queue.errors import UsageError
from orchestration_queue.server import ServerUrl, parse_url


def test_without_a_url_the_environment_says_where_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OQ_URL", "redis://queue.example:7000/3")
    assert parse_url() == ServerUrl("tcp", host="queue.example", port=7000, db=3)


@pytest.mark.parametrize("empty", [None, ""])
def test_without_url_and_environment_there_is_an_embedded_server_in_the_working_directory(
    empty: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    if empty is None:
        monkeypatch.delenv("OQ_URL", raising=False)
    else:
        monkeypatch.setenv("OQ_URL", empty)
    assert parse_url() == ServerUrl("embedded", path=tmp_path.resolve() / ".oq")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://", ServerUrl("tcp", host="localhost")),
        ("redis://host", ServerUrl("tcp", host="host")),
        ("valkey://host:1234/2", ServerUrl("tcp", host="host", port=1234, db=2)),
        ("redis://host?db=4", ServerUrl("tcp", host="host", db=4)),
        ("redis://[::1]:7000", ServerUrl("tcp", host="::1", port=7000)),
        ("redis://:secret@host", ServerUrl("tcp", host="host", password="secret")),
        ("redis://anna:se%2Fcr%40et@host", ServerUrl("tcp", host="host", username="anna", password="se/cr@et")),
        ("redis://host?username=anna&password=x%26y", ServerUrl("tcp", host="host", username="anna", password="x&y")),
        ("redis://host?timeout=2.5", ServerUrl("tcp", host="host", timeout=timedelta(seconds=2.5))),
        ("unix:///s?connect_timeout=1", ServerUrl("unix", path=Path("/s"), connect_timeout=timedelta(seconds=1))),
        ("embedded:///d?timeout=1", ServerUrl("embedded", path=Path("/d"), timeout=timedelta(seconds=1))),
        ("rediss://host", ServerUrl("tls", host="host")),
        (
            "valkeys://host?ssl_ca_certs=/ca.pem&ssl_check_hostname=false&ssl_cert_reqs=none",
            ServerUrl(
                "tls",
                host="host",
                tls=(("ssl_ca_certs", "/ca.pem"), ("ssl_check_hostname", False), ("ssl_cert_reqs", "none")),
            ),
        ),
        ("unix:///run/valkey.sock", ServerUrl("unix", path=Path("/run/valkey.sock"))),
        ("unix://:secret@/run/a%20b?db=2", ServerUrl("unix", path=Path("/run/a b"), db=2, password="secret")),
        ("embedded:///data/oq?grace=2.5", ServerUrl("embedded", path=Path("/data/oq"), grace=timedelta(seconds=2.5))),
        (
            "valkey+cluster://anna:secret@a,b:7001,[::1]:7002",
            ServerUrl(
                "tcp",
                mode="cluster",
                addresses=(("a", 6379), ("b", 7001), ("::1", 7002)),
                username="anna",
                password="secret",
            ),
        ),
        (
            "rediss+cluster://a?ssl_ca_certs=/ca.pem",
            ServerUrl("tls", mode="cluster", addresses=(("a", 6379),), tls=(("ssl_ca_certs", "/ca.pem"),)),
        ),
        (
            "redis+sentinel://:secret@a,b:7001/main?db=2&sentinel_password=other",
            ServerUrl(
                "tcp",
                mode="sentinel",
                addresses=(("a", 26379), ("b", 7001)),
                master="main",
                db=2,
                password="secret",
                sentinel_password="other",
            ),
        ),
        ("  redis://host\n", ServerUrl("tcp", host="host")),
    ],
)
def test_every_spelling(text: str, expected: ServerUrl) -> None:
    assert parse_url(text) == expected


def test_relative_paths_are_relative_to_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_url("embedded://data/oq").path == tmp_path.resolve() / "data/oq"
    assert parse_url("unix://valkey.sock").path == tmp_path.resolve() / "valkey.sock"


def test_the_sentinels_have_a_login_of_their_own() -> None:
    url = parse_url("redis+sentinel://anna:secret@a/main?db=2&sentinel_username=bob&sentinel_password=other")
    assert url.sentinel(("a", 26379)) == ServerUrl(
        "tcp",
        host="a",
        port=26379,
        username="bob",
        password="other",
        sentinel_username="bob",
        sentinel_password="other",
    )
    master = url.at(("b", 6379))
    assert (master.host, master.port, master.db, master.username, master.password) == ("b", 6379, 2, "anna", "secret")


def test_a_parsed_url_stays_as_it_is() -> None:
    url = ServerUrl("tcp", host="host", password="secret")
    assert parse_url(url) is url


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://anna:topsecret@host:1", "redis://anna:***@host:1/0"),
        ("redis://host?password=topsecret", "redis://:***@host:6379/0"),
        ("rediss://anna@[::1]/5", "rediss://anna@[::1]:6379/5"),
        ("unix://:topsecret@/run/s?db=1", "unix://:***@/run/s?db=1"),
        ("embedded:///data", "embedded:///data"),
        ("valkeys+cluster://:topsecret@a,[::1]:2", "rediss+cluster://:***@a:6379,[::1]:2"),
        (
            "redis+sentinel://a,b:2/main?db=1&sentinel_password=topsecret",
            "redis+sentinel://a:26379,b:2/main?db=1",
        ),
    ],
)
def test_what_is_shown_of_a_url_leads_back_to_it_but_for_the_secret(text: str, shown: str) -> None:
    url = parse_url(text)
    assert str(url) == shown
    assert repr(url) == f"ServerUrl({shown!r})"
    assert parse_url(shown).path == url.path
    assert (parse_url(shown).host, parse_url(shown).db) == (url.host, url.db)
    assert (parse_url(shown).addresses, parse_url(shown).master) == (url.addresses, url.master)


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("host:6379", "scheme"),
        ("redis:host", "scheme"),
        ("http://host", "scheme"),
        ("anna:topsecret@host", "scheme"),
        ("redis://host:port", "port"),
        ("redis://host:0", "port"),
        ("redis://host:70000", "port"),
        ("redis://[::1", "malformed"),
        ("redis://host/first", "database"),
        ("redis://host/-1", "database"),
        ("redis://host/1/2", "database"),
        ("redis://host?db=x", "database"),
        ("redis://host?tiemout=5", "'tiemout' is not an option"),
        ("redis://host?ssl_ca_certs=/ca.pem", "'ssl_ca_certs' is not an option"),
        ("rediss://host?ssl_check_hostname=maybe", "neither true nor false"),
        ("rediss://host?ssl_cert_reqs=maybe", "required, optional, none"),
        ("redis://:topsecret#1@host", "%23"),
        ("redis://:topsecret/1@host", "%2F"),
        ("redis://:topsecret?1@host", "%3F"),
        ("redis://host?password=topsecret&nonsense=1", "'nonsense' is not an option"),
        ("redis://a,b", "several hosts"),
        ("redis+cluster://a/1", "no numbered databases"),
        ("redis+cluster://a?db=1", "'db' is not an option"),
        ("redis+cluster://a:1,b:port", "port"),
        ("redis+sentinel://:topsecret@a", "names no master"),
        ("redis://a?sentinel_password=topsecret", "'sentinel_password' is not an option"),
        ("redis+ring://a", "scheme"),
        ("unix+cluster:///run/s", "scheme"),
        ("unix://", "names no socket"),
        ("unix:///run/a%00b", "zero byte"),
        ("embedded://data?password=topsecret", "'password' is not an option"),
        ("embedded://data?grace=soon", "grace"),
        ("embedded://data?grace=-1", "grace"),
        ("embedded://data?grace=nan", "grace"),
        *(
            (f"{url}?{name}={value}", f"{name} is not a number")
            for url in (
                "redis://a",
                "rediss://a",
                "unix:///s",
                "embedded://d",
                "redis+cluster://a",
                "redis+sentinel://a/m",
            )
            for name in ("timeout", "connect_timeout")
            for value in ("", "0", "-1", "nan", "inf", "5s", "1e9")
        ),
    ],
)
def test_bad_urls_are_refused_in_one_sentence_without_their_secret(text: str, because: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(text)
    message = str(caught.value)
    assert because in message
    assert "topsecret" not in message
    assert message.endswith(".")
    assert "\n" not in message


def test_the_error_says_when_the_environment_is_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OQ_URL", "redis://a?timeout=never")
    with pytest.raises(UsageError, match="from OQ_URL cannot be read, because timeout is not a number"):
        parse_url()
    monkeypatch.setenv("OQ_URL", "nonsense")
    with pytest.raises(UsageError, match="from OQ_URL"):
        parse_url()
