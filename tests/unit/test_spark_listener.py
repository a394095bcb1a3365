"""What is made of the words of Spark's listener, and that the jar that ships is made from the source that is there."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.errors import TransportError
from orchestration_queue.spark.progress import LISTENER_JAR, ListenerFollower, with_listener

sys.path.append(str(Path(__file__).parents[2] / "tools"))
build_listener = import_module("build_listener")


def line(**more: Any) -> str:
    """A line of the listener's."""
    known = dict.fromkeys(("query", "total", "completed", "running", "read"), 0)
    moved = {"input_rows": 5, "input_bytes": 50, "output_rows": 3, "output_bytes": 30}
    return json.dumps({"application": "local-1", "over": False, "jobs": 1, **known, **moved, **more})


def test_the_jar_is_made_from_the_sources_that_are_there() -> None:
    digest, compiler = build_listener.made_from(LISTENER_JAR)
    assert digest == build_listener.source_digest(), "run: python tools/build_listener.py"
    assert compiler == 17, "the oldest, which anybody can have; `make lint` compares every byte where it is at hand"


def test_a_jar_of_other_sources_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "One.java").write_text("class One {}")
    digest = build_listener.source_digest(tmp_path)
    assert digest != build_listener.made_from(LISTENER_JAR)[0]
    (tmp_path / "One.java").write_text("class One { }")
    assert build_listener.source_digest(tmp_path) != digest
    assert build_listener.made_from(tmp_path / "none.jar") == ("", 0)


def test_what_the_user_wants_there_stays_there() -> None:
    theirs = {"spark.jars": "mine.jar", "spark.extraListeners": "com.example.Mine", "spark.app.name": "a"}
    assert with_listener(theirs, "/scratch/progress.json", "/ours.jar") == {
        "spark.jars": "mine.jar,/ours.jar",
        "spark.extraListeners": "com.example.Mine,orchestrationqueue.ProgressListener",
        "spark.app.name": "a",
        "spark.orchestration_queue.progress": "/scratch/progress.json",
    }
    assert with_listener({}, "stderr")["spark.jars"] == str(LISTENER_JAR)


def test_a_file_that_says_something_new_becomes_progress(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    file = tmp_path / "progress.json"
    follower = ListenerFollower(told.append, file, {"driver": "d-1"})
    follower.poll()
    assert follower.finish() == {}
    for text in ("", "no JSON", "{}", line(total="many"), "\udc00"):
        file.write_text(text, "utf-8", errors="surrogatepass")
        follower.poll()
    file.write_text(line(query=2, total=8, completed=3, running=2, read=2048))
    follower.poll()
    follower.poll()
    assert follower.finish() == {
        "application": "local-1",
        "input_rows": 5,
        "input_bytes": 50,
        "output_rows": 3,
        "output_bytes": 30,
    }
    spark = {"driver": "d-1", "application": "local-1"}
    assert told == [
        {"percent": 37, "text": "query 2: 3 of 8 tasks, 2 running, 2.0 KiB read", "spark": spark},
        {"percent": 100, "text": "done", "spark": spark},
    ]


def test_an_application_that_never_asks_for_anything_tells_nothing_but_its_end() -> None:
    told: list[dict[str, Any]] = []
    follower = ListenerFollower(told.append, ui="http://spark/{application}")
    follower.feed(line())
    assert told == []
    finished = follower.finish()
    assert (finished["output_rows"], finished["ui"]) == (3, f"http://spark/{finished['application']}")
    assert told[-1]["spark"]["ui"] == finished["ui"]
    assert [one["text"] for one in told] == ["done"]


@pytest.mark.parametrize("stop", [True, False])
def test_a_queue_that_is_away_costs_progress_only(stop: bool) -> None:
    def away(_: dict[str, Any]) -> None:
        raise TransportError("away", maybe_applied=False)

    follower = ListenerFollower(away)
    follower.feed(line(query=1, total=1))
    assert follower.poll_and_ask(lambda: stop) is stop
    assert follower.finish()["input_rows"] == 5
