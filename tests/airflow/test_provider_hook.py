"""The connection type: which servers it can name, its test, and what it refuses, each in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from airflow.models import Connection
from airflow.providers_manager import ProvidersManager
from airflow.sdk import Connection as SdkConnection

from orchestration_queue.airflow.provider import QueueHook
from orchestration_queue.airflow.provider.hook import QueueServer
from orchestration_queue.airflow.provider.info import get_provider_info
from orchestration_queue.errors import UsageError
from tests.airflow.provider import connection_json

VARIABLE = "AIRFLOW_CONN_ORCHESTRATION_QUEUE_DEFAULT"


def named(**fields: Any) -> SdkConnection:
    return SdkConnection(conn_id="q", **{"conn_type": "orchestration_queue", **fields})


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "valkey"}, "redis://valkey:6379/0"),
        ({"host": "valkey", "port": 7000, "schema": "3"}, "redis://valkey:7000/3"),
        ({"host": "valkey", "login": "w", "password": "a/b@c:#?"}, "redis://w:***@valkey:6379/0"),
        ({"host": "valkey", "extra": '{"scheme": "rediss", "ssl_check_hostname": false}'}, "rediss://valkey:6379/0"),
        ({"host": "redis+cluster://a:1,b:2"}, "redis+cluster://a:1,b:2"),
        ({"host": "unix:///run/valkey.sock?db=2", "password": "x"}, "unix://:***@/run/valkey.sock?db=2"),
    ],
)
def test_a_connection_names_a_server(fields: dict[str, Any], url: str) -> None:
    server = QueueServer.of(named(**fields))
    assert str(server.url) == url
    assert server.url.password == fields.get("password")


def test_a_connection_is_read_from_a_uri() -> None:
    connection = SdkConnection.from_uri(
        "orchestration-queue://w:p%40ss@valkey:7000/1?timeout=3&prefix=mine", conn_id="q"
    )
    server = QueueServer.of(connection)
    assert (str(server.url), server.url.password, server.prefix) == ("redis://w:***@valkey:7000/1", "p@ss", "mine")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"conn_type": "redis", "host": "v"}, "has the type 'redis', but queues need 'orchestration_queue'"),
        ({}, "has no host; set it"),
        ({"host": "v", "extra": "[1]"}, "has an extra that is no JSON object"),
        ({"host": "v", "extra": "{"}, "has an extra that is no JSON object"),
        ({"host": "v", "extra": '{"tiemout": 3}'}, "'tiemout' is not an option"),
        ({"host": "v", "extra": '{"timeout": "soon"}'}, "timeout is not a number"),
        ({"host": "v", "schema": "public"}, "the database is not a number"),
        ({"host": "http://v"}, "does not start with a scheme we know"),
        ({"host": "v", "extra": '{"prefix": "a{b"}'}, "prefix"),
    ],
)
def test_a_wrong_connection_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match="Airflow's connection 'q'") as refused:
        QueueServer.of(named(password="hunter2", **fields))
    assert sentence in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(QueueServer.of(named(host="v", password="hunter2")))


def test_the_connection_is_tested(server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, connection_json(server_url))
    assert QueueHook().test_connection() == (True, f"Connected to {server_url}.")
    with QueueHook().queue("data") as queue:
        assert queue.counts().waiting == 0


def test_a_server_that_does_not_answer_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, connection_json("unix:///nowhere/valkey.sock?password=hunter2", connect_timeout="0.1"))
    ok, message = QueueHook().test_connection()
    assert not ok
    assert "/nowhere/valkey.sock" in message
    assert "hunter2" not in message


def test_an_unknown_connection_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="no_such_connection"):
        assert QueueHook("no_such_connection").server


def test_airflow_finds_the_provider() -> None:
    manager = ProvidersManager()
    assert (
        manager.providers["orchestration-queue"].data | get_provider_info()
        == manager.providers["orchestration-queue"].data
    )
    assert "orchestration_queue.airflow.provider.links.ConsoleLink" in manager.extra_links_class_names


def test_the_connection_form_has_our_fields() -> None:
    (form,) = [
        form
        for form in ProvidersManager().iter_connection_type_hook_ui_metadata()
        if form.connection_type == "orchestration_queue"
    ]
    assert form.hook_class_name == f"{QueueHook.__module__}.{QueueHook.__name__}"
    widgets = ProvidersManager().connection_form_widgets
    assert {"extra__orchestration_queue__prefix", "extra__orchestration_queue__console_url"} <= set(widgets)


@pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated")  # Airflow's own call
def test_the_button_of_the_form_tests_the_connection(
    server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_Q", connection_json(server_url))  # as the API server does before it calls this
    connection = Connection(conn_id="q", conn_type="orchestration_queue", host=server_url)
    assert connection.test_connection() == (True, f"Connected to {server_url}.")
