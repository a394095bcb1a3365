"""Components: Spark steps in YAML, scaffolded by ``dg``, with partitions or runs for a queue's events."""

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
"""The placeholder in arguments for the key of the run's partition."""


def _resolve_nested(kind: type[R], field: str) -> dg.Resolver:
    """Return a resolver for a field that is a mapping."""

    def read(context: dg.ResolutionContext, value: Any) -> R:
        return element_of(kind, context, value, field)

    return dg.Resolver(read, model_field_type=Any, json_schema_extra=kind.model().model_json_schema())


def _sensor(context: dg.ResolutionContext, model: Any) -> QueueEventSensorComponent | None:
    """Build the sensor of a step; name, target and resource default to those of the step."""
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
    """Options of a script. The worker sets the cluster, and limits the options that are possible here."""

    runtime: Literal["connect", "submit"] = Field(
        default="connect",
        description="'connect': a session on the worker's Connect server; 'submit': an application by spark-submit.",
    )
    app_name: str | None = Field(default=None, description="The application's name.")
    memory: str | None = Field(default=None, description="The driver's heap.")
    driver_cores: int | None = Field(default=None, description="Cores of a driver that runs in a cluster.")
    executors: int | None = Field(default=None, description="The number of executors.")
    executor_memory: str | None = Field(default=None, description="The heap of each executor.")
    executor_cores: int | None = Field(default=None, description="Cores of each executor.")
    shuffle_partitions: int | None = Field(default=None, description="The number of partitions of a shuffle.")
    timeout_seconds: float | None = Field(default=None, description="Spark's time limit.")
    conf: dict[str, str | int | float | bool] = Field(default_factory=dict, description="Spark's properties.")

    def model_post_init(self, context: Any) -> None:
        """Check the values; constraints of the fields themselves would reject templates."""
        super().model_post_init(context)
        self.options()

    def options(self) -> SparkOptions:
        """Build the options."""
        given = {
            name: value for name, value in self if value is not None and name not in ("runtime", "timeout_seconds")
        }
        given["conf"] = {name: _word(value) for name, value in self.conf.items()}
        if not self.conf:
            given.pop("conf")
        if self.timeout_seconds is not None:
            given["timeout"] = timedelta(seconds=self.timeout_seconds)
        if self.runtime == "submit":
            return SparkSubmit(**given)
        if of_application := sorted(given.keys() - {"conf", "shuffle_partitions", "timeout"}):
            raise InvalidOptionError(
                f"`{of_application[0]}` applies to applications, not to sessions; add runtime: submit, or remove it."
            )
        return SparkOptions(**given)


class SparkPartitions(dg.Model, dg.Resolvable):
    """The partitions of a step's asset."""

    kind: Literal["hourly", "daily", "weekly", "monthly", "static", "dynamic"] = Field(description="The kind.")
    start: str | None = Field(default=None, description="Start of the first partition of time, such as 2013-01-01.")
    end: str | None = Field(default=None, description="End of the last partition of time; default none.")
    tz: str | None = Field(default=None, description="The time zone of partitions of time; default UTC.")
    values: Annotated[Sequence[str], words("values")] = Field(default=(), description="The keys of static partitions.")
    name: str | None = Field(default=None, description="The name of dynamic partitions.")

    def model_post_init(self, context: Any) -> None:
        """Check the values."""
        super().model_post_init(context)
        self.definition()

    def definition(self) -> dg.PartitionsDefinition[str]:
        """Build the partitions."""
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
    """One asset that Spark makes as a job on the queue: by a script below the workers' directory, or by a task."""

    asset: str = Field(description="The asset's key; parts are separated by '/'.")
    script: str | None = Field(default=None, description="The script's path below the workers' directory of scripts.")
    task: str | None = Field(default=None, description="Instead, the name of a Spark task.")
    arguments: list[str | int | float | bool] | dict[str, Any] | None = Field(
        default=None,
        description="A script's arguments, or a task's keyword arguments, with '{partition}' for the partition's key.",
    )
    spark: Annotated[SparkStepOptions | None, _resolve_nested(SparkStepOptions, "spark")] = Field(
        default=None, description="Options of a script."
    )
    queue: str | None = Field(default=None, description="The queue of the job; default the client's.")
    partitions: Annotated[SparkPartitions | None, _resolve_nested(SparkPartitions, "partitions")] = Field(
        default=None, description="The asset's partitions."
    )
    on_event: Annotated[
        QueueEventSensorComponent | None,
        dg.Resolver.from_model(
            _sensor, model_field_type=Any, json_schema_extra={"type": "object", "required": ["queue"]}
        ),
    ] = Field(default=None, description="A sensor that runs it for queue events: fields of QueueEventSensorComponent.")
    deps: Annotated[Sequence[str], words("deps")] = Field(default=(), description="Keys of assets it depends on.")
    checks: Annotated[Sequence[str], words("checks")] = Field(
        default=(), description="Names of the checks that the work reports."
    )
    description: str | None = Field(default=None, description="Text for the UI.")
    group: str | None = Field(default=None, description="The asset's group.")
    owners: Annotated[Sequence[str], words("owners")] = Field(default=(), description="Email addresses, or team:name.")
    tags: dict[str, str] = Field(default_factory=dict, description="The asset's tags.")
    attempts: int = Field(default=1, description="Maximum attempts of the job.")
    priority: int = Field(default=0, description="1 is the most urgent, 0 means no priority.")
    retries: int = Field(default=0, description="How often Dagster retries the step.")
    pool: str | None = Field(default=None, description="Dagster's concurrency pool for the step.")
    resource_key: str = Field(default="spark", description="The PipesSparkClient among the definitions' resources.")

    def model_post_init(self, context: Any) -> None:
        """Check the values; constraints of the fields themselves would reject templates."""
        super().model_post_init(context)
        self._check()

    def _check(self) -> None:
        where = f"Spark step {self.asset!r}"
        if (self.script is None) == (self.task is None):
            number = "both" if self.task else "neither"
            raise InvalidOptionError(f"{where} must have either `script` or `task`, got {number}; set one.")
        if self.task is not None and isinstance(self.arguments, list):
            raise InvalidOptionError(
                f"`arguments` of {where} must be a mapping for a task, got {self.arguments!r}; write names and values."
            )
        if self.task is not None and self.spark is not None:
            raise InvalidOptionError(f"`spark` of {where} applies to scripts, but a task has its own; remove it.")
        if self.script is not None:
            ScriptItem.of(self.script, self._arguments(""), None)
        if self.retries < 0:
            raise InvalidOptionError(f"`retries` of {where} must be >= 0, got {self.retries}.")
        if self.partitions is None and _PARTITION in str(self.arguments):
            raise InvalidOptionError(f"{_PARTITION} in `arguments` of {where} requires partitions; add `partitions`.")
        self._options()

    def _options(self) -> JobOptions:
        return JobOptions(attempts=self.attempts, priority=self.priority)

    def _arguments(self, partition: str) -> Any:
        """Return the script's or the task's arguments for one partition."""
        given = self.arguments
        words = [_word(value) for value in given] if isinstance(given, list) else given
        return _fill(words or ([] if self.script else {}), partition)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the asset and its sensor."""
        asset = dg.Definitions(assets=[self._asset()])
        return asset if self.on_event is None else dg.Definitions.merge(asset, self.on_event.build_defs(context))

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
    """Format a value for Spark and command lines; YAML and Dagster's templates turn text into numbers."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fill(value: Any, partition: str) -> Any:
    """Replace the placeholder in arguments by the partition's key."""
    if isinstance(value, dict):
        return {key: _fill(item, partition) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, partition) for item in value]
    return value.replace(_PARTITION, partition) if isinstance(value, str) else value


class SparkClientComponent(dg.Component, dg.Model, dg.Resolvable):
    """The client of Spark steps. The server's URL comes from the environment, never from the file."""

    resource_key: str = Field(default="spark", description="The key by which steps refer to it.")
    url_variable: str = Field(default="OQ_URL", description="The environment variable with the server's URL.")
    prefix: str = Field(default=DEFAULT_PREFIX, description="Prefix of all keys.")
    default_queue: str = Field(default="spark", description="The queue of jobs without their own.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the resource."""
        client = PipesSparkClient(
            url=dg.EnvVar(self.url_variable), prefix=self.prefix, default_queue=self.default_queue
        )
        return dg.Definitions(resources={self.resource_key: client})
