"""The Helm chart: linted, rendered for every file in ci/, and held to Kubernetes' own schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.options import AlertKind, AlertRule
from orchestration_queue.spark import SparkOptions
from orchestration_queue.spark.runtime import server_for
from orchestration_queue.telemetry import METRICS
from orchestration_queue.wires import WIRES
from tests.helm.operators import SCHEMAS

CHART = Path(__file__).parents[2] / "helm" / "orchestration-queue"
FILES = sorted((CHART / "ci").glob("*-values.yaml"))
VERSIONS = ("1.25", "1.36")


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """All objects of a release with these values."""
    with helm_python.Chart.load(str(CHART)) as chart:
        texts = chart.render(values, name="trial", namespace="data")
    return [
        made
        for name, text in texts.items()
        if not name.endswith("NOTES.txt")
        for made in yaml.safe_load_all(text)
        if made
    ]


def values_of(path: Path) -> dict[str, Any]:
    """A file of values."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def containers(objects: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each pod's specification, with each of its containers."""
    for made in objects:
        if made["kind"] in ("Deployment", "StatefulSet"):
            pod = made["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield pod, container


def test_the_linter_has_nothing_to_say() -> None:
    said = helm_python.lint(str(CHART))
    assert [message for message in said["messages"] if message["error"] != "icon is recommended"] == []
    assert said["errors"] == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_object_is_valid_to_the_letter(path: Path, version: str) -> None:
    objects = rendered(values_of(path))
    kinds = {made["kind"] for made in objects}
    assert "Deployment" in kinds
    for made in objects:
        if (own := SCHEMAS.get(made["kind"])) is None:
            kubernetes_validate.validate(made, version, strict=True)
        else:  # an operator's, which Kubernetes itself does not know
            jsonschema.validate(made, own)
    names = [(made["kind"], made["metadata"]["name"]) for made in objects]
    assert len(names) == len(set(names))
    assert all(len(name) <= 63 for _, name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_container_may_more_than_it_needs(path: Path) -> None:
    seen = 0
    for pod, container in containers(rendered(values_of(path))):
        seen += 1
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["enableServiceLinks"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert not any(
            "password" in str(argument).lower() and "$" not in str(argument) for argument in container.get("args", [])
        )
    assert seen


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_workers_are_started_with_options_that_exist_and_may_drain(path: Path) -> None:
    known = {
        word
        for command in (["worker", "run"], ["dagster", "worker"], ["airflow", "worker"])
        for word in CliRunner()
        .invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        .stdout.split()
        if word.startswith("--")
    }
    workers = 0
    for pod, container in containers(rendered(values_of(path))):
        words = [str(word) for word in (*container.get("command", ()), *container.get("args", ()))]
        if "worker" not in words:
            continue
        workers += 1
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known
        drain = int(re.search(r"--drain[= ](\d+)", " ".join(words)).group(1))  # type: ignore[union-attr]  # it is there
        assert pod["terminationGracePeriodSeconds"] > drain
        port = next(port for port in container["ports"] if port["name"] == "metrics")
        for probe, page in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz"), ("startupProbe", "/livez")):
            assert container[probe]["httpGet"] == {"path": page, "port": port["name"]}
        assert f"--metrics-port {port['containerPort']}" in " ".join(words).replace("=", " ")
        assert any(entry["name"] == "OQ_URL" and "secretKeyRef" in entry["valueFrom"] for entry in container["env"])
    assert workers


def test_workers_of_the_connect_mode_find_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(values_of(CHART / "ci" / "dagster-spark-values.yaml"))
    (service,) = (made for made in objects if made["kind"] == "Service" and "spark" in made["metadata"]["name"])
    told = [
        entry["value"]
        for _, container in containers(objects)
        for entry in container.get("env", ())
        if entry["name"] == "SPARK_REMOTE"
    ]
    assert told
    for url in told:
        monkeypatch.setenv("SPARK_REMOTE", url)
        found = server_for(SparkOptions()).url
        assert found == f"sc://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"


def test_rules_and_dashboard_speak_of_metrics_that_exist() -> None:
    objects = rendered(values_of(CHART / "ci" / "full-values.yaml"))
    texts = [json.dumps(made) for made in objects if made["kind"] in ("PrometheusRule", "ScaledObject")]
    boards = (made["data"].get("orchestration-queue.json") for made in objects if made["kind"] == "ConfigMap")
    (board,) = filter(None, boards)
    drawn = " ".join(target["expr"] for panel in json.loads(board)["panels"] for target in panel["targets"])
    declared = [*METRICS, *(metric for wire in WIRES for metric in wire.load("metrics").METRICS)]
    assert [metric.name for metric in declared if not re.search(rf"\b{metric.name}(_bucket)?\b", drawn)] == []
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    known = {metric.name + suffix for metric in METRICS for suffix in ("", *suffixes.get(metric.kind, ()))}
    spoken = set(re.findall(r"orchestration_queue_\w+", " ".join([*texts, board])))
    assert spoken
    assert spoken <= known


def test_the_full_example_has_every_kind_of_the_operators() -> None:
    objects = rendered(values_of(CHART / "ci" / "full-values.yaml"))
    assert SCHEMAS.keys() <= {made["kind"] for made in objects}
    monitor = next(made for made in objects if made["kind"] == "ServiceMonitor")
    found = [
        made["metadata"]["name"]
        for made in objects
        if made["kind"] == "Service"
        and monitor["spec"]["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
    ]
    assert found == ["trial-oq-metrics"]


def arguments_of(objects: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What each deployment's container is started with."""
    return {
        made["metadata"]["name"]: [str(word) for word in made["spec"]["template"]["spec"]["containers"][0]["args"]]
        for made in objects
        if made["kind"] == "Deployment" and "args" in made["spec"]["template"]["spec"]["containers"][0]
    }


def test_the_backlog_of_a_worker_that_is_scaled_down_to_none_is_told_by_another() -> None:
    objects = rendered(values_of(CHART / "ci" / "full-values.yaml"))
    (scaled,) = (made["spec"] for made in objects if made["kind"] == "ScaledObject")
    asked = set(re.findall(r'queue="(\w+)"', json.dumps(scaled["triggers"]).replace("\\", "")))
    told = {word.partition("=")[2] for word in arguments_of(objects)["trial-oq-worker-fast"] if "metrics-queue" in word}
    assert scaled["minReplicaCount"] == 0
    assert asked == {"reports"}
    assert told == {"orders", "mails", "reports"}


def test_what_a_worker_is_told_by_its_values() -> None:
    told = arguments_of(rendered(values_of(CHART / "ci" / "full-values.yaml")))
    assert {"--polling=ordered", "--dead-letter-queue=lost", "--concurrency=50"} <= set(told["trial-oq-worker-fast"])
    assert not [word for word in told["trial-oq-worker-slow"] if "polling" in word or "dead" in word]


def test_airflow_s_workers_share_configuration_and_secrets_with_its_scheduler() -> None:
    objects = rendered(values_of(CHART / "ci" / "airflow-values.yaml"))
    shared = next(made for made in objects if made["metadata"]["name"] == "trial-oq-airflow")
    assert shared["data"]["AIRFLOW__CORE__EXECUTOR"] == "orchestration_queue.airflow.QueueExecutor"
    told = arguments_of(objects)
    for queue in ("default", "gpu"):
        assert {f"--queue={queue}", "--lease=30", "--serve-logs"} <= set(told[f"trial-oq-airflow-worker-{queue}"])
    workers = [container for _, container in containers(objects) if "airflow" in container.get("command", ())]
    assert len(workers) == 2
    for container in workers:
        assert container["envFrom"] == [
            {"configMapRef": {"name": "trial-oq-airflow"}},
            {"secretRef": {"name": "airflow-secrets"}},
        ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_kind_of_worker_survives_the_draining_of_nodes(path: Path) -> None:
    objects = rendered(values_of(path))
    labels = {
        made["metadata"]["name"]: made["spec"]["template"]["metadata"]["labels"]
        for made in objects
        if made["kind"] == "Deployment" and re.search(r"-worker|-runs", made["metadata"]["name"])
    }
    kept = {
        made["metadata"]["name"]: made["spec"]["selector"]["matchLabels"]
        for made in objects
        if made["kind"] == "PodDisruptionBudget"
    }
    assert kept.keys() == labels.keys()
    assert all(kept[name].items() <= labels[name].items() for name in kept)


def test_alert_rules_of_values_are_rules_and_options_exist() -> None:
    objects = rendered(values_of(CHART / "ci" / "full-values.yaml"))
    ((pod, container),) = (pair for pair in containers(objects) if pair[1]["name"] == "alerts")
    help_text = CliRunner().invoke(app, ["alert", "run", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).stdout
    assert container["args"][:2] == ["alert", "run"]
    assert {word.partition("=")[0] for word in container["args"][2:]} <= set(help_text.split())
    assert container["envFrom"] == [{"secretRef": {"name": "alert-receivers"}}]
    (stored,) = (made["data"]["rules.json"] for made in objects if "rules.json" in made.get("data", {}))
    rules = {name: AlertRule(**fields) for name, fields in json.loads(stored).items()}
    assert (rules["mails"].threshold, rules["workers"].to) == (5000, ("ops", "pager"))
    assert rules["mails"].note == "see the runbook: {{ mails }}"
    (volume,) = (each for each in pod["volumes"] if each["name"] == "rules")
    assert volume["configMap"]["name"] in {made["metadata"]["name"] for made in objects if made["kind"] == "ConfigMap"}
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["alerts"]["properties"]["rules"]
    fields = schema["additionalProperties"]["properties"]
    assert fields.keys() == AlertRule.model_fields.keys()
    assert fields["kind"]["enum"] == list(AlertKind)


def test_spark_is_of_the_version_that_is_locked() -> None:
    root = CHART.parents[1]
    (locked,) = re.findall(r"^pyspark==(\S+)", (root / "requirements" / "demo.lock").read_text(), re.MULTILINE)
    (image,) = re.findall(r"^ARG SPARK=(\S+)", (root / "Dockerfile").read_text(), re.MULTILINE)
    assert values_of(CHART / "values.yaml")["spark"]["image"] == f"apache/spark:{locked}-python3"
    assert image == locked


def test_dagster_is_wired_to_the_launcher_and_the_coordinator() -> None:
    pytest.importorskip("dagster", reason="an extra of the package")
    from dagster._config import process_config, resolve_to_config_type

    objects = rendered(values_of(CHART / "ci" / "dagster-spark-values.yaml"))
    (config,) = (made["data"] for made in objects if made["kind"] == "ConfigMap" and "dagster.yaml" in made["data"])
    instance = yaml.safe_load(config["dagster.yaml"])
    for part, name in (("run_launcher", "QueueRunLauncher"), ("run_coordinator", "QueueRunCoordinator")):
        assert instance[part]["class"] == name
        wired = getattr(import_module(instance[part]["module"]), name)
        given = {key: value for key, value in instance[part].get("config", {}).items() if key != "url"}
        assert process_config(resolve_to_config_type(wired.config_type()), given).success
    queues = {
        container["command"][container["command"].index("--queue") + 1]
        for _, container in containers(objects)
        if "--queue" in container.get("command", ())
    }
    assert queues == {"dagster", instance["run_launcher"]["config"]["queue"]}
    (workspace,) = yaml.safe_load(config["workspace.yaml"])["load_from"]
    services = {made["metadata"]["name"] for made in objects if made["kind"] == "Service"}
    assert workspace["grpc_server"]["host"] in services


def slow_worker(**autoscaling: object) -> dict[str, Any]:
    """Values with one worker, whose autoscaling is this."""
    worker = values_of(CHART / "ci" / "full-values.yaml")["workers"][1]
    return {
        "workers": [{**worker, "autoscaling": {"enabled": True, "minReplicas": 0, "maxReplicas": 2, **autoscaling}}]
    }


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"wrokers": []}, "wrokers"),
        ({"workers": [{"name": "x"}]}, "target"),
        ({"workers": [{**slow_worker()["workers"][0], "name": "UPPER"}]}, "name"),
        ({"spark": {"enabled": True, "mode": "magic"}}, "mode"),
        ({"metrics": {"port": 0}}, "port"),
        ({"server": {"url": "redis://:secret@x"}}, "url"),
        ({"dagster": {"enabled": True}}, "dagster.postgres.existingSecret"),
        ({"alerts": {"enabled": True}}, "alerts.receiversSecret"),
        ({"alerts": {"rules": {"r": {"kind": "weather", "to": ["ops"]}}}}, "/alerts/rules/r/kind"),
        ({"alerts": {"rules": {"r": {"kind": "backlog", "to": ["https://x"]}}}}, "https://x"),
        (slow_worker(kind="keda", backlogSeconds=9, minReplicas=1), "prometheusAddress"),
        (
            slow_worker(kind="keda", backlogSeconds=9, prometheusAddress="http://prometheus"),
            "worker slow is scaled down to none, and then no worker reports its backlog",
        ),
        (slow_worker(kind="magic"), "kind"),
        ({"airflow": {"enabled": True}}, "airflow.image has Airflow"),
        ({"airflow": {"enabled": True, "image": "i"}}, "airflow.executionApiUrl is where tasks find"),
        ({"airflow": {"executionApiUrl": "host:8080"}}, "/airflow/executionApiUrl"),
        ({"airflow": {"workers": [{"name": "a"}]}}, "/airflow/workers/0"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(values: dict[str, Any], says: str) -> None:
    def install() -> None:
        with helm_python.Chart.load(str(CHART)) as chart:
            chart.validate_schema(values)
            chart.render(values, name="trial", namespace="data")

    with pytest.raises(helm_python.HelmError, match=re.escape(says)):
        install()
