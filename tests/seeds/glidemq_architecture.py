"""glide-mq's document "Architecture Plan": its keys, states, functions, and the API that ours answers in Python."""

from __future__ import annotations

from tests.seeds.register import Seed, Statement

__all__ = ["SEED"]

_LUA = "tests/lua/"
_I = "tests/integration/"
_NEW = _LUA + "test_documents.py::test_"
_KEYS = _NEW + "each_key_of_the_wire_document_has_its_type"
_MISS = _LUA + "test_easy_to_miss.py::test_"
_QUEUE = _I + "test_queue.py::test_"
_UPKEEP = _I + "test_queue_upkeep.py::test_"
_WORKER = _I + "test_worker.py::test_"
_CONTROL = _I + "test_worker_control.py::test_"
_BROADCAST = _I + "test_broadcast.py::test_"
_LIBRARY = "glide-mq 0.15.4 (library 93), which decides"
_MIGRATE = "how-to/from-bullmq.md"


def _row(place: str, says: str, does: str, test: str, *, contradicts: str = "", page: str = "") -> Statement:
    return Statement(place, says, does, test, contradicts, page)


_FUNCTIONS = (
    ("version", "Returns the library's version", "test_version.py::test_answers_93_as_text_and_touches_nothing"),
    ("addJob", "Makes a job and places it", "test_add_job.py::test_a_plain_job_is_one_hash_one_stream_entry_one_event"),
    ("promote", "Makes due jobs ready", "test_promote.py::test_a_delayed_job_is_due_at_its_very_millisecond"),
    (
        "nextDue",
        "Returns the next time of scheduled and limited jobs",
        "test_next_due.py::test_the_earliest_of_scheduled_jobs_and_limited_groups",
    ),
    ("tryLock", "Acquires a lock", "test_try_lock.py::test_the_first_token_gets_the_lock_until_it_expires"),
    ("unlock", "Releases the caller's lock", "test_unlock.py::test_only_the_own_token_is_deleted"),
    ("renewLock", "Renews the caller's lock", "test_renew_lock.py::test_only_the_own_token_is_prolonged"),
    ("complete", "Completes a job", "test_complete.py::test_a_stream_job_leaves_the_stream_and_becomes_completed"),
    (
        "completeAndFetchNext",
        "Completes a job and starts the next in one exchange",
        "test_complete_and_fetch_next.py::TestNextFromStream::test_the_reply_is_the_activated_hash_with_its_entry",
    ),
    ("fail", "Fails a job, or schedules its retry", "test_fail.py::test_a_retry_waits_in_the_scheduled_set"),
    (
        "reclaimStalled",
        "Counts stalls, and fails a job that has too many",
        "test_reclaim_stalled.py::test_a_job_may_stall_so_often_and_then_fails",
    ),
    (
        "reclaimStalledListJobs",
        "The same of jobs from lists",
        "test_reclaim_stalled_list_jobs.py::test_over_the_limit_the_job_fails",
    ),
    (
        "pause",
        "Sets `paused`, and an event",
        "test_pause_and_resume.py::test_sets_the_flag_and_says_so_whatever_it_was",
    ),
    ("resume", "Clears it, and an event", "test_pause_and_resume.py::test_sets_the_flag_and_says_so_whatever_it_was"),
    ("dedup", "Adds or skips by its mode", "test_dedup.py::test_a_first_job_is_added_and_remembered"),
    (
        "rateLimit",
        "Counts in a window, and returns the delay if exceeded",
        "test_rate_limit.py::test_a_window_allows_max_calls_then_says_how_long_to_wait",
    ),
    (
        "promoteRateLimited",
        "Moves limited jobs back to the stream",
        "test_promote_rate_limited.py::test_a_due_group_moves_to_the_stream_in_order",
    ),
    (
        "checkConcurrency",
        "Checks the queue's limit",
        "test_check_concurrency.py::test_the_limit_less_what_is_pending_and_active",
    ),
    (
        "rpopAndReserve",
        "Pops a list within the queue's limit",
        "test_rpop_and_reserve.py::test_takes_the_newest_as_far_as_the_limit_allows_and_counts_them",
    ),
    ("moveToActive", "Activates a job", "test_move_to_active.py::test_the_reply_is_the_hash_as_it_now_stands"),
    (
        "deferActive",
        "Returns a job to the stream",
        "test_defer_active.py::test_the_job_gets_a_new_entry_behind_the_others",
    ),
    ("addFlow", "Adds a parent and its children", "test_add_flow.py::test_parent_and_children_are_linked"),
    (
        "completeChild",
        "Counts a child, and queues the parent after the last",
        "test_complete_child.py::test_the_reply_counts_down_and_the_last_child_releases",
    ),
    ("registerParent", "Adds a parent", "test_register_parent.py::test_an_unfinished_child_is_wired_to_its_parent"),
    ("removeJob", "Removes a job", "test_remove_job.py::test_everything_that_belongs_to_the_job_goes"),
    ("clean", "Removes old jobs", "test_clean.py::test_the_oldest_go_first_as_far_as_cutoff_and_limit_allow"),
    ("revoke", "Revokes a job", "test_revoke.py::test_a_job_that_did_not_start_fails"),
    ("changePriority", "Changes a priority", "test_change_priority.py::test_the_job_moves_to_its_new_place"),
    (
        "changeDelay",
        "Changes a delay",
        "test_change_delay.py::test_the_job_moves_to_its_new_time_and_keeps_its_priority",
    ),
    ("promoteJob", "Makes a delayed job ready", "test_promote_job.py::test_a_delayed_job_becomes_ready_at_once"),
    (
        "moveActiveToDelayed",
        "Delays an active job, for its next step",
        "test_move_active_to_delayed.py::test_the_job_waits_until_its_time_and_uses_no_try",
    ),
    (
        "moveToWaitingChildren",
        "Has an active job wait for its children",
        "test_move_to_waiting_children.py::test_the_job_waits_while_a_child_is_open",
    ),
    (
        "drain",
        "Removes waiting jobs, and delayed ones",
        "test_drain.py::test_waiting_jobs_go_and_delayed_ones_when_asked",
    ),
    (
        "retryJobs",
        "Retries failed jobs",
        "test_retry_jobs.py::test_a_retried_job_is_due_at_once_and_starts_from_nothing",
    ),
    ("healListActive", "Corrects the counter", "test_heal_list_active.py::test_lowers_a_counter_that_is_too_high"),
    ("popLists", "Pops both lists in one call", "test_pop_lists.py::test_takes_from_one_list_only_and_counts_nothing"),
)

_METHODS = (
    (
        "Queue",
        "`add`, null for one that was skipped",
        "A job with `is_new` False",
        _QUEUE + "a_skipped_job_gives_the_job_that_stands_for_it",
    ),
    (
        "Queue",
        "`addAndWait`",
        "`add_and_wait`",
        _UPKEEP + "add_and_wait_returns_the_result_even_of_a_job_that_is_not_kept",
    ),
    ("Queue", "`addBulk`", "`add_bulk`", _QUEUE + "bulk_keeps_the_order_over_several_trips_and_meets_what_was_there"),
    ("Queue", "`getJob`", "`get`", _QUEUE + "the_record_of_an_added_job_is_what_reading_it_says"),
    (
        "Queue",
        "`getJobs` by state and range",
        "`jobs`",
        _QUEUE + "jobs_are_listed_by_state_in_the_order_workers_take_them",
    ),
    ("Queue", "`getJobCounts`, `count`", "`counts`", _UPKEEP + "counts_tell_every_job_that_a_list_keeps"),
    (
        "Queue",
        "`pause`, `resume`, `isPaused`",
        "`pause`, `resume`, `is_paused`",
        _QUEUE + "a_queue_is_paused_and_resumed",
    ),
    ("Queue", "`revoke`", "`cancel`", _QUEUE + "a_revoked_job_never_starts"),
    ("Queue", "`getMetrics`", "`metrics`", _UPKEEP + "metrics_are_minutes_and_sum_to_the_jobs"),
    (
        "Queue",
        "`obliterate`, with `force`",
        "`obliterate`",
        _I + "test_obliterate.py::test_active_jobs_are_not_removed_unless_forced",
    ),
    ("Queue", "`close`", "Also `with` and `async with`", _QUEUE + "a_closed_client_says_so"),
    ("Queue", "`clean`", "`clean`", _UPKEEP + "finished_jobs_are_cleaned_100_to_a_call_oldest_first"),
    ("Queue", "`drain`", "`drain`", _UPKEEP + "draining_keeps_active_jobs_and_removes_all_that_is_ready"),
    ("Queue", "`retryJobs`", "`retry_jobs`", _UPKEEP + "failed_jobs_are_retried_100_to_a_call"),
    (
        "Queue",
        "`setGlobalConcurrency`, `setGlobalRateLimit`, `getGlobalRateLimit`, `removeGlobalRateLimit`",
        "Set, read, and removed",
        _UPKEEP + "the_queues_bounds_are_set_read_and_dropped",
    ),
    ("Queue", "`getWorkers`", "`workers`", _UPKEEP + "a_real_worker_is_listed_while_it_lives"),
    ("Queue", "`getJobLogs`", "`job.logs()`", _QUEUE + "jobs_are_steered"),
    (
        "Queue",
        "`getDeadLetterJobs`",
        "`DeadLetters(queue)`",
        _I + "test_dead_letters.py::test_a_job_that_failed_for_good_is_found_and_runs_again_once_its_cause_is_gone",
    ),
    ("Queue", "`searchJobs`", "`search`", _I + "test_queue_search.py::test_each_state_is_found_by_its_name"),
    (
        "Queue",
        "`upsertJobScheduler`",
        "`schedulers.upsert`",
        _I + "test_schedulers_client.py::test_an_entry_is_stored_as_the_wire_says",
    ),
    (
        "Queue",
        "`getJobScheduler`, `getRepeatableJobs`, `removeJobScheduler`",
        "`schedulers`",
        _I + "test_schedulers_client.py::test_schedulers_are_listed_looked_up_and_removed",
    ),
    (
        "Worker",
        "Runs a processor",
        "A function, a coroutine, or `Tasks`",
        _WORKER + "a_coroutine_handler_returns_its_result",
    ),
    ("Worker", "`pause`, `resume`, `isPaused`", "The same", _CONTROL + "a_paused_worker_leaves_jobs_to_others"),
    (
        "Worker",
        "`drain`, `close`",
        "`stop`: running jobs finish",
        _WORKER + "a_stop_lets_running_jobs_finish_and_takes_no_new_ones",
    ),
    ("Worker", "`abortJob`", "A cancel reaches the handler", _CONTROL + "a_job_revoked_on_its_worker_stops_at_once"),
    (
        "Worker",
        "`rateLimit(ms)`, RateLimitError",
        "`raise RateLimitError`",
        _I + "test_limits.py::test_a_refused_job_keeps_the_whole_worker_away",
    ),
    ("Worker", "`on(event, handler)`", "Listeners", _CONTROL + "a_worker_tells_what_happens_in_it"),
    ("Worker", "`concurrency`, 1 by default", "The same", _WORKER + "jobs_run_side_by_side_up_to_the_concurrency"),
    (
        "Worker",
        "`lockDuration`: the window of stalls",
        "`lease`",
        _WORKER + "a_job_longer_than_its_lease_runs_once_even_when_it_blocks_the_loop",
    ),
    (
        "Worker",
        "`stalledInterval`, `maxStalledCount`",
        "`stalled_interval`, `max_stalled`",
        _WORKER + "a_job_that_silences_its_workers_leaves_a_dead_letter",
    ),
    (
        "Worker",
        "`limiter`",
        "`rate_limit`",
        _I + "test_limits.py::test_two_workers_share_one_limit_and_never_exceed_a_window",
    ),
    (
        "Worker",
        "`backoffStrategies`",
        "`Worker(strategies=...)`",
        "tests/unit/test_runner.py::test_a_strategy_says_how_long_to_wait_and_no_nonsense_of_it_loses_the_outcome",
    ),
    (
        "Worker",
        "`sandbox`: a child process",
        "`@sandboxed`",
        _I + "test_sandbox.py::test_a_handler_runs_in_a_warm_process_with_the_facts_of_its_job",
    ),
    (
        "Worker",
        "`batch`: size and timeout",
        "`Batch`",
        _I + "test_batches.py::test_a_backlog_comes_in_full_batches_and_each_job_gets_its_own_result",
    ),
    ("Job", "Its fields", "`job.record`", _QUEUE + "options_reach_the_hash_as_node_writes_them"),
    (
        "Job",
        "`log`, `updateProgress`",
        "`log`, `update_progress`",
        _I + "test_job_client.py::test_others_may_log_and_report_progress",
    ),
    (
        "Job",
        "`updateData`, `promote`, `changePriority`, `changeDelay`, `retry`, `remove`",
        "The same",
        _QUEUE + "jobs_are_steered",
    ),
    ("Job", "`discard`", "`discard`", _I + "test_step_jobs.py::test_a_discarded_job_is_not_tried_again"),
    (
        "Job",
        "`moveToDelayed(time, step)`",
        "`move_to_delayed`",
        _I + "test_step_jobs.py::test_a_job_goes_on_with_its_next_step",
    ),
    ("Job", "`waitUntilFinished`", "`wait`", _QUEUE + "wait_returns_what_the_handler_returned"),
    (
        "Job",
        "`getChildrenValues`",
        "`children_values`",
        _I + "test_step_jobs.py::test_a_job_waits_for_children_that_its_handler_added",
    ),
    (
        "Job",
        "`getState`, `isCompleted`, ...",
        "`state`",
        _I + "test_job_client.py::test_state_and_progress_are_read_afresh",
    ),
    ("Job", "`abortSignal`", "The coroutine is cancelled", _WORKER + "a_running_job_that_is_revoked_is_stopped"),
    ("JobOptions", "`delay`", "`delay`, `delay_until`", _QUEUE + "a_job_is_delayed_until_an_instant"),
    ("JobOptions", "`attempts`, `backoff`", "The same", _WORKER + "a_failing_attempt_is_retried_after_its_backoff"),
    (
        "JobOptions",
        "`backoff.jitter`",
        "`jitter`",
        "tests/unit/test_options.py::test_exponential_backoff_doubles_and_jitter_only_adds",
    ),
    ("JobOptions", "`timeout`", "`timeout`", _WORKER + "a_coroutine_over_its_time_is_cancelled"),
    (
        "JobOptions",
        "`removeOnComplete`, `removeOnFail`",
        "`remove_on_complete`, `remove_on_fail`",
        _WORKER + "finished_jobs_are_kept_as_their_options_say",
    ),
    ("JobOptions", "`deduplication`", "`Deduplication`", _QUEUE + "debounce_replaces_a_delayed_job"),
    (
        "JobOptions",
        "`parent`",
        "`add(parent=...)`",
        _QUEUE + "a_parent_learns_of_children_of_its_own_and_of_other_queues",
    ),
    (
        "QueueEvents",
        "Events with their fields",
        "`QueueEvents`",
        _I + "test_events.py::test_events_come_in_order_with_their_fields",
    ),
    (
        "FlowProducer",
        "`add` of a tree",
        "`submit(tree(...))`",
        "tests/unit/test_flows.py::test_the_children_of_a_tree_run_first",
    ),
)

SEED = Seed(
    "glide-mq, Architecture",
    "The public plan of an earlier version (37 functions), compared with version 0.15.4 (library 93)",
    (
        _row(
            "Key Schema",
            "All keys share a hash tag; the prefix is `glide`",
            "As stated",
            _I + "test_wire_example.py::test_a_job_added_by_raw_fcall_is_read_by_our_client_and_equal_to_one_of_ours",
        ),
        _row(
            "Key Schema",
            "id, stream, scheduled, job, completed, failed, events, meta, deps, ordering, group",
            "As stated",
            _KEYS,
        ),
        _row(
            "Key Schema",
            "`parent:{id}`, a hash",
            "No such key: `parentId` and `parentQueue` of the job, and the set `parents:{id}`",
            _LUA + "test_register_parent.py::test_an_unfinished_child_is_wired_to_its_parent",
            contradicts=_LIBRARY,
        ),
        _row(
            "Key Schema",
            "`dedup` values are `job_id|timestamp`",
            "`jobId:timestamp`",
            _KEYS,
            contradicts="Wire Protocol, Key Layout, and the library, which decide",
        ),
        _row(
            "Key Schema",
            "`rate`: window start and count",
            "As stated",
            _LUA + "test_rate_limit.py::test_a_window_allows_max_calls_then_says_how_long_to_wait",
        ),
        _row(
            "Key Schema",
            "`schedulers` values are the next time",
            "JSON with the next time and more",
            _I + "test_schedulers_client.py::test_an_entry_is_stored_as_the_wire_says",
            contradicts=_LIBRARY,
        ),
        _row(
            "Key Schema",
            "`orderdone:pending:{k}`: sequences to skip",
            "As stated",
            _LUA + "test_move_to_active.py::TestOrder::test_skipped_sequences_are_stepped_over_and_forgotten",
        ),
        _row("Key Schema", "`groupq:{key}`, a list", "A sorted set by sequence", _KEYS, contradicts=_LIBRARY),
        _row(
            "Key Schema",
            "`ratelimited`, by the earliest time",
            "Of groups",
            _LUA + "test_move_to_active.py::TestWindow::test_a_full_window_parks_until_it_ends",
        ),
        _row(
            "Job State Machine",
            "From stream to pending, then completed or failed",
            "As stated",
            _I + "test_worker_wire.py::test_a_job_added_by_raw_fcall_is_taken_and_left_as_the_wire_says",
        ),
        _row(
            "Job State Machine",
            "A retry waits in `scheduled` with its backoff",
            "As stated",
            _LUA + "test_fail.py::test_a_retry_waits_in_the_scheduled_set",
        ),
        _row(
            "Job State Machine",
            "A parent is queued when all children are done",
            "As stated",
            _LUA + "test_complete_child.py::test_the_reply_counts_down_and_the_last_child_releases",
        ),
        _row(
            "Job State Machine",
            "A group-waiting job is queued when a slot is free",
            "As stated",
            _LUA + "test_complete.py::test_the_groups_slot_goes_to_the_next_parked_job",
        ),
        _row(
            "Job State Machine",
            "GROUP_RATE_LIMITED: the job is parked in `ratelimited`",
            "Its group is in `ratelimited`, the job in `groupq`",
            _LUA + "test_move_to_active.py::TestWindow::test_a_full_window_parks_until_it_ends",
            contradicts=_LIBRARY,
        ),
        _row(
            "Job State Machine",
            "GROUP_TOKEN_LIMITED when the bucket cannot pay",
            "As stated",
            _LUA + "test_move_to_active.py::TestTokens::test_tokens_pay_until_they_run_out",
        ),
        _row(
            "Job State Machine",
            "The promotion loop picks limited jobs up",
            "As stated",
            _LUA + "test_promote_rate_limited.py::test_a_due_group_moves_to_the_stream_in_order",
        ),
        _row(
            "Job State Machine",
            "A cost above the capacity: to the dead-letter queue",
            "The job fails",
            _LUA + "test_move_to_active.py::TestTokens::test_a_job_the_bucket_can_never_pay_fails",
            contradicts=_LIBRARY,
        ),
        _row(
            "LIFO Mode",
            "`lifo: true` goes to the list `list` by RPUSH and RPOP",
            "To the list `lifo`",
            _LUA + "test_add_job.py::test_lifo_jobs_are_pushed_to_the_end_that_is_popped",
            contradicts=_LIBRARY,
        ),
        _row(
            "LIFO Mode",
            "Priority comes before LIFO, and LIFO before the stream",
            "As stated",
            _MISS + "43_priority_beats_lifo_beats_fifo",
        ),
        _row(
            "LIFO Mode",
            "moveToActive picks the next job",
            "Workers and completeAndFetchNext pick it; moveToActive activates a given one",
            _LUA + "test_complete_and_fetch_next.py::TestNextFromLists::test_priority_comes_before_lifo_before_stream",
            contradicts=_LIBRARY,
        ),
        _row(
            "LIFO Mode",
            "A counter in `meta` counts active jobs of lists",
            "The key `list-active`",
            _LUA + "test_complete.py::test_a_list_job_is_counted_off_and_never_below_zero",
            contradicts=_LIBRARY,
        ),
        _row(
            "LIFO Mode",
            "The queue's limit holds over both",
            "As stated",
            _MISS + "44_45_a_global_limit_of_one_is_kept_and_freed_by_failure",
        ),
        _row(
            "States",
            "waiting, active, delayed, prioritized, completed, failed, waiting-children: their keys",
            "As stated",
            _QUEUE + "jobs_are_listed_by_state_in_the_order_workers_take_them",
        ),
        _row(
            "Priority Encoding",
            "`priority * 2^42 + ms`; without delay 0 ms",
            "As stated",
            _NEW + "the_documents_scores_are_exact",
        ),
        _row(
            "Priority Encoding",
            "FIFO within a priority",
            "As stated",
            _LUA + "test_promote.py::test_within_one_call_the_best_priority_is_popped_first",
        ),
        _row(
            "Priority Encoding",
            "The highest number is 2^21",
            "2048, as glide-mq's own clients have it",
            "tests/unit/test_options.py::test_values_beyond_the_limits_are_refused_in_one_sentence",
            contradicts="glide-mq 0.15.4, whose queue refuses more than 2048 and decides",
        ),
        _row(
            "Server Functions",
            "Functions survive restarts",
            "A server that comes back without them gets them again",
            _I + "test_connection.py::test_a_server_that_comes_back_without_functions_gets_them_before_the_first_call",
        ),
        _row(
            "Server Functions",
            "Named, in one library",
            "45 of them",
            _LUA + "test_version.py::test_registers_exactly_the_45_functions_without_flags",
        ),
        _row(
            "Server Functions",
            "37 functions",
            "45: the plan is older",
            _LUA + "test_version.py::test_registers_exactly_the_45_functions_without_flags",
            contradicts=_LIBRARY,
        ),
        _row(
            "Server Functions",
            "No error of a cache that was lost; one load restores all",
            "As stated",
            _I + "test_connection.py::test_lost_functions_are_loaded_again_and_each_call_counts_once",
        ),
        _row(
            "Loading Strategy",
            "FUNCTION LIST says whether the library is there",
            "`glidemq_version` does",
            _I + "test_connection.py::test_the_same_version_is_not_loaded_again",
            contradicts=_LIBRARY,
        ),
        _row(
            "Loading Strategy",
            "Missing: FUNCTION LOAD",
            "As stated",
            _I + "test_connection.py::test_a_missing_library_is_loaded",
        ),
        _row(
            "Loading Strategy",
            "Another version: FUNCTION LOAD REPLACE",
            "Only older texts of ours are replaced, so that libraries do not replace each other in turn",
            _I + "test_library_versions.py::test_glide_mq_s_own_library_stays_and_works",
            page="explanation/glidemq-weaknesses.md",
        ),
        _row(
            "Loading Strategy",
            "The source is in the package",
            "As stated",
            _I + "test_library_versions.py::test_each_library_can_be_printed",
        ),
        _row(
            "Loading Strategy",
            "In a cluster, to all nodes",
            "All primaries",
            _I + "test_cluster.py::test_connecting_loads_the_libraries_on_every_primary",
            contradicts="the same document's `allPrimaries`, which decides: replicas get it by replication",
        ),
        _row(
            "Functions",
            "The numbers of keys",
            "As stated",
            _NEW + "each_function_takes_the_keys_of_the_architecture_document",
        ),
        *(
            _row("Functions", f"`glidemq_{name}`: {what.lower()}", "As stated", _LUA + test)
            for name, what, test in _FUNCTIONS
        ),
        _row(
            "Functions",
            "`glidemq_searchByName`: by a pattern of names",
            "By the exact name",
            _LUA + "test_search_by_name.py::test_exact_names_in_order_up_to_the_limit",
            contradicts=_LIBRARY,
        ),
        _row(
            "Functions",
            "`glidemq_completeChild` removes the child from the set",
            "It counts; the set stays",
            _LUA + "test_complete_child.py::test_a_child_counts_once",
            contradicts=_LIBRARY,
        ),
        _row(
            "Functions",
            "`skipEvents` leaves out the event `added`",
            "`emit_events=False`",
            _QUEUE + "without_events_nobody_is_told_of_the_adding",
        ),
        _row(
            "Connection Model",
            "A queue needs 1 connection, a worker 2, one of them for reads that block",
            "A blocking call holds up no other; idle workers keep a few shared sockets",
            _I + "test_connection.py::test_a_blocking_call_holds_up_nobody_else",
        ),
        _row(
            "Consumer Group Strategy",
            "One group per queue, `glide:{queue}:workers`",
            "`workers`",
            _I + "test_worker_wire.py::test_a_job_added_by_raw_fcall_is_taken_and_left_as_the_wire_says",
            contradicts="Wire Protocol, Consumer Group, and the library, which decide",
        ),
        _row(
            "Consumer Group Strategy",
            "Each worker is a consumer, and reads as many as it has slots",
            "As stated",
            _I + "test_easy_to_miss.py::test_63_a_worker_asks_for_as_many_jobs_as_it_has_free_places",
        ),
        _row(
            "Consumer Group Strategy",
            "XACK when a job ends",
            "And XDEL",
            _LUA + "test_complete.py::test_a_stream_job_leaves_the_stream_and_becomes_completed",
        ),
        _row(
            "Consumer Group Strategy",
            "XAUTOCLAIM recovers stalled jobs",
            "After `lease` without renewal",
            _LUA + "test_reclaim_stalled.py::test_a_first_stall_sends_the_job_to_the_back_of_the_stream",
        ),
        *(_row(f"API, {part}", says, does, test) for part, says, does, test in _METHODS),
        _row(
            "API, Worker",
            "`globalConcurrency` of a worker",
            "The queue's limit, which holds over all workers",
            _WORKER + "global_concurrency_holds_over_all_workers",
            contradicts=_LIBRARY,
        ),
        _row(
            "API, Worker",
            "`prefetch`, `blockTimeout`",
            "No such options: a worker reads as many jobs as it has free slots, and waits as long as nothing is due",
            _I + "test_easy_to_miss.py::test_63_a_worker_leaves_what_it_has_no_place_for",
            page=_MIGRATE,
        ),
        _row(
            "API, Job",
            "`moveToFailed(error)`",
            "No such method: a handler raises the error",
            _WORKER + "a_job_out_of_attempts_fails_with_the_reason",
            page=_MIGRATE,
        ),
        _row(
            "Broadcast",
            "Each subscription gets every message",
            "As stated",
            _BROADCAST + "every_subscription_gets_every_message",
        ),
        _row(
            "Broadcast",
            "Entries are kept, up to `maxMessages`",
            "As stated",
            _I + "test_broadcast_client.py::test_the_newest_messages_are_kept_exactly",
        ),
        _row(
            "Broadcast",
            "Retries are counted per subscription, in `{jobKey}:sub:{group}`",
            "As stated",
            _LUA + "test_fail.py::TestBroadcast::test_each_subscription_counts_its_own_tries",
        ),
        _row(
            "Broadcast",
            "One subscription's failure does not affect another's",
            "As stated",
            _BROADCAST + "a_retry_of_one_subscription_does_not_disturb_another",
        ),
        _row(
            "Broadcast",
            "`broadcastMode` of the functions deletes no entries",
            "As stated",
            _LUA + "test_complete.py::test_broadcast_only_acknowledges_and_retains",
        ),
        _row(
            "DAG",
            "Nodes are submitted in topological order, dependents in waiting-children",
            "As stated",
            "tests/unit/test_flows.py::test_diamond_creates_dependents_first",
        ),
        _row(
            "DAG",
            "Several parents by registerParent",
            "As stated",
            _I + "test_flow_plan.py::test_diamond_stands_as_the_wire_says",
        ),
        _row(
            "DAG",
            "A cycle is a CycleError before anything is submitted",
            "As stated",
            "tests/unit/test_flows.py::test_bad_input_is_refused_in_one_sentence",
        ),
        _row(
            "Differentiators",
            "A stream of events and OpenTelemetry",
            "As stated",
            _I + "test_tracing.py::test_each_attempt_has_its_span_and_a_failed_one_says_why",
        ),
        _row(
            "Verification",
            "Stalled jobs are recovered when a worker is killed",
            "As stated",
            "tests/chaos/test_worker_kill.py::test_jobs_of_a_killed_worker_are_finished_by_another",
        ),
        _row(
            "Verification",
            "A cluster fails over",
            "As stated",
            _I + "test_failover.py::test_a_clusters_replica_takes_over_and_without_one_the_other_primaries_serve_on",
        ),
        _row(
            "Verification",
            "Shutdown is graceful",
            "SIGTERM lets running jobs finish",
            "tests/chaos/test_worker_kill.py::test_sigterm_lets_the_running_job_finish_and_exits_cleanly",
        ),
        _row(
            "Verification",
            "Workers reconnect after errors",
            "As stated",
            "tests/chaos/test_outages.py::test_work_goes_on_soon_after_an_outage_and_no_job_runs_twice",
        ),
    ),
)
