"""Which records no worker can run, and that the quick check of a record finds what the thorough one finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.protocol.record import JobRecord

NUMBERS = st.one_of(st.integers(-5, 10**17).map(str), st.sampled_from(["", "inf", "zz", "²", "٣", "1.5", "9" * 14]))
TEXTS = st.one_of(st.sampled_from(["", "task", "größe", "\udcff"]), st.text(max_size=5))
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("attemptsMade", "timestamp", "finishedOn", "priority", "orderingSeq"), NUMBERS),
        **dict.fromkeys(("name", "groupKey", "parentIds"), TEXTS),
    },
)


@given(FIELDS)
def test_a_quick_look_passes_nothing_that_a_thorough_one_refuses(fields: dict[str, str]) -> None:
    record = JobRecord("1", fields)
    assert record.problem == record._damage()
