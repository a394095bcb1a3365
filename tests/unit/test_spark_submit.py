"""What spark-submit is told, and what is read from what an application has printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.spark import SparkSubmit, spark_submit
from orchestration_queue.spark.failure import SparkFailure
from orchestration_queue.spark.options import write_properties
from orchestration_queue.spark.submit.run import build_command, check_application
from orchestration_queue.spark.submit.standalone import Reservation, create_request

SCRATCH = Path("/scratch dir")


def test_options_become_sparks_properties() -> None:
    options = SparkSubmit(
        master="spark://host:7077",
        memory="2g",
        driver_cores=2,
        executors=3,
        executor_memory="8g",
        executor_cores=4,
        packages=("a:b:1", "c:d:2"),
        jars=("x.jar",),
        py_files=("lib.zip", "more.py"),
        files=("data.csv",),
        conf={"spark.executor.memory": "9g"},
    )
    properties = options.properties(SCRATCH, "nightly", "j-1")
    expected = {
        "spark.master": "spark://host:7077",
        "spark.app.name": "nightly",
        "spark.driver.memory": "2g",
        "spark.driver.cores": "2",
        "spark.executor.instances": "3",
        "spark.executor.memory": "9g",
        "spark.executor.cores": "4",
        "spark.jars.packages": "a:b:1,c:d:2",
        "spark.jars": "x.jar",
        "spark.submit.pyFiles": "lib.zip,more.py",
        "spark.files": "data.csv",
        "spark.orchestration_queue.job": "j-1",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert SparkSubmit().own_properties == {}


@pytest.mark.parametrize(
    "options",
    [
        {"executors": 0},
        {"executor_memory": "lots"},
        {"executor_cores": -1},
        {"driver_cores": 0},
        {"deploy_mode": "elsewhere"},
        {"rest_url": "host:6066"},
        {"rest_url": "http://user:word@host"},
        {"rest_url": "http://host:port"},
        {"web_url": "file:///etc/passwd"},
        {"web_url": "http://host/?a=b"},
    ],
    ids=str,
)
def test_options_that_spark_would_choke_on_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=rf"SparkSubmit\.{next(iter(options))} \(given"):
        SparkSubmit(**options)


def test_what_clusters_ask_for_by_name_has_an_option() -> None:
    options = SparkSubmit(
        archives=("env.tar.gz#env",),
        repositories=("https://maven.example",),
        exclude_packages=("a:b",),
        queue="nightly",
        principal="etl@EXAMPLE",
        keytab="/etc/etl.keytab",
    )
    assert options.own_properties == {
        "spark.archives": "env.tar.gz#env",
        "spark.jars.repositories": "https://maven.example",
        "spark.jars.excludes": "a:b",
        "spark.yarn.queue": "nightly",
        "spark.kerberos.principal": "etl@EXAMPLE",
        "spark.kerberos.keytab": "/etc/etl.keytab",
    }
    assert "--proxy-user me" in " ".join(build_command("/spark", Path("p"), None, "app.py", [], "me"))
    cluster = SparkSubmit(master="spark://host:7077", deploy_mode="cluster", proxy_user="me")
    request = create_request(Reservation("http://h:1", "http://h:2", "tag", 0), cluster, "/app.py", ["x"], {})
    assert request["appArgs"][-4:] == ["--proxy-user", "me", "/app.py", "x"]
    with pytest.raises(InvalidOptionError, match="proxy_user excludes principal and keytab"):
        SparkSubmit(proxy_user="me", principal="etl@EXAMPLE", keytab="k").complete()
    with pytest.raises(InvalidOptionError, match="principal and keytab need each other"):
        SparkSubmit(principal="etl@EXAMPLE").complete()


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "spark.properties"
    file.write_text(
        "# a note\n! another\n\nspark.a=1\n spark.b : two words \nspark.c three\\tfour\n"
        "spark.d=continues\\\n    here\nspark\\:e=C:\\\\temp\nspark.f\nspark.master=spark://host:7077\n"
    )
    options = SparkSubmit(properties_file=file, conf={"spark.a": "mine"}).complete()
    assert options.conf == {
        "spark.a": "mine",
        "spark.b": "two words",
        "spark.c": "three\tfour",
        "spark.d": "continueshere",
        "spark:e": "C:\\temp",
        "spark.f": "",
    }
    assert options.master == "spark://host:7077"
    assert not options.is_local
    assert SparkSubmit(master="local[3]", properties_file=file).complete().master == "local[3]"
    assert SparkSubmit(memory="3g").complete() == SparkSubmit(memory="3g")


def test_what_is_written_is_for_its_owner_only_and_reads_as_it_was(tmp_path: Path) -> None:
    path = write_properties(tmp_path, {"spark.a": "C:\\temp\nline", "spark.b": "ü"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert SparkSubmit(properties_file=path).complete().conf == {"spark.a": "C:\\temp\nline", "spark.b": "ü"}


def test_a_task_is_named_after_the_application() -> None:
    assert spark_submit("/jobs/nightly.py").__name__ == "nightly"
    assert spark_submit("s3a://bucket/daily.jar", SparkSubmit(main_class="Daily")).__name__ == "daily"


PYTHON = """started
Traceback (most recent call last):
  File "/app/first.py", line 1, in <module>
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/etl/nightly.py", line 9, in main
    rows = clean(rows)
           ^^^^^^^^^^^
  File "/venv/pyspark/sql/classic/dataframe.py", line 443, in collect
py4j.protocol.Py4JJavaError: An error occurred while calling o45.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure
"""


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            PYTHON,
            "Py4JJavaError: org.apache.spark.SparkException: Job aborted due to stage failure (nightly.py:9 in main)",
        ),
        (
            'WARN x\nException in thread "main" org.apache.spark.SparkException: No master\nlast',
            "SparkException: No master",
        ),
        ('Exception in thread "main" java.lang.StackOverflowError', "StackOverflowError"),
        ("Error: Failed to load class Main.\n", "Error: Failed to load class Main."),
        ("all is well\nAn Error: it was not", None),
        ("", None),
    ],
)
def test_the_last_exception_that_was_printed_is_the_reason(printed: str, reason: str | None) -> None:
    failure = SparkFailure.of_output(printed.splitlines())
    assert (str(failure) if failure else None) == reason


@pytest.mark.parametrize(
    ("master", "more", "expected"),
    [
        ("yarn", {}, {"spark.submit.deployMode": "cluster", "spark.executor.instances": "4"}),
        (
            "k8s://https://10.0.0.1:6443",
            {"conf": {"spark.kubernetes.container.image": "spark:4.3.0", "spark.driver.extraJavaOptions": "-Dmine=1"}},
            {
                "spark.submit.deployMode": "cluster",
                "spark.kubernetes.container.image": "spark:4.3.0",
                "spark.driver.extraJavaOptions": "-Dmine=1",
            },
        ),
        ("spark://host:7077", {}, {"spark.submit.deployMode": None}),
    ],
)
def test_a_driver_on_a_cluster_gets_nothing_that_names_a_file_here(
    master: str, more: dict[str, Any], expected: dict[str, str | None]
) -> None:
    options = SparkSubmit(master=master, deploy_mode="cluster", executors=4, **more).complete()
    properties = options.properties(SCRATCH, "nightly", "j-1")
    expected |= {"spark.master": master, "spark.log.level": "WARN", "spark.orchestration_queue.job": "j-1"}
    assert {name: properties.get(name) for name in expected} == expected
    assert not [value for value in properties.values() if str(SCRATCH) in value or "log4j2" in value]
    assert ("spark.driver.extraJavaOptions" in properties) == ("conf" in more)


def test_the_command_of_a_cluster_is_words_and_a_file() -> None:
    """As YARN and Kubernetes would get it: neither is there to try."""
    path, words = check_application("s3a://bucket/daily.jar", ["two words", "$(x)"], "Daily", is_here=False)
    assert build_command("/spark", Path("/scratch/p"), "Daily", path, words) == [
        "/spark/bin/spark-submit",
        "--load-spark-defaults",
        "--class",
        "Daily",
        "--properties-file",
        "/scratch/p",
        "s3a://bucket/daily.jar",
        "two words",
        "$(x)",
    ]
    assert check_application("/on/the/cluster/app.py", [], None, is_here=False) == ("/on/the/cluster/app.py", [])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"master": "local[2]"},
            r"deploy_mode='cluster' needs a cluster, got master 'local\[2\]'; pass master='spark:",
        ),
        (
            {"master": "yarn", "conf": {"spark.driver.supervise": "true"}},
            r"supervise` must not be set, because the queue already retries",
        ),
    ],
    ids=str,
)
def test_a_driver_on_a_cluster_that_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        SparkSubmit(deploy_mode="cluster", **options).complete()


def test_where_a_standalone_master_answers() -> None:
    of_host = SparkSubmit(master="spark://host:7077", deploy_mode="cluster")
    assert of_host.master_urls == ("http://host:6066", "http://host:8080")
    several = SparkSubmit(master="spark://a:7077,b:7077", deploy_mode="cluster")
    with pytest.raises(InvalidOptionError, match=r"several masters, .* pass rest_url and web_url"):
        assert several.master_urls
    named = {"rest_url": "https://front/rest", "web_url": "https://front"}
    assert several.model_copy(update=named).master_urls == ("https://front/rest", "https://front")


PLACE = Reservation("http://host:6066", "http://host:8080", "t-1", 1000, "driver-1")


def test_a_place_on_a_cluster_is_read_as_it_was_written() -> None:
    assert Reservation.of({"percent": 5, "text": "x", "spark": {**PLACE.about, "application": "app-1"}}) == PLACE


@pytest.mark.parametrize(
    "progress",
    [
        None,
        50,
        "text",
        [],
        {},
        {"spark": None},
        {"spark": {}},
        {"spark": {"session": "s", "server": "x", "run": 1}},
        {"spark": {"submission": "driver-1"}},
        {"spark": {"submission": {**PLACE.about["submission"], "since_ms": "soon"}}},
        {"spark": {"submission": {**PLACE.about["submission"], "driver": None}}},
    ],
    ids=str,
)
def test_progress_of_others_is_no_place_on_a_cluster(progress: object) -> None:
    assert Reservation.of(progress) is None


def test_what_the_submission_server_is_sent() -> None:
    options = SparkSubmit(
        master="spark://host:7077",
        deploy_mode="cluster",
        main_class="Daily",
        listener_jar="/opt/listener.jar",
        jars=("x.jar",),
        python=Path("/usr/bin/python3"),
        env={"A": "b c"},
    )
    properties = options.properties(SCRATCH, "daily", "j-1")
    request = create_request(PLACE, options, "/jobs/daily.jar", ["two words"], properties)
    assert request["mainClass"] == "org.apache.spark.deploy.SparkSubmit"
    assert request["appResource"] == "file:/jobs/daily.jar"
    submit = ["--master", "spark://host:7077", "--deploy-mode", "client", "--class", "Daily"]
    assert request["appArgs"] == [*submit, "/jobs/daily.jar", "two words"]
    assert request["environmentVariables"] == {"PYSPARK_PYTHON": "/usr/bin/python3", "A": "b c"}
    sent = request["sparkProperties"]
    assert sent["spark.orchestration_queue.submission"] == "t-1"
    assert sent["spark.orchestration_queue.progress"] == "stderr"
    assert sent["spark.jars"] == "x.jar,/opt/listener.jar"
    for path, resource in (("local:/jobs/a b.py", "file:/jobs/a%20b.py"), ("https://host/a.py", "https://host/a.py")):
        request = create_request(PLACE, SparkSubmit(), path, [], {})
        assert (request["appResource"], request["appArgs"][-1]) == (resource, path)
        assert "spark.jars" not in request["sparkProperties"], "without a jar that the cluster can read"


@pytest.mark.parametrize(
    ("options", "template"),
    [
        ({}, None),
        ({"ui_url": "http://history:18080/history/{application}"}, "http://history:18080/history/{application}"),
        ({"master": "spark://m:7077"}, "http://m:8080/app/?appId={application}"),
        ({"master": "spark://m:7077", "web_url": "https://spark"}, "https://spark/app/?appId={application}"),
        ({"master": "spark://a:7077,b:7077"}, None),
        ({"master": "yarn"}, None),
    ],
)
def test_an_application_has_a_page_where_something_says_which(options: dict[str, Any], template: str | None) -> None:
    assert SparkSubmit(**options).ui_template == template


@pytest.mark.parametrize("url", ["history", "http://h/{app}", "http://h/{application", "http://h/ {application}"])
def test_what_is_no_page_is_refused(url: str) -> None:
    with pytest.raises(InvalidOptionError, match="ui_url"):
        SparkSubmit(ui_url=url)
