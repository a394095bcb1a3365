"""Finds the runs of a flow, a scheduler or a Dagster job, and reads their nodes, in a bounded number of commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from orchestration_queue.client.flow_runs import FoundRun, RunsOf
from orchestration_queue.client.flow_status import TREE_FIELDS, add_histories, flow_nodes, node_of
from orchestration_queue.flows.control import find_ends
from orchestration_queue.flows.stored import FlowSnapshot, StoredFlow, derive_state, is_removed, read_flow
from orchestration_queue.protocol.call import Call, Conversation, all_good, chunks, integer, texts, together
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records, schedule_entries
from orchestration_queue.protocol.operations.schedule_entries import PastRun
from orchestration_queue.protocol.record import JobRecord, when
from orchestration_queue.schedules import flow_id_of
from orchestration_queue.states import JobState

__all__ = ["MOST_LOOKED_THROUGH", "MOST_READ", "MOST_RUNS", "find_runs"]

MOST_RUNS = 50
"""Runs that are laid side by side."""
MOST_LOOKED_THROUGH = 1000
"""The newest flows of a queue among which those of a name are sought."""
MOST_READ = 10_000
"""Jobs and dependencies of runs that are read; older runs are shown without their nodes."""
_MOST_BYTES = 32 * 1024 * 1024
"""Records of flows that are looked through. A flow of 10,000 nodes has about 0.5 MiB."""
_RECORDS_PER_EXCHANGE = 50
_MOST_FINISHED, _MOST_UNFINISHED = 5000, 1000
"""Jobs of a queue among which those of a Dagster job are sought, by state."""
_MOST_DAGSTER_RUNS = 1000

_Found: TypeAlias = tuple[list[FoundRun], bool]
_Record: TypeAlias = JobRecord | None


def find_runs(keys: QueueKeys, of: RunsOf, name: str, limit: int) -> Conversation[_Found]:
    """Return runs, newest first, and whether records were left unseen.

    Args:
        keys: The queue.
        of: What they have in common.
        name: The name of the flow, the scheduler or the Dagster job.
        limit: At most this many.
    """
    if of is RunsOf.FLOW:
        return _flow_runs(keys, name, limit)
    return (_scheduler_runs if of is RunsOf.SCHEDULER else _dagster_runs)(keys, name, limit)


def _flow_runs(keys: QueueKeys, name: str, limit: int) -> Conversation[_Found]:
    """Read the newest records of flows until enough have this name."""
    total, ids = all_good(
        (yield [Call("ZCARD", (keys.flows,)), Call("ZREVRANGE", (keys.flows,), (0, MOST_LOOKED_THROUGH - 1))])
    )
    start = dump_json({"name": name})[:-1].encode("utf-8", "surrogateescape") + b","
    found: list[FlowSnapshot] = []
    seen = size = 0
    for piece in chunks(texts(ids), _RECORDS_PER_EXCHANGE):
        reads = [read_flow(keys, flow_id) for flow_id in piece]
        replies = all_good((yield [read.call for read in reads]))
        # Reading the graphs of other flows would take most of the time.
        named = [(read, reply) for read, reply in zip(reads, replies, strict=True) if _has(reply, start)]
        snapshots = [snapshot for read, reply in named if (snapshot := read.read(reply)) is not None]
        found += [snapshot for snapshot in snapshots if snapshot.flow.record.name == name]
        seen += len(piece)
        size += sum(len(word) for reply in replies for word in reply)
        if len(found) >= limit or size > _MOST_BYTES:
            break
    runs = yield from _read_flows(found[:limit])
    return runs, len(found) < limit and seen < integer(total)


def _has(reply: Sequence[bytes], start: bytes) -> bool:
    return any(word.startswith(start) for word in reply)


def _read_flows(snapshots: Sequence[FlowSnapshot]) -> Conversation[list[FoundRun]]:
    """Read the nodes of flows, newest first, as far as :data:`MOST_READ` allows."""
    flows = list(_pick([snapshot.flow for snapshot in snapshots]))
    jobs = [(place, job) for place, flow in enumerate(flows) for job in flow.jobs.values()]
    found = yield from job_records.jobs([(job.keys, job.job_id) for _, job in jobs], TREE_FIELDS)
    records: list[dict[str, _Record]] = [{} for _ in flows]
    for (place, job), record in zip(jobs, found, strict=True):
        records[place][job.name] = record
    gone = [[name for name, record in known.items() if record is None] for known in records]
    ends = yield from together([find_ends(flow, names) for flow, names in zip(flows, gone, strict=True)])
    for known, ended in zip(records, ends, strict=True):
        known |= ended
    yield from add_histories(
        [(flow.jobs[name].keys, known, name) for flow, known in zip(flows, records, strict=True) for name in known]
    )
    read = [_run(snapshot, flow, known) for snapshot, flow, known in zip(snapshots, flows, records, strict=False)]
    return [*read, *(_run(snapshot) for snapshot in snapshots[len(read) :])]


def _pick(flows: Sequence[StoredFlow]) -> Iterable[StoredFlow]:
    """Yield flows until the next would need too many commands; of the first, at least a part."""
    left = MOST_READ
    for place, flow in enumerate(flows):
        jobs = {}
        for name, job in flow.jobs.items():
            left -= 1 + len(job.node.waits_for)
            if left < 0:
                break
            jobs[name] = job
        if left < 0 and place:
            return
        yield replace(flow, jobs=jobs)


def _run(
    snapshot: FlowSnapshot, flow: StoredFlow | None = None, records: Mapping[str, _Record] | None = None
) -> FoundRun:
    state, finished_at = snapshot.state, snapshot.finished_at
    if flow is not None and records is not None and len(records) == len(snapshot.flow.jobs):
        # What was recorded at the end outlives the nodes' records.
        if not (state.is_final and None in records.values()):
            state = derive_state(snapshot, records)
        ends = [record.finished_at for record in records.values() if record is not None and record.finished_at]
        finished_at = (finished_at or max(ends, default=None)) if state.is_final else None
    return FoundRun(
        snapshot.flow.id,
        str(state),
        snapshot.created_at,
        finished_at,
        None if flow is None or records is None else flow_nodes(flow, records, flow.jobs),
        _removed(records or {}),
        is_flow=True,
        is_retried=snapshot.was_retried,
        is_paused=snapshot.is_paused and not state.is_final,
        stopped=snapshot.stopped,
    )


def _removed(records: Mapping[str, _Record]) -> frozenset[str]:
    return frozenset(name for name, record in records.items() if record is None or is_removed(record))


def _scheduler_runs(keys: QueueKeys, name: str, limit: int) -> Conversation[_Found]:
    """Read a scheduler's history, and the jobs or flows that it names."""
    history = schedule_entries.history(keys, name)
    (reply,) = all_good((yield [history.call]))
    past = history.read(reply)[:limit]
    ids = [run.job_id for run in past if run.job_id]
    records: dict[str, _Record] = dict(
        zip(ids, (yield from job_records.jobs([(keys, each) for each in ids], ("name", *TREE_FIELDS))), strict=True)
    )
    reads = {each: read_flow(keys, flow_id_of(each)) for each in ids}
    replies = all_good((yield [read.call for read in reads.values()])) if reads else []
    snapshots = {each: read.read(reply) for (each, read), reply in zip(reads.items(), replies, strict=True)}
    flows = {each: snapshot for each, snapshot in snapshots.items() if snapshot is not None}
    runs = dict(zip(flows, (yield from _read_flows(list(flows.values()))), strict=True))
    yield from add_histories([(keys, records, each) for each in ids if each not in runs])
    return [runs.get(run.job_id) or _scheduled(keys, run, records.get(run.job_id)) for run in past], False


def _scheduled(keys: QueueKeys, run: PastRun, record: _Record) -> FoundRun:
    """Return the run of a scheduler that submitted no flow."""
    due = when(run.due_ms)
    if record is None:
        return FoundRun(run.job_id or f"{run.outcome} {run.due_ms}", "gone" if run.job_id else run.outcome, due, None)
    node = node_of(record.name, record.id, keys.queue, 0, (), record, ())
    return FoundRun(record.id, str(record.state), record.added_at or due, record.finished_at, [node])


_DAGSTER = "dagster."
"""The beginning of the ids of Dagster's jobs; the run and the step follow."""
_DAGSTER_JOB = "dagster.job_name"
"""The header that names the Dagster job."""
_STEP_KEY = "dagster.step_key"
"""The header that names the step."""


def _dagster_runs(keys: QueueKeys, name: str, limit: int) -> Conversation[_Found]:
    """Find the steps' jobs of the queue by their ids, and the runs' Dagster job by the headers of one step each."""
    ids, has_more = yield from _newest_ids(keys)
    steps: dict[str, dict[str, tuple[int, str]]] = {}
    for job_id in ids:
        if (parts := _split(job_id)) is not None:
            run_id, step, attempt = parts
            of_run = steps.setdefault(run_id, {})
            of_run[step] = max(of_run.get(step, (0, "")), (attempt, job_id))
    runs = list(steps)[:_MOST_DAGSTER_RUNS]
    first = [(keys, min(steps[run_id].values())[1]) for run_id in runs]
    heads = yield from job_records.jobs(first, ("opts", "timestamp"))
    named = [
        (head.fields.get("timestamp", ""), run_id)
        for run_id, head in zip(runs, heads, strict=True)
        if head is not None and head.headers.get(_DAGSTER_JOB) == name
    ]
    wanted = [run_id for _, run_id in sorted(named, reverse=True)][:limit]
    read = yield from _read_steps(
        keys, {run_id: {step: it for step, (_, it) in steps[run_id].items()} for run_id in wanted}
    )
    return read, has_more or len(steps) > len(runs)


def _newest_ids(keys: QueueKeys) -> Conversation[tuple[list[str], bool]]:
    """Return the ids of the newest jobs by state, and whether there are more that have finished."""
    calls = [Call("ZREVRANGE", (key,), (0, _MOST_FINISHED - 1)) for key in (keys.completed, keys.failed)]
    finished = [texts(reply) for reply in all_good((yield calls))]
    ids = [each for found in finished for each in found]
    for state in (JobState.ACTIVE, JobState.WAITING, JobState.DELAYED):
        ids += yield from job_records.job_ids(keys, state, 0, _MOST_UNFINISHED - 1)
    return ids, any(len(found) == _MOST_FINISHED for found in finished)


def _split(job_id: str) -> tuple[str, str, int] | None:
    """Return the run, the step and the attempt in the id of a step's job; None for all other jobs."""
    run_id, _, rest = job_id.removeprefix(_DAGSTER).partition(".")
    step, _, attempt = rest.rpartition(".")
    is_step = job_id.startswith(_DAGSTER) and step and step != "-resume" and attempt.isdecimal()
    return (run_id, step, int(attempt)) if is_step else None


def _read_steps(keys: QueueKeys, runs: Mapping[str, Mapping[str, str]]) -> Conversation[list[FoundRun]]:
    picked: dict[str, list[str]] = {}
    left = MOST_READ
    for run_id, steps in runs.items():
        left -= len(steps)
        if left < 0 and picked:
            break
        picked[run_id] = list(steps.values())[:MOST_READ]
    ids = [each for of_run in picked.values() for each in of_run]
    records: dict[str, _Record] = dict(
        zip(ids, (yield from job_records.jobs([(keys, each) for each in ids], ("opts", *TREE_FIELDS))), strict=True)
    )
    yield from add_histories([(keys, records, each) for each in ids])
    found = []
    for run_id, steps in runs.items():
        known = {step: records.get(each) for step, each in steps.items()} if run_id in picked else None
        found.append(_dagster_run(keys, run_id, steps, known))
    return found


def _dagster_run(
    keys: QueueKeys, run_id: str, steps: Mapping[str, str], known: Mapping[str, _Record] | None
) -> FoundRun:
    if known is None:
        return FoundRun(run_id, "gone", None, None)
    there = [record for record in known.values() if record is not None]
    starts = [record.added_at for record in there if record.added_at]
    ends = [record.finished_at for record in there if record.finished_at]
    states = {record.state for record in there}
    is_over = all(record.is_finished for record in there)
    state = "running" if not is_over else "failed" if JobState.FAILED in states else "completed" if there else "gone"
    # A job's id has a short form of a key such as `load[eu]`.
    names = {step: record.headers.get(_STEP_KEY, step) if record else step for step, record in known.items()}
    nodes = [node_of(names[step], steps[step], keys.queue, 0, (), record, ()) for step, record in known.items()]
    nodes.sort(key=lambda node: (str(node.started_at or "z"), node.name))
    return FoundRun(
        run_id, state, min(starts, default=None), max(ends, default=None) if is_over else None, nodes, _removed(known)
    )
