"""Track applications on YARN and Kubernetes: find them by a tag, follow them by their ids, and end them."""

from __future__ import annotations

import getpass
import os
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlencode

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.spark.failure import LINES_KEPT
from orchestration_queue.spark.submit.http import HttpServer
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["KubernetesTracker", "RemoteApplication", "Tracker", "YarnTracker", "add_tag", "find_tracker"]

_KUBERNETES = "k8s://"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LABEL = "orchestration-queue-submission"
_AUTHENTICATE = "spark.kubernetes.authenticate.submission."


@dataclass(frozen=True, slots=True)
class RemoteApplication:
    """The status of an application, as a cluster reports it.

    Attributes:
        id: The cluster's id of the application.
        state: The cluster's name of its state.
        outcome: How it ended; empty while it runs.
        message: The cluster's reason for the outcome.
        percent: Its progress, if known.
        about: Its part of a job's result and progress.
    """

    id: str
    state: str
    outcome: Literal["", "succeeded", "failed"] = ""
    message: str = ""
    percent: int = 0
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tracker(ABC):
    """Tracks the applications of a cluster.

    Attributes:
        server: The cluster's API, with our credentials.
        kind: The kind of cluster: ``yarn``, ``kubernetes`` or ``livy``.
        reads_on: Whether logs are read line by line while an application runs; otherwise after its end.
    """

    server: HttpServer
    kind: ClassVar[str] = ""
    reads_on: ClassVar[bool] = False

    @property
    def url(self) -> str:
        """The address of the API."""
        return self.server.url

    @abstractmethod
    def properties(self, tag: str) -> dict[str, str]:
        """Return Spark's properties by which an application carries a tag."""

    @abstractmethod
    def find(self, tag: str) -> RemoteApplication | None:
        """Return the newest application that carries a tag."""

    @abstractmethod
    def status(self, application: str) -> RemoteApplication | None:
        """Return the status of an application; None when it is unknown."""

    @abstractmethod
    def kill(self, application: str) -> None:
        """Ask the cluster to end an application."""

    @abstractmethod
    def read_log(self, application: str, first: int) -> Sequence[str]:
        """Return lines of its driver: those starting at ``first`` if it ``reads_on``, else the last ones."""


def add_tag(properties: Mapping[str, str], tag: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with a tag added to the user's tags."""
    return {**properties, **{name: ",".join(filter(None, (properties.get(name), tag[name]))) for name in tag}}


def find_tracker(options: SparkSubmit) -> Tracker | None:
    """Return the tracker of drivers that ``spark-submit`` puts on YARN or Kubernetes; None without access to an API."""
    if options.deploy_mode != "cluster" or options.is_on_standalone_cluster:
        return None
    if options.master.startswith(_KUBERNETES):
        return KubernetesTracker.of(options)
    if options.master == "yarn" and options.rest_url:
        user = options.proxy_user or os.environ.get("HADOOP_USER_NAME") or _user_name()
        return YarnTracker(HttpServer(options.rest_url.rstrip("/")), user)
    return None


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # of Python before 3.13, and since
        raise UsageError(
            f"The user id {os.getuid()} has no name, but YARN asks for one; set HADOOP_USER_NAME or "
            "SparkSubmit.proxy_user."
        ) from None


@dataclass(frozen=True, slots=True)
class YarnTracker(Tracker):
    """YARN's ResourceManager, through its REST API.

    Attributes:
        user: The user who ends applications.
    """

    user: str
    kind: ClassVar[str] = "yarn"

    def properties(self, tag: str) -> dict[str, str]:
        """Return the property of YARN's tags, which are in lower case."""
        return {"spark.yarn.tags": tag}

    def find(self, tag: str) -> RemoteApplication | None:
        """Return the newest application that carries a tag."""
        said = self.server.call("GET", f"/ws/v1/cluster/apps?{urlencode({'applicationTags': tag})}") or {}
        found: list[dict[str, Any]] = (said.get("apps") or {}).get("app") or []
        newest = max(found, key=lambda one: int(one.get("startedTime") or 0), default=None)
        return _read_yarn(newest) if newest else None

    def status(self, application: str) -> RemoteApplication | None:
        """Return the status of an application."""
        said = self.server.call("GET", f"/ws/v1/cluster/apps/{quote(application, safe='')}")
        return _read_yarn(said["app"]) if said and isinstance(said.get("app"), dict) else None

    def kill(self, application: str) -> None:
        """Ask YARN to end an application."""
        path = f"/ws/v1/cluster/apps/{quote(application, safe='')}/state?{urlencode({'user.name': self.user})}"
        self.server.call("PUT", path, {"state": "KILLED"})

    def read_log(self, application: str, first: int) -> Sequence[str]:
        """Return nothing: containers' logs are on the nodes, on pages for humans."""
        del application, first
        return ()


def _read_yarn(app: Mapping[str, Any]) -> RemoteApplication:
    state, final = str(app.get("state", "")), str(app.get("finalStatus", ""))
    outcome: Literal["", "succeeded", "failed"] = ""
    # FINISHED says that the application reported its end, not whether it succeeded.
    if state in ("FINISHED", "FAILED", "KILLED"):
        outcome = "succeeded" if (state, final) == ("FINISHED", "SUCCEEDED") else "failed"
    about = {"application": str(app["id"])} | ({"ui": str(app["trackingUrl"])} if app.get("trackingUrl") else {})
    ended = f"{state}, {final}" if outcome == "failed" and final not in ("", state) else state
    percent = min(100, max(0, int(float(app.get("progress") or 0))))
    return RemoteApplication(str(app["id"]), ended, outcome, str(app.get("diagnostics") or ""), percent, about)


@dataclass(frozen=True, slots=True)
class KubernetesTracker(Tracker):
    """The API server of Kubernetes, where a driver is a pod.

    Attributes:
        namespace: Where the driver's pod is.
    """

    namespace: str = "default"
    kind: ClassVar[str] = "kubernetes"

    @classmethod
    def of(cls, options: SparkSubmit) -> KubernetesTracker | None:
        """Return a tracker with the credentials of ``spark-submit``; None without any.

        Raises:
            InvalidOptionError: A file that the properties name cannot be read.
        """
        address = options.rest_url or options.master.removeprefix(_KUBERNETES)
        url = (address if re.match("https?://", address) else f"https://{address}").rstrip("/")
        conf = {
            name.removeprefix(_AUTHENTICATE): value
            for name, value in options.conf.items()
            if name.startswith(_AUTHENTICATE)
        }
        try:
            token = conf.get("oauthToken") or _read_token(conf.get("oauthTokenFile"))
            tls = _trust(conf) if url.startswith("https") else None
        except (OSError, ssl.SSLError) as error:
            raise InvalidOptionError(
                f"Cannot read a file that {_AUTHENTICATE}* names ({error}); correct its path in SparkSubmit.conf."
            ) from None
        if url.startswith("https") and not token and "clientCertFile" not in conf:
            return None
        server = HttpServer(url, {"Authorization": f"Bearer {token}"} if token else {}, tls)
        return cls(server, options.conf.get("spark.kubernetes.namespace", "default"))

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods"

    def properties(self, tag: str) -> dict[str, str]:
        """Return the label of the driver's pod."""
        return {f"spark.kubernetes.driver.label.{_LABEL}": tag}

    def find(self, tag: str) -> RemoteApplication | None:
        """Return the newest application that carries a tag."""
        wanted = urlencode({"labelSelector": f"{_LABEL}={tag}"})
        said = self.server.call("GET", f"{self._pods}?{wanted}") or {}
        found: list[dict[str, Any]] = said.get("items") or []
        newest = max(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""), default=None)
        return _read_pod(newest) if newest else None

    def status(self, application: str) -> RemoteApplication | None:
        """Return the status of an application."""
        said = self.server.call("GET", f"{self._pods}/{quote(application, safe='')}")
        return _read_pod(said) if said else None

    def kill(self, application: str) -> None:
        """Delete the pod, and with it the executors."""
        self.server.call("DELETE", f"{self._pods}/{quote(application, safe='')}")

    def read_log(self, application: str, first: int) -> Sequence[str]:
        """Return the last lines, because Kubernetes cannot start at a given one."""
        del first
        answer = self.server.ask("GET", f"{self._pods}/{quote(application, safe='')}/log?tailLines={LINES_KEPT}")
        return answer.body.decode("utf-8", "replace").splitlines() if answer else ()


def _read_token(path: str | None) -> str:
    file = Path(path) if path else _SERVICE_ACCOUNT / "token"
    return file.read_text("utf-8").strip() if path or file.is_file() else ""


def _trust(conf: Mapping[str, str]) -> ssl.SSLContext:
    authority = conf.get("caCertFile")
    if authority is None and (_SERVICE_ACCOUNT / "ca.crt").is_file():
        authority = str(_SERVICE_ACCOUNT / "ca.crt")
    context = ssl.create_default_context(cafile=authority)
    if "clientCertFile" in conf:
        context.load_cert_chain(conf["clientCertFile"], conf.get("clientKeyFile"))
    return context


def _read_pod(pod: Mapping[str, Any]) -> RemoteApplication:
    name, status = str(pod["metadata"]["name"]), pod.get("status") or {}
    phase = str(status.get("phase", ""))
    outcomes: dict[str, Literal["succeeded", "failed"]] = {"Succeeded": "succeeded", "Failed": "failed"}
    labels = pod["metadata"].get("labels") or {}
    about = {"driver": name}
    if application := labels.get("spark-app-selector"):
        about["application"] = str(application)
    return RemoteApplication(name, phase, outcomes.get(phase, ""), _why_pod(status), 0, about)


def _why_pod(status: Mapping[str, Any]) -> str:
    """Return why a pod failed: its own message, or how its container ended."""
    for container in status.get("containerStatuses") or ():
        if ended := (container.get("state") or {}).get("terminated"):
            said = f"{ended.get('reason') or 'it ended'}, exit code {ended.get('exitCode')}"
            return str(status.get("message") or said)
    return str(status.get("message") or status.get("reason") or "")
