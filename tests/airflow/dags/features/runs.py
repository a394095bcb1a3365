"""What starts runs of a DAG, and what runs have to do with each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.providers.standard.sensors.external_task import ExternalTaskSensor
from airflow.sdk import Asset, AssetAlias, Metadata, get_current_context, task

from tests.airflow.both import current_kind, feature, position

DAILY: dict[str, Any] = {
    "schedule": "@daily",
    "end_date": datetime(2024, 1, 3, tzinfo=UTC),
    "catchup": True,
    "is_paused_upon_creation": True,
}


def day() -> str:
    """The day that a run is for."""
    return str(get_current_context()["ds"])


@feature(**DAILY)
def catchup() -> None:
    task(task_id="day")(day)()


@feature(**DAILY)
def depends_on_past() -> None:
    task(task_id="ordered", depends_on_past=True)(lambda: [day(), position()])()


@feature(**DAILY)
def wait_for_downstream() -> None:
    first = task(task_id="first", wait_for_downstream=True)(lambda: [day(), position()])()
    first >> task(task_id="second")(lambda: [day(), position()])()


@feature(**{**DAILY, "max_active_runs": 1})
def max_active_runs() -> None:
    first = task(task_id="first")(lambda: [day(), position()])()
    first >> task(task_id="second")(lambda: [day(), position()])()


@feature(**DAILY)
def external_producer() -> None:
    task(task_id="made")(day)()


@feature(**DAILY)
def external_waiter() -> None:
    (
        ExternalTaskSensor(
            task_id="waits",
            external_dag_id=f"external_producer_{current_kind()}",
            external_task_id="made",
            mode="reschedule",
            poke_interval=1,
            check_existence=True,
        )
        >> task(task_id="then")(day)()
    )


@feature(**{**DAILY, "catchup": False})
def backfilled() -> None:
    task(task_id="day")(day)()


@feature()
def triggered() -> None:
    task(task_id="conf")(lambda: dict(get_current_context()["dag_run"].conf or {}))()


@feature()
def triggers() -> None:
    (
        TriggerDagRunOperator(
            task_id="trigger",
            trigger_dag_id=f"triggered_{current_kind()}",
            conf={"from": "another DAG"},
            wait_for_completion=True,
            poke_interval=1,
        )
        >> task(task_id="then")(lambda: "done")()
    )


@feature()
def asset_producer() -> None:
    data = Asset(f"data_{current_kind()}")

    @task(outlets=[data])
    def produce(*, outlet_events: Any) -> int:
        outlet_events[data].extra = {"rows": 7}
        return 7

    produce()  # type: ignore[call-arg]  # Airflow passes it


@feature(schedule=lambda kind: [Asset(f"data_{kind}")])
def asset_consumer() -> None:
    data = Asset(f"data_{current_kind()}")

    @task(inlets=[data])
    def consume(*, triggering_asset_events: Any, inlet_events: Any) -> list[Any]:
        events = [event for events in triggering_asset_events.values() for event in events]
        return [[event.extra for event in events], inlet_events[data][-1].extra]

    consume()  # type: ignore[call-arg]  # Airflow passes them


@feature()
def asset_alias() -> None:
    alias = AssetAlias(f"alias_{current_kind()}")
    found = f"found_{current_kind()}"

    @task(outlets=[alias])
    def produce() -> Any:
        yield Metadata(Asset(found), {"rows": 3}, alias=alias)

    produce()


@feature()
def cleared() -> None:
    """Its tasks run again after a user has cleared them."""
    task(task_id="counts", retries=1, retry_delay=timedelta(0))(position)() >> task(task_id="then")(lambda: 1)()
