"""How a function's signature validates calls, job data and results, with pydantic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import TypedDict

from orchestration_queue.errors import PayloadError, UnrecoverableError, UsageError
from orchestration_queue.protocol.codec import plain, plain_number, refuse_changes
from orchestration_queue.tasks.depends import JOB_TYPES, RunningJob, dependencies_of, provider_name, shared_dependencies

__all__ = ["TaskSignature"]


class TaskSignature:
    """The signature of a task's function, as its callers and its jobs use it.

    Parameters filled by a worker (the running job, and values from providers) are not part of a call or of a job's
    data.

    Args:
        function: The function.
        name: The task's name, for error messages.

    Raises:
        UsageError: A parameter can't be filled from a job's data, or its type can't be validated.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._name = name
        self._hints = _hints(function, name)
        signature = inspect.signature(function)
        provided = dependencies_of(function)
        self._jobs = [key for key in signature.parameters if self._hints.get(key) in JOB_TYPES and key not in provided]
        filled = {*self._jobs, *provided}
        parameters = [parameter for parameter in signature.parameters.values() if parameter.name not in filled]
        self._call = signature.replace(parameters=parameters)
        self._arguments = self._adapter(parameters)

    def _adapter(self, parameters: list[inspect.Parameter]) -> TypeAdapter[dict[str, Any]]:
        fields: dict[str, Any] = {}
        for parameter in parameters:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UsageError(
                    f"Task {self._name!r} has the parameter {parameter}, and a job's data are named values; "
                    "give it a plain parameter instead."
                )
            hint = self._hints.get(parameter.name, Any)
            fields[parameter.name] = hint if parameter.default is parameter.empty else NotRequired[hint]
        shape = with_config(ConfigDict(extra="forbid"))(TypedDict(f"{self._name}_arguments", fields))  # type: ignore[operator]
        try:
            return TypeAdapter(shape)
        except PydanticUserError as error:
            why = str(error).partition("\n")[0]
            raise UsageError(
                f"Task {self._name!r} has a parameter that no job's data can fill ({why}); annotate it with a type "
                "that pydantic reads, or give it a default of Depends(...)."
            ) from None

    def data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call's arguments as a job's data. Omitted arguments get the defaults of the worker's function.

        Raises:
            UsageError: The arguments don't match the function's signature.
            PayloadError: They match, but can't be written as JSON.
        """
        try:
            bound = self._call.bind(*args, **kwargs)
            valid = self._arguments.validate_python(bound.arguments)
            written: dict[str, Any] = self._arguments.dump_python(
                valid, mode="json", by_alias=True, fallback=plain_number
            )
            text = self._arguments.dump_json(valid, by_alias=True, fallback=plain_number)
            refuse_changes(
                text, written, lambda: self._arguments.dump_python(valid, by_alias=True, fallback=plain_number)
            )
        except TypeError as error:
            raise UsageError(f"Task {self._name!r} cannot be called like this: {error}; see {self._shown}.") from None
        except ValidationError as error:
            raise UsageError(
                f"Task {self._name!r} cannot take these arguments, because {_problem(error)}; see {self._shown}."
            ) from None
        except ValueError as error:
            raise PayloadError(
                f"The arguments of task {self._name!r} cannot be written as JSON ({error}); "
                "pass values of types that pydantic can write."
            ) from None
        return written

    @property
    def _shown(self) -> str:
        return f"{self._name}{self._call}"

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Refuse arguments that the function doesn't have.

        Raises:
            UsageError: There is one.
        """
        if unknown := next((name for name in names if name not in self._call.parameters), None):
            raise UsageError(f"Task {self._name!r} has no parameter {unknown!r} to fill; see {self._shown}.")

    def refuse_shared_values(self) -> None:
        """Refuse dependencies that a separate process can't reach.

        Raises:
            UsageError: The function, or a provider, depends on a worker-scoped value.
        """
        if shared := next(shared_dependencies(self._function), None):
            raise UsageError(
                f"Task {self._name!r} runs in a separate process, which can't reach the worker-scoped "
                f'{provider_name(shared.provider)}; make it scope="job".'
            )

    def arguments(self, job: RunningJob) -> dict[str, Any]:
        """Return the arguments in a job's data, with the job if the function takes it.

        Raises:
            UnrecoverableError: The data don't match the function's signature, so a retry would fail, too.
        """
        try:
            arguments = dict(self._read(job))
        except ValidationError as error:
            raise UnrecoverableError(
                f"Task {self._name!r} cannot take the job's data, because {_problem(error)}; "
                "add the job again with arguments that fit the function."
            ) from None
        return arguments | dict.fromkeys(self._jobs, job)

    def _read(self, job: RunningJob) -> dict[str, Any]:
        """Return the data as arguments. They are validated as JSON, so that strict types accept dates as text."""
        stored = job.record.fields.get("data", "{}")
        if stored.startswith("{"):
            return self._arguments.validate_json(stored)
        data = {} if job.data is None else job.data
        try:
            return self._arguments.validate_json(to_json(data))
        except PydanticSerializationError:  # bytes, which some codecs support
            return self._arguments.validate_python(data)

    def dump_result(self, result: object) -> Any:
        """Return a function's result as JSON types.

        Raises:
            UnrecoverableError: It can't be written, so a retry would fail, too.
        """
        try:
            return plain(result)
        except ValueError as error:
            raise UnrecoverableError(
                f"Task {self._name!r} returned a value that can't be written as JSON ({error}); "
                "return values of types that pydantic can write."
            ) from None

    def result(self, value: Any) -> Any:
        """Return a job's result, with the type in the function's annotation.

        Raises:
            PayloadError: The result doesn't match the annotation.
            UsageError: The annotated type can't be read from JSON.
        """
        try:
            return self._result.validate_json(to_json(value, inf_nan_mode="constants"))
        except ValidationError as error:
            raise PayloadError(
                f"The result of task {self._name!r} does not match its function's return annotation, because "
                f"{_problem(error, 'the result')}; correct the annotation, or read the job's record."
            ) from None

    @cached_property
    def _result(self) -> TypeAdapter[Any]:
        hint = self._hints.get("return", Any)
        try:
            return TypeAdapter(hint)
        except PydanticUserError:
            raise UsageError(
                f"Task {self._name!r} is annotated to return {hint!r}, which no JSON can be read as; "
                "annotate it with what the result looks like as JSON."
            ) from None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"Task {name!r} has an annotation that cannot be read ({error}); "
            "import what it names where the worker can see it, not only for type checkers."
        ) from None


def _problem(error: ValidationError, whole: str = "data") -> str:
    """Return the first problem of a validation error."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or whole
    return f"{where}: {problem['msg']}"
