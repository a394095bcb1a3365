"""What Airflow asks of a provider: which connection type, operators and links it brings. Imports no Airflow."""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]

_PACKAGE = "orchestration_queue.airflow.provider"
_NAME = "orchestration_queue"


def get_provider_info() -> dict[str, Any]:
    """Return the description that Airflow reads from the entry point ``apache_airflow_provider``."""

    def modules(*names: str) -> list[dict[str, Any]]:
        return [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.{name}" for name in names]}]

    return {
        "package-name": "orchestration-queue",
        "name": _NAME,
        "description": "Jobs, flows and Spark work on queues of a Valkey or Redis server.",
        "integrations": [{"integration-name": _NAME, "tags": ["service"]}],
        "hooks": modules("hook"),
        "operators": modules("operators", "spark"),
        "sensors": modules("sensors"),
        "triggers": modules("triggers", "event_triggers"),
        "extra-links": [f"{_PACKAGE}.links.ConsoleLink", f"{_PACKAGE}.spark.SparkLink"],
        "queues": [f"{_PACKAGE}.messaging.QueueMessageProvider"],
        "connection-types": [_connection_type()],
        "executors": ["orchestration_queue.airflow.QueueExecutor"],
        "cli": ["orchestration_queue.airflow.commands.commands"],
    }


def _connection_type() -> dict[str, Any]:
    return {
        "connection-type": "orchestration_queue",
        "hook-name": _NAME,
        "hook-class-name": f"{_PACKAGE}.hook.QueueHook",
        "ui-field-behaviour": {
            "hidden-fields": [],
            "relabeling": {"schema": "Database"},
            "placeholders": {
                "host": "valkey.example, or a URL: rediss://host:6379, redis+cluster://a,b, unix:///run/valkey.sock",
                "port": "6379",
                "schema": "0",
                "extra": '{"timeout": 10}',
            },
        },
        "conn-fields": {
            "prefix": _text_field("Key prefix", "First part of every key; leave it empty for the default."),
            "console_url": _text_field("Console", "URL of the console, to which tasks link: http://console:8080"),
        },
    }


def _text_field(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}
