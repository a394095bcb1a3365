"""Run Spark work as tasks: each job gets a warm session, and DataFrames are passed by reference, not through the queue.

Requires the extra ``spark``. The sessions share a server that starts on demand and stops after its last user.

Prints::

    10 rows of {'square': 'bigint'}
    285 in sum
"""

import os
from pathlib import Path

from spark_tasks import squares, tasks

from orchestration_queue import DagBuilder, FlowProducer, Queue
from orchestration_queue.spark import DataFrameRef
from orchestration_queue.testing import running_worker

if __name__ == "__main__":
    os.environ.setdefault("OQ_SPARK_RESULTS", str(Path("results").absolute()))
    dag = DagBuilder("etl", queue="etl")
    made = dag.add(squares.node("squares")(count=10))
    dag.node("total", task="total", deps=[made])

    with Queue("etl") as queue, running_worker(queue, tasks), FlowProducer() as flows:
        results = flows.submit(dag.build()).wait(timeout=300)
    kept = DataFrameRef.model_validate(results["squares"])
    print(kept.rows, "rows of", kept.columns)
    print(results["total"], "in sum")
