"""React to a new file: a Dagster sensor requests a run, which submits a script with ``spark-submit``.

The job (``oq job watch``) and the asset both show the progress and a link to the application's page in Spark's UI.
``FLIGHTS_SPARK=spark://host:7077`` submits to that cluster; the default is this machine.

Prints::

    the sensor asks for: counts
    progress: 100 %, done
    read 4 rows, wrote 2
    page: http://localhost:18080/history/local-...
"""

import os
import re
from pathlib import Path

import dagster as dg

from orchestration_queue import Queue, Tasks
from orchestration_queue.dagster import AssetTask, QueueResource, queue_event_sensor, queue_task_asset, request_run
from orchestration_queue.spark import SparkSubmit, spark_submit
from orchestration_queue.testing import running_worker

LANDED, COUNTS = Path("landed.csv").absolute(), Path("counts").absolute()
tasks = Tasks(queue="etl")


@tasks.task
def land(rows: list[str]) -> dict[str, int]:
    """Write a file, as whatever fetches data would."""
    LANDED.write_text("\n".join(rows))
    return {"rows": len(rows)}


submit = SparkSubmit(
    master=os.environ.get("FLIGHTS_SPARK", "local[2]"),
    ui_url="http://localhost:18080/history/{application}",  # the history server; a standalone master needs no ui_url
)
tasks.task(spark_submit(Path(__file__).with_name("spark_application.py"), submit))

counts = queue_task_asset(
    AssetTask("counts", task="spark_application", arguments={"arguments": [str(LANDED), str(COUNTS)]}), queue="etl"
)
counts_job = dg.define_asset_job("counts_job", selection=[counts], executor_def=dg.in_process_executor)
landed = queue_event_sensor(request_run, queue="etl", name="landed", job_names=["land"], job=counts_job, start="oldest")

defs = dg.Definitions(assets=[counts], jobs=[counts_job], sensors=[landed], resources={"queue": QueueResource()})

if __name__ == "__main__":
    with Queue("etl") as queue, running_worker(queue, tasks), tasks, dg.DagsterInstance.ephemeral() as instance:
        land.add(rows=["JFK,LAX", "LGA,ORD", "JFK,BOS", "LGA,ATL"]).wait(timeout=60)

        # In an installation the daemon does this; here one tick of the sensor, and the run that it asks for.
        with dg.build_sensor_context(instance, resources={"queue": QueueResource()}) as context:
            (request,) = landed.evaluate_tick(context).run_requests or ()
        print("the sensor asks for:", *(key.to_user_string() for key in counts.keys))
        result = defs.resolve_job_def("counts_job").execute_in_process(instance=instance, tags=dict(request.tags))

        (made,) = result.get_asset_materialization_events()
        metadata = made.materialization.metadata
        job = queue.get(str(metadata["orchestration_queue/job_id"].value))
        print(f"progress: {job.record.progress['percent']} %, {job.record.progress['text']}")
        print(f"read {metadata['input_rows'].value} rows, wrote {metadata['output_rows'].value}")
        print("page:", re.sub(r"local-\d+", "local-...", str(metadata["ui"].value)))
