"""Compute logs on the queue's server: all a step writes is there, while it runs and when its process is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis
from dagster._core.storage.compute_log_manager import CapturedLogData, ComputeIOType

from orchestration_queue.dagster.logs import StreamComputeLogManager
from orchestration_queue.dagster.logs.store import CHUNK
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, UsageError
from tests.conftest import start_server
from tests.dagster.logging_location import waiting, writing
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

OUT, ERR = ComputeIOType.STDOUT, ComputeIOType.STDERR
KEY = ["run", "compute_logs", "step"]


@contextmanager
def instance_with(config: dict[str, Any]) -> Iterator[dg.DagsterInstance]:
    """A real instance whose steps' output goes to the server."""
    place = {"module": "orchestration_queue.dagster.logs", "class": "StreamComputeLogManager"}
    with dg.instance_for_test(overrides={"compute_logs": {**place, "config": config}}) as made:
        yield made


@pytest.fixture
def manager(server_url: str, tmp_path: Path, raw: redis.Redis) -> Iterator[StreamComputeLogManager]:
    made = StreamComputeLogManager(server_url, local_dir=str(tmp_path / "logs"))
    yield made
    made.dispose()


def log_key(instance: dg.DagsterInstance, run_id: str) -> Sequence[str]:
    """Where Dagster says the run's output is."""
    (event,) = [event.dagster_event for event in instance.all_logs(run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED)]
    assert event is not None
    return [run_id, "compute_logs", event.logs_captured_data.file_key]


def pid_of(scratch: Path) -> int:
    """The process of the step that waits, once it has told."""
    path = scratch / "pid"
    wait_until_sync(lambda: path.exists() and path.read_text(), "the step to run", 120)
    return int(path.read_text())


def text(manager: Any, key: Sequence[str], kind: ComputeIOType = OUT) -> str:
    data, _ = manager.get_log_data_for_type(key, kind, 0, None)
    return (data or b"").decode()


def test_all_that_a_step_writes_is_on_the_server(server_url: str, tmp_path: Path, raw: redis.Redis) -> None:
    with instance_with({"url": server_url, "local_dir": str(tmp_path), "ttl_seconds": 100}) as instance:
        result = writing.execute_in_process(instance=instance)
        key = log_key(instance, result.run_id)
        manager = instance.compute_log_manager
        assert sorted(text(manager, key).splitlines()) == ["below Python", "by print", "from a child"]
        assert "by print to stderr" in text(manager, key, ERR)
        assert manager.is_capture_complete(key)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()], "the files were only on the way"
        keys = [str(found) for found in raw.keys("glide:logs:*")]
        assert len(keys) == 5
        assert all(90 < raw.ttl(found) <= 100 for found in keys)


def test_a_log_is_followed_while_it_is_written_and_needs_no_helper_process(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: redis.Redis
) -> None:
    monkeypatch.setenv("TEST_SCRATCH", str(tmp_path))
    with instance_with({"url": server_url, "local_dir": str(tmp_path / "logs")}) as instance:
        done: list[bool] = []

        def execute() -> None:
            with dg.execute_job(dg.reconstructable(waiting), instance) as result:
                done.append(result.success)

        running = threading.Thread(target=execute)
        running.start()
        step = pid_of(tmp_path)
        (run,) = instance.get_runs()
        key = log_key(instance, run.run_id)
        heard: list[CapturedLogData] = []
        subscription = instance.compute_log_manager.subscribe(key)
        subscription(heard.append)

        def told() -> bytes:
            return b"".join(data.stdout or b"" for data in heard)

        wait_until_sync(lambda: b"before the break" in told(), "the line", 60)
        assert not subscription.is_complete
        children = Path(f"/proc/{step}/task/{step}/children").read_text().split()
        commands = [Path(f"/proc/{child}/cmdline").read_text() for child in children]
        assert not [command for command in commands if "tail" in command or "watch_orphans" in command]
        (tmp_path / "go").touch()
        running.join(120)
        assert done == [True]
        # Its completion is known before its last bytes are passed on, so that their reader knows it.
        wait_until_sync(lambda: subscription.is_complete and b"after" in told(), "the end of the log", 60)
        assert told() == b"before the break\nafter the break\n"
        subscription.dispose()


def test_who_subscribes_while_a_log_grows_is_told_nothing_twice(
    manager: StreamComputeLogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, read, tail_has_read = manager._store, manager.get_log_data, threading.Event()
    store.begin(KEY, ("out",))
    store.append(KEY, "out", 0, b"one\n")

    def grows_meanwhile(*place: Any, **bounds: Any) -> CapturedLogData:
        data = read(*place, **bounds)
        if threading.current_thread() is not threading.main_thread():
            tail_has_read.set()
        else:
            store.append(KEY, "out", 4, b"two\n")
            tail_has_read.wait(1)  # in vain, as it should be: it is not the tail's turn
        return data

    monkeypatch.setattr(manager, "get_log_data", grows_meanwhile)
    heard: list[CapturedLogData] = []
    subscription = manager.subscribe(KEY)
    subscription(heard.append)
    wait_until_sync(lambda: any(b"two" in (data.stdout or b"") for data in heard), "the rest", 60)
    assert b"".join(data.stdout or b"" for data in heard) == b"one\ntwo\n"
    subscription.dispose()


def test_a_killed_process_leaves_what_it_wrote_and_its_file(
    server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw: redis.Redis
) -> None:
    monkeypatch.setenv("TEST_SCRATCH", str(tmp_path))
    with instance_with({"url": server_url, "local_dir": str(tmp_path / "logs")}) as instance:
        manager = instance.compute_log_manager

        def kill() -> None:
            step = pid_of(tmp_path)
            (run,) = instance.get_runs()
            key = log_key(instance, run.run_id)
            wait_until_sync(lambda: "before the break" in text(manager, key), "the line", 60)
            os.kill(step, signal.SIGKILL)

        killing = threading.Thread(target=kill)
        killing.start()
        with dg.execute_job(dg.reconstructable(waiting), instance) as result:
            killing.join()
            assert not result.success
        key = log_key(instance, result.run_id)
        assert text(manager, key) == "before the break\n"
        (file,) = (tmp_path / "logs").rglob("*.out")
        assert file.read_text() == "before the break\n"
        assert file.stat().st_mode & 0o077 == 0, "no other user reads it"


def test_a_server_that_is_away_costs_no_step_its_life(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = StreamComputeLogManager(f"unix://{tmp_path}/absent.sock", local_dir=str(tmp_path / "logs"))
    with manager.capture_logs(KEY):
        os.write(1, b"all the same\n")
    assert "The logs of run/compute_logs/step stay in" in caplog.text
    assert text(manager, KEY) == "all the same\n"
    assert manager.is_capture_complete(KEY)
    assert "all the same" in capfd.readouterr().out
    manager.dispose()


def test_what_was_written_while_the_server_was_away_follows(tmp_path: Path) -> None:
    socket = tmp_path / "late.sock"
    manager = StreamComputeLogManager(f"unix://{socket}", local_dir=str(tmp_path / "logs"))
    with manager.capture_logs(KEY):
        os.write(1, b"before\n")
        server = start_server(socket)
        os.write(1, b"after\n")
    try:
        assert text(manager, KEY) == "before\nafter\n"
        assert not list((tmp_path / "logs").rglob("*.out"))
    finally:
        manager.dispose()
        server.terminate()
        server.wait(10)


def test_a_long_log_keeps_its_end_and_says_what_is_missing(server_url: str, tmp_path: Path, raw: redis.Redis) -> None:
    manager = StreamComputeLogManager(server_url, local_dir=str(tmp_path), max_bytes=CHUNK, echo=False)
    line = b"x" * 999 + b"\n"
    with manager.capture_logs(KEY):
        for _ in range(300):
            os.write(1, line)
        os.write(1, b"the end\n")
    kept = text(manager, KEY)
    first, *rest = kept.splitlines()
    assert first.endswith("bytes were dropped: more than max_bytes]")
    assert rest[-1] == "the end"
    assert len(kept) <= CHUNK + 100
    dropped = int(first.split()[0].strip("["))
    _, end = manager.get_log_data_for_type(KEY, OUT, 0, None)
    assert end == 300 * 1000 + 8 == dropped + len(kept) - len(first) - 1
    manager.dispose()


@pytest.mark.parametrize("size", [1, 7, 1000, None])
def test_a_log_is_the_same_in_pieces_of_any_size(manager: StreamComputeLogManager, size: int | None) -> None:
    written = b"".join(b"line %d\n" % number for number in range(700))
    with manager.capture_logs(KEY):
        os.write(1, written)
    found, offset = b"", 0
    while True:
        data, offset = manager.get_log_data_for_type(KEY, OUT, offset, size if size is None else max(size, 50))
        if not data:
            break
        found += data
    assert found == written
    assert offset == len(written)


def test_a_log_that_is_written_again_goes_on(manager: StreamComputeLogManager) -> None:
    for word in (b"one\n", b"two\n"):
        with manager.capture_logs(KEY):
            os.write(1, word)
    assert text(manager, KEY) == "one\ntwo\n"


def test_bytes_that_are_stored_twice_are_there_once(manager: StreamComputeLogManager) -> None:
    store = manager._store
    for _ in range(2):
        store.append(KEY, "out", 0, b"one\n")
    store.append(KEY, "out", 4, b"two\n")
    assert text(manager, KEY) == "one\ntwo\n"


def test_two_steps_in_threads_of_one_process_do_not_mix_up_its_output(
    manager: StreamComputeLogManager, caplog: pytest.LogCaptureFixture
) -> None:
    with manager.capture_logs(KEY), manager.capture_logs(["run", "compute_logs", "other"]):
        os.write(1, b"whose?\n")
    assert text(manager, KEY) == "whose?\n"
    assert text(manager, ["run", "compute_logs", "other"]) == ""
    assert "run/compute_logs/other separately: another step runs in its process" in caplog.text


def test_the_output_goes_where_it_went_before_too(
    manager: StreamComputeLogManager, server_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    silent = StreamComputeLogManager(server_url, local_dir=str(tmp_path / "silent"), echo=False)
    with manager.capture_logs(KEY):
        os.write(1, b"echoed\n")
    with silent.capture_logs(KEY):
        os.write(1, b"swallowed\n")
    os.write(1, b"afterwards\n")
    assert capfd.readouterr().out == "echoed\nafterwards\n"
    silent.dispose()


def test_files_that_are_kept_serve_when_the_server_has_nothing(
    server_url: str, tmp_path: Path, raw: redis.Redis
) -> None:
    manager = StreamComputeLogManager(server_url, local_dir=str(tmp_path), keep_local_files=True)
    with manager.capture_logs(KEY):
        os.write(2, b"kept\n")
    raw.flushall()
    assert text(manager, KEY, ERR) == "kept\n"
    assert manager.is_capture_complete(KEY)
    manager.dispose()


def test_logs_of_sensors_are_found_by_their_prefix_and_deleted(manager: StreamComputeLogManager) -> None:
    ticks = ["repository", "sensor"]
    for tick in ("1", "2"):
        with manager.open_log_stream([*ticks, tick], ERR) as stream:
            stream.write(f"tick {tick}\n")
    assert manager.get_log_keys_for_log_key_prefix(ticks, ERR) == [[*ticks, "1"], [*ticks, "2"]]
    assert manager.get_log_keys_for_log_key_prefix(ticks, OUT) == []
    lines, _ = manager.read_log_lines_for_log_key_prefix(ticks, None, ERR)
    assert [line for line in lines if line] == ["tick 1", "tick 2"]
    manager.delete_logs(log_key=[*ticks, "1"])
    assert manager.get_log_keys_for_log_key_prefix(ticks, ERR) == [[*ticks, "2"]]
    manager.delete_logs(prefix=["repository"])
    assert manager.get_log_keys_for_log_key_prefix(ticks, ERR) == []
    assert text(manager, [*ticks, "2"], ERR) == ""


def test_keys_of_any_shape_stay_apart(manager: StreamComputeLogManager) -> None:
    for name in ("a{b}c", "a/b", "ü"):
        with manager.open_log_stream(["run", name], ERR) as stream:
            stream.write(name)
    assert [text(manager, ["run", name], ERR) for name in ("a{b}c", "a/b", "ü")] == ["a{b}c", "a/b", "ü"]


def test_the_webserver_offers_the_download(manager: StreamComputeLogManager) -> None:
    with manager.capture_logs(KEY):
        os.write(1, b"to download\n")
    assert manager.cloud_storage_has_logs(KEY, OUT)
    assert not manager.has_local_file(KEY, OUT)
    manager.download_from_cloud_storage(KEY, OUT)
    assert Path(manager.local_manager.get_captured_local_path(KEY, "out")).read_text() == "to download\n"
    assert manager.get_log_metadata(KEY).stdout_download_url == "/logs/run/compute_logs/step/out"


def test_no_password_is_shown() -> None:
    manager = StreamComputeLogManager("redis://:secret@host")
    assert "secret" not in str(manager.get_log_metadata(KEY))


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"max_bytes": CHUNK - 1}, InvalidOptionError, "the size of one entry"),
        ({"ttl_seconds": 59}, InvalidOptionError, "`ttl_seconds` must be at least 60"),
        ({"prefix": "a:b"}, InvalidNameError, "compute_logs: the prefix 'a:b'"),
        ({"url": "http://host"}, UsageError, "cannot be read"),
        ({"max_bites": 1}, dg.DagsterInvalidConfigError, "max_bites"),
        ({"max_bytes": "many"}, dg.DagsterInvalidConfigError, "max_bytes"),
    ],
)
def test_bad_config_is_refused(config: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words), instance_with(config) as instance:
        instance.compute_log_manager.is_capture_complete(KEY)
