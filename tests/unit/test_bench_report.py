"""The benchmark's table: each row compares us with peers and with a limit, and a failed run is not passed over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.report import tables
from tests.bench.rows import LIMIT, ROWS

_FUNCTION = {"server_us": 9.5, "bare_commands_us": 2.4, "to_bare_commands": 3.95, "commands": 5.0}


def _report(row: str, **result: Any) -> dict[str, Any]:
    return {"peers": ["taskiq"], "rows": {row: result}, "functions": {"glidemq_addJob": _FUNCTION}}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_us_and_a_limit_and_jobs_for_all(name: str) -> None:
    row = ROWS[name]
    assert {"ours", LIMIT} <= row.measures.keys()
    assert all(row.jobs_of(contender) > 0 for contender in row.measures)


def test_a_rate_is_printed_beside_the_peer_and_the_limit_with_ratios() -> None:
    ours = {"jobs_per_s": 20_000.0, "client_us": 36.0, "server_us": 28.0, "commands": 5.7, "reads": 0.1}
    median = {"ours": ours, "taskiq": {"jobs_per_s": 4_000.0}, "limit": {"jobs_per_s": 50_000.0}}
    report = _report("drain_32", median=median, ours_to={"taskiq": {"jobs_per_s": 5.0}, "limit": {"jobs_per_s": 0.4}})
    assert "| Drain, 32 slots | 20,000/s | 4,000/s (5.0) | 50,000/s (0.4) | 36.0 | 28.0 | 5.7 |" in tables(report)


def test_a_wait_has_a_line_for_each_quantile() -> None:
    median = {"ours": {"p50_ms": 0.5, "p90_ms": 0.7, "p99_ms": 1.25}, "limit": {"p50_ms": 0.2, "p99_ms": 0.5}}
    lines = tables(_report("latency", median=median, ours_to={"limit": {"p50_ms": 2.5, "p99_ms": 2.5}})).splitlines()
    assert lines[2] == "| Enqueue to start, idle worker, 200/s, p50 | 0.50 ms |  | 0.20 ms (2.5) |  |  |  |"
    assert lines[3] == "| the same, p99 | 1.25 ms |  | 0.50 ms (2.5) |  |  |  |"


def test_a_run_of_ours_that_failed_is_a_line() -> None:
    report = _report("map", median={}, ours_to={}, failed={"ours": "10000 jobs did not end within 60 s"})
    assert "| A map over 10,000 elements, elements/s | failed |" in tables(report)
