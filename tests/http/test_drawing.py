"""How flows are drawn: nodes in columns, and groups of nodes where there are many."""

from __future__ import annotations

import re

import pytest
import redis

from orchestration_queue import AsyncFlowProducer, Dag, Node
from orchestration_queue.client import FlowNode
from orchestration_queue.http import create_app
from orchestration_queue.http.console import drawing
from orchestration_queue.http.console.drawing import draw_graph
from orchestration_queue.states import JobState
from tests.http.conftest import called


def node(name: str, depth: int, *deps: str, state: JobState = JobState.WAITING) -> FlowNode:
    return FlowNode(name, f"f.{name}", "q", depth, deps, state=state, outcome=str(state))


def many(count: int) -> list[FlowNode]:
    done = [JobState.COMPLETED if number % 4 else JobState.ACTIVE for number in range(count)]
    loads = [node(f"load-{number}", 1, "start", state=done[number]) for number in range(count)]
    cleans = [node(f"clean[{number}]", 2, f"load-{number}") for number in range(count)]
    ends = [node("2026", 3, *(each.name for each in cleans))]
    return [node("start", 0, state=JobState.COMPLETED), *loads, *cleans, *ends]


def test_nodes_stand_in_columns_beside_what_they_wait_for() -> None:
    drawn = draw_graph([node("a", 0), node("b", 0), node("d", 1, "b"), node("c", 1, "a"), node("e", 2, "c", "d")])
    places = {box.title: (box.x, box.y) for box in drawn.boxes}
    assert len({places[name][0] for name in "ab"}) == 1
    assert places["a"][1] < places["b"][1]
    assert places["c"][1] < places["d"][1]
    assert len(drawn.edges) == 4
    assert all(box.node is not None and not box.parts for box in drawn.boxes)


def test_large_flows_are_drawn_by_group() -> None:
    drawn = draw_graph(many(10_000))
    boxes = {box.title.partition(":")[0]: box for box in drawn.boxes}
    assert [box.label for box in drawn.boxes] == ["start", "load ×10,000", "clean ×10,000", "2026"]  # noqa: RUF001
    assert len(drawn.edges) == 3
    load = boxes["load ×10,000"]  # noqa: RUF001
    assert load.title.endswith(": 2,500 active, 7,500 completed")
    assert load.state == "active"
    (done, running) = load.parts
    assert (done[0], running[0]) == ("completed", "active")
    assert done[2] + running[2] == drawn.box_width
    assert done[2] == pytest.approx(3 * running[2], abs=3)


def test_failures_color_their_group() -> None:
    nodes = [*many(1000), node("load-x-1000", 1, "start", state=JobState.FAILED)]
    boxes = {box.title.partition(" ")[0].partition(":")[0]: box.state for box in draw_graph(nodes).boxes}
    assert (boxes["load-x"], boxes["load"], boxes["start"]) == ("failed", "active", "completed")


def test_flows_of_many_groups_are_drawn_by_level() -> None:
    nodes = [node(f"n{number}x", number % 3, state=JobState.COMPLETED) for number in range(3000)]
    assert [box.label for box in draw_graph(nodes).boxes] == [f"level {at} ×1,000" for at in range(3)]  # noqa: RUF001


async def test_all_who_watch_a_large_flow_share_a_read(
    server_url: str, raw: redis.Redis, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "MOST_NODES", 10)
    nodes = [Node("start"), *(Node(f"load-{number}", deps=["start"]) for number in range(2000))]
    async with AsyncFlowProducer(url=server_url) as flows:
        await flows.submit(Dag("big", nodes, queue=queue_name), flow_id="f1")

    def reads() -> int:
        return int(raw.info("commandstats")["cmdstat_hmget"]["calls"])

    async with called(create_app(server_url, console=True)) as ui:
        path = f"/ui/queues/{queue_name}/flows/f1"
        first = (await ui.get(path)).text
        before = reads()
        assert (await ui.get(path)).text.count("load ×2,000: 2,000 waiting-children</title>") == 1  # noqa: RUF001
        assert reads() == before
        await ui.get(f"{path}?done=pause-1")  # after an act, what it changed must be seen
        assert reads() - before >= 2001
    assert re.search(r'aria-label="2 nodes"', first)
