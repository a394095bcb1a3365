"""The worker's side: a task that runs scripts of one directory for Dagster's steps; imports no Dagster."""

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
    """The script's path below the worker's directory of scripts."""
    arguments: tuple[str, ...] = ()
    """The script's arguments, ``sys.argv[1:]``."""
    by_submit: bool = False
    """Whether ``spark-submit`` runs it as an application, instead of a session on the Connect server."""
    options: Mapping[str, Any] = {}
    """Spark options in addition to the worker's."""

    @field_validator("script")
    @classmethod
    def _stays_below(cls, script: str) -> str:
        path = PurePosixPath(script)
        if not path.name or path.is_absolute() or ".." in path.parts or "\0" in script:
            raise InvalidOptionError(
                f"`script` must be a path relative to the worker's directory of scripts, got {script!r}; pass a path "
                "such as 'daily/totals.py'."
            )
        return script

    @field_validator("arguments", mode="before")
    @classmethod
    def _are_words(cls, arguments: Any) -> object:
        is_list = isinstance(arguments, Sequence) and not isinstance(arguments, str)
        if not is_list or not all(isinstance(word, str) and "\0" not in word for word in arguments):
            raise InvalidOptionError(f"`arguments` of a script must be a list of strings, got {arguments!r}.")
        return tuple(arguments)

    @classmethod
    def of(cls, script: str, arguments: object, options: SparkOptions | None) -> ScriptItem:
        """Build the data of a job; ``spark-submit`` runs it if the options are a :class:`SparkSubmit`.

        Raises:
            InvalidOptionError: The script is not a relative path, or its arguments are not a list of strings.
        """
        given = {} if options is None else options.model_dump(mode="json", exclude_unset=True)
        return cls(script=script, arguments=arguments, by_submit=isinstance(options, SparkSubmit), options=given)


HARMLESS = (
    "spark.sql.adaptive.*",
    "spark.sql.ansi.*",
    "spark.sql.files.*",
    "spark.sql.session.*",
    "spark.sql.shuffle.*",
)
"""Properties that a step may set by default: none of them adds code, files or addresses."""

_OF_SESSION = frozenset({"conf", "shuffle_partitions", "timeout"})
_OF_DRIVER = _OF_SESSION | {
    "app_name",
    "driver_cores",
    "executor_cores",
    "executor_memory",
    "executors",
    "memory",
}
"""Options of an application that a step may set. The worker sets its cluster and its code."""
_SCRIPT = Path(__file__).with_name("script_run.py")
_PIPELINE = Path(__file__).with_name("pipeline_run.py")
"""The program for declarative pipelines; a job names their specification instead of a script."""


def spark_steps(
    scripts: str | Path,
    *,
    options: SparkSubmit | None = None,
    server: ConnectServer | None = None,
    conf: Collection[str] = HARMLESS,
    ui: str | None = None,
    url: str | None = None,
) -> Callable[..., Any]:
    """Build a task ``spark_step`` that runs scripts for :class:`PipesSparkClient`.

    A job can only run a script below the directory. The script finds its Pipes session in its environment. Its output
    becomes the job's log and the step's compute log, and its variable ``result`` the job's result. It is stopped when
    the job ends for any reason.

    Args:
        scripts: The directory.
        options: Spark's options. A step can set memory, numbers of executors and cores, a name, a timeout, and the
            properties in ``conf``.
        server: The Connect server for steps that don't request ``spark-submit``; default: the one at ``SPARK_REMOTE``,
            or else one on this machine.
        conf: Properties that a step may set: names, or patterns such as ``spark.sql.*``.
        ui: The URL of an application's page, such as ``http://history:18080/history/{application}``.
        url: The queue's server, for workers that don't get it from ``OQ_URL``.

    Raises:
        InvalidOptionError: The directory does not exist.

    Examples:
        ::

            tasks.task(spark_steps("jobs", options=SparkSubmit(master="spark://host:7077")))
    """
    root = Path(scripts).absolute()
    if not root.is_dir():
        raise InvalidOptionError(
            f"`scripts` must be an existing directory, got {str(root)!r}; create it, or correct the path."
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

    assert spark_step.__name__ == TASK  # noqa: S101  steps add jobs with this name
    return spark_step


@dataclass(frozen=True, slots=True)
class _Steps:
    """The scripts and options that a worker offers to steps."""

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
                        f"The pipeline {work.script!r} requires a Connect server and can't run by spark-submit; pass "
                        "SparkOptions, or none."
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
        """Run a script in a session on the Connect server, which this worker opens, watches and ends."""
        from orchestration_queue.spark.connect.run import run_connect  # it imports gRPC, which takes a second

        server = self.server or server_for(self.options)
        program = [str(script), *work.arguments]
        if _is_pipeline(script):
            program.insert(0, str(_PIPELINE))

        def in_session(spark: SparkSession) -> Any:
            report.know(application=spark.conf.get("spark.app.id", "") or "")
            return self._run_process(spark, program, environment | {"SPARK_REMOTE": _address(server, spark)}, report)

        how = SparkOptions(conf=options.conf, shuffle_partitions=options.shuffle_partitions, timeout=options.timeout)
        return run_connect(work.script, in_session, server, how, report)

    def _run_process(
        self, spark: SparkSession, program: list[str], environment: dict[str, str], report: StepReport
    ) -> Any:
        """Run a script in a process that shares the session, with its own arguments, variables and output."""
        client: Any = spark.client  # only Connect sessions have one
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "progress.json")

            def report_and_check() -> bool:
                if (progress := read_progress(file)) is not None:
                    report.advance(*progress)
                return bool(client.is_closed)  # it is closed when the job is cancelled, or exceeds its timeout

            options = SparkOptions(
                env={**self.options.env, **environment, PROGRESS_FILE: str(file)},
                python=self.options.python,
                java_home=self.options.java_home,
                grace=self.options.grace,
            )
            return run_spark(_SCRIPT, program, options, log=report.log, should_stop=report_and_check, job_id=report.id)

    def _script(self, work: ScriptItem) -> Path:
        """Return the script's path, after resolving links, if it is below the directory."""
        path = (self.root / work.script).resolve()
        if not path.is_relative_to(self.root.resolve()) or not path.is_file():
            raise UnrecoverableError(
                f"Script {work.script!r} does not exist below {self.root}; copy it there on every worker, or correct "
                "its name."
            )
        return path

    def _options(self, work: ScriptItem) -> SparkSubmit:
        """Merge the options of the worker and the step."""
        allowed = _OF_DRIVER if work.by_submit else _OF_SESSION
        if other := sorted(work.options.keys() - allowed):
            kind = "an application" if work.by_submit else "a session"
            raise UnrecoverableError(
                f"A step can't set {other[0]!r} for {kind} on this worker, only {', '.join(sorted(allowed))}; set it "
                "on the worker: spark_steps(options=...)."
            )
        given = dict(work.options)
        conf = given.pop("conf", {})
        for name in conf:
            if not any(fnmatchcase(name, pattern) for pattern in self.conf):
                raise UnrecoverableError(
                    f"A step can't set the property {name!r} on this worker, only {', '.join(self.conf)}; allow it "
                    "on the worker: spark_steps(conf=...)."
                )
        own = self.options.model_dump(exclude_unset=True)
        # The worker's properties apply to applications; a server has its own.
        base = dict(self.options.conf) if work.by_submit else {}
        try:
            return SparkSubmit(**own | given | {"conf": base | conf})
        except InvalidOptionError as error:
            raise UnrecoverableError(str(error)) from None


def _is_pipeline(script: Path) -> bool:
    return script.suffix in (".yml", ".yaml")


def _address(server: ConnectServer, spark: SparkSession) -> str:
    """Return the address of the session itself, for a process that shares it."""
    client: Any = spark.client
    builder = client._builder
    base = server.url or f"sc://{builder.endpoint}/;token={client.token}"
    given = {"session_id": spark.session_id, "user_id": builder.userId or DEFAULT_USER}  # type: ignore[attr-defined]
    return f"{base.rstrip(';/')}{'' if ';' in base else '/'};" + ";".join(f"{n}={v}" for n, v in given.items())
