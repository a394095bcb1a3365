"""Options are checked where they are written, against the wire's limits, with one sentence each."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.errors import InvalidNameError, InvalidOptionError
from orchestration_queue.options import (
    Backoff,
    Deduplication,
    Fallback,
    JobOptions,
    Ordering,
    QueueSettings,
    RateLimit,
    Retention,
    TokenBucket,
    WorkerOptions,
    backoff_from_wire,
    fallback_from_wire,
    placement_from_wire,
    retention_from_wire,
)
from orchestration_queue.options.durations import check_duration
from orchestration_queue.options.wire import lease_from_wire
from orchestration_queue.options.worker import check_concurrency
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.placement import add_job

BUCKET = TokenBucket(capacity=5, refill_rate=1)

BAD: list[tuple[type[Any], dict[str, Any], str]] = [
    (JobOptions, {"priority": 2049}, "less than or equal to 2048"),
    (JobOptions, {"priority": -1}, "greater than or equal to 0"),
    (JobOptions, {"delay": -1}, "greater than or equal to 0"),
    (JobOptions, {"delay": "soon"}, "delay"),
    (JobOptions, {"ttl": timedelta(seconds=-1)}, "ttl"),
    (JobOptions, {"attempts": -1}, "attempts"),
    (JobOptions, {"attempts": 1.5}, "attempts"),
    (JobOptions, {"timeout": 0}, "timeout"),
    (JobOptions, {"lease": 0.5}, "lease"),
    (JobOptions, {"lease": timedelta(days=2)}, "lease"),
    (JobOptions, {"cost": -1}, "cost"),
    (JobOptions, {"cost": float("nan")}, "cost"),
    (JobOptions, {"cost": float("inf")}, "cost"),
    (JobOptions, {"dealy": 1}, "has no option 'dealy'; use 'delay'"),
    (JobOptions, {"ordering": {"key": "k", "concurency": 2}}, "Ordering has no option 'concurency'; use 'concurrency'"),
    (JobOptions, {"fallbacks": [{"model": "m", "providr": "p"}]}, "Fallback has no option 'providr'; use 'provider'"),
    (JobOptions, {"job_id": ""}, "is empty"),
    (JobOptions, {"job_id": "a:b"}, "contains ':'"),
    (JobOptions, {"job_id": "a{b"}, "contains '{'"),
    (JobOptions, {"job_id": "a}b"}, "contains '}'"),
    (JobOptions, {"job_id": "a\nb"}, r"contains '\\n'"),
    (JobOptions, {"job_id": "a\x7fb"}, "contains"),
    (JobOptions, {"job_id": "x" * 257}, "longer than 256"),
    (JobOptions, {"lifo": True, "ordering": Ordering(key="k")}, "lifo and ordering.key cannot be used together"),
    (JobOptions, {"cost": 6, "ordering": Ordering(key="k", token_bucket=BUCKET)}, "cost exceeds token bucket capacity"),
    (Ordering, {"key": "__"}, "means 'none' on the wire"),
    (Ordering, {"key": ""}, "key"),
    (Ordering, {"key": "x" * 257}, "key"),
    (Ordering, {"key": "k", "concurrency": 0}, "concurrency"),
    (RateLimit, {"max": 0, "duration": 1}, "max"),
    (RateLimit, {"max": 1, "duration": 0}, "duration"),
    (TokenBucket, {"capacity": 0, "refill_rate": 1}, "capacity"),
    (TokenBucket, {"capacity": 1, "refill_rate": 0}, "refill_rate"),
    (TokenBucket, {"capacity": float("inf"), "refill_rate": 1}, "capacity"),
    (Deduplication, {"id": ""}, "id"),
    (Deduplication, {"id": "d", "mode": "sometimes"}, "mode"),
    (Backoff, {"jitter": 2}, "jitter"),
    (Backoff, {"delay": -1}, "delay"),
    (Retention, {"count": -1}, "count"),
    (Retention, {"age": 0}, "age"),
    (Backoff, {"type": ""}, "type"),
    (Backoff, {"type": None}, "type"),
    (Backoff, {"jitter": -0.1}, "jitter"),
    (Backoff, {"jitter": float("nan")}, "jitter"),
    (JobOptions, {"delay": float("inf")}, "delay"),
    (JobOptions, {"delay": timedelta(days=3651)}, "delay"),
    (JobOptions, {"ttl": float("nan")}, "ttl"),
    (JobOptions, {"ttl": 0.0005}, "counts milliseconds"),
    (JobOptions, {"ttl": timedelta(days=3651)}, "ttl"),
    (JobOptions, {"timeout": -1}, "timeout"),
    (JobOptions, {"timeout": 0.0001}, "timeout"),
    (JobOptions, {"priority": "high"}, "priority"),
    (JobOptions, {"priority": 1.5}, "priority"),
    (JobOptions, {"attempts": 2**31}, "attempts"),
    (JobOptions, {"cost": 0.0001}, "counts tokens in thousandths"),
    (JobOptions, {"cost": 1e13}, "cost"),
    (JobOptions, {"lease": timedelta(days=1, milliseconds=1)}, "lease"),
    (JobOptions, {"lifo": "perhaps"}, "lifo"),
    (JobOptions, {"ordering": "key"}, "ordering"),
    (JobOptions, {"job_id": 5}, "job_id"),
    (JobOptions, {"fallbacks": [{"provider": "x"}]}, "Fallback needs `model`, which is missing"),
    (JobOptions, {"fallbacks": "gpt"}, "fallbacks"),
    (JobOptions, {"ordering": Ordering(key="k", token_bucket=TokenBucket(capacity=0.5, refill_rate=1))}, "1 > 0.5"),
    (Fallback, {"model": ""}, "model"),
    (Fallback, {"model": "m", "metadata": {"when": {1}}}, "metadata"),
    (Fallback, {"model": "m", "metadata": {"much": float("inf")}}, "metadata"),
    (Ordering, {"key": None}, "key"),
    (Ordering, {"key": "k", "concurrency": 2**31}, "concurrency"),
    (Ordering, {"key": "k", "concurrency": 1.5}, "concurrency"),
    (RateLimit, {"max": 1, "duration": 0.0001}, "duration"),
    (RateLimit, {"max": 2**31, "duration": 1}, "max"),
    (TokenBucket, {"capacity": 1, "refill_rate": 0.0001}, "refill_rate"),
    (TokenBucket, {"capacity": 1e13, "refill_rate": 1}, "capacity"),
    (TokenBucket, {"capacity": 1, "refill_rate": float("nan")}, "refill_rate"),
    (Deduplication, {"id": "d", "ttl": -1}, "ttl"),
    (Retention, {"count": 2**31}, "count"),
    (WorkerOptions, {"concurrency": 0}, "concurrency"),
    (WorkerOptions, {"lease": 0.1}, "lease"),
]


@pytest.mark.parametrize(("options", "values", "says"), BAD, ids=[f"{o.__name__}-{v}"[:50] for o, v, _ in BAD])
def test_values_beyond_the_limits_are_refused_in_one_sentence(
    options: type[Any], values: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidOptionError, match=says) as caught:
        options(**values)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert "validation error" not in message


@pytest.mark.parametrize(
    "values",
    [
        {"priority": 2048},
        {"priority": 0},
        {"job_id": "x" * 256},
        {"job_id": "a.b-c_d e/é"},
        {"lease": 1},
        {"lease": timedelta(days=1)},
        {"delay": 0},
        {"cost": 5, "ordering": Ordering(key="k", token_bucket=BUCKET)},
        {"ordering": Ordering(key="with:{anything}")},
        {"ttl": 0},
        {"ttl": 0.001},
        {"timeout": 0.001},
        {"cost": 0.001},
        {"attempts": 2**31 - 1},
        {"backoff": Backoff(type="mine")},
        {"fallbacks": [Fallback(model="m", metadata={"a": [None, 1, {"b": "c"}]})]},
    ],
)
def test_values_at_the_limits_are_taken(values: dict[str, Any]) -> None:
    assert JobOptions(**values)


@pytest.mark.parametrize("concurrency", [1, 10_000])
def test_a_worker_runs_up_to_ten_thousand_jobs_at_a_time(concurrency: int) -> None:
    assert check_concurrency(concurrency) == concurrency


@pytest.mark.parametrize("concurrency", [0, 10_001, True, 1.5, "1", None])
def test_another_concurrency_is_refused(concurrency: Any) -> None:
    with pytest.raises(InvalidOptionError, match="whole number from 1 to 10,000"):
        check_concurrency(concurrency)


@pytest.mark.parametrize("duration", [-1, timedelta(seconds=-1), float("nan"), float("inf"), True, "5", None])
def test_a_duration_is_a_timedelta_or_seconds(duration: Any) -> None:
    assert check_duration(0, "wait") == timedelta(0)
    assert check_duration(1.5, "wait") == check_duration(timedelta(seconds=1.5), "wait") == timedelta(seconds=1.5)
    with pytest.raises(InvalidOptionError, match="`wait` must be a timedelta or seconds >= 0"):
        check_duration(duration, "wait")


@pytest.mark.parametrize(
    ("stored", "settings"),
    [
        ({}, QueueSettings()),
        ({"attempts": 3, "timeout": 5000, "lockDuration": 2000}, QueueSettings(attempts=3, timeout=5, lease=2)),
        ({"attempts": 0, "timeout": -1, "lockDuration": 5}, QueueSettings()),
        ({"attempts": "3", "timeout": None, "backoff": 5}, QueueSettings()),
    ],
)
def test_stored_settings_of_a_queue_are_read_as_far_as_they_are_valid(
    stored: dict[str, Any], settings: QueueSettings
) -> None:
    assert QueueSettings.from_wire(stored) == settings


def test_options_are_frozen() -> None:
    options = JobOptions(priority=1)
    with pytest.raises(ValueError, match="frozen"):
        options.priority = 2  # type: ignore[misc]  # what is tested


@pytest.mark.parametrize("name", ["", "a:b", "a{b}", "x" * 257, "a\x00b"])
def test_queue_names_and_prefixes_the_wire_cannot_carry_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match=r"Queue name .* use letters, digits"):
        QueueKeys(name)
    with pytest.raises(InvalidNameError, match=r"Key prefix .* use letters, digits"):
        QueueKeys("q", name)


def test_defaults_are_not_written_to_the_wire() -> None:
    assert JobOptions().wire() == {}


def test_options_are_written_as_node_writes_them() -> None:
    options = JobOptions(
        job_id="j-1",
        delay=1.5,
        priority=3,
        attempts=4,
        backoff=Backoff(type="fixed", delay=0.25, jitter=0.5),
        timeout=timedelta(minutes=1),
        ttl=60,
        lease=2,
        cost=1.5,
        ordering=Ordering(
            key="k",
            concurrency=2,
            rate_limit=RateLimit(max=5, duration=1),
            token_bucket=TokenBucket(capacity=2, refill_rate=0.5),
        ),
        deduplication=Deduplication(id="d", mode="throttle", ttl=5),
        remove_on_complete=Retention(count=0),
        remove_on_fail=Retention(count=10, age=timedelta(hours=1)),
        fallbacks=(Fallback(model="small"), Fallback(model="other", provider="p", metadata={"region": "eu"})),
    )
    assert json.loads(json.dumps(options.wire())) == {
        "jobId": "j-1",
        "delay": 1500,
        "priority": 3,
        "attempts": 4,
        "backoff": {"type": "fixed", "delay": 250, "jitter": 0.5},
        "timeout": 60_000,
        "ttl": 60_000,
        "lockDuration": 2000,
        "cost": 1.5,
        "ordering": {
            "key": "k",
            "concurrency": 2,
            "rateLimit": {"max": 5, "duration": 1000},
            "tokenBucket": {"capacity": 2, "refillRate": 0.5},
        },
        "deduplication": {"id": "d", "mode": "throttle", "ttl": 5000},
        "removeOnComplete": True,
        "removeOnFail": {"age": 3600, "count": 10},
        "fallbacks": [{"model": "small"}, {"model": "other", "provider": "p", "metadata": {"region": "eu"}}],
    }


@pytest.mark.parametrize(
    "retention", [Retention(count=0), Retention(count=5), Retention(age=timedelta(hours=1)), Retention(count=2, age=60)]
)
def test_retention_reads_back_as_written(retention: Retention) -> None:
    assert retention_from_wire(retention.wire_option) == retention


@pytest.mark.parametrize("stored", [None, False, 0, -1, "soon", []])
def test_other_stored_retention_means_none(stored: object) -> None:
    assert retention_from_wire(stored) is None


FALLBACKS = [{"model": "a"}, {"model": "b", "provider": "p", "metadata": {"n": 1}, "strange": True}, {"model": 5}, 7]


@pytest.mark.parametrize(
    ("stored", "index", "fallback"),
    [
        (FALLBACKS, 0, None),
        (FALLBACKS, 1, Fallback(model="a")),
        (FALLBACKS, 2, Fallback(model="b", provider="p", metadata={"n": 1})),
        (FALLBACKS, 3, None),
        (FALLBACKS, 4, None),
        (FALLBACKS, 5, None),
        (None, 1, None),
        ("a", 1, None),
        ({"1": "a"}, 1, None),
    ],
)
def test_a_stored_fallback_is_read_by_its_place(stored: object, index: int, fallback: Fallback | None) -> None:
    assert fallback_from_wire(stored, index) == fallback


def test_fallbacks_read_back_as_written_and_the_odd_are_left_out() -> None:
    options = JobOptions(fallbacks=(Fallback(model="a"), Fallback(model="b", metadata={"n": 1})))
    assert placement_from_wire(options.wire()).fallbacks == options.fallbacks
    assert [fallback.model for fallback in placement_from_wire({"fallbacks": FALLBACKS}).fallbacks] == ["a", "b"]


@pytest.mark.parametrize("stored", [{"cost": 0.0001}, {"ttl": 0.4}, {"fallbacks": {}}, {"fallbacks": []}])
def test_what_the_wire_counts_as_nothing_is_read_as_nothing(stored: dict[str, Any]) -> None:
    assert placement_from_wire(stored) == JobOptions()


def test_options_that_differ_on_the_wire_are_told_apart() -> None:
    one, true = (JobOptions(fallbacks=(Fallback(model="m", metadata={"n": n}),)) for n in (1, True))
    assert len({one: 1, true: 2}) == 2


def test_exponential_backoff_doubles_and_jitter_only_adds() -> None:
    backoff = Backoff(delay=1, jitter=0.5)
    assert [backoff.wait_ms(failures, chance=0) for failures in (1, 2, 3)] == [1000, 2000, 4000]
    assert backoff.wait_ms(1, chance=1) == 1500


def test_backoff_reads_back_as_written() -> None:
    backoff = Backoff(type="fixed", delay=0.25, jitter=0.5)
    assert backoff_from_wire(JobOptions(backoff=backoff).wire()) == backoff
    assert backoff_from_wire({}) is None


def test_a_backoff_never_outgrows_the_wire_s_scores() -> None:
    longest = 3650 * 86_400_000
    assert Backoff(delay=timedelta(seconds=1)).wait_ms(5000, 0.0) == longest
    assert Backoff(delay=timedelta(days=3650), jitter=1.0).wait_ms(1, 0.9) == longest
    assert Backoff(type="fixed", delay=timedelta(seconds=2)).wait_ms(9, 0.0) == 2000
    assert [Backoff(delay=timedelta(seconds=1)).wait_ms(n, 0.0) for n in (1, 2, 3)] == [1000, 2000, 4000]


def test_a_delay_beyond_the_wire_s_scores_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="delay"):
        JobOptions(delay=timedelta(days=3651))


@pytest.mark.parametrize(
    ("stored", "lease_ms"),
    [(999, None), (1000, 1000), (86_400_000, 86_400_000), (86_400_001, None), ("5000", None), (None, None)],
)
def test_a_stored_lease_is_between_a_second_and_a_day(stored: object, lease_ms: int | None) -> None:
    assert lease_from_wire(stored) == lease_ms


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        ({}, JobOptions()),
        ({"cost": 0.001}, JobOptions(cost=0.001)),
        ({"ordering": {"key": "k" * 256}}, JobOptions(ordering=Ordering(key="k" * 256))),
        (
            {"ordering": {"key": "k", "tokenBucket": {"capacity": 1, "refillRate": 1}}},
            JobOptions(ordering=Ordering(key="k", token_bucket=TokenBucket(capacity=1, refill_rate=1))),
        ),
        (
            {"priority": 7, "attempts": 3, "ttl": 60_000, "lifo": True},
            JobOptions(priority=7, attempts=3, ttl=60, lifo=True),
        ),
        ({"priority": 10**9, "attempts": 1e300}, JobOptions(priority=2048, attempts=2**31 - 1)),
        ({"priority": "7", "attempts": -1, "ttl": None, "lifo": 1, "ordering": "k"}, JobOptions()),
        ({"delay": 5, "jobId": "a:b", "deduplication": {"id": ""}, "parent": 1}, JobOptions()),
        ({"ordering": {"key": "k" * 257}, "lifo": True}, JobOptions(lifo=True)),
        ({"ordering": {"key": "k"}, "lifo": True}, JobOptions(ordering=Ordering(key="k"))),
        (
            {"ordering": {"key": "k", "concurrency": 0, "rateLimit": {"max": 1}, "tokenBucket": {"capacity": 9}}},
            JobOptions(ordering=Ordering(key="k")),
        ),
        (
            {"ordering": {"key": "k", "tokenBucket": {"capacity": 2, "refillRate": 1}}, "cost": 9},
            JobOptions(cost=2, ordering=Ordering(key="k", token_bucket=TokenBucket(capacity=2, refill_rate=1))),
        ),
    ],
)
def test_stored_options_are_read_as_far_as_they_say_how_jobs_are_placed(
    stored: dict[str, object], read: JobOptions
) -> None:
    assert placement_from_wire(stored) == read


def test_a_retention_of_more_jobs_than_there_can_be_is_no_error() -> None:
    assert retention_from_wire(10**12) == Retention(count=2**31 - 1)
    assert retention_from_wire({"count": 10**12}) == Retention(count=2**31 - 1)


NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


@pytest.mark.parametrize(("now_ms", "delay"), [(NOON_MS - 90_000, timedelta(seconds=90)), (NOON_MS + 1, timedelta(0))])
def test_delay_until_is_the_time_that_is_left_when_a_job_is_added(now_ms: int, delay: timedelta) -> None:
    options = JobOptions(delay_until=NOON, priority=3)
    assert options.at(now_ms) == JobOptions(delay=delay, priority=3)
    added = add_job(QueueKeys("q"), "n", "{}", options, now_ms)
    assert added == add_job(QueueKeys("q"), "n", "{}", JobOptions(delay=delay, priority=3), now_ms)


def test_an_instant_too_far_away_is_refused_when_the_job_is_added() -> None:
    with pytest.raises(InvalidOptionError, match="at most 3650 days away"):
        JobOptions(delay_until=NOON).at(0)


def test_an_instant_may_be_as_far_away_as_the_longest_delay() -> None:
    now_ms = NOON_MS - 3650 * 86_400_000
    assert JobOptions(delay_until=NOON).at(now_ms) == JobOptions(delay=timedelta(days=3650))


def test_delay_until_cannot_be_stored() -> None:
    with pytest.raises(InvalidOptionError, match="can't be stored for jobs that are added later"):
        JobOptions(delay_until=NOON).wire()


@pytest.mark.parametrize("wrong", [60, "2030-01-31", datetime(2030, 1, 31)])  # noqa: DTZ001  what is refused
def test_an_instant_is_an_aware_datetime(wrong: Any) -> None:
    with pytest.raises(InvalidOptionError, match="must be a datetime with a time zone"):
        JobOptions(delay_until=wrong)


def test_a_delay_and_an_instant_exclude_each_other() -> None:
    with pytest.raises(InvalidOptionError, match="both given; pass only one"):
        JobOptions(delay=5, delay_until=NOON)
