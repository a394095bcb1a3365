"""What the jobs of a bulk share is told once, whichever way it is found out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.additions import EncodedData, NewJob, add_many
from orchestration_queue.protocol.placement import add_jobs, new_job

KEYS = QueueKeys("q")
SHARED = (JobOptions(), JobOptions(priority=3), JobOptions(delay=5, attempts=2))
options = st.one_of(st.sampled_from(SHARED), st.builds(JobOptions, priority=st.integers(0, 3)), st.none())
jobs = st.builds(
    NewJob,
    st.sampled_from("ab"),
    st.sampled_from("12").map(EncodedData),
    options,
    options_text=st.sampled_from([None, "", "{}", '{"priority":3}']),
)


@given(st.lists(jobs, max_size=12))
def test_options_found_by_identity_are_those_found_by_comparison(new: list[NewJob]) -> None:
    compared = [new_job(job.name, job.data, job.options, 1, options_text=job.options_text) for job in new]
    assert add_many(KEYS, new, 1).call == add_jobs(KEYS, compared)
