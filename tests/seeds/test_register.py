"""Each statement of the register has a test that exists, and the register notices one that has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.seeds.register import Seed, Statement, defects, seeds

SEEDS = tuple(seeds())


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.title)
def test_each_statement_has_a_test_that_exists(seed: Seed) -> None:
    found = [f"{row.place}: {row.says}: {why}" for row in seed.statements for why in defects(row)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.title)
def test_no_statement_is_there_twice(seed: Seed) -> None:
    keys = [(row.place, row.says) for row in seed.statements]
    assert len(set(keys)) == len(keys) > 0


GOOD = Statement("Pop", "pops", "pops", "tests/seeds/test_register.py::test_no_statement_is_there_twice")


@pytest.mark.parametrize(
    "changes",
    [
        {"test": ""},
        {"test": "tests/seeds/test_register.py"},
        {"test": "tests/seeds/test_register.py::test_gone"},
        {"test": "tests/seeds/test_gone.py::test_no_statement_is_there_twice"},
        {"test": "tests/seeds/register.py::defects"},
        {"place": ""},
        {"does": " "},
        {"page": "how-to/gone.md"},
    ],
    ids=str,
)
def test_a_row_without_a_test_or_words_is_noticed(changes: dict[str, str]) -> None:
    assert not list(defects(GOOD))
    assert list(defects(replace(GOOD, **changes)))
