"""ChasquiMQ's page "Wire format": the exact bytes that it writes."""

from __future__ import annotations

from tests.seeds.register import Seed, Statement

__all__ = ["SEED"]

_T = "tests/chasquimq/"
_NEW = _T + "test_documents.py::test_"
_CODEC = _T + "test_codec.py::test_"
_QUEUE = _T + "test_queue.py::test_"
_WORKER = _T + "test_worker.py::test_"
_TRAPS = _T + "test_traps.py::test_"
_CLI = _T + "test_cli.py::test_"
_LUA = "tests/lua/test_chasquimq.py::test_"
_PAGE = "how-to/chasquimq.md#what-differs-from-the-original"
_WHEEL = "chasquimq 1.3.0 decides: "


def _row(place: str, says: str, does: str, test: str, *, contradicts: str = "", page: str = "") -> Statement:
    return Statement(place, says, does, test, contradicts, page)


SEED = Seed(
    "ChasquiMQ, Wire format",
    "The reference page, compared with the published wheel 1.3.0 on Redis 8.6.3",
    (
        _row(
            "Keys",
            "stream, dlq, delayed, repeat, repeat:spec, events, result, dlid, didx, promoter:lock, scheduler:lock",
            "These, each below the queue's hash tag",
            _NEW + "a_server_has_no_other_keys_of_a_queue",
        ),
        _row(
            "Keys",
            "`:delayed` is scored by time in ms",
            "As stated",
            _NEW + "a_retry_acknowledges_and_delays_a_new_entry",
        ),
        _row(
            "Keys",
            "`:repeat` is scored by the next fire; `:repeat:spec:<key>` has the field `spec`",
            "The bytes of the wheel; the field `fired` is added at the first fire",
            _QUEUE + "a_schedule_is_stored_as_the_original_stores_it",
        ),
        _row(
            "Keys",
            "Locks elect the worker that promotes and the one that fires",
            "For 5 s; released when the worker stops",
            _LUA + "a_leader_renews_and_releases",
        ),
        _row(
            "Main stream entry",
            "XADD with IDMP of a producer and a job id",
            "XADD without, as it needs Redis 8.6; an id is taken by a marker",
            _LUA + "an_id_is_added_once",
            page=_PAGE,
        ),
        _row(
            "Main stream entry",
            "`MAXLEN ~` about a million",
            "`max_length`; `oq doctor` warns before jobs are dropped",
            _TRAPS + "t8_doctor_finds_a_queue_that_is_about_to_drop_jobs",
        ),
        _row(
            "Main stream entry",
            "`n`: UTF-8, at most 256 bytes",
            "A longer name is refused before anything is sent",
            _QUEUE + "a_value_that_the_wire_cannot_carry_is_refused_and_nothing_sent",
        ),
        _row(
            "Main stream entry",
            "No `n` for an unnamed job; absent and empty are the same",
            "As stated",
            _QUEUE + "a_job_is_one_stream_entry_of_two_fields",
        ),
        _row(
            "Envelope",
            "`[id, payload, created_at_ms, attempt, retry?]`, positional",
            "The bytes of the wheel",
            _CODEC + "an_envelope_is_written_as_it_was_read",
        ),
        _row(
            "Envelope",
            "`id`: a ULID, or the caller's",
            "26 characters that sort by time",
            _CODEC + "ulids_are_26_characters_that_sort_by_time",
        ),
        _row(
            "Envelope",
            "`payload`: the user's value",
            _WHEEL + "bytes that hold a second MessagePack document",
            _CODEC + "an_envelope_is_written_as_it_was_read",
            contradicts="what the wheel writes",
        ),
        _row(
            "Envelope",
            "`attempt`: 0 from a producer, made 1-based before dispatch",
            _WHEEL + "the handler gets 0 at its first run; only events count from 1",
            _WORKER + "events_are_those_of_the_original",
            contradicts="what the wheel gives its handlers",
        ),
        _row(
            "Envelope",
            "`retry` is absent, not nil, without one",
            "4 elements or 5",
            _CODEC + "the_vectors_cover_every_form_of_an_envelope",
        ),
        _row(
            "Envelope",
            "The name is not in it",
            "It is the field `n`",
            _QUEUE + "a_job_is_one_stream_entry_of_two_fields",
        ),
        _row(
            "JobRetryOverride",
            "`[max_attempts, backoff]`, always 2 elements",
            "As stated",
            _CODEC + "retry_overrides_are_the_arrays_that_the_original_writes",
        ),
        _row(
            "JobRetryOverride",
            "Backoff: `[kind, delay_ms, max_delay_ms, multiplier, jitter_ms]`",
            "As stated",
            _CODEC + "retry_overrides_are_the_arrays_that_the_original_writes",
        ),
        _row(
            "JobRetryOverride",
            "Unknown kinds are exponential",
            "Read so; ours sends only the two",
            _NEW + "an_unknown_kind_of_backoff_is_exponential",
        ),
        _row(
            "JobRetryOverride",
            "Fixed and exponential waits",
            "As measured of the wheel",
            _CODEC + "backoff_is_computed_as_the_original_computes_it",
        ),
        _row(
            "Delayed ZSET member",
            "One byte of length, the name, the envelope",
            _WHEEL + "four bytes of length, little-endian",
            _CODEC + "a_delayed_member_is_written_as_it_was_read",
            contradicts="what the wheel writes; Thinking in ChasquiMQ names no prefix",
        ),
        _row(
            "Delayed ZSET member",
            "The promoter strips the prefix, and the name becomes `n`",
            "As stated; a length that does not fit makes a dead letter",
            _LUA + "due_jobs_become_ready_in_their_order",
        ),
        _row(
            "Idempotent add, immediate",
            "Per producer, and bounded by the server's IDMP-MAXSIZE",
            "For all processes of this package, until an hour later",
            _TRAPS + "t7_an_id_stays_taken_and_the_caller_learns_it",
            page=_PAGE,
        ),
        _row(
            "Idempotent add, immediate",
            "`addUnique` requires a job id that is not empty",
            "A blank `job_id` is refused",
            _QUEUE + "a_value_that_the_wire_cannot_carry_is_refused_and_nothing_sent",
        ),
        _row(
            "Idempotent add, delayed",
            "SET NX EX of `:dlid:` for the delay + 3600 s, then ZADD, else nothing",
            "The keys, arguments, and TTL of the wheel",
            _QUEUE + "a_delayed_job_of_an_id_is_sent_as_the_original_sends_it",
        ),
        _row(
            "Idempotent add, delayed",
            "Strict across processes",
            "As stated",
            _LUA + "an_id_waits_once_and_can_be_cancelled",
        ),
        _row(
            "Idempotent add, delayed",
            "Promotion removes `:didx:`, and leaves `:dlid:` to its TTL",
            "As stated",
            _WORKER + "delayed_and_repeated_jobs_run_when_they_are_due",
        ),
        _row(
            "Idempotent add, delayed",
            "`:didx:` serves `cancel_delayed`",
            "Each side cancels what the other delayed",
            _T + "test_interop.py::test_each_cancels_what_the_other_delayed",
        ),
        _row("Ack", "XACKDEL: acknowledged and deleted at once", "As stated", _LUA + "many_are_acknowledged_at_once"),
        _row(
            "Ack",
            "With a result: XACKDEL, then SET with a TTL if the result is not empty",
            "As stated",
            _LUA + "a_result_is_kept_for_its_time",
        ),
        _row(
            "Ack",
            "If the entry was gone, no result is written",
            "The second outcome of an entry changes nothing",
            _LUA + "an_outcome_is_recorded_once",
        ),
        _row(
            "Ack",
            "XACKDEL returns 0 for an entry that was gone",
            "Redis decides, and replies -1; our functions reply 0, and write nothing",
            _LUA + "an_outcome_is_recorded_once",
            contradicts="Redis 8.6.3, which replies -1",
        ),
        _row(
            "Ack",
            "A result is read with one GET; a missing one is one of three cases",
            "None",
            _QUEUE + "results_are_read_as_the_original_writes_them",
        ),
        _row(
            "Retry",
            "Backoff of the job, else of the worker",
            "As stated",
            _CODEC + "backoff_is_computed_as_the_original_computes_it",
        ),
        _row(
            "Retry",
            "`attempt` + 1, XACKDEL and ZADD in one call",
            "As stated",
            _NEW + "a_retry_acknowledges_and_delays_a_new_entry",
        ),
        _row("Retry", "The name is kept", "In the member", _NEW + "a_retry_acknowledges_and_delays_a_new_entry"),
        _row(
            "DLQ relocate",
            "Fields `d`, `reason`, `detail`, `n`",
            _WHEEL + "`d`, `n`, `source_id`, `reason`, `detail`",
            _LUA + "a_dead_letter_says_where_from_and_why",
            contradicts="what the wheel writes",
        ),
        _row(
            "DLQ relocate",
            "`detail` and `n` are left out without one",
            "`detail` has the handler's error, which the wheel loses",
            _LUA + "fields_of_a_dead_letter_that_are_empty_are_left_out",
        ),
        _row(
            "DLQ relocate",
            "To relocate an entry twice is a no-op",
            "Without IDMP: the second finds the entry gone",
            _LUA + "an_outcome_is_recorded_once",
        ),
        _row("Events", "Plain text, numbers in decimal", "As stated", _NEW + "events_are_fields_of_plain_text"),
        _row(
            "Events",
            "`e`, `id`, `n`, `ts`; `attempt`, `backoff_ms`, `duration_us`, `reason` with their events",
            "The entries of the wheel",
            _WORKER + "events_are_those_of_the_original",
        ),
        _row(
            "Events",
            "`n` is there when a name was set",
            _WHEEL + "`waiting` never has it",
            _NEW + "events_are_fields_of_plain_text",
            contradicts="what the wheel writes",
        ),
        _row(
            "Events",
            "`reason` of `failed` is that of the dead letter",
            _WHEEL + "the error's text; here at most so long that events stay small",
            _TRAPS + "t12_a_long_error_is_cut",
            contradicts="what the wheel writes",
        ),
        _row(
            "Events",
            "`delayed` with `delay_ms`",
            _WHEEL + "it emits no such event, and neither do we",
            _NEW + "events_are_fields_of_plain_text",
            contradicts="what the wheel writes",
        ),
        _row(
            "Events",
            "External subscribers read them",
            "The wheel's listener reads ours",
            _T + "test_interop.py::test_their_listener_reads_our_events",
        ),
        _row(
            "Deploy order",
            "Jobs with `retry` have 5 elements, others the old 4",
            "As stated",
            _CODEC + "the_vectors_cover_every_form_of_an_envelope",
        ),
        _row(
            "Deploy order",
            "Only policies other than `skip` change a spec's bytes",
            "The wheel's specs, with and without",
            _CODEC + "a_spec_is_written_as_it_was_read",
        ),
        _row(
            "CLI",
            "Streams, pending entries, and sorted sets are read with redis-cli",
            "`oq chasqui inspect` and `oq chasqui job ls`",
            _CLI + "jobs_are_added_listed_counted_and_cancelled",
        ),
        _row(
            "CLI",
            "`chasqui dlq peek` decodes dead letters",
            "`oq chasqui dead ls` and `show`",
            _CLI + "dead_letters_are_listed_replayed_and_purged",
        ),
        _row("CLI", "`chasqui events` shows events", "`oq chasqui events`", _CLI + "events_are_printed"),
    ),
)
