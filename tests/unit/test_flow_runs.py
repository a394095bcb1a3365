"""What is expected of runs, and what is different about each; and how that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestration_queue.client import FlowNode, FlowRuns, RunsOf
from orchestration_queue.client.flow_runs import FoundRun, lay_side_by_side
from orchestration_queue.http.console.drawing import draw_run
from orchestration_queue.http.console.run_drawing import draw_grid, draw_pair, gap
from orchestration_queue.states import JobState

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def run(place: int, seconds: float | None, state: str = "completed", *, is_retried: bool = False) -> FoundRun:
    """A run of one node that took as long as it; None while it runs, since a minute."""
    start = NOW - timedelta(hours=place)
    if seconds is None:
        start = NOW - timedelta(minutes=1)
    end = None if seconds is None else start + timedelta(seconds=seconds)
    at = JobState.ACTIVE if end is None else JobState(state) if state in ("completed", "failed") else None
    node = FlowNode("n", f"f{place}.n", "q", state=at, outcome=at and str(at), started_at=start, finished_at=end)
    return FoundRun(f"f{place}", state, start, end, [node], is_flow=True, is_retried=is_retried)


def laid(*runs: FoundRun) -> FlowRuns:
    return lay_side_by_side("q", RunsOf.FLOW, "sales", runs, NOW)


def marked(found: FlowRuns, name: str) -> list[bool]:
    return [getattr(each, name) for each in found.runs]


def test_an_expectation_is_the_median_of_earlier_successes() -> None:
    found = laid(run(0, None, "running"), run(1, 99, "failed"), run(2, 30), run(3, 10), run(4, 20), run(5, 40))
    assert [each.expected for each in found.runs] == [25, 25, 20, None, None, None]
    assert [(each.nodes or {})["n"].expected for each in found.runs] == [25, 25, 20, None, None, None]


@pytest.mark.parametrize(("seconds", "is_late"), [(30.0, False), (30.1, True), (None, True)])
def test_a_run_is_late_after_one_and_a_half_times_as_long(seconds: float | None, is_late: bool) -> None:
    state = "running" if seconds is None else "completed"
    found = laid(run(0, seconds, state), *(run(place, 20) for place in range(1, 5)))
    assert marked(found, "is_late") == [is_late, *[False] * 4]


def test_short_runs_are_not_late_by_chance() -> None:
    found = laid(run(0, 0.5), *(run(place, 0.1) for place in range(1, 5)))
    assert not any(marked(found, "is_late"))
    assert not any(marked(found, "is_slowest"))


def test_a_run_that_was_retried_sets_no_expectation_and_is_not_late() -> None:
    found = laid(run(0, 10), run(1, 9000, is_retried=True), *(run(place, 10) for place in range(2, 5)))
    assert found.runs[0].expected == 10
    assert marked(found, "is_late") == marked(found, "is_slowest") == [False] * 5


def test_the_slowest_is_marked_if_it_stands_out() -> None:
    assert marked(laid(run(0, 11), run(1, 10), run(2, 12)), "is_slowest") == [False] * 3
    assert marked(laid(run(0, 10), run(1, 90), run(2, 12)), "is_slowest") == [False, True, False]
    assert marked(laid(run(0, 90), run(1, 10)), "is_slowest") == [False, False], "two are no basis"


@pytest.mark.parametrize(
    ("states", "new"),
    [
        (["failed", "completed"], [True, False]),
        (["failed", "failed", "completed"], [False, True, False]),
        (["failed", "gone", "completed"], [True, False, False]),
        (["failed", "gone"], [False, False]),
        (["completed", "failed"], [False, False]),
    ],
)
def test_newly_failing_is_a_failure_after_a_success(states: Sequence[str], new: list[bool]) -> None:
    found = laid(*(run(place, 10, state) for place, state in enumerate(states)))
    assert marked(found, "is_newly_failing") == new
    assert [(each.nodes or {})["n"].is_newly_failing for each in found.runs] == new


def test_runs_may_have_other_nodes_or_none() -> None:
    other = FoundRun("x", "completed", NOW, NOW, [FlowNode("m", "x.m", "p")])
    unread = FoundRun("y", "completed", NOW, NOW)
    found = laid(run(0, 10), other, unread)
    assert list(found.nodes) == ["n", "m"]
    assert found.queues == {"q", "p"}
    grid = draw_grid(found)
    assert [[cell and cell.sign for cell in row.cells] for row in grid.rows] == [["✓", None, None], [None, "?", None]]
    assert laid().runs == []
    assert draw_grid(laid()).rows == []


def test_a_grid_has_shades_signs_and_words() -> None:
    slow = [run(0, 100), run(1, 10, "failed"), *(run(place, 20) for place in range(2, 6))]
    (row,) = draw_grid(laid(*slow)).rows
    cells = [(cell.sign, cell.level, cell.marks) for cell in row.cells if cell]
    assert cells == [("▲", 5, "late"), ("✕", 1, "new"), *[("✓", 1, "")] * 4]
    assert [cell.title for cell in row.cells[:2] if cell] == ["completed, 1 min 40 s, slowest, usually 20 s",
                                                             "failed, 10 s, newly failing"]  # fmt: skip


def test_cells_are_short() -> None:
    cell = next(each for each in draw_grid(laid(run(0, 10))).rows[0].cells if each)
    assert (cell.look, cell.url) == ("d5", "jobs/f0.n")
    other = replace(cell, home="other", state="failed")
    assert (other.look, other.url) == ("s-failed d5", "../q/jobs/f0.n")


def test_a_large_flow_shows_what_failed() -> None:
    nodes = [FlowNode(f"n{at}", f"f.n{at}", "q", outcome="failed" if at == 999 else "completed") for at in range(1000)]
    grid = draw_grid(laid(FoundRun("f", "failed", NOW, NOW, nodes)))
    assert (len(grid.rows), grid.left_out) == (100, 900)
    assert [row.name for row in grid.rows][-2:] == ["n98", "n999"]


def test_a_node_that_waits_for_a_retry_is_not_drawn_as_running() -> None:
    found = laid(run(0, 10), run(1, 40))
    for outcome, is_open in (("delayed", True), ("waiting", True), ("active", False)):
        node = replace(next(iter((found.runs[0].nodes or {}).values())), outcome=outcome, finished_at=None)
        first = replace(found.runs[0], nodes={node.name: node})
        (row,) = draw_pair(replace(found, runs=[first, found.runs[1]]), first, found.runs[1]).rows
        assert row.spans[0]
        assert row.spans[0].is_open is is_open
        assert row.spans[1]
        assert not row.spans[1].is_open
        (bar,) = draw_run([FlowNode(node.name, "f.n", "q", state=JobState(outcome), started_at=NOW)]).bars
        assert bar.is_open is is_open


def test_two_runs_share_an_axis() -> None:
    found = laid(run(0, 10), run(1, 40), run(2, 20), run(3, 20), run(4, 20))
    pair = draw_pair(found, *found.runs[:2])
    (row,) = pair.rows
    first, second = row.spans
    assert first
    assert second
    assert (first.x, first.width, first.due) == (0, 25, 50)
    assert (second.x, second.width, second.due) == (0, 100, 50)
    assert [text for _, _, text in pair.ticks] == ["0", "20 s", "40 s"]
    assert gap(10, 40) == "\N{MINUS SIGN}30 s"
    assert gap(None, 40) == "\N{EN DASH}"
