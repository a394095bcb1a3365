"""Whatever runs a graph, and whatever it forgets to tell: every node ends, and as Airflow's trigger rules say.

Random graphs with random rules and optional edges are run by our worker's exchange and by a client that uses only the
wire's own functions, which reports no failure. Nodes fail at random, graphs are submitted twice, failed nodes
run again, and now and then a check of what has ended makes good what was not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.graphs import Edge, Graph, GraphNode, release, retry_nodes, submit_graph
from orchestration_queue.protocol.operations.notifications import propagate
from tests.conftest import start_server
from tests.lua.oq1 import Own, completed, failed, load_own_library, new_job
from tests.lua.wire import NOW, Wire, load_library

KEYS: Final = QueueKeys("q")

# -- Airflow, in a few lines -----------------------------------------------------------------------------------------

Outcomes = Mapping[str, int]


def _count(*names: str) -> Callable[[Outcomes], int]:
    return lambda seen: sum(seen[name] for name in names)


_good, _skipped, _bad = _count("success"), _count("skipped"), _count("failed", "upstream_failed")


def _verdict(runs: bool, is_failed: int) -> str:
    return "run" if runs else "upstream_failed" if is_failed else "skipped"


RULES: dict[str, Callable[[Outcomes], str]] = {
    "all_success": lambda seen: _verdict(not _bad(seen) and not _skipped(seen), _bad(seen)),
    "all_failed": lambda seen: _verdict(not _good(seen) and not _skipped(seen), 0),
    "all_done": lambda seen: "run",
    "one_success": lambda seen: _verdict(_good(seen) > 0, _bad(seen)),
    "one_failed": lambda seen: _verdict(_bad(seen) > 0, 0),
    "none_failed": lambda seen: _verdict(not _bad(seen), 1),
    "none_failed_min_one_success": lambda seen: _verdict(not _bad(seen) and _good(seen) > 0, _bad(seen)),
    "always": lambda seen: "run",
}


class Case:
    """A graph: names in an order in which they could run, what each waits for, by what rule, and who fails at first."""

    def __init__(self, deps: dict[str, dict[str, bool]], rules: dict[str, str], fails: set[str], held: bool) -> None:
        self.deps, self.rules, self.fails, self.held = deps, rules, fails, held

    def __repr__(self) -> str:
        return f"Case({self.deps}, {self.rules}, {self.fails}, {self.held})"

    def outcome(self, name: str, states: Mapping[str, str], fails: set[str]) -> str:
        """Return how a node must have ended, given how its dependencies did."""
        seen = dict.fromkeys(("success", "failed", "upstream_failed", "skipped"), 0)
        for dep, is_optional in self.deps[name].items():
            if not is_optional:
                seen[states[dep]] += 1
        verdict = RULES[self.rules[name]](seen)
        if verdict == "run":
            return "failed" if name in fails else "success"
        return verdict


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    deps = {
        name: draw(st.dictionaries(st.sampled_from(names[:place]), st.booleans(), max_size=4)) if place else {}
        for place, name in enumerate(names)
    }
    # A rule needs dependencies to decide by; a graph without is refused before it is sent.
    rules = {
        name: "all_success" if all(deps[name].values()) else draw(st.sampled_from(sorted(RULES))) for name in names
    }
    return Case(deps, rules, draw(st.sets(st.sampled_from(names))), draw(st.booleans()))


# -- the run ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    socket: Path = tmp_path_factory.mktemp("flow-outcomes") / "server.sock"
    process = start_server(socket)
    client = redis.Redis(unix_socket_path=str(socket), decode_responses=True, protocol=2)
    load_library(client)
    load_own_library(client)
    yield Own(Wire(client))
    client.close()
    process.terminate()
    process.wait(10)


class Run:
    """One graph on a queue, and those who work on it."""

    def __init__(self, own: Own, case: Case, data: st.DataObject) -> None:
        self.own, self.case, self.data = own, case, data
        own.wire.client.flushall()
        own.wire.open_group()
        names = list(reversed(case.deps))
        places = {name: place for place, name in enumerate(names)}
        nodes = [GraphNode(new_job(custom_id=name), case.rules[name]) for name in names]
        edges = [Edge(places[name], places[dep], weak) for name in names for dep, weak in case.deps[name].items()]
        self.graph = Graph(nodes, edges)

    def do(self, operation: Any) -> Any:
        return operation.read(self.own.send(operation.call))

    def submit(self) -> None:
        self.do(submit_graph(KEYS, self.graph, NOW, flow_id="f", held=self.case.held))
        if self.case.held:
            self.do(release(KEYS, self.draw(st.permutations(list(self.case.deps))), NOW))

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def states(self) -> dict[str, str]:
        jobs = {name: self.own.wire.job(name) for name in self.case.deps}
        return {name: job.get("outcome") or job["state"].replace("completed", "success") for name, job in jobs.items()}

    def reconcile(self) -> None:
        """Tell again of all that has ended."""
        ids = [name for name in self.case.deps if self.own.wire.state(name) in ("completed", "failed")]
        while ids:
            ids = list(self.do(propagate(KEYS, NOW, job_ids=ids)).pending.job_ids)

    def work(self, fails: set[str]) -> None:
        """Run what is ready, one job at a time, until nothing is, even after a check of what was not reported."""
        told = False
        while True:
            if not (is_ours := self.draw(st.booleans())):
                taken = self._by_wire(fails)
            if is_ours or not taken:
                taken = self._by_exchange(fails)
            if taken:
                told = False
            elif told:
                return
            else:
                self.reconcile()
                told = True
            if self.draw(st.integers(0, 5)) == 0:
                self.submit()

    def _by_exchange(self, fails: set[str]) -> bool:
        started = self.own.exchange(want=self.draw(st.integers(1, 3))).started
        for job in started:
            settled = failed(job) if job.job_id in fails else completed(job)
            self.own.exchange(settled)
            if self.draw(st.booleans()):
                self.own.exchange(settled)
        return bool(started)

    def _by_wire(self, fails: set[str]) -> bool:
        for entry_id, job_id in self._fetched():
            values = {"jobId": job_id, "entryId": entry_id}
            self.own.wire.call("moveToActive", **values)
            if job_id in fails:
                self.own.wire.call("fail", failedReason="boom", **values)
            else:
                parent = self.own.wire.job(job_id).get("parentId")
                keys = self.own.wire.parent_keys(parent) if parent else []
                more = {"depsMember": self.own.wire.key(job_id), "parentId": parent} if parent else {}
                self.own.wire.call("complete", *keys, **values, **more)
            return True
        return False

    def _fetched(self) -> list[tuple[str, str]]:
        streams: dict[Any, Any] = {self.own.wire.key("stream"): ">"}
        reply: Any = self.own.wire.client.xreadgroup("workers", "node", streams, 1)
        return [(entry_id, fields["jobId"]) for entry_id, fields in reply[0][1]] if reply else []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), data=st.data())
def test_every_node_ends_as_airflow_says(own: Own, case: Case, data: st.DataObject) -> None:
    run = Run(own, case, data)
    run.submit()
    run.work(case.fails)
    states = run.states()
    assert all(states[name] == case.outcome(name, states, case.fails) for name in case.deps), states


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(), data=st.data())
def test_every_node_ends_as_airflow_says_when_failed_ones_run_again(own: Own, case: Case, data: st.DataObject) -> None:
    run = Run(own, case, data)
    run.submit()
    run.work(case.fails)
    before = run.states()
    still: set[str] = run.draw(st.sets(st.sampled_from(sorted(case.deps))))
    again = run.draw(st.permutations([name for name, state in before.items() if state != "success"]))
    held = run.draw(st.booleans())
    half = len(again) // 2 if held else len(again)
    run.do(retry_nodes(KEYS, again[:half], NOW, held=held))
    if held:
        run.do(retry_nodes(KEYS, again[half:], NOW, held=True))
        run.do(release(KEYS, run.draw(st.permutations(again)), NOW))
    run.work(still)
    after = run.states()
    assert all(after[name] == "success" for name, state in before.items() if state == "success")
    assert all(after[name] == case.outcome(name, after, still) for name in again), (before, after)
