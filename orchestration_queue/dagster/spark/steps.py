"""The worker's side: a task that runs scripts of one directory for Dagster's steps. Needs no Dagster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from orchestration_queue.dagster.pipes.session import pipes_environment, spark_properties
from orchestration_queue.dagster.pipes.writer import URL_VARIABLE
from orchestration_queue.dagster.spark.report import StepReport
from orchestration_queue.dagster.spark.script_run import PROGRESS_FILE, read_progress
from orchestration_queue.errors import InvalidOptionError, UnrecoverableError
from orchestration_queue.options import Options
from orchestration_queue.spark.connect.address import DEFAULT_USER
from orchestration_queue.spark.connect.server import ConnectServer
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.run import run_spark
from orchestration_queue.spark.runtime import server_for
from orchestration_queue.spark.submit.options import SparkSubmit
from orchestration_queue.spark.submit.run import run_submit
from orchestration_queue.worker import ActiveJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HARMLESS", "TASK", "ScriptItem", "spark_steps"]

TASK = "spark_step"
"""The task's name on every worker that runs scripts for steps."""


class ScriptItem(Options):
    """A script to run: the data of a job."""

    script: str
    """Its path below the worker's directory of scripts."""
    arguments: tuple[str, ...] = ()
    """Its words, as ``sys.argv[1:]``."""
    by_submit: bool = False
    """By ``spark-submit``, with a driver of its own; else in a session on the Connect server."""
    options: Mapping[str, Any] = {}
    """What is said of Spark's options, beside what the worker says."""

    @field_validator("script")
    @classmethod
    def _stays_below(cls, script: str) -> str:
        path = PurePosixPath(script)
        if not path.name or path.is_absolute() or ".." in path.parts or "\0" in script:
            raise InvalidOptionError(
                f"The script {script!r} is not a path below the worker's directory of scripts; pass a path relative to "
                "it, like 'daily/totals.py'."
            )
        return script

    @field_validator("arguments", mode="before")
    @classmethod
    def _are_words(cls, arguments: Any) -> object:
        is_list = isinstance(arguments, Sequence) and not isinstance(arguments, str)
        if not is_list or not all(isinstance(word, str) and "\0" not in word for word in arguments):
            raise InvalidOptionError(f"A script's `arguments` must be a list of strings, got {arguments!r}.")
        return tuple(arguments)

    @classmethod
    def of(cls, script: str, arguments: object, options: SparkOptions | None) -> ScriptItem:
        """As a caller says it: options for ``spark-submit`` ask for ``spark-submit``.

        Raises:
            InvalidOptionError: The script is no path below a directory, or its arguments are no words.
        """
        said = {} if options is None else options.model_dump(mode="json", exclude_unset=True)
        return cls(script=script, arguments=arguments, by_submit=isinstance(options, SparkSubmit), options=said)


HARMLESS = (
    "spark.sql.adaptive.*",
    "spark.sql.ansi.*",
    "spark.sql.files.*",
    "spark.sql.session.*",
    "spark.sql.shuffle.*",
)
"""Properties that a step may set unless the worker says otherwise: none of them brings code, files or addresses."""

_OF_SESSION = frozenset({"conf", "shuffle_partitions", "timeout"})
_OF_DRIVER = _OF_SESSION | {
    "app_name",
    "driver_cores",
    "executor_cores",
    "executor_memory",
    "executors",
    "memory",
}
"""What a step may say of an application of its own. Where it runs, and with which code, the worker says."""
_SCRIPT = Path(__file__).with_name("script_run.py")
_PIPELINE = Path(__file__).with_name("pipeline_run.py")
"""What runs declarative pipelines, whose specifications are scripts by another name."""


def spark_steps(
    scripts: str | Path,
    *,
    options: SparkSubmit | None = None,
    server: ConnectServer | None = None,
    conf: Collection[str] = HARMLESS,
    ui: str | None = None,
    url: str | None = None,
) -> Callable[..., Any]:
    """Make a task ``spark_step`` that runs scripts for :class:`PipesSparkClient`.

    A job names a script below the directory; nothing else can run. The script finds its Pipes session in its
    environment. Its output becomes the job's log and the step's compute log, and the variable ``result`` the job's
    result. It is stopped when the job ends, for any reason.

    Args:
        scripts: The directory.
        options: Where and how Spark runs. A step can set memory, numbers of executors and cores, a name, a timeout, and
            the properties in ``conf``.
        server: The Connect server for steps that don't request ``spark-submit``; default: the one at ``SPARK_REMOTE``,
            or else one on this machine.
        conf: Properties that a step may set: names, or patterns such as ``spark.sql.*``.
        ui: The URL of an application's page, such as ``http://history:18080/history/{application}``.
        url: The queue's server, for workers that don't get it from ``OQ_URL``.

    Raises:
        InvalidOptionError: There is no such directory.

    Examples:
        ::

            tasks.task(spark_steps("jobs", options=SparkSubmit(master="spark://host:7077")))
    """
    root = Path(scripts).absolute()
    if not root.is_dir():
        raise InvalidOptionError(
            f"`root` must be a directory that holds the scripts, got {str(root)!r}; create it or correct the path."
        )
    steps = _Steps(root, (options or SparkSubmit()).complete(), server, tuple(conf), ui, url)

    def spark_step(
        script: str,
        job: ActiveJob,
        arguments: Sequence[str] = (),
        by_submit: bool = False,
        options: dict[str, Any] | None = None,
    ) -> Any:
        return steps.run(
            ScriptItem(script=script, arguments=arguments, by_submit=by_submit, options=options or {}), job
        )

    assert spark_step.__name__ == TASK  # noqa: S101  under which steps look for it
    return spark_step


@dataclass(frozen=True, slots=True)
class _Steps:
    """What a worker lets steps do."""

    root: Path
    options: SparkSubmit
    server: ConnectServer | None
    conf: tuple[str, ...]
    ui: str | None
    url: str | None

    def run(self, work: ScriptItem, job: ActiveJob) -> Any:
        script = self._script(work)
        options = self._options(work)
        environment = pipes_environment(job, self.url) | ({} if self.url is None else {URL_VARIABLE: self.url})
        with StepReport(job, environment, self.ui, self.url) as report:
            if work.by_submit:
                if _is_pipeline(script):
                    raise UnrecoverableError(
                        f"The pipeline {work.script!r} runs on a Connect server, not by spark-submit; leave "
                        "SparkSubmit out."
                    )
                return self._submit(script, work, options, environment, report)
            return self._connect(script, work, options, environment, report)

    def _submit(
        self, script: Path, work: ScriptItem, options: SparkSubmit, environment: dict[str, str], report: StepReport
    ) -> Any:
        """Run a script by ``spark-submit`` or Livy. A driver in a cluster gets the environment as properties."""
        travels = spark_properties(environment) if options.is_away else {}
        variables = options.env if options.livy_url else {**options.env, **environment}
        given = {"env": variables, "conf": {**options.conf, **travels}}
        return run_submit(
            script,
            work.arguments,
            options.model_copy(update=given),
            log=report.log,
            should_stop=lambda: report.should_stop,
            job_id=report.id,
            progress=report.update_progress,
            earlier=report.record.progress,
        )

    def _connect(
        self, script: Path, work: ScriptItem, options: SparkSubmit, environment: dict[str, str], report: StepReport
    ) -> Any:
        """In a session on the Connect server, opened, watched, fenced and ended here, as for any Spark task."""
        from orchestration_queue.spark.connect.run import run_connect  # it needs gRPC, and takes a second to load

        server = self.server or server_for(self.options)
        program = [str(script), *work.arguments]
        if _is_pipeline(script):
            program.insert(0, str(_PIPELINE))

        def in_session(spark: SparkSession) -> Any:
            report.know(application=spark.conf.get("spark.app.id", "") or "")
            return self._beside(spark, program, environment | {"SPARK_REMOTE": _address(server, spark)}, report)

        how = SparkOptions(conf=options.conf, shuffle_partitions=options.shuffle_partitions, timeout=options.timeout)
        return run_connect(work.script, in_session, server, how, report)

    def _beside(self, spark: SparkSession, program: list[str], environment: dict[str, str], report: StepReport) -> Any:
        """In a process that shares the session: the script's words, variables and output are its own."""
        client: Any = spark.client  # which only sessions of Connect have
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "progress.json")

            def look_and_ask() -> bool:
                if (told := read_progress(file)) is not None:
                    report.advance(*told)
                return bool(client.is_closed)  # as it is when the job is cancelled, or over its time

            options = SparkOptions(
                env={**self.options.env, **environment, PROGRESS_FILE: str(file)},
                python=self.options.python,
                java_home=self.options.java_home,
                grace=self.options.grace,
            )
            return run_spark(_SCRIPT, program, options, log=report.log, should_stop=look_and_ask, job_id=report.id)

    def _script(self, work: ScriptItem) -> Path:
        """Return the script, once it is certain that it lies below the directory, links and all."""
        path = (self.root / work.script).resolve()
        if not path.is_relative_to(self.root.resolve()) or not path.is_file():
            raise UnrecoverableError(
                f"There is no script {work.script!r} below {self.root}; put it there on every worker, or correct its "
                "name."
            )
        return path

    def _options(self, work: ScriptItem) -> SparkSubmit:
        """Merge what the worker and the step say."""
        allowed = _OF_DRIVER if work.by_submit else _OF_SESSION
        if strange := sorted(work.options.keys() - allowed):
            kind = "an application" if work.by_submit else "a session"
            raise UnrecoverableError(
                f"A step can't set {strange[0]!r} for {kind} on this worker, only {', '.join(sorted(allowed))}; set it "
                "on the worker: spark_steps(options=...)."
            )
        said = dict(work.options)
        conf = said.pop("conf", {})
        for name in conf:
            if not any(fnmatchcase(name, pattern) for pattern in self.conf):
                raise UnrecoverableError(
                    f"A step can't set the property {name!r} on this worker, only {', '.join(self.conf)}; allow it "
                    "on the worker: spark_steps(conf=...)."
                )
        mine = self.options.model_dump(exclude_unset=True)
        # The worker's properties are those of its applications; a server has its own.
        base = dict(self.options.conf) if work.by_submit else {}
        try:
            return SparkSubmit(**mine | said | {"conf": base | conf})
        except InvalidOptionError as error:
            raise UnrecoverableError(str(error)) from None


def _is_pipeline(script: Path) -> bool:
    return script.suffix in (".yml", ".yaml")


def _address(server: ConnectServer, spark: SparkSession) -> str:
    """Return the address of the very session, for a process that shares it."""
    client: Any = spark.client
    builder = client._builder
    base = server.url or f"sc://{builder.endpoint}/;token={client.token}"
    given = {"session_id": spark.session_id, "user_id": builder.userId or DEFAULT_USER}  # type: ignore[attr-defined]
    return f"{base.rstrip(';/')}{'' if ';' in base else '/'};" + ";".join(f"{n}={v}" for n, v in given.items())
