"""Two DAGs whose work is done by workers of a queue, while Airflow's triggerer waits.

``flights`` adds a job, and with its result a flow of two jobs. When a job ``load`` completes, no matter who added it,
the asset ``flights_loaded`` is updated, and ``flights_report`` runs.
"""

from __future__ import annotations

from airflow.sdk import DAG, Asset, AssetWatcher

from orchestration_queue.airflow.provider import AddFlowOperator, AddJobOperator, QueueEventTrigger

loaded = Asset(
    "flights_loaded",
    watchers=[AssetWatcher(name="loads", trigger=QueueEventTrigger("flights", job_names=["load"]))],
)

with DAG("flights", schedule=None, tags=["example"]):
    extract = AddJobOperator(
        task_id="extract",
        queue_name="flights",
        job_name="extract",
        data={"day": "{{ dag_run.run_after | ds }}"},
        job_options={"attempts": 3, "timeout": 600},
    )
    path = "{{ ti.xcom_pull(task_ids='extract')['path'] }}"
    tables = AddFlowOperator(
        task_id="tables",
        queue_name="flights",
        nodes=[
            {"name": "clean", "data": {"path": path}},
            {"name": "load", "data": {"path": path}, "deps": ["clean"]},
        ],
    )
    extract >> tables

with DAG("flights_report", schedule=[loaded], tags=["example"]):
    AddJobOperator(
        task_id="report",
        queue_name="flights",
        job_name="report",
        data={
            "reason": "{{ triggering_asset_events.for_asset(name='flights_loaded')[-1].extra.payload.job_id }} ended"
        },
    )
