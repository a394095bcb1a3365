"""Where each of the 84 behaviours of the wire that are easy to miss is tested, by its number in the protocol's list.

A number has exactly one place: in the names of tests in the two files of ``NUMBERED``, or in ``ELSEWHERE``, with
tests that show that behaviour among others.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

NUMBERED = ("tests/lua/test_easy_to_miss.py", "tests/integration/test_easy_to_miss.py")

ELSEWHERE = {
    32: ("tests/unit/test_codec.py::test_the_limit_counts_bytes_before_compression",),
    60: ("tests/integration/test_worker.py::test_a_job_out_of_attempts_fails_with_the_reason",),
    61: ("tests/integration/test_worker_control.py::test_a_worker_tells_what_happens_in_it",),
    64: (
        "tests/integration/test_schedulers_client.py::test_the_same_times_go_on_counting_and_other_times_start_anew",
        "tests/integration/test_schedulers_client.py::test_schedulers_are_listed_looked_up_and_removed",
        "tests/unit/test_schedules.py::test_malformed_entries_are_none",
    ),
    65: (
        "tests/integration/test_schedules_worker.py::test_entries_that_can_never_run_again_go_without_a_job",
        "tests/unit/test_schedule_ticks.py::test_a_broken_entry_does_not_block_others",
    ),
    67: (
        "tests/lua/test_oq1_fire.py::test_who_lost_the_lock_writes_nothing",
        "tests/integration/test_schedules_worker.py::test_nobody_fires_while_somebody_else_holds_the_lock",
    ),
    68: (
        "tests/integration/test_schedules_worker.py"
        "::test_repeat_after_complete_runs_one_after_the_other_until_its_limit",
    ),
    69: (
        "tests/unit/test_schedules.py::test_following_run",
        "tests/integration/test_schedules_worker.py::test_every_keeps_its_phase_and_makes_the_template",
    ),
    70: (
        "tests/integration/test_broadcast.py::test_a_new_subscription_starts_where_it_wants",
        "tests/integration/test_broadcast_client.py::test_the_newest_messages_are_kept_exactly",
    ),
    78: ("tests/integration/test_obliterate.py::test_every_key_of_the_queue_goes_and_no_other",),
    74: (
        "tests/integration/test_usage.py::test_a_budget_is_stored_as_every_client_reads_it_and_named_by_each_job",
        "tests/integration/test_limits.py::test_the_children_of_a_flow_without_budget_left_fail_unrun",
    ),
    75: (
        "tests/integration/test_usage.py::test_a_second_report_replaces_the_first_in_summaries",
        "tests/integration/test_usage.py::test_a_summary_that_makes_no_sense_is_refused",
    ),
    76: ("tests/integration/test_limits.py::test_tokens_are_counted_in_the_window_in_which_a_job_ends",),
    84: (
        "tests/integration/test_dead_letters.py"
        "::test_a_job_that_failed_for_good_is_found_and_runs_again_once_its_cause_is_gone",
        "tests/integration/test_dead_letters.py::test_letters_of_a_shared_queue_are_told_apart_by_their_owner",
    ),
}


@cache
def names_in(file: str) -> frozenset[str]:
    """The names of a file's tests, read without importing it."""
    tree = ast.parse((ROOT / file).read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


def numbers_of(test: str) -> list[int]:
    """The numbers a test's name begins with: 44 and 45 for `test_44_45_a_limit`."""
    numbers = re.match(r"test_((?:\d\d_)*)", test)
    return [int(number) for number in re.findall(r"\d\d", numbers[1])] if numbers else []


def test_each_number_stands_in_one_place() -> None:
    in_names = {number for file in NUMBERED for test in names_in(file) for number in numbers_of(test)}
    places = sorted([*in_names, *ELSEWHERE])
    assert places == list(range(1, 85))


def test_each_test_of_the_numbered_files_has_a_number() -> None:
    assert [test for file in NUMBERED for test in names_in(file) if not numbers_of(test)] == []


def test_the_tests_elsewhere_exist() -> None:
    nodes = [node.partition("::") for nodes in ELSEWHERE.values() for node in nodes]
    assert [test for file, _, test in nodes if test not in names_in(file)] == []
