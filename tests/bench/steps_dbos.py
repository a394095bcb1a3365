"""The steps of a DBOS workflow, measured as `tests.bench.steps` measures ours: run with a Python that has `dbos`.

``python -P steps_dbos.py sqlite:////tmp/bench.sqlite 2000`` prints JSON: steps per second and microseconds of this
process's processor per step, for a workflow's coroutine and for a plain function, and for one that gets stored results.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

from dbos import DBOS, DBOSConfig, SetWorkflowID

RESULT = {"path": "s3://bucket/pages/000001.parquet", "rows": 1000}
FIGURES: dict[str, dict[str, float]] = {}


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def note(name: str, began: tuple[float, float], count: int) -> None:
    wall_s, cpu_s = time.perf_counter() - began[0], time.process_time() - began[1]
    FIGURES[name] = {"per_second": round(count / wall_s), "cpu_us": round(cpu_s / count * 1_000_000, 1)}


@DBOS.step()
async def async_step() -> dict[str, object]:
    return RESULT


@DBOS.step()
def plain_step() -> dict[str, object]:
    return RESULT


@DBOS.workflow()
async def on_loop(count: int) -> None:
    began = now()
    for _ in range(count):
        await async_step()
    note("coroutine, stored" if "coroutine" in FIGURES else "coroutine", began, count)


@DBOS.workflow()
def plain(count: int) -> None:
    began = now()
    for _ in range(count):
        plain_step()
    note("thread, stored" if "thread" in FIGURES else "thread", began, count)


async def main(url: str, count: int) -> None:
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()
    with SetWorkflowID("loop"):
        handle = await DBOS.start_workflow_async(on_loop, count)
    await handle.get_result()
    await (await DBOS.fork_workflow_async("loop", count + 1)).get_result()
    with SetWorkflowID("plain"):
        plain_handle = await asyncio.to_thread(DBOS.start_workflow, plain, count)
    await asyncio.to_thread(plain_handle.get_result)
    await (await DBOS.fork_workflow_async("plain", count + 1)).get_result()
    DBOS.destroy()
    sys.stdout.write(json.dumps(FIGURES))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
