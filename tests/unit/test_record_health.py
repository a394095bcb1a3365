"""Which records no worker can run, and that the quick check of a record finds what the thorough one finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.protocol.record import JobRecord, entry_job_id

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


def test_an_entry_names_its_job_wherever_the_field_is() -> None:
    assert entry_job_id([b"jobId", b"7", b"name", b"\xff"]) == "7"
    assert entry_job_id([b"name", b"resize", b"jobId", b"caf\xc3\xa9"]) == "café"
    assert [entry_job_id(fields) for fields in (None, [], [b"name", b"resize"])] == ["", "", ""]
