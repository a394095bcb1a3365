"""The arguments of ``spark-submit`` as a frozen value. Pure, except that it may read a properties file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.spark.options import SparkOptions

__all__ = ["SparkSubmit"]

_Memory = Annotated[str, Field(pattern=r"^\d+[kmgt]?$")]
_Count = Annotated[int, Field(ge=1)]

_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[^/:@\s\[\]]+)(:\d+)?(/[^\s?#]*)?")
_TEMPLATE = re.compile(r"https?://[^\s{}]+(\{application\}[^\s{}]*)?")


def _check_url(url: str) -> str:
    if not _URL.fullmatch(url):
        raise ValueError("must be an address without user and query, such as http://host:6066")
    return url


def _check_template(url: str) -> str:
    if not _TEMPLATE.fullmatch(url):
        raise ValueError("must be an address, such as http://history:18080/history/{application}/jobs/")
    return url


def _check_entry(entry: str) -> str:
    if not entry or re.search(r"[,\0\n\r]", entry):
        raise ValueError(
            "has an entry that is empty or contains a comma, which separates entries; pass each separately"
        )
    return entry


_Url = Annotated[str, AfterValidator(_check_url)]
_Template = Annotated[str, AfterValidator(_check_template)]
_Entries = tuple[Annotated[str, AfterValidator(_check_entry)], ...]

_STANDALONE = "spark://"
_LIVY = "livy"
_NOT_BY_LIVY = ("env", "python", "java_home", "listener_jar", "principal", "keytab")
# A standalone master's defaults.
_REST_PORT = 6066
_WEB_PORT = 8080

_PROPERTY = re.compile(r"\s*((?:\\.|[^\s=:\\])+)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class SparkSubmit(SparkOptions):
    """How an application runs: everything in :class:`SparkOptions`, and options for a cluster and for files."""

    main_class: str | None = None
    """The main class, if the application is a jar."""
    packages: _Entries = ()
    """Maven coordinates, ``group:artifact:version``, to fetch with their dependencies."""
    exclude_packages: _Entries = ()
    """``group:artifact`` of dependencies not to fetch."""
    repositories: _Entries = ()
    """Further Maven repositories, besides Maven Central."""
    jars: _Entries = ()
    """Jars for the class path of driver and executors."""
    py_files: _Entries = ()
    """Python files, eggs and archives for the path of driver and executors."""
    files: _Entries = ()
    """Files for the working directory of each executor."""
    archives: _Entries = ()
    """Archives to unpack in the working directory of each executor, as ``environment.tar.gz#environment``."""
    queue: str | None = None
    """YARN's queue."""
    proxy_user: str | None = None
    """Run as this user. Not together with a keytab."""
    principal: str | None = None
    """Kerberos principal that logs in with ``keytab``."""
    keytab: str | None = None
    """Path of the principal's key table."""
    driver_cores: _Count | None = None
    """Cores of a driver in a cluster."""
    executors: _Count | None = None
    """Number of executors."""
    executor_memory: _Memory | None = None
    """The heap of each executor."""
    executor_cores: _Count | None = None
    """Cores of each executor."""
    deploy_mode: Literal["client", "cluster"] = "client"
    """Where the driver runs: on the worker's machine, or on a machine of the cluster."""
    livy_url: _Url | None = None
    """The Livy server that submits the application to its cluster."""
    rest_url: _Url | None = None
    """The API that controls drivers, for ``deploy_mode="cluster"``.

    A standalone master's submission server, by default port 6066 of its host; YARN's ResourceManager,
    ``http://host:8088``; Kubernetes' API server, by default the master.
    """
    web_url: _Url | None = None
    """The web UI of a standalone master, which leads to a driver's log; default: port 8080 of its host."""
    listener_jar: str | None = None
    """Where the cluster's machines find this package's ``spark/listener.jar``.

    Without it, a driver there reports no progress.
    """
    ui_url: _Template | None = None
    """The URL of the application's page, with ``{application}`` for its id; default: the page of a standalone master.

    For example ``http://history:18080/history/{application}/jobs/``.
    """
    properties_file: Path | None = None
    """A file with Spark's properties, in Java's format; ``conf`` takes precedence."""

    @property
    def own_properties(self) -> dict[str, str]:
        """The properties that the fields of this class set."""
        lists = {
            "spark.jars.packages": self.packages,
            "spark.jars.excludes": self.exclude_packages,
            "spark.jars.repositories": self.repositories,
            "spark.jars": self.jars,
            "spark.submit.pyFiles": self.py_files,
            "spark.files": self.files,
            "spark.archives": self.archives,
        }
        values = {
            "spark.driver.cores": self.driver_cores,
            "spark.executor.instances": self.executors,
            "spark.executor.memory": self.executor_memory,
            "spark.executor.cores": self.executor_cores,
            "spark.yarn.queue": self.queue,
            "spark.kerberos.principal": self.principal,
            "spark.kerberos.keytab": self.keytab,
        }
        said = {name: ",".join(entries) for name, entries in lists.items() if entries}
        return said | {name: str(value) for name, value in values.items() if value is not None}

    def properties(self, scratch: Path, name: str, job_id: str | None) -> dict[str, str]:
        """Return all of Spark's properties for one run; see :meth:`SparkOptions.properties`."""
        properties = self.own_properties | super().properties(scratch, name, job_id)
        if self.deploy_mode == "client":
            return properties
        # Drop Java options that refer to files of this machine.
        java = "spark.driver.extraJavaOptions"
        elsewhere = {name: value for name, value in properties.items() if name != java}
        theirs = {java: self.conf[java]} if java in self.conf else {}
        mode = {} if self.is_on_standalone_cluster else {"spark.submit.deployMode": "cluster"}
        return {"spark.log.level": "WARN"} | elsewhere | theirs | mode

    @property
    def is_away(self) -> bool:
        """Whether the driver runs on machines to which only properties are sent: by YARN, Kubernetes or Livy."""
        return self.livy_url is not None or (self.deploy_mode == "cluster" and not self.is_on_standalone_cluster)

    @property
    def is_on_standalone_cluster(self) -> bool:
        """Whether a standalone master runs the driver."""
        return self.deploy_mode == "cluster" and self.master.startswith(_STANDALONE)

    @property
    def master_urls(self) -> tuple[str, str]:
        """A standalone master's submission server and web UI.

        Raises:
            InvalidOptionError: There are several masters, and no option selects one.
        """
        first, *others = self.master.removeprefix(_STANDALONE).split(",")
        if others and not (self.rest_url and self.web_url):
            raise InvalidOptionError(
                f"SparkSubmit.master {self.master!r} has several masters, and requests go to one; pass rest_url and "
                "web_url of the active one, or of an address that leads to it."
            )
        host = first.rpartition(":")[0] or first
        return self.rest_url or f"http://{host}:{_REST_PORT}", self.web_url or f"http://{host}:{_WEB_PORT}"

    @property
    def ui_template(self) -> str | None:
        """The URL of an application's page; None if it is unknown."""
        if self.ui_url or not self.master.startswith(_STANDALONE) or ("," in self.master and not self.web_url):
            return self.ui_url
        host = self.master.removeprefix(_STANDALONE).rpartition(":")[0]
        return f"{self.web_url or f'http://{host}:{_WEB_PORT}'}/app/?appId={{application}}"

    def complete(self) -> SparkSubmit:
        """Return the options without a properties file: with its contents in ``conf``, and its master if none is given.

        Raises:
            InvalidOptionError: The file can't be read, or the driver can't run where it should.
        """
        complete = self._with_file()
        if complete.livy_url:
            complete = complete._by_livy()
        if complete.proxy_user and (complete.keytab or complete.principal):
            raise InvalidOptionError(
                "SparkSubmit.proxy_user excludes principal and keytab, because Spark uses one identity; remove one."
            )
        if (complete.principal is None) != (complete.keytab is None):
            raise InvalidOptionError("SparkSubmit.principal and keytab need each other; pass both, or neither.")
        if complete.deploy_mode == "cluster":
            if complete.is_local:
                raise InvalidOptionError(
                    f"SparkSubmit.deploy_mode='cluster' needs a cluster, got master {complete.master!r}; pass "
                    "master='spark://host:7077', 'yarn' or 'k8s://...'."
                )
            if complete.conf.get("spark.driver.supervise", "false").lower() != "false":
                raise InvalidOptionError(
                    "`spark.driver.supervise` must not be set, because the queue already retries drivers; remove it."
                )
        return complete

    def _by_livy(self) -> SparkSubmit:
        """Return the options for a driver that Livy places."""
        if "master" in self.model_fields_set:
            raise InvalidOptionError(
                f"SparkSubmit.livy_url excludes master, because Livy has its own, got {self.master!r}; remove one."
            )
        for name in _NOT_BY_LIVY:
            if getattr(self, name):
                raise InvalidOptionError(
                    f"SparkSubmit.{name} has no effect on a driver that Livy starts; set properties in "
                    "SparkSubmit.conf instead, or remove it."
                )
        return self.model_copy(update={"master": _LIVY, "deploy_mode": "cluster"})

    def _with_file(self) -> SparkSubmit:
        if self.properties_file is None:
            return self
        try:
            found = _read_properties(self.properties_file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOptionError(
                f"Cannot read the properties file {self.properties_file} ({error}); correct its path or contents."
            ) from None
        mine = {} if "master" in self.model_fields_set else {"master": found.get("spark.master", self.master)}
        conf = {name: value for name, value in found.items() if name != "spark.master"} | dict(self.conf)
        return self.model_copy(update={"properties_file": None, "conf": conf, **mine})


def _read_properties(text: str) -> dict[str, str]:
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\\n[ \t]*", r"\1", text)  # a line that continues in the next
    lines = (line.strip() for line in joined.splitlines())
    found = (_PROPERTY.match(line) for line in lines if line and line[0] not in "#!")
    return {_unescape(match[1]): _unescape(match[2]) for match in found if match}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
