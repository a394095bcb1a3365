"""ChasquiMQ's page "Thinking in ChasquiMQ": its primitives, the life of a job, and what it does not do."""

from __future__ import annotations

from tests.seeds.register import Seed, Statement

__all__ = ["SEED"]

_T = "tests/chasquimq/"
_NEW = _T + "test_documents.py::test_"
_QUEUE = _T + "test_queue.py::test_"
_WORKER = _T + "test_worker.py::test_"
_TRAPS = _T + "test_traps.py::test_"
_LUA = "tests/lua/test_chasquimq.py::test_"
_PAGE = "how-to/chasquimq.md#what-differs-from-the-original"
_WHEEL = "chasquimq 1.3.0 decides: "


def _row(place: str, says: str, does: str, test: str, *, contradicts: str = "", page: str = "") -> Statement:
    return Statement(place, says, does, test, contradicts, page)


SEED = Seed(
    "ChasquiMQ, Thinking in ChasquiMQ",
    "The concept page, compared with the published wheel 1.3.0 on Redis 8.6.3",
    (
        _row(
            "The five primitives",
            "A producer puts jobs, a consumer runs the handler",
            "`ChasquiQueue.add`, `ChasquiWorker(queue, handler)`",
            _WORKER + "jobs_run_in_coroutines_and_threads_and_leave_nothing",
        ),
        _row(
            "The five primitives",
            "One stream per queue, named `{chasqui:<queue>}`",
            _WHEEL + "`{chasqui:<queue>}:stream`",
            _NEW + "all_keys_of_a_queue_begin_with_its_hash_tag",
            contradicts="Wire format, Keys: `{chasqui:<q>}:stream`",
        ),
        _row(
            "The five primitives",
            "A job is one MessagePack entry on the stream, plus a name",
            "Fields `d` and `n`",
            _QUEUE + "a_job_is_one_stream_entry_of_two_fields",
        ),
        _row(
            "The five primitives",
            "The dead-letter queue is the stream `{chasqui:<queue>}:dlq`",
            "As stated",
            _NEW + "all_keys_of_a_queue_begin_with_its_hash_tag",
        ),
        _row(
            "The flow",
            "The reader pulls batches with XREADGROUP and claims idle pending entries",
            "A worker reads no more than it has slots, and takes over what no worker renews, on any server",
            _TRAPS + "t1_no_more_jobs_are_read_than_have_a_slot",
            page=_PAGE,
        ),
        _row(
            "The flow",
            "Handler latency blocks neither reading nor acknowledging",
            "As stated",
            _NEW + "a_slow_handler_holds_up_no_other_job",
        ),
        _row(
            "The flow",
            "Success: XACKDEL",
            "As stated; nothing of the job is left",
            _LUA + "many_are_acknowledged_at_once",
        ),
        _row(
            "The flow",
            "Failure, attempts left: the delayed set, from which it is promoted",
            "As stated",
            _NEW + "a_retry_acknowledges_and_delays_a_new_entry",
        ),
        _row(
            "The flow",
            "Failure, no attempts left: the dead-letter queue",
            "Reason `retries_exhausted`",
            _WORKER + "events_are_those_of_the_original",
        ),
        _row(
            "What happens on Queue.add",
            "`data` is MessagePack, and so is the entry; XADD has the fields `d` and `n`",
            "The bytes of the wheel",
            _T + "test_codec.py::test_an_envelope_is_written_as_it_was_read",
        ),
        _row(
            "What happens on Queue.add",
            "The entry's id is `job.id`",
            _WHEEL + "the id in the envelope, a ULID or the caller's",
            _QUEUE + "a_job_is_one_stream_entry_of_two_fields",
            contradicts="Wire format, Envelope: `id` is a ULID or a stable id of the caller's",
        ),
        _row(
            "What happens on Queue.add",
            "`delay > 0`: into the delayed set, by time in ms; every worker can promote",
            "As stated",
            _WORKER + "delayed_and_repeated_jobs_run_when_they_are_due",
        ),
        _row(
            "What happens on Queue.add",
            "`repeat`: nothing is enqueued; `:repeat` by next fire, and `:repeat:specs`, one hash of all",
            _WHEEL + "a hash per spec, `:repeat:spec:<key>`",
            _QUEUE + "a_schedule_is_stored_as_the_original_stores_it",
            contradicts="Wire format, Keys: `:repeat:spec:<key>`",
        ),
        _row(
            "What happens on Queue.add",
            "The scheduler, in every worker, fires jobs of the spec",
            "As stated",
            _NEW + "each_fire_of_a_schedule_is_a_new_job",
        ),
        _row(
            "What happens on Queue.add",
            "`addUnique` of a delayed job: the marker `:dlid:<job_id>`",
            "The keys and arguments of the wheel",
            _QUEUE + "a_delayed_job_of_an_id_is_sent_as_the_original_sends_it",
        ),
        _row(
            "What happens on Queue.add",
            "`addUnique` of an immediate job: XADD IDMP",
            "The same marker: IDMP forgets after 100 s or 99 adds, and needs Redis 8.6",
            _TRAPS + "t7_an_id_stays_taken_and_the_caller_learns_it",
            page=_PAGE,
        ),
        _row(
            "What happens on Queue.add",
            "A duplicate returns the same id, without a second entry",
            "And `is_new` is False",
            _QUEUE + "an_id_is_taken_for_an_hour_after_its_time",
        ),
        _row(
            "What happens on the consumer side",
            "A worker decodes `d`, builds a job, and calls the handler, up to `concurrency` at a time",
            "As stated",
            _WORKER + "jobs_run_in_coroutines_and_threads_and_leave_nothing",
        ),
        _row(
            "What happens on the consumer side",
            "Acknowledgements are sent together, up to 256 or after 5 ms",
            "Outcomes of other jobs and their events share an exchange, within 5 ms",
            _TRAPS + "t15_events_cost_a_job_no_exchange_of_its_own",
        ),
        _row(
            "What happens on the consumer side",
            "Error: XACKDEL, `attempt` + 1, and ZADD with the backoff, in one script",
            "One function",
            _NEW + "a_retry_acknowledges_and_delays_a_new_entry",
        ),
        _row(
            "What happens on the consumer side",
            "`attempt + 1 >= max_attempts`: dead letter with `reason: retries_exhausted`",
            "As stated",
            _T + "test_interop.py::test_our_worker_runs_their_jobs",
        ),
        _row(
            "The two streams",
            "The dead-letter queue has no consumer group",
            "As stated",
            _NEW + "the_dead_letter_queue_is_a_bounded_stream_without_a_group",
        ),
        _row(
            "The two streams",
            "It is bounded: 100,000 by default, MAXLEN ~",
            "`max_dead_letters`",
            _NEW + "the_dead_letter_queue_is_a_bounded_stream_without_a_group",
        ),
        _row(
            "The two streams",
            "Reasons are `retries_exhausted`, `unrecoverable`, `decode_fail`, `malformed`, `oversize`",
            _WHEEL + "`decode_failed`, `oversize_payload`",
            _WORKER + "entries_of_every_broken_kind_become_dead_letters_and_the_worker_lives",
            contradicts="what the wheel writes",
        ),
        _row(
            "The two streams",
            "An unrecoverable error is a dead letter at once",
            "Reason `unrecoverable`",
            _WORKER + "an_unrecoverable_error_ends_a_job_at_once",
        ),
        _row(
            "The two streams",
            "Replay: one script, XACKDEL from the one, XADD to the other",
            _WHEEL + "XDEL, as no group reads dead letters; the attempt begins at 0",
            _QUEUE + "dead_letters_are_read_and_replayed_past_what_cannot_be_read",
            contradicts="the same section: the stream has no consumer group",
        ),
        _row(
            "The two streams",
            "The same tools show both: `chasqui inspect`, XLEN, XRANGE",
            "`oq chasqui inspect`, `oq chasqui dead`",
            _T + "test_cli.py::test_dead_letters_are_listed_replayed_and_purged",
        ),
        _row(
            "The retry path",
            "A retry is a fresh entry; none stays pending",
            "As stated",
            _NEW + "a_retry_acknowledges_and_delays_a_new_entry",
        ),
        _row(
            "The retry path",
            "A dead worker's job is claimed and delivered again",
            "After `lease`",
            _WORKER + "a_dead_workers_job_is_taken_over",
        ),
        _row(
            "The retry path",
            "The attempt in the payload is compared with the delivery count",
            "The job starts as often as its attempts allow, where the wheel starts it once more",
            _TRAPS + "t2_a_job_whose_workers_die_starts_as_often_as_its_attempts_say",
            page=_PAGE,
        ),
        _row(
            "Repeatable specs",
            "Each window fires a new job with an id of its own; the spec never enters the stream",
            "As stated",
            _NEW + "each_fire_of_a_schedule_is_a_new_job",
        ),
        _row(
            "Repeatable specs",
            "Specs are reported by their key, `<jobName>::<patternSignature>`",
            "As stated",
            _T + "test_cli.py::test_schedules_are_listed_and_removed",
        ),
        _row(
            "Repeatable specs",
            "Missed fires: `fire-once` and `fire-all` make up for them",
            "As measured of the wheel",
            _T + "test_schedules.py::test_missed_fires_are_made_up_for_as_the_policy_says",
        ),
        _row(
            "Repeatable specs",
            "The default, `skip`, drops missed windows",
            "The fire that is due happens if it is at most ten seconds old: the wheel loses it at short intervals",
            _T + "test_schedules.py::test_skip_drops_what_is_old_but_not_what_is_due",
            page=_PAGE,
        ),
        _row(
            "Names on the wire",
            "`d` and `n` are the fields of every entry",
            "`n` is left out without a name",
            _LUA + "a_job_without_a_name_has_one_field",
        ),
        _row(
            "Names on the wire",
            "The name is a label of metrics",
            "As stated; names that clients make up share one",
            _T + "test_metrics.py::test_a_workers_metrics_have_the_engines_names",
        ),
        _row("Names on the wire", "Events show it", "As stated", _T + "test_cli.py::test_events_are_printed"),
        _row(
            "Names on the wire",
            "Processes in different languages share a queue",
            "Both directions, with the wheel",
            _T + "test_interop.py::test_their_worker_runs_our_jobs",
        ),
        _row(
            "Hash tags",
            "All keys of a queue begin with `{chasqui:<queue>}:`",
            "One cluster slot per queue",
            _NEW + "a_server_has_no_other_keys_of_a_queue",
        ),
        _row(
            "Hash tags",
            "`keyPrefix` is refused",
            "There is no such argument",
            _NEW + "all_keys_of_a_queue_begin_with_its_hash_tag",
        ),
        _row(
            "What it does not do",
            "No lists: streams are the queue",
            "A queue with a job is a stream and nothing else",
            _QUEUE + "a_job_is_one_stream_entry_of_two_fields",
        ),
        _row(
            "What it does not do",
            "No JSON: bytes and dates survive",
            "MessagePack, as the wheel packs it",
            _T + "test_codec.py::test_every_job_comes_back_as_it_was_sent",
        ),
        _row(
            "What it does not do",
            "No round trip per job",
            "Fewer reads of sockets than jobs",
            _TRAPS + "t15_events_cost_a_job_no_exchange_of_its_own",
        ),
        _row(
            "What it does not do",
            "Results are opt-in",
            "`store_results=True`",
            _WORKER + "results_are_kept_for_their_time",
        ),
    ),
)
