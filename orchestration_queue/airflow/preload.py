"""What a fork server does once, so that none of its forks has to."""

from __future__ import annotations

import importlib
import logging
import logging.config
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from airflow import settings
from airflow.sdk.api.client import Client
from airflow.sdk.execution_time import comms, task_runner
from pydantic import JsonValue, TypeAdapter

__all__ = ["preload"]

_USED: Final = (
    "airflow.sdk.execution_time.supervisor",
    "airflow.sdk.execution_time.callback_supervisor",
    "airflow.dag_processing.bundles.local",
    "airflow.dag_processing.bundles.manager",
    "airflow.providers.standard.operators.python",
    "airflow.providers.standard.operators.bash",
    "airflow.providers.standard.decorators.python",
    "airflow.sdk._shared.logging.factory",
    "airflow.sdk._shared.logging.remote",
    "airflow.sdk.definitions.asset.metadata",
    "airflow.sdk.definitions.connection",
    "encodings.idna",
    "jinja2.ext",
    "setproctitle",
)
"""Modules that nearly every task imports."""


def preload() -> None:
    """Import what nearly every task needs, and build what each task would build for itself."""
    for name in _USED:
        with suppress(ImportError):
            importlib.import_module(name)
    # Its TLS context is made once per process, and reads all certificates: a third of a small task's processor time.
    Client(base_url="http://localhost", token="").close()
    # Workers don't use Airflow's database, and each fork would build new pools of connections.
    settings.dispose_orm(do_log=False)
    _share_adapters()
    logging.config.dictConfig = _clear_caches_once(logging.config.dictConfig)  # type: ignore[assignment]


def _share_adapters() -> None:
    """Have Airflow's task process find its type adapters, of which it builds five, in some milliseconds."""
    built: dict[int, tuple[Any, TypeAdapter[Any]]] = {}

    def find(kind: Any) -> TypeAdapter[Any]:
        if id(kind) not in built:
            built[id(kind)] = kind, TypeAdapter(kind)  # with the type, so that none gets its id
        return built[id(kind)][1]

    modules: tuple[tuple[Any, Any], ...] = ((comms, comms.ToTask), (task_runner, JsonValue))
    for module, kind in modules:
        find(kind)
        module.TypeAdapter = find


def _clear_caches_once(configure: Callable[[Any], None]) -> Callable[[Any], None]:
    """Have a configuration of logging clear the loggers' caches once, instead of once per logger."""

    def configure_once(config: Any) -> None:
        manager: Any = logging.root.manager
        manager._clear_cache = lambda: None
        try:
            configure(config)
        finally:
            del manager._clear_cache
            manager._clear_cache()

    return configure_once
