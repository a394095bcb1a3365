"""Replies are read once, by the operations, and what the protocol does not know is said to be so."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, JobNotFoundError, ServerError, StateError, UsageError
from orchestration_queue.options import JobOptions, Ordering
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Operation, pack
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import (
    additions,
    control,
    graphs,
    http_records,
    job_records,
    keyspace,
    queue_state,
    schedule_entries,
)
from orchestration_queue.protocol.operations.additions import Added, EncodedData, NewJob
from orchestration_queue.protocol.operations.control import Cancellation
from orchestration_queue.protocol.operations.event_log import EVENT_TYPES
from orchestration_queue.protocol.operations.queue_state import JobCounts
from orchestration_queue.protocol.placement import JobEncoder, ParentRef, add_job, new_job
from orchestration_queue.protocol.record import when
from orchestration_queue.states import JobState
from tests.conversations import talk

KEYS = QueueKeys("q")
NOW = 1_700_000_000_000
MINE = NewJob("work", EncodedData("{}"), JobOptions(job_id="mine"))


@pytest.mark.parametrize(
    ("reply", "added"),
    [
        (b"7", Added("7", is_new=True)),
        (b"duplicate", Added("mine", is_new=False)),
        (b"skipped", Added(None, is_new=False)),
    ],
)
def test_adding_one_and_adding_many_read_the_same_words(reply: bytes, added: Added) -> None:
    assert additions.add(KEYS, MINE, NOW).read(reply) == added
    assert additions.add_many(KEYS, [MINE, MINE], NOW).read([reply, reply]) == [added, added]


@pytest.mark.parametrize(
    ("reply", "error"),
    [(b"ERR:COST_EXCEEDS_CAPACITY", InvalidOptionError), (b"ERR:ID_EXHAUSTED", ServerError), (b"", ServerError)],
)
def test_a_job_that_was_not_added_is_an_error(reply: bytes, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^[^\n]*\.$"):
        additions.add(KEYS, MINE, NOW).read(reply)


@pytest.mark.parametrize(
    ("sizes", "portions"),
    [
        ([], []),
        ([1], [1]),
        ([1] * 350, [100, 100, 100, 50]),
        ([3 << 20] * 3, [1, 1, 1]),
        ([1 << 20] * 5 + [1], [4, 2]),
    ],
)
def test_many_jobs_are_cut_by_number_and_by_size(sizes: list[int], portions: list[int]) -> None:
    jobs = [NewJob("work", EncodedData("x" * size)) for size in sizes]
    cut = list(additions.portions(jobs))
    assert [len(portion) for portion in cut] == portions
    assert [job for portion in cut for job in portion] == jobs


@pytest.mark.parametrize(
    ("options", "portions"),
    [
        ({"tags": ["a"]}, [50, 50]),
        ({"tags": [f"t{n}" for n in range(20)]}, [3] * 33 + [1]),
        ({"share": "s"}, [50, 50]),
        ({"ordering": {"key": "o"}, "tags": ["a"]}, [30, 30, 30, 10]),
        ({"delay": 5, "priority": 3, "lifo": False}, [100]),
    ],
)
def test_many_jobs_are_cut_by_what_they_cost_the_server(options: dict[str, Any], portions: list[int]) -> None:
    jobs = [NewJob("work", EncodedData("1"), options) for _ in range(100)]
    assert [len(portion) for portion in additions.portions(jobs)] == portions
    texts = [oq1.NewJob("work", "1", json.dumps(options), NOW)] * 100
    if "tags" in options and "ordering" not in options:
        assert [len(portion) for portion in additions.portions(texts)] == portions


@pytest.mark.parametrize("opts", ['{"tags"', '{"tags":5}', '["tags"]'])
def test_options_that_the_server_will_refuse_cost_nothing_more(opts: str) -> None:
    assert len(list(additions.portions([oq1.NewJob("work", "1", opts, NOW)] * 100))) == 1


def test_a_job_too_large_to_share_a_call_has_one_of_its_own() -> None:
    jobs = [NewJob("work", EncodedData("x" * size)) for size in (5 << 20, 1, 1)]
    assert [len(portion) for portion in additions.portions(jobs)] == [1, 2]


@pytest.mark.parametrize("name", ["", 5, None])
def test_a_job_has_a_name_unless_another_client_encoded_it(name: Any) -> None:
    assert NewJob("", EncodedData("{}")).name == ""
    with pytest.raises(UsageError, match="`name` must be a non-empty string"):
        NewJob(name, {"n": 1})


@pytest.mark.parametrize("options", [5, "delay", [("delay", 5)], {5: "delay"}])
def test_options_of_a_job_are_options_or_a_dict_of_them(options: Any) -> None:
    assert NewJob("work", options={"delay": 5}).options == JobOptions(delay=5)
    assert NewJob("work").options == JobOptions()
    assert additions.as_options(None) == JobOptions()
    assert additions.as_options(MINE.options) is MINE.options
    with pytest.raises(InvalidOptionError, match="`options` must be JobOptions or a dict"):
        NewJob("work", options=options)


def test_a_parent_is_a_job_or_its_ref() -> None:
    ref = ParentRef(KEYS, "7")
    assert NewJob("work", parent=ref).parent == NewJob("work", parent=SimpleNamespace(ref=ref)).parent == ref
    for parent in (5, "7", SimpleNamespace(ref="7")):
        with pytest.raises(UsageError, match="`parent` must be a job or a job's `ref`"):
            NewJob("work", parent=parent)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "parent", "is_plain"),
    [
        ({}, None, True),
        ({}, ParentRef(KEYS, "7"), False),
        ({"deduplication": {"id": "d"}}, None, False),
    ],
)
def test_a_plain_job_can_be_added_with_others(
    options: dict[str, Any], parent: ParentRef | None, is_plain: bool
) -> None:
    assert NewJob("work", options=options, parent=parent).is_plain is is_plain


IN_A_YEAR = datetime.fromtimestamp(NOW / 1000, UTC) + timedelta(days=365)


@pytest.mark.parametrize(
    ("options", "wakes"),
    [
        ({}, []),
        ({"delay": 5}, ["oq1_wakeDue"]),
        ({"delay_until": IN_A_YEAR}, ["oq1_wakeDue"]),
        ({"priority": 1}, ["oq1_wakeOne"]),
        ({"lifo": True}, ["oq1_wakeOne"]),
    ],
    ids=["plain", "delay", "delay_until", "priority", "lifo"],
)
def test_a_worker_is_woken_for_what_no_stream_entry_announces(options: dict[str, Any], wakes: list[str]) -> None:
    jobs = [NewJob("work"), NewJob("work", options=options)]
    assert [call.name for call in additions.waking(KEYS, jobs, NOW)] == wakes


@pytest.mark.parametrize("job_id", [None, "a", 'a"b\\ü'])
@pytest.mark.parametrize(
    "options",
    [JobOptions(), JobOptions(priority=3, attempts=2), JobOptions(lifo=True), JobOptions(ordering=Ordering(key="k"))],
    ids=["none", "priority", "lifo", "ordering"],
)
def test_jobs_that_differ_in_data_and_id_share_the_rest(options: JobOptions, job_id: str | None) -> None:
    given = options.model_copy(update={"job_id": job_id})
    job = new_job("work", "[1]", given, NOW)
    assert job.opts == codec.dump_json(given.wire())
    assert job == JobEncoder.of(options, NOW).job("work", "[1]", job_id, NOW)
    words = add_job(KEYS, "work", "[1]", given, NOW).args
    whole = glidemq.add_job(KEYS, **job._asdict()).args
    assert words == whole[: len(words)]
    assert set(whole[len(words) :]) <= {"", 0}
    assert len(words) == 4 or words[-1] not in ("", 0)


def test_jobs_with_ids_of_their_own_are_counted_if_they_are_new() -> None:
    jobs = [new_job("work", "{}", JobOptions(job_id=name), NOW) for name in "abc"]
    adding = additions.add_own(KEYS, jobs)
    assert adding.read([b"a", b"duplicate", b"c"]) == 2
    with pytest.raises(InvalidOptionError, match="costs more than its token bucket holds"):
        adding.read([b"a", b"ERR:COST_EXCEEDS_CAPACITY", b"c"])


@pytest.mark.parametrize(
    ("options", "options_text", "state", "stored"),
    [
        (JobOptions(), None, "waiting", {}),
        (JobOptions(priority=3), None, "prioritized", {"priority": 3}),
        (JobOptions(priority=3, delay=5), None, "delayed", {"priority": 3, "delay": 5000}),
        (JobOptions(priority=3), '{"theirs":1}', "prioritized", {"theirs": 1}),
    ],
)
def test_the_record_of_a_new_job_is_known_without_reading_it(
    options: JobOptions, options_text: str | None, state: str, stored: dict[str, Any]
) -> None:
    record = additions.as_sent("7", NewJob("work", EncodedData("[1]"), options, options_text=options_text), NOW)
    assert (record.id, record.state, record.data, record.options) == ("7", state, [1], stored)


EDITS: list[tuple[Operation[None], str]] = [
    (control.retry(KEYS, "7", NOW), "retried"),
    (control.promote_job(KEYS, "7"), "promoted"),
    (control.change_priority(KEYS, "7", 1), "given another priority"),
    (control.change_delay(KEYS, "7", 1, NOW), "given another delay"),
]


@pytest.mark.parametrize(("operation", "done"), EDITS)
def test_edits_read_every_word_of_the_wire(operation: Operation[None], done: str) -> None:
    operation.read(b"ok")
    operation.read(b"no_op")
    for gone in (b"error:not_found", b"not_found"):
        with pytest.raises(JobNotFoundError):
            operation.read(gone)
    for word in (
        "error:not_delayed",
        "error:not_in_stream",
        "error:not_in_scheduled",
        "error:invalid_state",
        "not_failed",
    ):
        with pytest.raises(StateError, match=f"^Job '7' of queue 'q' cannot be {done}, because it "):
            operation.read(word.encode())
    with pytest.raises(ServerError, match="which protocol 93 does not define"):
        operation.read(b"error:something_new")


def test_a_job_may_be_told_to_wait_for_others() -> None:
    operation = control.change_dependencies(KEYS, "7", NOW, on=["8"])
    assert not operation.read([b"ok", b"", [], []])
    assert operation.read([b"ok", b"", [], [b"9"]]).job_ids == ("9",)
    for word, other in ((b"missing", "8"), (b"not_found", "7")):
        with pytest.raises(JobNotFoundError, match=f"'{other}'"):
            operation.read([word, b"8", [], []])
    for word, why in ((b"not_waiting", "does not wait"), (b"circle", "which waits for it"), (b"too_deep", "1,000")):
        with pytest.raises(StateError, match=why):
            operation.read([word, b"8", [], []])
    with pytest.raises(ServerError, match="oq library status"):
        operation.read([b"perhaps", b"", [], []])


def test_a_job_is_removed_unless_it_is_gone_or_needed() -> None:
    assert [control.remove(KEYS, "7").read(reply) for reply in (1, 0)] == [True, False]
    unneeded = control.remove_unneeded(KEYS, "7")
    assert [unneeded.read(reply) for reply in (1, 0)] == [True, False]
    with pytest.raises(StateError, match="other jobs wait for it"):
        unneeded.read(-1)


@pytest.mark.parametrize(("state", "finished"), [(JobState.COMPLETED, KEYS.completed), (JobState.FAILED, KEYS.failed)])
def test_finished_jobs_are_removed_from_the_set_of_their_state(state: JobState, finished: str) -> None:
    operation = control.remove_finished(KEYS, state, ["7"])
    assert finished in operation.call.keys
    assert operation.read([b"7"]) == ["7"]


@pytest.mark.parametrize(("state", "finished"), [(JobState.COMPLETED, KEYS.completed), (JobState.FAILED, KEYS.failed)])
def test_a_queue_is_cleaned_of_the_jobs_of_one_state(state: JobState, finished: str) -> None:
    assert finished in control.clean(KEYS, state, NOW, 5).call.keys


def test_a_job_has_no_more_tags_than_it_may() -> None:
    operation = control.retag(KEYS, "7", NOW, added=["blue"])
    operation.read(b"ok")
    with pytest.raises(JobNotFoundError):
        operation.read(b"not_found")
    with pytest.raises(StateError, match="more than 20 tags"):
        operation.read(b"too_many")


def test_nodes_that_a_graph_added_are_told_from_those_that_were_there() -> None:
    nodes = [graphs.GraphNode(new_job("work", "{}", JobOptions(job_id=name), NOW)) for name in ("f.a", "f.b")]
    graph = graphs.Graph(nodes, [], [], [])
    submitted = graphs.submit_graph(KEYS, graph, NOW, flow_id="f", record="", held=False).read(
        [[b"f.a", b"duplicate"], [], []]
    )
    assert submitted.new == ("f.a",)


def test_a_payload_is_replaced_where_there_is_a_job() -> None:
    operation = control.update_data(KEYS, "7", "{}")
    operation.read(1)
    with pytest.raises(JobNotFoundError):
        operation.read(0)


def test_revoking_reads_every_word_of_the_wire() -> None:
    operation = control.cancel(KEYS, "7", NOW)
    assert [operation.read(word) for word in (b"revoked", b"flagged")] == [Cancellation.CANCELLED, Cancellation.FLAGGED]
    with pytest.raises(JobNotFoundError):
        operation.read(b"not_found")
    with pytest.raises(ServerError, match="which protocol 93 does not define"):
        operation.read(b"perhaps")


@pytest.mark.parametrize("word", ["ERR:COST_EXCEEDS_CAPACITY", '["ERR:ID_EXHAUSTED"]', "error:child_not_found"])
def test_a_node_that_cannot_be_wired_is_named(word: str) -> None:
    call = Call("glidemq_addFlow", is_function=True)
    with pytest.raises(ServerError, match="for node 'clean'"):
        additions.read_node_reply("clean", call, word.encode())


def test_nodes_that_were_there_are_told_from_new_ones() -> None:
    call = Call("glidemq_addFlow", is_function=True)
    replies: list[Any] = [b'["duplicate"]', b"duplicate", b'["f.a"]', b"f.a", b"ok", b"already_completed"]
    assert [additions.read_node_reply("a", call, reply) for reply in replies] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert not additions.read_node_reply("a", Call("HSET"), 2)


def drive(steps: Any, *replies: list[Any]) -> Any:
    """Answer each exchange with the next replies; return the results of the steps."""
    next(steps)
    for reply in replies[:-1]:
        steps.send(reply)
    with pytest.raises(StopIteration) as end:
        steps.send(replies[-1])
    return end.value.value


def test_counts_do_without_a_group_and_below_zero() -> None:
    no_group = ServerError("NOGROUP No such consumer group 'workers'")
    assert drive(queue_state.counts(KEYS), [3, no_group, 1, 2, None, 4, 5, 6, 7, b"8"]) == JobCounts(14, 0, 4, 5, 6, 7)
    assert drive(queue_state.counts(KEYS), [3, [2, b"a", b"b", []], 0, 0, b"-1", 0, 0, 0, 0, None]) == JobCounts(
        1, 2, 0, 0, 0
    )
    listed = [3, [2, b"a", b"b", []], 0, 0, b"4", 0, 0, 0, 0, None]
    assert drive(queue_state.counts(KEYS), listed) == JobCounts(1, 6, 0, 0, 0)
    with pytest.raises(ServerError, match="LOADING"):
        drive(queue_state.counts(KEYS), [3, ServerError("LOADING"), 0, 0, None, 0, 0, 0, 0, None])


def test_waiting_jobs_are_those_behind_the_groups_last_delivery() -> None:
    steps = job_records.job_ids(KEYS, JobState.WAITING, 0, 9)
    assert next(steps)[0].words == ("XINFO", "GROUPS", "glide:{q}:stream")
    group = [b"name", b"workers", b"consumers", 1, b"last-delivered-id", b"5-1", b"lag", None]
    assert steps.send([[group], 0, 0])[0].words == ("ZRANGE", "glide:{q}:shares:waiting", 0, -1)
    calls = steps.send([[]])
    assert calls[0].words == ("XRANGE", "glide:{q}:stream", "(5-1", "+", "COUNT", 10)


def test_a_job_active_from_list_and_stream_is_listed_once() -> None:
    entry = [b"5-1", [b"jobId", b"7", b"name", b""]]
    replies = [[[b"5-1", b"w", 1, 1], [b"5-2", b"w", 1, 1]], [b"8", b"7"]]
    assert drive(job_records.job_ids(KEYS, JobState.ACTIVE), replies, [[entry], []]) == ["7", "8"]


@pytest.mark.parametrize("listed", [b"2", b"-1", None])
def test_active_jobs_are_those_of_all_groups_and_of_the_lists(listed: bytes | None) -> None:
    groups = [[b"name", name, b"pending", pending] for name, pending in ((b"workers", 3), (b"mailer", 4))]
    assert drive(keyspace.active_jobs(KEYS), [groups, listed]) == (9 if listed == b"2" else 7)


def test_a_queue_is_removed_with_its_counter_of_ids_last() -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Any:
        calls.append(call)
        if call.name == "SCAN":
            return [b"0", [KEYS.job("1").encode(), KEYS.id.encode()]]
        return len(call.keys)

    first, _, jobs, _, last = (6, 0, 1, 0, 2)
    assert talk(keyspace.remove_queue(KEYS), answer) == first + jobs + last
    removed = [call.keys for call in calls if call.name == "UNLINK"]
    assert (removed[1], removed[-1]) == ((KEYS.job("1"),), (KEYS.id, KEYS.meta))


def test_metrics_are_read_from_the_minute_of_the_start_to_that_of_the_end() -> None:
    minute = 60_000

    def asked(start_ms: int, end_ms: int) -> list[str]:
        _, *asking = next(queue_state.metrics(KEYS, JobState.COMPLETED, start_ms, end_ms))
        return [str(word) for call in asking for word in call.args if str(word).endswith(":c")]

    assert asked(minute + 5, 2 * minute + 5) == ["m:60000:c", "m:120000:c"]
    assert asked(minute, 2 * minute) == ["m:60000:c", "m:120000:c"]
    assert asked(minute, 2 * minute - 1) == ["m:60000:c"]
    found = drive(queue_state.metrics(KEYS, JobState.COMPLETED, minute, 2 * minute), [9, [b"4", b"20", None, None]])
    assert (found.kept, found.count, len(found.minutes)) == (9, 4, 1)


def test_what_a_tick_writes_is_read_unless_its_lock_was_lost() -> None:
    operation = schedule_entries.fire(KEYS, "token", NOW, [], [])
    assert operation.read([b"7", b"held"]) == ["7", "held"]
    assert operation.read(b"lost") is None


def test_due_entries_come_with_the_state_of_the_job_they_wait_for() -> None:
    operation = schedule_entries.due_entries(KEYS, NOW, 5)
    found = operation.read([1, [[b"nightly", b"{}", b"ended", b"5"]]])
    assert found.needs_full_look
    assert found.entries == (schedule_entries.DueEntry("nightly", "{}", "ended", 5),)
    assert not operation.read([0, []]).needs_full_look


@pytest.mark.parametrize("reply", [[b"a", b"5", b"b", b"7"], [[b"a", 5.0], [b"b", 7.0]]], ids=["RESP 2", "RESP 3"])
def test_the_index_of_schedulers_says_when_each_is_due(reply: Any) -> None:
    assert schedule_entries.index(KEYS).read(reply) == {"a": 5, "b": 7}
    assert schedule_entries.index(KEYS).read([]) == {}


def test_an_entry_is_replaced_if_it_is_what_was_read() -> None:
    assert "before" in schedule_entries.replace(KEYS, "nightly", "before", "after").call.args
    assert "" in schedule_entries.replace(KEYS, "nightly", None, "after").call.args


def test_locks_and_entries_read_plain_words() -> None:
    assert [schedule_entries.try_lock(KEYS, "token").read(reply) for reply in (1, 0)] == [True, False]
    assert [schedule_entries.renew_lock(KEYS, "token").read(reply) for reply in (1, 0)] == [True, False]
    assert schedule_entries.entries(KEYS).read([b"a", b"{}"]) == {"a": "{}"}
    assert schedule_entries.entry(KEYS, "a").read(None) is None


def test_queues_are_told_from_other_keys_over_several_pages() -> None:
    pages = [
        [[b"7", [b"glide:{a}:id", b"glide:{a}:stream", b"glide:{b}:metrics:completed", b"glide:{b}:signals:id"]]],
        [[b"0", [b"glide:{c}:schedulers", b"glide:{d}:meta", b"glide:{}x}:id", b"glide:{flow:7}:meta"]]],
    ]
    assert drive(keyspace.queue_names("glide"), *pages) == ["a", "c", "d"]


def test_minutes_in_which_jobs_ended_are_read_in_pieces() -> None:
    replies = [[None] * 999 + [b"3"], [b"4", None]]
    found = drive(queue_state.ended_by_minute(KEYS, JobState.COMPLETED, 7, 7 + 1001), replies)
    assert found == {1006: 3, 1007: 4}
    (first, second) = next(queue_state.ended_by_minute(KEYS, JobState.FAILED, 7, 7 + 1001))
    assert (len(first.args), first.keys) == (1000, (KEYS.metrics_failed,))
    assert second.args == ("m:60420000:c", "m:60480000:c")


def test_keys_are_counted_by_kind_over_several_pages() -> None:
    pages = [
        [[b"7", [b"glide:{a}:job:1", b"glide:{a}:job:2:x", b"glide:{a}:id", b"glide:{b}:id"]]],
        [[b"0", [b"glide:{:pools}:slots", b"glide:audit", b"glide:{b}:metrics:failed", b"glide:{c}:w:1"]]],
    ]
    counted = {"job:*": 2, "id": 2, "slots": 1, "audit": 1, "metrics:*": 1, "w:*": 1}
    assert drive(keyspace.kinds("glide"), *pages) == counted


def test_all_that_the_server_functions_tell_is_known() -> None:
    lua = Path(__file__).parents[2] / "lua"
    ours = [path for part in ("glidemq", "lib", "orchestration_queue_1") for path in (lua / part).rglob("*.lua")]
    text = "".join(path.read_text() for path in ours)
    emitted = set(re.findall(r'events\.emit\(\s*\S+,\s+"([a-z-]+)"', text))
    assert {"added", "completed", "group-rate-limited", "retrying"} <= emitted <= EVENT_TYPES


def commands(*names: str) -> bytes:
    return b"".join(b"*1\r\n$%d\r\n%s\r\n" % (len(name), name.encode()) for name in names)


def test_commands_for_a_slot_that_moves_are_asked_for() -> None:
    calls = [Call("PING"), Call("TIME")]
    assert pack(calls) == commands("PING", "TIME")
    assert pack(calls, asking=True) == commands("ASKING", "PING", "ASKING", "TIME")
    assert pack(calls, atomic=True) == commands("MULTI", "PING", "TIME", "EXEC")
    assert pack(calls, atomic=True, asking=True) == commands("ASKING", "MULTI", "PING", "TIME", "EXEC")


@pytest.mark.parametrize(
    ("described", "kind", "created_ms"),
    [([b"5", b"dag"], "dag", 5), ([b"5", None], "tree", 5), ([b"soon", b""], "tree", 0)],
)
def test_a_flow_of_the_proxy_is_read_as_any_client_stored_it(
    described: list[bytes | None], kind: str, created_ms: int
) -> None:
    other = QueueKeys("other")
    flow = drive(http_records.read_proxy_flow("glide", "f"), [described, [b"q:2", b"other:1"], [b"q:2"]])
    jobs = ((other, "1"), (KEYS, "2"))
    assert flow == http_records.ProxyFlow("f", kind, created_ms, jobs, ((KEYS, "2"),))
    assert drive(http_records.read_proxy_flow("glide", "f"), [[None, None], [], []]) is None


def test_a_flow_leaves_no_record_of_a_job_that_was_removed_meanwhile() -> None:
    flow = http_records.ProxyFlow("f", "tree", 5, ((KEYS, "1"), (KEYS, "2")), ())
    steps = http_records.name_proxy_flow(flow)
    next(steps)
    steps.send([1, 1])
    assert steps.send([1, 9]) == [Call("UNLINK", (KEYS.job("1"),))]
    assert drive(http_records.name_proxy_flow(flow), [1, 1], [9, 9]) is None


def test_the_last_acts_are_read_with_who_did_what() -> None:
    entry = [b"5000-1", [b"user", b"ops", b"act", b"pause", b"queue", b"q"]]
    (act,) = http_records.recent_acts("glide", 5).read([entry])
    assert act == http_records.AuditEntry(when(5000), "ops", "pause", "q", "")
    assert http_records.recent_acts("glide", 5).read(None) == []
