"""Subjects and patterns: what matches what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import InvalidNameError
from orchestration_queue.protocol.operations.broadcasts import SubjectFilter, check_subject


@pytest.mark.parametrize(
    ("patterns", "matching", "others"),
    [
        ([], ["orders", "orders.created.eu", ""], []),
        (["orders"], ["orders"], ["orders.created", "order", "Orders", ""]),
        (["orders.*"], ["orders.created", "orders.paid"], ["orders", "orders.created.eu", "users.created"]),
        (["*"], ["orders"], ["orders.created", ""]),
        (["*.created"], ["orders.created", "users.created"], ["created", "orders.created.eu", "orders.paid"]),
        (["orders.>"], ["orders.created", "orders.created.eu"], ["orders", "ordersx.created", "users.created"]),
        ([">"], ["orders", "orders.created"], [""]),
        (["*.*.eu"], ["orders.created.eu"], ["orders.eu", "orders.created.us", "a.b.c.eu"]),
        (["*.created.>"], ["orders.created.eu", "orders.created.eu.de"], ["orders.created", "orders.paid.eu"]),
        (["orders.created", "users.>"], ["orders.created", "users.a.b"], ["orders.paid", "users"]),
    ],
)
def test_which_subjects_match(patterns: list[str], matching: list[str], others: list[str]) -> None:
    wanted = SubjectFilter(patterns)
    assert [subject for subject in [*matching, *others] if wanted.matches(subject)] == matching


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("orders.>.eu", "has '>' before its end"),
        (">.>", "has '>' before its end"),
        ("orders.cre*", "a wildcard inside 'cre\\*'"),
        ("orders.>>", "a wildcard inside '>>'"),
        ("orders..eu", "an empty word"),
        (".orders", "an empty word"),
        ("orders.", "an empty word"),
        ("", "must consist of words separated by dots"),
        (7, "must consist of words separated by dots"),
        (None, "must consist of words separated by dots"),
    ],
)
def test_patterns_that_are_refused(pattern: Any, why: str) -> None:
    with pytest.raises(InvalidNameError, match=f"Pattern .*{why}"):
        SubjectFilter(["orders", pattern])


def test_one_pattern_in_place_of_several_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="'orders' is one pattern, not several"):
        SubjectFilter("orders")


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("orders.*", "the wildcard '\\*'"),
        ("orders.>", "the wildcard '>'"),
        ("orders.a*b", "the wildcard 'a\\*b'"),
        ("orders..eu", "an empty word"),
        (".", "an empty word"),
        ("", "must consist of words separated by dots"),
        (b"orders", "must consist of words separated by dots"),
        (None, "must consist of words separated by dots"),
    ],
)
def test_subjects_that_are_refused(subject: Any, why: str) -> None:
    with pytest.raises(InvalidNameError, match=f"Subject .*{why}"):
        check_subject(subject)


words = st.text(st.characters(blacklist_characters=".*>", blacklist_categories=["Cs"]), min_size=1, max_size=4)
subjects = st.lists(words, min_size=1, max_size=5)


@given(subjects, st.data())
def test_every_pattern_made_from_a_subject_matches_it_and_no_longer_or_shorter_one(
    parts: list[str], data: st.DataObject
) -> None:
    subject = check_subject(".".join(parts))
    blanked = [data.draw(st.sampled_from([part, "*"])) for part in parts]
    exact = SubjectFilter([".".join(blanked)])
    assert exact.matches(subject)
    assert not exact.matches(f"{subject}.more")
    cut = data.draw(st.integers(0, len(parts) - 1))
    open_ended = SubjectFilter([".".join([*blanked[:cut], ">"])])
    assert open_ended.matches(subject)
    assert open_ended.matches(f"{subject}.more")
    assert not open_ended.matches(".".join(parts[:cut]))
