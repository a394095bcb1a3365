"""Large flows: how long it takes to compile one, and to submit it. Prints JSON.

Run it with ``python -m tests.bench.flows``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

from orchestration_queue import flows
from orchestration_queue.client import FlowProducer
from orchestration_queue.flows import Dag, LibraryName, Node
from tests.bench.server import Meter, server

__all__ = ["compile_flow", "random_dag", "submit_flow"]

Figures = dict[str, float]


def random_dag(nodes: int, edges: int, seed: int) -> Dag:
    """A graph of so many nodes, in which that many times one waits for an earlier one."""
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


def submit_flow(url: str, library: LibraryName, nodes: int, edges: int, seed: int) -> Figures:
    """A graph to a flow that is under way, compiling included."""
    dag = random_dag(nodes, edges, seed)
    with Meter(url) as meter, FlowProducer(url=url, library=library) as producer:
        producer.submit(Dag("warm", [Node("up")], "bench"))
        meter.begin()
        producer.submit(dag)
        cost = meter.end()
    return {
        "seconds": round(cost.seconds, 3),
        "client_us_per_node": round(cost.client_us / nodes, 1),
        "server_us_per_node": round(cost.server_us / nodes, 1),
    }


def _medians(runs: list[Figures]) -> Figures:
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flows", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000, help="nodes (default 5000)")
    parser.add_argument("--edges", type=int, default=20_000, help="edges (default 20000)")
    parser.add_argument("--runs", type=int, default=3, help="runs (default 3)")
    arguments = parser.parse_args()
    size = (arguments.nodes, arguments.edges)
    report: dict[str, object] = {"nodes": arguments.nodes, "edges": arguments.edges}
    report["compile"] = _medians([compile_flow(*size, seed) for seed in range(arguments.runs)])
    libraries: tuple[LibraryName, ...] = ("oq1", "glidemq")
    with server() as url:
        for library in libraries:
            runs = [submit_flow(url, library, *size, seed) for seed in range(arguments.runs)]
            report[f"submit_{library}"] = _medians(runs)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
