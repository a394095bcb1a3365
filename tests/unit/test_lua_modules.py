"""The parts of the server's library that are pure: they run here without a server."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lupa.lua51 import LuaRuntime

LIB = Path(__file__).parents[2] / "lua" / "lib"
SHIFT = 2**42
NOW = 1_700_000_000_000


@cache
def runtime() -> Any:
    """A Lua like the server's, whose ``require`` finds our modules; the server itself is absent."""
    lua = LuaRuntime()
    lua.globals().read = lambda name: (LIB / f"{name}.lua").read_text()
    lua.execute(
        "local loaded = {}\n"
        "function require(name)\n"
        "  if not loaded[name] then loaded[name] = assert(loadstring(read(name), name))() end\n"
        "  return loaded[name]\n"
        "end"
    )
    return lua


def module(name: str) -> Any:
    return runtime().eval(f'require("{name}")')


def table(**fields: object) -> Any:
    return runtime().table_from({name: value for name, value in fields.items() if value is not None})


class TestTokens:
    """The bucket: never above its size, never a token from nothing, never one lost to rounding."""

    buckets = st.fixed_dictionaries(
        {
            "capacity": st.integers(1, 10**7),
            "refill_rate": st.integers(1, 10**7),
            "fraction": st.floats(0, 1),
            "remainder": st.integers(0, 999),
        }
    )

    @staticmethod
    def refill(bucket: dict[str, Any], elapsed: int) -> tuple[int, int, int]:
        level = math.floor(bucket["capacity"] * bucket["fraction"])
        lua = table(
            capacity=bucket["capacity"],
            refill_rate=bucket["refill_rate"],
            tokens=level,
            last_refill=NOW,
            remainder=bucket["remainder"],
        )
        level, last, remainder = module("tokens").refill(lua, NOW + elapsed)
        return int(level), int(last), int(remainder)

    @given(buckets, st.integers(0, 10**9))
    def test_a_refill_gives_what_flowed_in_and_no_more_than_fits(self, bucket: dict[str, Any], elapsed: int) -> None:
        before = math.floor(bucket["capacity"] * bucket["fraction"])
        level, last, remainder = self.refill(bucket, elapsed)
        flowed = elapsed * bucket["refill_rate"] + bucket["remainder"]
        assert before <= level <= bucket["capacity"]
        assert level == min(bucket["capacity"], before + flowed // 1000)
        assert 0 <= remainder <= 999
        assert last == (NOW + elapsed if elapsed or before == bucket["capacity"] else NOW)

    @given(buckets, st.lists(st.integers(1, 5_000), min_size=2, max_size=6))
    def test_many_small_refills_give_as_much_as_one_large(self, bucket: dict[str, Any], steps: list[int]) -> None:
        bucket = {**bucket, "capacity": 10**12, "fraction": 0.0}
        whole = self.refill(bucket, sum(steps))
        level, now, remainder = 0, NOW, bucket["remainder"]
        for step in steps:
            lua = table(
                capacity=10**12,
                refill_rate=bucket["refill_rate"],
                tokens=level,
                last_refill=now,
                remainder=remainder,
            )
            now += step
            level, _, remainder = module("tokens").refill(lua, now)
        assert (int(level), now, int(remainder)) == whole

    @pytest.mark.parametrize("rate", [0, -5])
    def test_a_dry_source_gives_nothing(self, rate: int) -> None:
        lua = table(capacity=5000, refill_rate=rate, tokens=7, last_refill=NOW)
        assert tuple(module("tokens").refill(lua, NOW + 9000)) == (7, NOW, 0)

    def test_a_clock_that_runs_backwards_takes_nothing(self) -> None:
        lua = table(capacity=5000, refill_rate=1000, tokens=7, last_refill=NOW, remainder=3)
        assert tuple(module("tokens").refill(lua, NOW - 9000)) == (7, NOW, 3)

    def test_a_full_bucket_does_not_save_up_its_idle_time(self) -> None:
        lua = table(capacity=5000, refill_rate=1000, last_refill=NOW)
        assert tuple(module("tokens").refill(lua, NOW + 9000)) == (5000, NOW + 9000, 0)

    @given(st.integers(1, 10**6), st.integers(-(10**6), 10**6), st.integers(1, 10**6))
    def test_after_the_wait_the_cost_is_there_and_no_sooner(self, cost: int, level: int, rate: int) -> None:
        level = min(level, cost - 1)
        wait = int(module("tokens").wait_ms(cost, level, rate))
        assert level * 1000 + wait * rate >= cost * 1000
        assert level * 1000 + (wait - 1) * rate < cost * 1000


class TestScores:
    """A score of the scheduled set holds a priority and a time, and gives both back."""

    @given(st.integers(0, 2047), st.integers(0, 10**13 // 3))
    def test_band_and_time_come_back(self, priority: int, due: int) -> None:
        bound = module("scheduled").bound(priority, due)
        assert bound == str(priority * SHIFT + due)
        assert tuple(module("scheduled").split(int(bound))) == (priority, due)


class TestRecord:
    @pytest.mark.parametrize(
        ("key", "found"),
        [
            ("glide:{q}:job:7", ("glide:{q}:", "7")),
            ("a:b:{job:x}:job:flow.node-1", ("a:b:{job:x}:", "flow.node-1")),
        ],
    )
    def test_a_jobs_key_names_queue_and_id(self, key: str, found: tuple[str, str]) -> None:
        assert tuple(module("record").locate(key)) == found

    @pytest.mark.parametrize("text", [None, "", "soon"])
    def test_what_is_no_number_counts_as_none(self, text: str | None) -> None:
        job = table(orderingSeq=text, priority=text)
        assert (module("record").sequence(job), module("record").priority(job)) == (0, 0)


class TestNumbers:
    @given(st.lists(st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False), min_size=1))
    def test_a_number_is_written_without_fraction_or_exponent(self, numbers: list[float]) -> None:
        texts = [module("numbers").text(float(number)) for number in numbers]
        assert [float(text) for text in texts] == [float(f"{number:.0f}") for number in numbers]
        assert all(text.lstrip("-").isdigit() for text in texts)


class TestGroups:
    @pytest.mark.parametrize(
        ("fields", "room"),
        [
            ({"rate_max": 0, "rate_duration": 1000}, None),
            ({"rate_max": 3, "rate_duration": 0}, None),
            ({"rate_max": 3, "rate_duration": 1000, "window_start": NOW - 1000}, None),
            ({"rate_max": 3, "rate_duration": 1000, "window_start": NOW - 999, "rate_count": 1}, 2),
            ({"rate_max": 3, "rate_duration": 1000, "window_start": NOW, "rate_count": 5}, 0),
        ],
    )
    def test_a_window_has_room_only_while_it_runs(self, fields: dict[str, int], room: int | None) -> None:
        group = table(**({"window_start": 0, "rate_count": 0} | fields))
        assert module("groups").window_room(group, NOW) == room

    @pytest.mark.parametrize(
        ("job_id", "fields", "score"),
        [
            ("12", {"orderingSeq": "5"}, 5),
            ("12", {"timestamp": "34"}, 12),
            ("a", {"timestamp": "34"}, 34),
            ("a", {}, 0),
        ],
    )
    def test_a_parked_job_stands_by_its_sequence_else_its_id_else_its_age(
        self, job_id: str, fields: dict[str, str], score: int
    ) -> None:
        assert module("groups").park_score(job_id, table(**fields)) == score

    @pytest.mark.parametrize(
        ("cost", "capacity", "too_expensive"),
        [(0, 0, False), (9, 0, False), (0, 1000, False), (0, 999, True), (2000, 2000, False), (2001, 2000, True)],
    )
    def test_a_job_must_fit_into_the_bucket(self, cost: int, capacity: int, too_expensive: bool) -> None:
        assert module("membership").too_expensive(table(cost=cost, tb_capacity=capacity)) is too_expensive


class TestJobs:
    @pytest.mark.parametrize(
        ("fields", "holds"),
        [
            ({}, False),
            ({"lifo": "1"}, True),
            ({"priority": "3"}, True),
            ({"priority": "0"}, False),
            ({"priority": "3", "takenFrom": "stream"}, False),
            ({"takenFrom": "list"}, True),
        ],
    )
    def test_where_a_job_was_taken_from_is_noted_or_implied(self, fields: dict[str, str], holds: bool) -> None:
        assert module("lists").holds(table(**fields)) is holds

    @pytest.mark.parametrize(("expire_at", "expired"), [(None, False), ("0", False), (NOW, False), (NOW - 1, True)])
    def test_a_job_is_valid_to_the_end_of_its_last_millisecond(self, expire_at: Any, expired: bool) -> None:
        assert module("failure").has_expired(table(expireAt=expire_at), NOW) is expired

    @pytest.mark.parametrize(
        ("lease", "since", "passed"),
        [(0, NOW - 999, False), (0, NOW - 1000, True), (5000, NOW - 4999, False), (5000, NOW - 5000, True)],
    )
    def test_silence_is_forgiven_for_the_workers_lease_else_the_idle_time(
        self, lease: int, since: int, passed: bool
    ) -> None:
        sweep = table(now_ms=NOW, lock_duration_ms=lease, min_idle_ms=1000)
        assert module("stalled").has_passed(since, sweep) is passed

    @given(st.from_regex(r"[a-z0-9.\-]{1,20}", fullmatch=True))
    def test_a_parents_queue_follows_from_its_key(self, parent_id: str) -> None:
        assert module("flows").queue_of(f"glide:{{q}}:job:{parent_id}", parent_id) == "glide:{q}:"
