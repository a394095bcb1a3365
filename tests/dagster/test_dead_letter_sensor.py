"""Dead letters become alerts, or are replayed as far as a budget goes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import redis

from orchestration_queue.client import DeadLetters
from orchestration_queue.dagster import QueueResource, ReplayBudget, dead_letter_sensor
from orchestration_queue.errors import InvalidNameError, InvalidOptionError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.server.clock import travel
from orchestration_queue.testing import drain
from tests.dagster.ticks import target, tick

pytestmark = pytest.mark.dagster

TAG = "orchestration_queue/"


@pytest.fixture(autouse=True)
def back_home() -> Iterator[None]:
    yield
    travel(timedelta(0))


def made(queue: str, **options: Any) -> dg.SensorDefinition:
    return dead_letter_sensor(queue, **{"job": target, **options})


def fail(resource: QueueResource, queue: str, *names: str) -> None:
    """Let jobs fail for good, each leaving a letter; those that wait already fail with them."""

    async def broken(_job: Any) -> None:
        raise ValueError("broken")

    client = resource.queue(queue)
    for name in names:
        client.add(name, {})
    drain(client, broken, raise_failures=False, timeout=60, options=WorkerOptions(dead_letter_queue=f"{queue}-dead"))


def names_in(result: Any) -> list[str]:
    return [request.tags[TAG + "job_name"] for request in result.run_requests]


def test_each_letter_asks_for_one_run(resource: QueueResource, queue_name: str) -> None:
    assert "has configured a dead-letter queue" in (tick(made(queue_name), resource, None).skip_message or "")
    fail(resource, queue_name, "a")
    fail(resource, queue_name, "b")
    sensor = made(queue_name)
    first = tick(sensor, resource, None)
    assert names_in(first) == ["a", "b"]
    letters = resource.queue(queue_name).dead_letters.list()
    for request, letter in zip(first.run_requests, letters, strict=True):
        assert request.tags[TAG + "dead_letter"] == letter.id
        assert request.tags[TAG + "job_id"] == letter.original_job_id
        assert request.tags[TAG + "source_queue"] == queue_name
        assert "broken" in request.tags[TAG + "failed_reason"]
    assert len({request.run_key for request in first.run_requests}) == 2
    assert not tick(sensor, resource, first.cursor).run_requests
    fail(resource, queue_name, "c")
    assert names_in(tick(sensor, resource, first.cursor)) == ["c"]


def test_one_that_starts_now_leaves_old_letters_alone(resource: QueueResource, queue_name: str) -> None:
    fail(resource, queue_name, "old")
    sensor = made(queue_name, start="now")
    first = tick(sensor, resource, None)
    assert not first.run_requests
    fail(resource, queue_name, "new")
    assert names_in(tick(sensor, resource, first.cursor)) == ["new"]


def test_the_letters_queue_can_be_named(resource: QueueResource, queue_name: str) -> None:
    fail(resource, queue_name, "a")
    assert not tick(made(queue_name, dead_letter_queue=f"{queue_name}-other"), resource, None).run_requests
    assert names_in(tick(made(queue_name, dead_letter_queue=f"{queue_name}-dead"), resource, None)) == ["a"]


def test_what_is_requested_can_be_decided(resource: QueueResource, queue_name: str) -> None:
    fail(resource, queue_name, "a", "b")
    sensor = made(queue_name, react=lambda letter, _: dg.RunRequest(run_key="mine") if letter.name == "b" else None)
    assert [request.run_key for request in tick(sensor, resource, None).run_requests] == ["mine"]


def test_letters_are_replayed_as_far_as_the_budget_goes(resource: QueueResource, queue_name: str) -> None:
    fail(resource, queue_name, "a", "b", "c")
    sensor = made(queue_name, replay=ReplayBudget(2))
    first = tick(sensor, resource, None)
    assert len(names_in(first)) == 1
    client = resource.queue(queue_name)
    assert client.counts().waiting == 2
    assert len(client.dead_letters.list()) == 1
    fail(resource, queue_name)  # the replayed ones fail again, and the budget is used up
    second = tick(sensor, resource, first.cursor)
    assert len(names_in(second)) == 2
    assert client.counts().waiting == 0


def test_a_budget_is_renewed_when_its_window_has_passed(
    resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    fail(resource, queue_name, "a")
    sensor = made(queue_name, replay=ReplayBudget(1, window=timedelta(minutes=5)))
    first = tick(sensor, resource, None)
    assert "Replayed 1 of 1 new dead letters" in (first.skip_message or "")
    assert 0 < raw.pttl(f"glide:{{{queue_name}}}:replays:{sensor.name}") <= 300_000
    fail(resource, queue_name)
    assert names_in(tick(sensor, resource, first.cursor)) == ["a"], "it is used up"
    travel(timedelta(minutes=5))
    assert not tick(sensor, resource, first.cursor).run_requests
    assert resource.queue(queue_name).counts().waiting == 1


def test_a_tick_that_is_killed_before_its_cursor_is_kept_forgets_no_replay(
    resource: QueueResource, queue_name: str
) -> None:
    fail(resource, queue_name, "a", "b", "c")
    sensor = made(queue_name, replay=ReplayBudget(2))
    assert names_in(tick(sensor, resource, None)) == ["c"]
    fail(resource, queue_name)  # what was replayed fails again
    again = tick(sensor, resource, None)  # Dagster knows nothing of the tick before
    assert sorted(names_in(again)) == ["a", "b", "c"]
    assert resource.queue(queue_name).counts().waiting == 0


def test_a_tick_that_is_killed_between_count_and_replay_counts_the_letter_once(
    resource: QueueResource, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(resource, queue_name, "a", "b")
    sensor = made(queue_name, replay=ReplayBudget(2))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeadLetters, "replay", killed)
        with pytest.raises(KeyboardInterrupt):
            tick(sensor, resource, None)
    assert not tick(sensor, resource, None).run_requests
    assert resource.queue(queue_name).counts().waiting == 2


def test_each_sensor_has_a_budget_of_its_own(resource: QueueResource, queue_name: str) -> None:
    fail(resource, queue_name, "a", "b")
    by_name = [
        made(queue_name, name=name, replay=ReplayBudget(1, where=lambda letter, name=name: letter.name == name))  # type: ignore[misc]  # bound at once
        for name in ("a", "b")
    ]
    assert names_in(tick(by_name[0], resource, None)) == ["b"]
    assert not tick(by_name[1], resource, None).run_requests


def test_only_chosen_letters_are_replayed(resource: QueueResource, queue_name: str) -> None:
    fail(resource, queue_name, "keep", "again")
    sensor = made(queue_name, replay=ReplayBudget(10, where=lambda letter: letter.name == "again"))
    assert names_in(tick(sensor, resource, None)) == ["keep"]


@pytest.mark.parametrize(
    "options",
    [
        {"dead_letter_queue": "q"},
        {"start": "yesterday"},
        {"interval": timedelta(0)},
        {"resource_key": 7},
        {"wait": timedelta(1)},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        made("q", **options)


@pytest.mark.parametrize(("most", "window"), [(0, timedelta(1)), (-1, timedelta(1)), (1, timedelta(0))])
def test_a_budget_that_allows_nothing_is_refused(most: int, window: timedelta) -> None:
    with pytest.raises(InvalidOptionError, match="must be > 0"):
        ReplayBudget(most, window)


def test_names_that_the_wire_cannot_carry_are_refused() -> None:
    for bad in ({"queue": "a:b"}, {"queue": "q", "dead_letter_queue": "a:b"}):
        with pytest.raises(InvalidNameError):
            made(**bad)


def test_it_stands_as_the_options_say() -> None:
    sensor = made("q-1", interval=timedelta(seconds=90), default_status=dg.DefaultSensorStatus.RUNNING)
    assert (sensor.name, sensor.minimum_interval_seconds) == ("dead_letters_of_q_1", 90)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING


def test_a_letter_becomes_an_observation(resource: QueueResource, queue_name: str) -> None:
    fail(resource, queue_name, "a")
    sensor = dead_letter_sensor(queue_name, asset="tables")
    first = tick(sensor, resource, None)
    (observed,) = first.asset_events
    (letter,) = resource.queue(queue_name).dead_letters.list()
    assert isinstance(observed, dg.AssetObservation)
    assert observed.asset_key == dg.AssetKey("tables")
    assert observed.metadata[TAG + "job_id"].value == letter.original_job_id
    assert "broken" in (observed.description or "")
    assert not first.run_requests
    assert not tick(sensor, resource, first.cursor).asset_events
    with pytest.raises(InvalidOptionError, match="Exactly one of `job` and `asset`"):
        dead_letter_sensor(queue_name)
