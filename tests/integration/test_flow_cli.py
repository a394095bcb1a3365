"""The command `oq flow`: what it draws, what it controls, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orchestration_queue.client import Flow, FlowProducer
from orchestration_queue.flows import Dag, Node, TriggerRule
from orchestration_queue.protocol.operations import notifications
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms
from tests.by_hand import HandWorker
from tests.integration.test_cli import Oq


@pytest.fixture
def oq(server_url: str, raw: Any) -> Oq:
    return Oq(server_url)


@pytest.fixture
def flow(raw: Any, server_url: str, queue_name: str) -> Iterator[Flow]:
    nodes = [
        Node("raw"),
        Node("clean", deps=("raw",)),
        Node("alarm", deps=("raw",), trigger_rule=TriggerRule.ALL_DONE),
        Node("report", deps=("clean",)),
    ]
    with FlowProducer(url=server_url) as flows:
        yield flows.submit(Dag("nightly", nodes, queue_name), flow_id="f")


@pytest.fixture
def failed(flow: Flow, hand: HandWorker, server_url: str) -> Flow:
    """The flow after its first node has failed, and its alarm has been run."""
    hand.fail(hand.take(), "no [file]")
    with Connection.open(server_url) as connection:
        connection.run(notifications.propagate(hand.keys, now_ms(), job_ids=["f.raw"]))
    hand.complete(hand.take())
    return flow


def test_flows_are_listed(oq: Oq, queue_name: str, flow: Flow) -> None:
    (listed,) = oq.json("flow", "ls", queue_name)
    assert (listed["id"], listed["name"], listed["state"], listed["nodes"]) == ("f", "nightly", "running", 4)
    assert oq.json("flow", "ls", queue_name, "--state", "failed") == []
    assert "nightly" in oq("flow", "ls", queue_name).stdout


def test_a_flow_is_shown_with_its_critical_path(oq: Oq, queue_name: str, failed: Flow) -> None:
    shown = oq.json("flow", "show", queue_name, "f")
    assert (shown["state"], shown["percent"], shown["critical_path"]) == ("failed", 100, ["raw", "alarm"])
    assert shown["counts"] == {"failed": 1, "completed": 1, "upstream_failed": 2}
    assert "raw" in oq("flow", "show", queue_name, "f").stdout.partition("critical path")[2]


def test_a_flow_is_drawn_by_levels(oq: Oq, queue_name: str, failed: Flow) -> None:
    nodes = oq.json("flow", "tree", queue_name, "f")
    assert [(node["name"], node["outcome"], node["depth"], node["deps"]) for node in nodes] == [
        ("raw", "failed", 0, []),
        ("clean", "upstream_failed", 1, ["raw"]),
        ("alarm", "completed", 1, ["raw"]),
        ("report", "upstream_failed", 2, ["clean"]),
    ]
    lines = oq("flow", "tree", queue_name, "f").stdout.splitlines()
    assert lines[0] == "f  failed, 100 %, took " + lines[0].rpartition("took ")[2]
    rows = [line.split() for line in lines[3:7]]
    assert [row[:3] for row in rows] == [
        ["0", "┃", "raw"],
        ["1", "clean", "⊘"],
        ["┃", "alarm", "✔"],
        ["2", "report", "⊘"],
    ]
    assert "✘ raw  no [file]" in lines


def test_a_drawing_for_others(oq: Oq, queue_name: str, failed: Flow) -> None:
    drawn = oq("flow", "tree", queue_name, "f", "--mermaid").stdout.splitlines()
    assert drawn[0] == "flowchart TD"
    assert [line for line in drawn if "-->" in line] == ["  n0 --> n1", "  n0 --> n2", "  n1 --> n3"]
    assert "  class n1,n3 upstream_failed" in drawn


def test_a_watch_ends_with_the_flow(oq: Oq, queue_name: str, failed: Flow) -> None:
    watched = oq("flow", "tree", queue_name, "f", "--watch")
    assert (watched.exit_code, "f  failed" in watched.stdout) == (0, True)


def test_a_flow_without_a_record_is_drawn_too(oq: Oq, queue_name: str, flow: Flow, raw: Any, hand: HandWorker) -> None:
    raw.delete(hand.keys.flow("f"))
    assert {node["name"] for node in oq.json("flow", "tree", queue_name, "f")} == {"raw", "clean", "alarm", "report"}
    assert "raw" in oq("flow", "tree", queue_name, "f").stdout


def test_a_failed_flow_is_retried_from_where_it_failed(oq: Oq, queue_name: str, failed: Flow, hand: HandWorker) -> None:
    assert oq("flow", "retry", queue_name, "f").stdout == "raw, clean, report run again.\n"
    assert oq.json("flow", "retry", queue_name, "f") == []
    assert hand.take().id == "f.raw"
    assert failed.status().state == "running"


def test_a_flow_is_paused_and_goes_on(oq: Oq, queue_name: str, flow: Flow, hand: HandWorker) -> None:
    assert "oq flow resume" in oq("flow", "pause", queue_name, "f").stdout
    hand.complete(hand.take())
    with Connection.open(flow._connection.url) as connection:
        connection.run(notifications.propagate(hand.keys, now_ms(), job_ids=["f.raw"]))
    status = flow.status()
    assert (status.is_paused, status.counts) == (True, {"completed": 1, "waiting-children": 3})
    assert oq.json("flow", "resume", queue_name, "f") == {"queue": queue_name, "id": "f", "paused": False}
    assert flow.status().counts == {"completed": 1, "waiting": 2, "waiting-children": 1}


def test_what_destroys_asks_first(oq: Oq, queue_name: str, flow: Flow, raw: Any, hand: HandWorker) -> None:
    assert oq("flow", "cancel", queue_name, "f").exit_code == 2
    assert flow.status().state == "running"
    refused = oq("flow", "rm", queue_name, "f", "--yes")
    assert (refused.exit_code, "cancel it first" in refused.stderr) == (3, True)
    assert oq.json("flow", "cancel", queue_name, "f", "--yes") == ["raw", "clean", "alarm", "report"]
    assert flow.status().state == "cancelled"
    assert oq("flow", "rm", queue_name, "f").exit_code == 2
    assert oq("flow", "rm", queue_name, "f", "--yes").stdout == "Flow f is removed.\n"
    assert [key for key in raw.scan_iter("*") if key.endswith((":job:f.raw", ":flow:f", ":flows", ":flows:due"))] == []


@pytest.mark.parametrize("verb", ["show", "retry", "cancel", "pause", "resume", "rm"])
def test_an_unknown_flow_is_3_and_names_the_next_command(oq: Oq, raw: Any, verb: str) -> None:
    raw.set("glide:{q}:id", 0)
    result = oq("flow", verb, "q", "nix")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)
    assert "has no record of a flow 'nix'" in result.stderr
    assert "oq flow ls q" in result.stderr
    assert raw.dbsize() == 1


@pytest.mark.parametrize("arguments", [["--state", "lost"], ["--limit", "0"]])
def test_bad_options_are_2(oq: Oq, raw: Any, arguments: list[str]) -> None:
    result = oq("flow", "ls", "q", *arguments)
    assert (result.exit_code, "oq flow ls --help" in result.stderr) == (2, True)
