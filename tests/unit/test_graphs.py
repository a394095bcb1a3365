"""A graph as the server takes it: it counts its nodes from 1, as Lua does."""

from __future__ import annotations

from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.graphs import (
    Edge,
    Graph,
    GraphNode,
    OutsideDependency,
    OutsideDependent,
    submit_graph,
)
from orchestration_queue.protocol.placement import ParentRef, new_job

KEYS, OTHER = QueueKeys("q"), QueueKeys("other")
NOW = 1_700_000_000_000


def test_places_are_counted_from_one() -> None:
    jobs = [new_job("work", "{}", JobOptions(job_id=f"f.{name}"), NOW) for name in "abc"]
    outside = ParentRef(OTHER, "x")
    graph = Graph(
        [GraphNode(jobs[0], "all_done"), GraphNode(jobs[1]), GraphNode(jobs[2])],
        [Edge(0, 1), Edge(1, 2, is_weak=True)],
        [OutsideDependency(2, outside)],
        [OutsideDependent(0, outside)],
    )
    assert submit_graph(KEYS, graph, NOW, flow_id="f", record="r", held=True).call == oq1.submit_graph(
        KEYS,
        flow_key=KEYS.flow("f"),
        nodes=jobs,
        edges=[
            oq1.GraphEdge(dependent=1, dependency=2, weak=False),
            oq1.GraphEdge(dependent=2, dependency=3, weak=True),
        ],
        foreign=[oq1.ForeignDependency(dependent=3, member=outside.member, weak=False)],
        outside=[oq1.ForeignDependent(dependency=1, queue_name="other", job_id="x")],
        rules=[oq1.NodeRule(place=1, rule="all_done")],
        now_ms=NOW,
        held=True,
        flow_id="f",
        record="r",
    )
