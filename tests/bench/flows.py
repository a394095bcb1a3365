"""Large flows: how long it takes to compile one, to submit it, and to map a task over a long list. Prints JSON.

Run it with ``python -m tests.bench.flows``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from typing import Any

from orchestration_queue import flows
from orchestration_queue.client import FlowProducer
from orchestration_queue.flows import CARRIERS, Carrier, Dag, DagBuilder, Node
from orchestration_queue.worker import AsyncActiveJob
from tests.bench.apart import worker_apart
from tests.bench.server import Meter, server

__all__ = ["compile_flow", "fan_out", "random_dag", "run_flow", "run_map", "submit_flow"]

Figures = dict[str, float]
QUEUE = "bench"
SIZES = (4, 100, 1_000, 20_000)
SMALL = 8
"""Nodes of a graph too small for four edges a node."""


def random_dag(nodes: int, edges: int, seed: int) -> Dag:
    """A graph of `nodes` nodes, in which `edges` times one waits for an earlier one."""
    source = random.Random(seed)
    deps: list[set[int]] = [set() for _ in range(nodes)]
    wanted = edges if nodes > 1 else 0
    while wanted:
        low, high = sorted(source.sample(range(nodes), 2))
        if low not in deps[high]:
            deps[high].add(low)
            wanted -= 1
    each = [Node(f"n{place}", data={"n": place}, deps=[f"n{dep}" for dep in deps[place]]) for place in range(nodes)]
    return Dag("bench", each, "bench")


def compile_flow(nodes: int, edges: int, seed: int) -> Figures:
    """Nodes and edges to a plan, and to the calls that submit it; nothing is sent."""
    given = random_dag(nodes, edges, seed).nodes
    began = time.perf_counter()
    dag = Dag("bench", given, "bench")
    plan = flows.compile(dag, "f")
    compiled = time.perf_counter()
    calls = list(plan.submission().writes(0))
    return {
        "compile_s": round(compiled - began, 3),
        "render_s": round(time.perf_counter() - compiled, 3),
        "calls": len(calls),
    }


def submit_flow(url: str, carrier: Carrier, nodes: int, edges: int, seed: int) -> Figures:
    """A graph to a flow that is under way, compiling included."""
    dag = random_dag(nodes, edges, seed)
    with Meter(url) as meter, FlowProducer(url=url, carrier=carrier) as producer:
        producer.submit(Dag("warm", [Node("up")], "bench"))
        meter.begin()
        producer.submit(dag)
        cost = meter.end()
    return {
        "seconds": round(cost.seconds, 3),
        "client_us_per_node": round(cost.client_us / nodes, 1),
        "server_us_per_node": round(cost.server_us / nodes, 1),
    }


def submit_sizes(url: str, carrier: Carrier, nodes: int) -> Figures:
    """Submit a graph of four edges a node, and see how long its longest call held the server."""
    dag = random_dag(nodes, 4 * nodes if nodes > SMALL else nodes - 1, seed=1)
    with Meter(url) as meter, FlowProducer(url=url, carrier=carrier) as producer:
        producer.submit(Dag("warm", [Node("up")], QUEUE))
        meter.reset()
        meter.watch_slow_calls()
        meter.begin()
        producer.submit(dag)
        cost = meter.end()
        longest = max([meter.transaction_ms(), *meter.slowest_functions().values()])
    return {
        "seconds": round(cost.seconds, 4),
        "server_us_per_node": round(cost.server_us / nodes, 1),
        "longest_call_ms": round(longest, 2),
    }


async def _map(job: AsyncActiveJob) -> Any:
    """Play all parts of a flow that maps over a list."""
    if job.name == "list":
        return list(range(job.data))
    if job.name == "read":
        return sum([value async for value in job.map_results("map")])
    return job.data


def _mapping(elements: int) -> Dag:
    builder = DagBuilder("bench", queue=QUEUE)
    listed = builder.node("list", data=elements)
    builder.node("read", deps=[builder.map("map", "double", over=listed)])
    return builder.build()


def fan_out(url: str, elements: int) -> Figures:
    """From the return of a list to the results of a job for each element, in one worker that runs 32 at a time."""
    with Meter(url) as meter, FlowProducer(url=url) as producer, worker_apart(url, QUEUE, _map, 32) as memory:
        producer.submit(_mapping(1)).wait(60)
        before = memory("VmRSS")
        meter.watch_slow_calls()
        meter.begin()
        flow = producer.submit(_mapping(elements))
        assert flow.wait(600)["read"] == elements * (elements - 1) // 2
        cost = meter.end()
        records = flow.records()
        returned, read = records["list"].finished_at, records["read"]
        assert returned is not None
        assert read.started_at is not None
        assert read.finished_at is not None
        slowest = meter.slowest_functions()
        return {
            "return_to_fan_in_s": (read.started_at - returned).total_seconds(),
            "return_to_results_s": (read.finished_at - returned).total_seconds(),
            "server_us_per_element": round(cost.server_us / elements, 1),
            "worker_mib_before": before,
            "worker_mib_most": memory("VmHWM"),
            **{f"longest_{name}_ms": ms for name, ms in slowest.items()},
        }


def run_flow(url: str, nodes: int) -> Figures:
    """A graph of four edges a node, from its submission to its end, with one worker process that runs 32 at a time."""
    return _run(url, random_dag(nodes, 4 * nodes, seed=1), nodes)


def run_map(url: str, elements: int) -> Figures:
    """A flow that maps a no-op over a list and reads all results, from its submission to its end, likewise."""
    return _run(url, _mapping(elements), elements)


def _run(url: str, dag: Dag, jobs: int) -> Figures:
    with Meter(url) as meter, FlowProducer(url=url) as producer, worker_apart(url, QUEUE, _map, 32):
        producer.submit(_mapping(1)).wait(60)
        meter.begin()
        producer.submit(dag).wait(60)
        return meter.end().per_job(jobs)


def _fan_out_alone(elements: int) -> Figures:
    """On a server that is not rewriting its append-only file after what was measured before."""
    with server() as url:
        return fan_out(url, elements)


def _medians(runs: list[Figures]) -> Figures:
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: statistics.median(run.get(name, 0) for run in runs) for name in names}


def _of_size(runs: list[Figures]) -> Figures:
    """Medians, and of the longest call its least time: what other processes take from the server is none of its own."""
    return _medians(runs) | {"longest_call_ms": min(run["longest_call_ms"] for run in runs)}


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flows", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes (default 5000)")
    parser.add_argument("--edges", type=int, default=20_000, help="edges (default 20000)")
    parser.add_argument("--runs", type=int, default=3, help="runs (default 3)")
    parser.add_argument("--elements", type=int, default=10_000, help="length of the list (default 10000)")
    arguments = parser.parse_args()
    size = (arguments.nodes, arguments.edges)
    report: dict[str, object] = {"nodes": arguments.nodes, "edges": arguments.edges, "elements": arguments.elements}
    report["compile"] = _medians([compile_flow(*size, seed) for seed in range(arguments.runs)])
    with server() as url:
        for carrier in CARRIERS:
            runs = [submit_flow(url, carrier, *size, seed) for seed in range(arguments.runs)]
            report[f"submit_{carrier}"] = _medians(runs)
            report[f"sizes_{carrier}"] = {
                size: _of_size([submit_sizes(url, carrier, size) for _ in range(arguments.runs)]) for size in SIZES
            }
    report["fan_out"] = _medians([_fan_out_alone(arguments.elements) for _ in range(arguments.runs)])
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
