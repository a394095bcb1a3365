"""The archive of Spark's classes: made once however many ask, whole or not at all, and found by who starts Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestration_queue.errors import SparkFailedError
from orchestration_queue.spark import SparkOptions, SparkSubmit, build_archive, environment, java_home, run_submit
from orchestration_queue.spark.environment import spark_environment, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # seconds of processor time, on however busy a machine


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a training that takes no half a minute."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    (tmp_path / "brief.py").write_text("print('trained')\n")
    monkeypatch.setattr(build_archive, "_TRAINING", tmp_path / "brief.py")
    return tmp_path / "cache" / "orchestration-queue" / "spark"


def test_it_is_made_once_and_java_takes_classes_from_it(cache: Path, tmp_path: Path) -> None:
    expected = environment.class_archive(java_home(), spark_home({}))
    cache.mkdir(parents=True)
    (cache / f".{expected.stem}-killed").touch()
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: (build_archive.make_class_archive(), expected.stat().st_ino), range(2)))
    assert made == [(expected, expected.stat().st_ino)] * 2
    assert sorted(entry.name for entry in cache.iterdir()) == [expected.name, expected.with_suffix(".lock").name]
    loaded = tmp_path / "loaded.txt"
    lines: list[str] = []
    conf = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={loaded}"}
    run_submit(tmp_path / "brief.py", [], SparkSubmit(master="local[1]", conf=conf), log=lines.append)
    assert lines == ["trained"]
    assert "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)" in loaded.read_text()
    # A class path of the user's own, which it does not fit.
    conf = {"spark.driver.extraClassPath": str(tmp_path)}
    assert run_submit(tmp_path / "brief.py", [], SparkSubmit(conf=conf), log=lines.append) == {"exit_code": 0}
    assert lines == ["trained"] * 2


def test_nothing_is_left_of_one_that_could_not_be_made(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "brief.py").write_text("raise ValueError('no')\n")
    with pytest.raises(SparkFailedError, match="ValueError: no"):
        build_archive.make_class_archive()
    assert [entry.suffix for entry in cache.iterdir()] == [".lock"]
    assert "SPARK_SUBMIT_OPTS" not in spark_environment(SparkOptions(), tmp_path)


def test_another_java_or_spark_has_another(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.mkdir()
    first = environment.class_archive(java, "/spark")
    assert first != environment.class_archive(java, "/other")
    assert first != environment.class_archive(tmp_path, "/spark")
    (java / "release").write_text('JAVA_VERSION="17.0.16"')
    assert first != environment.class_archive(java, "/spark")


def test_the_users_own_options_stay_and_win(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = environment.class_archive(java_home(), spark_home({}))
    path.parent.mkdir(parents=True)
    path.touch()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    given = spark_environment(SparkOptions(), tmp_path)["SPARK_SUBMIT_OPTS"]
    assert given == f"-XX:SharedArchiveFile={path} -Xlog:cds*=off -Dmine=1"
