"""Fetch pages into Parquet in durable steps: a worker that is killed three times continues where it stood.

Prints::

    a worker was killed in page 2
    a worker was killed in page 5
    a worker was killed in page 7
    10 pages, 1000 rows, 13 requests
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from orchestration_queue import ActiveJob, Queue, Tasks, Worker, WorkerOptions, run_workers

tasks = Tasks(queue="ingestion")
folder = Path("pages")
PAGES, FATAL = 10, (2, 5, 7)


def fetch(page: int) -> str:
    """Ask for one page, and write it to a file; the result is the file's path, not its rows."""
    with Path("requests.log").open("a") as requests:
        print(page, file=requests)
    path = folder / f"{page}.parquet"
    if page in FATAL and not path.exists():  # as if the machine failed here, before the step's result is stored
        path.write_bytes(b"half a page")
        print(f"a worker was killed in page {page}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    pq.write_table(pa.table({"page": [page] * 100, "row": range(100)}), path)
    return str(path)


@tasks.task
def ingest(job: ActiveJob) -> list[str]:
    """Fetch all pages; each at least once, and never again once its result is stored."""
    return [job.step(f"page-{page}", fetch, page) for page in range(PAGES)]


if __name__ == "__main__" and sys.argv[1:] == ["work"]:
    options = WorkerOptions(lease=1, stalled_interval=0.2, max_stalled=len(FATAL))
    run_workers(Worker("ingestion", tasks, options=options))
elif __name__ == "__main__":
    folder.mkdir(exist_ok=True)
    with Queue("ingestion") as queue, tasks:
        job = ingest.add()
        for _ in FATAL:
            subprocess.run([sys.executable, __file__, "work"], timeout=120)
        worker = subprocess.Popen([sys.executable, __file__, "work"])
        rows = pq.read_table(job.wait(timeout=120)).num_rows
        worker.terminate()
        worker.wait(60)
    print(f"{PAGES} pages, {rows} rows, {len(Path('requests.log').read_text().splitlines())} requests")
