"""How a submission continues from whatever the server knows of the flow: what is sent, and in which order."""

from __future__ import annotations

import pytest

from orchestration_queue import flows
from orchestration_queue.errors import StateError
from orchestration_queue.flows import Dag, FlowOptions, Node, TriggerRule
from orchestration_queue.flows.submit import HELD, SUBMITTING, Launch
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.graphs import MOST_NODES
from tests.conversations import hold

NOW = 1_700_000_000_000
FLOW = QueueKeys("q").flow("f")
SMALL = flows.compile(Dag("d", [Node("a"), Node("b", deps=["a"])], "q"), "f").submission()
LARGE = flows.compile(Dag("d", [Node("a"), Node("b", deps=["a"], queue="r")], "q"), "f").submission()
LIMITED = flows.compile(Dag("d", [Node("a")], "q", options=FlowOptions(concurrency=1)), "f").submission()
WRITE, COMMIT, RELEASE, DONE = "oq1_submitGraph", "HSET", "oq1_releaseGraph", "HDEL"


def added(whole: flows.submit.Submission, call: Call, *, are_new: bool = True) -> Reply:
    """Return what the server answers to the call that writes a part."""
    (part,) = [part for part in whole.parts if any(key.startswith(part.keys.base) for key in call.keys)]
    return [[job_id.encode() if are_new else b"duplicate" for job_id in part.job_ids], [], []]


def launch(
    whole: flows.submit.Submission, state: str | None, *, held: bool = False, fresh: bool = False, adds: bool = True
) -> tuple[Launch, list[str]]:
    """Submit while the record is in this state; return the result, and the names of the calls that write."""
    known = {"plan": whole.record, "state": state, **({HELD: "1"} if held else {})} if state else {}
    stored = {FLOW: {name: value for name, value in known.items() if value is not None}}

    def answer(call: Call) -> Reply:
        if call.name == WRITE:
            if state is None:
                stored[FLOW] = {"plan": whole.record, "state": SUBMITTING}
            return added(whole, call, are_new=adds)
        return []

    result, calls = hold(flows.launch(whole, NOW, is_fresh=fresh), stored, answer)  # type: ignore[arg-type]
    return result, [call.name for call in calls if call.name != "XREVRANGE"]


def test_a_graph_of_one_call_is_submitted_by_it_alone() -> None:
    result, sent = launch(SMALL, None, fresh=True)
    assert sent == [WRITE]
    assert result.cursors == {QueueKeys("q"): "0-0"}


@pytest.mark.parametrize("whole", [LARGE, LIMITED])
def test_a_graph_that_takes_more_is_written_committed_and_released(whole: flows.submit.Submission) -> None:
    _, sent = launch(whole, None)
    writes = [WRITE] * len(whole.parts)
    limits = [call.name for call in whole.limits]
    releases = [RELEASE] * sum(bool(part.nodes) for part in whole.parts)
    assert sent == [*writes, *limits, COMMIT, *releases, DONE]


@pytest.mark.parametrize("whole", [SMALL, LARGE])
def test_nothing_is_sent_of_a_flow_that_runs(whole: flows.submit.Submission) -> None:
    result, sent = launch(whole, "running")
    assert sent == []
    assert not result.is_new


def test_jobs_that_may_still_be_held_are_released_again() -> None:
    assert launch(LARGE, "running", held=True)[1] == [RELEASE, RELEASE, DONE]
    assert launch(SMALL, "running", held=True)[1] == []


def test_what_is_missing_of_a_submission_that_broke_off_is_sent() -> None:
    assert launch(LARGE, SUBMITTING)[1] == [WRITE, WRITE, COMMIT, RELEASE, RELEASE, DONE]


def test_it_is_new_when_all_of_its_jobs_are() -> None:
    assert launch(SMALL, None)[0].is_new
    assert launch(LARGE, None)[0].is_new
    assert not launch(SMALL, None, adds=False)[0].is_new


def test_an_id_of_another_flow_is_refused() -> None:
    stored = {FLOW: {"plan": "{}", "state": "running"}}
    with pytest.raises(StateError, match="'f'"):
        hold(flows.launch(SMALL, NOW, is_fresh=False), stored)  # type: ignore[arg-type]
    # With an id that is known to be new, nothing is read.
    assert launch(SMALL, "running", fresh=True)[1] == [WRITE]


@pytest.mark.parametrize(("state", "commits"), [(None, None), (SUBMITTING, True), ("running", False)])
def test_another_may_have_been_faster_or_have_given_the_submission_up(state: str | None, commits: bool | None) -> None:
    stored: dict[str, dict[str, str]] = {FLOW: {}}

    def answer(call: Call) -> Reply:
        if call.name == WRITE and state is not None:
            stored[FLOW] = {"plan": LARGE.record, "state": state}
        return added(LARGE, call) if call.name == WRITE else []

    def submit() -> list[str]:
        _, calls = hold(flows.launch(LARGE, NOW, is_fresh=False), stored, answer)  # type: ignore[arg-type]
        return [call.name for call in calls]

    if commits is None:
        with pytest.raises(StateError, match="'f'"):
            submit()
    else:
        assert (COMMIT in submit()) is commits


def test_the_first_part_carries_the_record() -> None:
    carries = [LARGE.record in write.call.args for write in LARGE.writes(NOW)]
    assert carries == [True, False]


def test_a_rule_that_is_not_the_default_is_sent() -> None:
    nodes = [Node("a"), Node("b", deps=["a"]), Node("c", deps=["a"], trigger_rule=TriggerRule.ALL_DONE)]
    whole = flows.compile(Dag("d", nodes, "q"), "f").submission()
    rules = {node.job.custom_id: node.rule for node in whole.graph(whole.parts[0], NOW).nodes}
    assert rules == {"f.a": "", "f.b": "", "f.c": "all_done"}


@pytest.mark.parametrize(
    ("nodes", "kilobytes", "parts"),
    [
        (MOST_NODES, 0, [MOST_NODES]),
        (MOST_NODES + 1, 0, [MOST_NODES, 1]),
        # A node costs as much as 2 KiB of data: with 18 KiB, it takes the room of ten.
        (MOST_NODES // 10, 18, [MOST_NODES // 10]),
        (MOST_NODES // 10 + 1, 18, [MOST_NODES // 10, 1]),
        (2, 1000, [1, 1]),
    ],
)
def test_a_call_carries_a_hundred_nodes_or_fewer_with_much_data(nodes: int, kilobytes: int, parts: list[int]) -> None:
    data = "x" * (kilobytes * 1024)
    whole = flows.compile(Dag("d", [Node(f"n{number}", data=data) for number in range(nodes)], "q"), "f").submission()
    assert [len(part.nodes) for part in whole.parts] == parts
