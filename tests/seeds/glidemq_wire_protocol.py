"""glide-mq's document "Wire Protocol": its functions, keys, and fields for clients of other languages."""

from __future__ import annotations

from tests.seeds.register import Seed, Statement

__all__ = ["SEED"]

_NEW = "tests/lua/test_documents.py::test_"
_ADD = "tests/lua/test_add_job.py::test_"
_ARGUMENT = _NEW + "each_of_the_seventeen_arguments_does_what_the_document_says"
_DEDUP = "tests/lua/test_dedup.py::test_"
_FLOW = "tests/lua/test_add_flow.py::test_"
_EXAMPLE = "tests/integration/test_wire_example.py::test_"
_CLIENTS = "tests/seeds/test_glidemq_clients.py::test_"
_WIRE = "tests/integration/test_worker_wire.py::test_a_job_added_by_raw_fcall_is_taken_and_left_as_the_wire_says"
_KEYS = _NEW + "each_key_of_the_wire_document_has_its_type"
_LIBRARY = "glide-mq 0.15.4 (library 93)"


def _row(place: str, says: str, does: str, test: str, *, contradicts: str = "", page: str = "") -> Statement:
    return Statement(place, says, does, test, contradicts, page)


_ARGUMENTS = (
    ("jobName", "Name of the job"),
    ("jobData", "Kept as text"),
    ("jobOpts", "Kept as text"),
    ("timestamp", "When it was added, in ms"),
    ("delay", "ms; 0 is at once"),
    ("priority", "0 is the highest, and the default"),
    ("parentId", "Empty without a parent"),
    ("maxAttempts", "0 is no retry"),
    ("orderingKey", "Empty without an order"),
    ("groupConcurrency", "0 for no limit"),
    ("groupRateMax", "0 for no limit"),
    ("groupRateDuration", "ms"),
    ("tbCapacity", "Thousandths of a token"),
    ("tbRefillRate", "Thousandths of a token per second"),
    ("jobCost", "Thousandths of a token; 1000 by default"),
    ("ttl", "ms; 0 never expires"),
    ("customJobId", "Empty for an automatic id"),
)

_FLOW_ARGUMENTS = (
    *((f"parent{name}", "Of the parent") for name in ("Name", "Data", "Opts")),
    ("timestamp", "Of all its jobs, in ms"),
    *((f"parent{name}", "Of the parent") for name in ("Delay", "Priority", "MaxAttempts", "CustomId")),
    *((f"child{name}", "Of the child") for name in ("Name", "Data", "Opts")),
    *((f"child{name}", "Where the child waits") for name in ("Delay", "Priority")),
    ("childMaxAttempts", "Of the child"),
    ("childQueuePrefix", "The child's queue, which the parent waits for"),
    ("childParentQueue", "The name that the child keeps"),
    ("childCustomId", "Of the child"),
    ("numExtraDeps", "How many members follow"),
)
_DEDUP_ARGUMENTS = (
    ("dedupId", "What a job is not added twice for", _NEW + "dedup_takes_the_documents_twenty_arguments"),
    ("ttlMs", "Of `throttle`, in ms", _NEW + "each_mode_of_dedup_skips_or_adds_as_the_document_says"),
    ("mode", "`simple`, `throttle`, or `debounce`", _NEW + "each_mode_of_dedup_skips_or_adds_as_the_document_says"),
)

SEED = Seed(
    "glide-mq, Wire Protocol",
    "The public document of an earlier library (40), compared with version 0.15.4 (library 93)",
    (
        _row(
            "Prerequisites",
            "One function library, `glidemq`, loaded by FUNCTION LOAD",
            "Connecting loads it",
            _CLIENTS + "connecting_asks_the_version_and_loads_what_is_missing",
        ),
        _row(
            "Prerequisites",
            "A client of another language may load the library's source",
            "`oq library dump glidemq` prints it",
            "tests/integration/test_library_versions.py::test_each_library_can_be_printed",
        ),
        _row(
            "Prerequisites",
            "In a cluster, on all primaries",
            "As stated",
            "tests/integration/test_cluster.py::test_connecting_loads_the_libraries_on_every_primary",
        ),
        _row(
            "Prerequisites",
            "... also on those that come later",
            "As stated",
            "tests/integration/test_cluster.py::test_a_primary_that_comes_later_takes_over_a_queue_and_has_the_library",
        ),
        _row(
            "Prerequisites",
            "`glidemq_version` returns the version as text, such as 40",
            "93, as clients of this version expect",
            "tests/lua/test_version.py::test_answers_93_as_text_and_touches_nothing",
        ),
        _row(
            "Prerequisites",
            "The dummy key `{glidemq}:_` is required",
            "Taken, and not required",
            "tests/lua/test_version.py::test_answers_93_as_text_and_touches_nothing",
            contradicts=_LIBRARY + ", whose clients send none to a single server",
        ),
        _row(
            "Key Layout",
            "All keys begin with `glide:{queue}:`; `glide` is the default prefix",
            "One slot per queue; `prefix=` changes it",
            _CLIENTS + "all_keys_of_a_queue_begin_with_its_prefix_and_tag",
        ),
        _row(
            "Key Layout",
            "id, stream, scheduled, completed, failed, events, meta, dedup, job, log, deps",
            "These types",
            _KEYS,
        ),
        _row("Key Layout", "ordering, group, ratelimited", "These types", _KEYS),
        _row(
            "Key Layout",
            "`events` is capped at about 1,000",
            "By the functions; more are kept while someone reads them",
            _ADD + "the_events_stream_is_trimmed_to_about_a_thousand",
        ),
        _row(
            "Key Layout",
            "`groupq:{key}` is a list",
            "A sorted set by sequence",
            _KEYS,
            contradicts=_LIBRARY + ", which decides",
        ),
        _row(
            "Key Layout",
            "`schedulers` is a hash of configurations",
            "JSON by name",
            "tests/integration/test_schedulers_client.py::test_an_entry_is_stored_as_the_wire_says",
        ),
        _row(
            "Key Layout",
            "`dedup` values are `jobId:timestamp`",
            "As stated",
            _KEYS,
            contradicts="Architecture, Key Schema: `job_id|timestamp`; the library decides",
        ),
        _row(
            "Job Hash Fields",
            "id, name, data, opts, timestamp, attemptsMade, delay, priority, maxAttempts, state",
            "As stated",
            _ADD + "a_plain_job_is_one_hash_one_stream_entry_one_event",
        ),
        _row(
            "Job Hash Fields",
            "The eight states",
            "As stated, each in its place",
            _NEW + "each_state_is_where_the_documents_say",
        ),
        _row(
            "Job Hash Fields",
            "returnvalue, finishedOn, processedOn",
            "As stated",
            "tests/lua/test_complete.py::test_a_stream_job_leaves_the_stream_and_becomes_completed",
        ),
        _row("Job Hash Fields", "failedReason", "As stated", "tests/lua/test_fail.py::test_a_last_failure_is_final"),
        _row(
            "Job Hash Fields",
            "progress",
            "As stated",
            "tests/integration/test_job_client.py::test_others_may_log_and_report_progress",
        ),
        _row(
            "Job Hash Fields",
            "parentId, parentQueue: the parent's queue prefix",
            "The parent queue's name",
            _FLOW + "parent_and_children_are_linked",
            contradicts=_LIBRARY + ", which decides",
        ),
        _row(
            "Job Hash Fields",
            "orderingKey, orderingSeq, groupKey",
            "`groupKey` and `orderingSeq`; each ordering key is a group",
            _ARGUMENT,
            contradicts=_LIBRARY + ", which never writes `orderingKey`",
        ),
        _row(
            "Job Hash Fields",
            "cost, expireAt",
            "As stated",
            _ARGUMENT,
        ),
        _row(
            "Job Hash Fields",
            "revoked is 1 if revoked",
            "As stated",
            "tests/lua/test_revoke.py::test_any_other_job_is_only_flagged",
        ),
        _row(
            "glidemq_addJob",
            "4 keys and 17 arguments",
            "As stated; 4 more arguments may follow",
            _EXAMPLE + "a_job_added_by_raw_fcall_is_read_by_our_client_and_equal_to_one_of_ours",
        ),
        *(_row("glidemq_addJob", f"Argument `{name}`: {what}", "As stated", _ARGUMENT) for name, what in _ARGUMENTS),
        _row("glidemq_addJob", "Returns the id, automatic or custom", "Text", _ADD + "a_custom_id_is_taken_once"),
        _row(
            "glidemq_addJob",
            "`duplicate` for a custom id that exists",
            "Nothing changes",
            _ADD + "a_custom_id_is_taken_once",
        ),
        _row(
            "glidemq_addJob",
            "`ERR:COST_EXCEEDS_CAPACITY`",
            "Nothing changes",
            _NEW + "a_job_that_its_bucket_cannot_hold_leaves_nothing",
        ),
        _row(
            "glidemq_addJob",
            "`ERR:ID_EXHAUSTED` after too many collisions",
            "Of addFlow only; an automatic id of addJob cannot collide, as the counter follows custom ids",
            "tests/lua/test_add_flow.py::TestIds::test_a_thousand_collisions_exhaust_the_ids",
            contradicts=_LIBRARY + ", which decides",
        ),
        _row(
            "glidemq_addJob",
            "Delayed: `scheduled` with `priority * 2^42 + timestamp + delay`",
            "State `delayed`",
            _NEW + "the_documents_scores_are_exact",
        ),
        _row(
            "glidemq_addJob",
            "Prioritized: `scheduled` with `priority * 2^42`",
            "State `prioritized`",
            _NEW + "the_documents_scores_are_exact",
        ),
        _row(
            "glidemq_addJob",
            "The example of `redis-cli`",
            "A plain job",
            _NEW + "the_documents_example_is_a_plain_job",
        ),
        _row(
            "glidemq_addJob",
            "Otherwise on the stream",
            "State `waiting`",
            _ADD + "placement_is_delay_then_priority_then_lifo_then_stream",
        ),
        _row(
            "glidemq_addJob",
            "An event `added`",
            "Unless the 21st argument skips it",
            _ADD + "a_plain_job_is_one_hash_one_stream_entry_one_event",
        ),
        _row(
            "glidemq_dedup",
            "5 keys and 20 arguments: id, ttl, mode, and those of addJob",
            "As stated; 3 more may follow",
            _NEW + "dedup_takes_the_documents_twenty_arguments",
        ),
        *(
            _row("glidemq_dedup", f"Argument `{name}`: {what}", "As stated", test)
            for name, what, test in _DEDUP_ARGUMENTS
        ),
        *(
            _row(
                "glidemq_dedup",
                f"Argument `{name}`, as of addJob",
                "As stated",
                _NEW + "dedup_does_with_the_arguments_of_addjob_what_addjob_does",
            )
            for name, _ in _ARGUMENTS
        ),
        _row(
            "glidemq_dedup",
            "Returns what addJob does",
            "As stated",
            _NEW + "dedup_returns_what_addjob_does",
        ),
        _row(
            "glidemq_dedup",
            "`skipped` when it was not created",
            "As stated",
            _DEDUP + "simple_skips_while_the_job_is_unfinished",
        ),
        _row(
            "glidemq_dedup",
            "simple: skips while such a job is not terminal",
            "And exists",
            _DEDUP + "simple_skips_while_the_job_is_unfinished",
        ),
        _row(
            "glidemq_dedup",
            "throttle: skips within the ttl",
            "As stated",
            _DEDUP + "throttle_skips_within_its_time_whatever_the_job_does",
        ),
        _row(
            "glidemq_dedup",
            "debounce: replaces a delayed or prioritized job",
            "One that has started is left, and the new one skipped",
            _DEDUP + "debounce_replaces_a_job_that_still_waits_for_its_time",
        ),
        _row(
            "glidemq_addFlow",
            "A parent and its children at once; the parent waits for all",
            "State `waiting-children`",
            _FLOW + "parent_and_children_are_linked",
        ),
        _row(
            "glidemq_addFlow",
            "The parent is queued when all children have completed",
            "Once",
            "tests/lua/test_complete.py::TestParents::test_the_last_child_releases_the_parent_named_by_the_caller",
        ),
        _row(
            "glidemq_addFlow",
            "4 keys, and 4 for each child, of its own queue",
            "As stated",
            _FLOW + "children_of_other_queues_live_there",
        ),
        _row(
            "glidemq_addFlow",
            "9 arguments, and 9 for each child",
            "As stated",
            _NEW + "a_flow_of_two_children_has_nine_words_for_each",
        ),
        *(
            _row(
                "glidemq_addFlow",
                f"Argument `{name}`: {what}",
                "As stated",
                _NEW + "each_argument_of_addflow_does_what_the_document_says",
            )
            for name, what in _FLOW_ARGUMENTS
        ),
        _row(
            "glidemq_addFlow",
            "Argument `numChildren`: How many children follow",
            "As stated; with another number of words it is refused",
            _NEW + "a_flow_of_two_children_has_nine_words_for_each",
        ),
        _row(
            "glidemq_addFlow",
            "More members may be named to wait for",
            "As stated",
            _FLOW + "extra_deps_are_waited_for_too",
        ),
        _row(
            "glidemq_addFlow",
            "Returns the ids as JSON, the parent's first",
            "As stated",
            "tests/lua/test_add_flow.py::TestIds::test_custom_ids_are_kept_and_move_the_counters",
        ),
        _row(
            "glidemq_addFlow",
            '`["duplicate"]` for an id that exists',
            "Nothing changes",
            "tests/lua/test_add_flow.py::TestIds::test_a_repeated_id_adds_nothing",
        ),
        _row(
            "glidemq_addFlow",
            "`ERR:COST_EXCEEDS_CAPACITY` as bare text",
            "Nothing changes",
            "tests/lua/test_add_flow.py::TestCost::test_what_costs_more_than_its_bucket_is_refused",
        ),
        _row(
            "glidemq_pause, glidemq_resume",
            "Keys meta and events, no arguments",
            "`paused` is 1 or 0, and an event",
            "tests/lua/test_pause_and_resume.py::test_sets_the_flag_and_says_so_whatever_it_was",
        ),
        _row(
            "Priority Encoding",
            "`priority * 2^42 + timestamp`, 2^42 = 4398046511104",
            "As stated",
            _NEW + "the_documents_scores_are_exact",
        ),
        _row(
            "Priority Encoding",
            "0 is the highest",
            "Jobs with a priority start before plain ones, the lowest number first; 0 is a plain job",
            "tests/lua/test_easy_to_miss.py::test_43_priority_beats_lifo_beats_fifo",
            contradicts=_LIBRARY + ", which decides",
        ),
        _row(
            "Priority Encoding",
            "FIFO within a priority",
            "As stated",
            _NEW + "jobs_of_one_priority_are_first_in_first_out",
        ),
        _row(
            "Priority Encoding",
            "Jobs with a priority and no delay are promoted at once",
            "To the list `priority`",
            "tests/lua/test_promote.py::test_priority_and_lifo_jobs_go_to_their_lists",
        ),
        _row(
            "Compression",
            "`gz:` and base64 of gzip",
            '`codec="gzip"`; all clients read it',
            _CLIENTS + "data_compressed_by_another_client_are_read_and_ours_by_it",
        ),
        _row(
            "Compression",
            "At most 1,048,576 bytes before compression",
            "More is refused before anything is sent",
            _CLIENTS + "data_have_up_to_a_mebibyte_before_compression",
        ),
        _row(
            "Compression",
            "Readers check for the prefix",
            "Plain and compressed jobs mix",
            "tests/integration/test_easy_to_miss.py::test_30_compressed_and_plain_jobs_mix",
        ),
        _row(
            "Custom Job IDs",
            "At most 256 characters",
            "As stated",
            _CLIENTS + "a_custom_id_has_up_to_256_characters",
        ),
        _row(
            "Custom Job IDs",
            "No control characters, braces, or colons",
            "Refused before anything is sent",
            _CLIENTS + "a_custom_id_has_none_of_the_documents_characters",
        ),
        _row(
            "Custom Job IDs",
            "An id that exists is skipped silently",
            "`add` returns the job that was there, with `is_new` False",
            "tests/integration/test_queue.py::test_adding_an_id_twice_gives_the_job_that_was_there",
        ),
        _row(
            "Reading Job State",
            "HGETALL of `job:{id}`",
            "As stated",
            _EXAMPLE + "a_job_added_by_raw_fcall_is_read_by_our_client_and_equal_to_one_of_ours",
        ),
        _row(
            "Reading Job State",
            "Counts are XLEN, ZCARD, and XPENDING",
            "As stated",
            _EXAMPLE + "our_counts_are_those_of_the_documents_commands",
        ),
        _row(
            "Reading Job State",
            "Waiting is XLEN - active",
            "And what waits on the lists of LIFO and prioritized jobs",
            "tests/integration/test_queue_upkeep.py::test_counts_tell_every_job_that_a_list_keeps",
            contradicts=_LIBRARY + ", which has those lists and decides",
        ),
        _row(
            "Reading Job State",
            "`HGET meta paused` is 1 if paused",
            "As stated",
            "tests/integration/test_queue.py::test_a_queue_is_paused_and_resumed",
        ),
        _row("Consumer Group", "One group named `workers`", "As stated", _WIRE),
        _row(
            "Consumer Group",
            "Created with `$`",
            "Works; our workers create it from 0, as glide-mq's do, so that jobs added before run",
            _WIRE,
            contradicts=_LIBRARY + ", which creates it from 0",
        ),
        _row(
            "Consumer Group",
            "XREADGROUP with COUNT, BLOCK, and `>`",
            "As stated",
            _NEW + "workers_of_other_languages_read_as_the_document_says",
        ),
        _row(
            "Token Bucket and Cost",
            "1 token is 1000 of the wire, of capacities, rates, and costs",
            "As stated",
            "tests/integration/test_queue.py::test_options_reach_the_hash_as_node_writes_them",
        ),
        _row(
            "Token Bucket and Cost",
            "A job costs 1 token by default",
            "As stated",
            "tests/lua/test_move_to_active.py::TestTokens::test_a_job_without_a_cost_costs_one_token",
        ),
        _row(
            "Python Example",
            "Adds, reads, and counts with redis-py",
            "As stated",
            _EXAMPLE + "a_job_added_by_raw_fcall_is_read_by_our_client_and_equal_to_one_of_ours",
        ),
        _row("Go Example", "The same call", "The same keys and arguments; taken by our worker", _WIRE),
        _row(
            "Authentication Note",
            "The HTTP proxy has no authentication",
            "`oq serve` has tokens, scopes, and rates",
            "tests/http/test_access.py::test_matrix",
            page="how-to/serve-http.md",
        ),
    ),
)
