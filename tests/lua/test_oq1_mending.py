"""`oq1_putBack` and `oq1_mendGroup`: what is blocked is repaired, and what is not blocked is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestration_queue.protocol.functions import oq1
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire, Word, due

LATER = NOW + 5000


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


def put_back(own: Own, job_id: str, limit: int = 100) -> object:
    return own.send(
        oq1.put_back(
            own.keys,
            job_id=job_id,
            now_ms=LATER,
            limit=limit,
        )
    )


def mend(own: Own, seen: tuple[int, int], true: tuple[int, int]) -> object:
    return own.send(
        oq1.mend_group(
            own.keys,
            name="o",
            seen_active=seen[0],
            seen_next_seq=seen[1],
            active=true[0],
            next_seq=true[1],
            now_ms=LATER,
        )
    )


@pytest.mark.parametrize("state", ["waiting", "delayed", "prioritized"])
@pytest.mark.parametrize("fields", [{}, {"priority": 7}, {"lifo": 1}], ids=["plain", "priority", "lifo"])
def test_a_job_in_no_structure_becomes_due_once(own: Own, state: str, fields: dict[str, Word]) -> None:
    own.wire.make_job("lost", state=state, **fields)
    assert put_back(own, "lost") == "put_back"
    assert own.wire.zset("scheduled") == {"lost": due(LATER, int(fields.get("priority", 0)))}
    assert own.wire.job("lost")["state"] == "delayed"
    with own.wire.unchanged():
        assert put_back(own, "lost") == "listed"


@pytest.mark.parametrize("state", ["active", "completed", "failed", "suspended", "waiting-children", "group-waiting"])
def test_a_job_that_says_it_is_elsewhere_is_left_alone(own: Own, state: str) -> None:
    own.wire.make_job("j", state=state)
    with own.wire.unchanged():
        assert put_back(own, "j") == "elsewhere"
        assert put_back(own, "gone") == "not_found"


@pytest.mark.parametrize(
    "add",
    [
        pytest.param(lambda wire: wire.add(), id="on the stream"),
        pytest.param(lambda wire: wire.add(lifo=1), id="on the LIFO list"),
        pytest.param(lambda wire: wire.add(delay=9), id="delayed"),
        pytest.param(lambda wire: wire.add(priority=2), id="prioritized"),
        pytest.param(lambda wire: (wire.add(), wire.fetched())[0], id="taken from the stream"),
    ],
)
def test_a_job_that_is_somewhere_is_left_alone(own: Own, add: Callable[[Wire], str]) -> None:
    for _ in range(3):
        own.wire.add()
    job_id = add(own.wire)
    with own.wire.unchanged():
        assert put_back(own, job_id) == "listed"


def test_a_list_job_that_may_be_in_somebodys_hands_is_left_alone(own: Own) -> None:
    own.wire.make_job("popped", state="waiting", lifo="1")
    own.wire.make_job("plain", state="waiting")
    own.wire.ask("SET", own.wire.key("list-active"), 1)
    with own.wire.unchanged():
        assert put_back(own, "popped") == "held"
    assert put_back(own, "plain") == "put_back"


@pytest.mark.parametrize("fields", [{}, {"lifo": 1}], ids=["stream", "lifo"])
def test_what_is_too_long_is_not_looked_through(own: Own, fields: dict[str, Word]) -> None:
    own.wire.make_job("lost", state="waiting")
    for _ in range(3):
        own.wire.add(**fields)
    with own.wire.unchanged():
        assert put_back(own, "lost", limit=2) == "too_many"
    assert put_back(own, "lost", limit=3) == "put_back"


def parked(own: Own, count: int) -> list[str]:
    """Parked jobs of a group, after one that is active."""
    own.wire.active(orderingKey="o")
    ids = []
    for _ in range(count):
        ids.append(own.wire.add(orderingKey="o"))
        own.wire.call("moveToActive", jobId=ids[-1], entryId=own.wire.fetched()[0])
    assert own.wire.parked("o").keys() == set(ids)
    return ids


def test_a_group_whose_active_job_is_gone_goes_on(own: Own) -> None:
    first, second = parked(own, 2)
    assert mend(own, (1, 2), (0, 2)) == 1
    assert [own.wire.job(job_id)["state"] for job_id in (first, second)] == ["waiting", "group-waiting"]
    assert own.wire.hash("group:o")["active"] == "0"


def test_a_group_whose_turn_is_nobodys_goes_on(own: Own) -> None:
    _, second = parked(own, 2)
    own.wire.ask("ZREM", own.wire.key("groupq:o"), "2")
    own.wire.ask("DEL", own.wire.key("job:2"))
    assert mend(own, (1, 2), (0, 3)) == 1
    assert own.wire.job(second)["state"] == "waiting"


@pytest.mark.parametrize("seen", [(0, 2), (1, 1), (2, 2), (1, 3)])
def test_a_group_that_has_gone_on_since_is_left_alone(own: Own, seen: tuple[int, int]) -> None:
    parked(own, 1)
    with own.wire.unchanged():
        assert mend(own, seen, (0, 9)) == -1


@pytest.mark.parametrize(
    ("function", "keys", "args", "why"),
    [
        ("putBack", 5, ["1", NOW, 9, 9], "takes 5 keys and 3 arguments, not 5 and 4"),
        ("putBack", 4, ["1", NOW, 9], "takes 5 keys and 3 arguments, not 4 and 3"),
        ("putBack", 5, ["1", "soon", 9], "'now_ms' is not a whole number"),
        ("putBack", 5, ["1", NOW, "few"], "'limit' is not a whole number"),
        ("mendGroup", 5, ["o", 1, 2, 0, 2, NOW, 9], "takes 5 keys and 6 arguments, not 5 and 7"),
        ("mendGroup", 5, ["o", "", 2, 0, 2, NOW], "'seen_active' is not a whole number"),
        ("mendGroup", 5, ["o", 1, 2, 0, "x", NOW], "'next_seq' is not a whole number"),
    ],
)
def test_malformed_arguments_are_refused(own: Own, function: str, keys: int, args: list[Word], why: str) -> None:
    names = {
        "putBack": ["stream", "scheduled", "priority", "lifo", "list-active"],
        "mendGroup": ["stream", "ratelimited", "events", "failed", "metrics:failed"],
    }[function][:keys]
    own.refused(function, [own.wire.key(name) for name in names], args, why)
