"""Pools, shares and tags of a job: what is accepted from callers, and what is read of what other clients stored."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.checks import (
    MAX_POOL_SLOTS,
    MAX_POOLS,
    MAX_SHARE_WEIGHT,
    MAX_TAGS,
    check_job_share,
    check_pool,
    check_pool_slots,
    check_share,
    check_share_weight,
    check_tag,
    check_tags,
    check_weights,
    pools_from_wire,
    tags_from_wire,
)

LONGEST = "x" * 100
TOO_LONG = "x" * 101


def test_a_pool_has_a_short_name() -> None:
    assert check_pool(LONGEST) == LONGEST
    for name in (TOO_LONG, "", "a:b", 5):
        with pytest.raises(UsageError):
            check_pool(name)
        with pytest.raises(InvalidOptionError):
            check_weights({name: 1})


@pytest.mark.parametrize("slots", [0, 1, MAX_POOL_SLOTS])
def test_a_pool_has_up_to_a_thousand_slots(slots: int) -> None:
    assert check_pool_slots(slots) == slots


@pytest.mark.parametrize("slots", [-1, MAX_POOL_SLOTS + 1, True, 1.0, "1", None])
def test_other_slots_are_refused(slots: Any) -> None:
    with pytest.raises(UsageError, match="whole number from 0 to 1,000"):
        check_pool_slots(slots)


def test_a_job_holds_slots_of_up_to_eight_pools() -> None:
    most = {str(place): MAX_POOL_SLOTS if place else 1 for place in range(MAX_POOLS)}
    weights = check_weights(most)
    assert weights == most
    assert hash(weights) == hash(check_weights(dict(reversed(most.items()))))
    for pools in ({**most, "more": 1}, ["a"], None):
        with pytest.raises(InvalidOptionError):
            check_weights(pools)


@pytest.mark.parametrize("weight", [0, -1, MAX_POOL_SLOTS + 1, True, 1.0, "1"])
def test_other_weights_are_refused_and_passed_over_when_stored(weight: Any) -> None:
    with pytest.raises(InvalidOptionError):
        check_weights({"a": weight})
    assert pools_from_wire({"a": weight, "b": 1, "c": MAX_POOL_SLOTS}) == {"b": 1, "c": MAX_POOL_SLOTS}


def test_stored_pools_with_odd_names_are_passed_over() -> None:
    assert pools_from_wire({TOO_LONG: 1, "a:b": 1, LONGEST: 2}) == {LONGEST: 2}
    assert pools_from_wire(["a"]) == pools_from_wire(None) == {}
    stored = {f"p{place}": 1 for place in reversed(range(MAX_POOLS + 2))}
    assert list(pools_from_wire(stored)) == [f"p{place}" for place in range(MAX_POOLS)]


def test_a_share_has_a_short_name() -> None:
    assert check_share(LONGEST) == check_job_share(LONGEST) == LONGEST
    assert check_job_share(None) is None
    for name in (TOO_LONG, "", "a:b", 5):
        with pytest.raises(UsageError, match=r"Share .* pass a word such as 'tenant-a'"):
            check_share(name)
        with pytest.raises(InvalidOptionError, match=r"Share .* pass a word such as 'tenant-a'"):
            check_job_share(name)


@pytest.mark.parametrize("weight", [1, MAX_SHARE_WEIGHT])
def test_a_share_weighs_up_to_a_thousand(weight: int) -> None:
    assert check_share_weight(weight) == weight


@pytest.mark.parametrize("weight", [0, MAX_SHARE_WEIGHT + 1, True, 1.5, "1", None])
def test_other_weights_of_a_share_are_refused(weight: Any) -> None:
    with pytest.raises(UsageError, match="whole number from 1 to 1,000"):
        check_share_weight(weight)


@pytest.mark.parametrize("tag", ["", TOO_LONG, "a\nb", 5, None])
def test_a_tag_is_short_and_printable(tag: Any) -> None:
    assert check_tag(LONGEST) == LONGEST
    with pytest.raises(InvalidOptionError, match="1 to 100 printable characters"):
        check_tag(tag)
    assert tags_from_wire([tag, "a", LONGEST, "a"]) == ("a", LONGEST)


def test_a_job_has_up_to_twenty_tags_each_once() -> None:
    most = [str(place) for place in range(MAX_TAGS)]
    assert check_tags([*most, "0"]) == tuple(most)
    for tags in ([*most, "more"], "a", b"a", 5):
        with pytest.raises(InvalidOptionError):
            check_tags(tags)
    assert tags_from_wire([*most, "more"]) == tuple(most)
    assert tags_from_wire("a") == tags_from_wire(None) == ()
