"""Components: Spark steps written in YAML and scaffolded by ``dg``, run at a partition, or as a queue's events ask."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.base import QueueScaffolder, element_of, partitions_definition, words
from orchestration_queue.dagster.components.queue import QueueEventSensorComponent
from orchestration_queue.dagster.spark.client import PipesSparkClient
from orchestration_queue.dagster.spark.steps import ScriptItem
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.submit.options import SparkSubmit

__all__ = ["SparkClientComponent", "SparkPartitions", "SparkStepComponent", "SparkStepOptions"]

R = TypeVar("R", bound=dg.Resolvable)

_PARTITION = "{partition}"
"""The placeholder in arguments for the key of the partition that a run makes."""


def _nested(kind: type[R], field: str) -> dg.Resolver:
    """How a field that is a mapping is read: its mistakes are told by their place."""

    def read(context: dg.ResolutionContext, value: Any) -> R:
        return element_of(kind, context, value, field)

    return dg.Resolver(read, model_field_type=Any, json_schema_extra=kind.model().model_json_schema())


def _sensor(context: dg.ResolutionContext, model: Any) -> QueueEventSensorComponent | None:
    """Build the sensor of a step: what it leaves out follows from the step."""
    if model.on_event is None or not isinstance(model.on_event, Mapping):
        return (
            None
            if model.on_event is None
            else element_of(QueueEventSensorComponent, context, model.on_event, "on_event")
        )
    key = dg.AssetKey.from_user_string(model.asset)
    known = {"name": f"{key.to_python_identifier()}_on_event", "target": f'key:"{model.asset}"'}
    given = {**known, "resource_key": model.resource_key, **model.on_event}
    return element_of(QueueEventSensorComponent, context, given, "on_event")


class SparkStepOptions(dg.Model, dg.Resolvable):
    """How a script runs. The worker says where, and what of this may be said."""

    runtime: Literal["connect", "submit"] = Field(
        default="connect",
        description="'connect': a session on the worker's Connect server; 'submit': an application by spark-submit.",
    )
    app_name: str | None = Field(default=None, description="The application's name.")
    memory: str | None = Field(default=None, description="The driver's heap.")
    driver_cores: int | None = Field(default=None, description="Cores of a driver that runs in a cluster.")
    executors: int | None = Field(default=None, description="How many executors.")
    executor_memory: str | None = Field(default=None, description="The heap of each executor.")
    executor_cores: int | None = Field(default=None, description="Cores of each executor.")
    shuffle_partitions: int | None = Field(default=None, description="Parts of a shuffle.")
    timeout_seconds: float | None = Field(default=None, description="The longest that Spark may take.")
    conf: dict[str, str | int | float | bool] = Field(default_factory=dict, description="Spark's properties.")

    def model_post_init(self, context: Any) -> None:
        """Refuse at once what could never run; limits in the fields themselves would refuse templates."""
        super().model_post_init(context)
        self.options()

    def options(self) -> SparkOptions:
        """Return the same as code would write it."""
        said = {name: value for name, value in self if value is not None and name not in ("runtime", "timeout_seconds")}
        said["conf"] = {name: _word(value) for name, value in self.conf.items()}
        if not self.conf:
            said.pop("conf")
        if self.timeout_seconds is not None:
            said["timeout"] = timedelta(seconds=self.timeout_seconds)
        if self.runtime == "submit":
            return SparkSubmit(**said)
        if of_application := sorted(said.keys() - {"conf", "shuffle_partitions", "timeout"}):
            raise InvalidOptionError(
                f"{of_application[0]} belongs to an application, and a session can't have its own; add runtime: submit."
            )
        return SparkOptions(**said)


class SparkPartitions(dg.Model, dg.Resolvable):
    """The partitions of a step's asset."""

    kind: Literal["hourly", "daily", "weekly", "monthly", "static", "dynamic"] = Field(description="Of which kind.")
    start: str | None = Field(default=None, description="The first, such as 2013-01-01; for partitions of time.")
    end: str | None = Field(default=None, description="Where they end; default never.")
    tz: str | None = Field(default=None, description="The time zone of partitions of time; default UTC.")
    values: Annotated[Sequence[str], words("values")] = Field(default=(), description="The keys, if they are static.")
    name: str | None = Field(default=None, description="The name under which dynamic ones are added.")

    def model_post_init(self, context: Any) -> None:
        """Refuse at once what makes no partitions."""
        super().model_post_init(context)
        self.definition()

    def definition(self) -> dg.PartitionsDefinition[str]:
        """Return the same as code would write it."""
        return partitions_definition(self.kind, self.start, self.end, self.tz, self.values, self.name)


class _StepScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {
        "asset": "{name}",
        "script": "{name}.py",
        "queue": "{queue}",
        "arguments": ["--full"],
        "spark": {"runtime": "connect", "shuffle_partitions": 8},
    }


@dg.scaffold_with(_StepScaffolder)
class SparkStepComponent(dg.Component, dg.Model, dg.Resolvable):
    """One asset that Spark makes, as a job on the queue: a script below the workers' directory, or a task of theirs."""

    asset: str = Field(description="The asset's key; parts are separated by '/'.")
    script: str | None = Field(default=None, description="The script, as seen from the workers' directory of scripts.")
    task: str | None = Field(default=None, description="Instead, the name of a Spark task of the workers'.")
    arguments: list[str | int | float | bool] | dict[str, Any] | None = Field(
        default=None,
        description="A script's words, or a task's keyword arguments; '{partition}' stands for the partition's key.",
    )
    spark: Annotated[SparkStepOptions | None, _nested(SparkStepOptions, "spark")] = Field(
        default=None, description="How a script runs."
    )
    queue: str | None = Field(default=None, description="Where the job runs; default the client's.")
    partitions: Annotated[SparkPartitions | None, _nested(SparkPartitions, "partitions")] = Field(
        default=None, description="The asset's partitions."
    )
    on_event: Annotated[
        QueueEventSensorComponent | None,
        dg.Resolver.from_model(
            _sensor, model_field_type=Any, json_schema_extra={"type": "object", "required": ["queue"]}
        ),
    ] = Field(default=None, description="Run it for each event of a queue: as QueueEventSensorComponent has it.")
    deps: Annotated[Sequence[str], words("deps")] = Field(default=(), description="Keys of assets it depends on.")
    checks: Annotated[Sequence[str], words("checks")] = Field(
        default=(), description="Names of the checks that the work reports."
    )
    description: str | None = Field(default=None, description="What the UI shows.")
    group: str | None = Field(default=None, description="The asset's group.")
    owners: Annotated[Sequence[str], words("owners")] = Field(default=(), description="Mail addresses, or team:name.")
    tags: dict[str, str] = Field(default_factory=dict, description="The asset's tags.")
    attempts: int = Field(default=1, description="How often the job is tried.")
    priority: int = Field(default=0, description="1 is the most urgent, 0 means no priority.")
    retries: int = Field(default=0, description="How often Dagster tries the step again.")
    pool: str | None = Field(default=None, description="Dagster's concurrency pool for the step.")
    resource_key: str = Field(default="spark", description="The PipesSparkClient among the definitions' resources.")

    def model_post_init(self, context: Any) -> None:
        """Refuse at once what could never run; limits in the fields themselves would refuse templates."""
        super().model_post_init(context)
        self._check()

    def _check(self) -> None:
        where = f"Spark step {self.asset!r}"
        if (self.script is None) == (self.task is None):
            raise InvalidOptionError(f"{where} names {'both' if self.task else 'neither'} script and task; give one.")
        if self.task is not None and isinstance(self.arguments, list):
            raise InvalidOptionError(
                f"{where} has a list of arguments, and a task takes them by name; write a mapping."
            )
        if self.task is not None and self.spark is not None:
            raise InvalidOptionError(f"{where} has options for Spark, and a task has its own; drop spark.")
        if self.script is not None:
            ScriptItem.of(self.script, self._arguments(""), None)
        if self.retries < 0:
            raise InvalidOptionError(f"`retries` of {where} must be >= 0, got {self.retries}.")
        if self.partitions is None and _PARTITION in str(self.arguments):
            raise InvalidOptionError(f"{where} has {_PARTITION} in its arguments and no partitions; add partitions.")
        self._options()

    def _options(self) -> JobOptions:
        return JobOptions(attempts=self.attempts, priority=self.priority)

    def _arguments(self, partition: str) -> Any:
        """Return a script's words, or a task's arguments, for one partition."""
        given = self.arguments
        words = [_word(value) for value in given] if isinstance(given, list) else given
        return _filled(words or ([] if self.script else {}), partition)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the asset and its sensor."""
        made = dg.Definitions(assets=[self._asset()])
        return made if self.on_event is None else dg.Definitions.merge(made, self.on_event.build_defs(context))

    def _asset(self) -> dg.AssetsDefinition:
        key = dg.AssetKey.from_user_string(self.asset)

        @dg.asset(
            key=key,
            deps=[dg.AssetKey.from_user_string(dep) for dep in self.deps],
            check_specs=[dg.AssetCheckSpec(name, asset=key) for name in self.checks],
            partitions_def=None if self.partitions is None else self.partitions.definition(),
            retry_policy=dg.RetryPolicy(max_retries=self.retries) if self.retries else None,
            description=self.description,
            group_name=self.group,
            owners=self.owners,
            tags=self.tags,
            kinds={"spark", "queue"},
            pool=self.pool,
            required_resource_keys={self.resource_key},
        )
        def step(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]  # as it knows it
            client: PipesSparkClient = getattr(context.resources, self.resource_key)
            done = client.run(
                context=context,
                script=self.script,
                task=self.task,
                arguments=self._arguments(context.partition_key if context.has_partition_key else ""),
                spark=None if self.spark is None else self.spark.options(),
                queue=self.queue,
                options=self._options(),
            )
            return done.get_materialize_result()

        return step


def _word(value: object) -> str:
    """Spell a value as Spark and command lines do: YAML and Dagster's templates make numbers of what looks like one."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filled(value: Any, partition: str) -> Any:
    """Arguments with the partition's key in place."""
    if isinstance(value, dict):
        return {key: _filled(item, partition) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, partition) for item in value]
    return value.replace(_PARTITION, partition) if isinstance(value, str) else value


class SparkClientComponent(dg.Component, dg.Model, dg.Resolvable):
    """What Spark steps run by. The server's URL comes from the environment, never from the file."""

    resource_key: str = Field(default="spark", description="What the steps call it.")
    url_variable: str = Field(default="OQ_URL", description="The environment variable that says where the server is.")
    prefix: str = Field(default=DEFAULT_PREFIX, description="What the server's keys begin with.")
    default_queue: str = Field(default="spark", description="Where the jobs go that name no queue.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the resource."""
        client = PipesSparkClient(
            url=dg.EnvVar(self.url_variable), prefix=self.prefix, default_queue=self.default_queue
        )
        return dg.Definitions(resources={self.resource_key: client})
