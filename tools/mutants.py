"""Changes the pure layers one operator at a time and prints the changes that no test without a server notices.

``python tools/mutants.py --count 100 --seed 1`` tries a sample, ``--only flows/dag.py`` every change of one file.
A change turns a comparison, `and`, `or`, `not`, `+` or `-` into its neighbor. All tests run once, which tells what each
calls. Then each change is made in a forked process: it replaces the code of its function, and the tests that call the
function run again. A test that fails or outlasts its limit catches the change. No file is written. Changes outside of
functions, such as in a table, are not tried. The last lines say how many were caught, by folder.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import inspect
import math
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import TypeAlias

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "orchestration_queue"
PURE = ("flows", "schedules", "protocol", "options", "worker/machine.py", "worker/slots.py")
GENERATED = PACKAGE / "protocol" / "functions"
ELSEWHERE = ("spark", "java", "lua", "tools", "bundle", "generate", "session", "time_limits", "pipes", "parity")
"""Words in the names of unit tests that never reach the pure layers."""
PATIENCE = 10
"""How many seconds, and how many times as long as usual, the tests may take before a change counts as caught."""
PROPERTIES = ("flows", "schedules")
"""Tests in tests/property/ that need no server."""

EQUIVALENT = {
    "flows/reconciler.py: len(whole.jobs) > len(flow.jobs)  ->  len(whole.jobs) >= len(flow.jobs)": (
        "reads the same records again"
    ),
    "options/wire.py: stored > 0  ->  stored >= 0": "0 is read as 0 either way",
    "schedules/timing.py: start_ms > now_ms  ->  start_ms >= now_ms": "a schedule that starts now runs now either way",
    "schedules/timing.py: len(found) >= most  ->  len(found) > most": "searches further back than it has to",
    "protocol/codec.py: codec is _MSGPACK  ->  codec is not _MSGPACK": "matters only without the package msgpack",
    "protocol/placement.py: job.opts == ''  ->  job.opts != ''": "part of a key, which distinguishes the same jobs",
    "protocol/record.py: not digits or digits.isdigit()  ->  not digits and digits.isdigit()": "a slower check follows",
    "protocol/record.py: max(map(len, numbers)) <= _PLAIN_DIGITS  ->  max(map(len, numbers)) < _PLAIN_DIGITS": (
        "a slower check follows"
    ),
    "protocol/shards.py: (state >> 33) + 1  ->  (state >> 33) - 1": "differs for one key in a billion",
    "protocol/statistics.py: milliseconds > 1  ->  milliseconds >= 1": "the logarithm of 1 is 0",
    "protocol/operations/job_records.py: start < length  ->  start <= length": "reads an empty page",
    "protocol/operations/job_records.py: 0 <= end < len(ids)  ->  0 < end < len(ids)": "reads one page more",
    "protocol/operations/job_search.py: limit < BATCH_SIZE  ->  limit <= BATCH_SIZE": "both are the page's size then",
    "protocol/operations/repairs.py: min(parked) < next_turn  ->  min(parked) <= next_turn": "both are the turn then",
    "worker/slots.py: level <= fewest_first[count]  ->  level < fewest_first[count]": "the level stays the same",
}
"""Changes that no test can catch, and why."""

Function: TypeAlias = tuple[str, int, str]
"""The file, first line and qualified name of a function's code."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True)
class Mutant:
    """One change: the how-manieth that `changes` yields of a file."""

    path: Path
    number: int
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.line}: {self.before}  ->  {self.after}"

    @property
    def folder(self) -> str:
        """Its folder below the package."""
        return self.path.relative_to(PACKAGE).parts[0]

    @property
    def is_equivalent(self) -> bool:
        """Whether no test can catch it."""
        return f"{self.path.relative_to(PACKAGE)}: {self.before}  ->  {self.after}" in EQUIVALENT


def changes(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Apply each change to the tree in turn: yield its line, and the expression before and after. Undo it later."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                before = ast.unparse(node)
                node.ops[place] = COMPARISONS[type(operator)]()
                yield node.lineno, before, ast.unparse(node)
                node.ops[place] = operator
        elif isinstance(node, ast.BoolOp):
            before, kept = ast.unparse(node), node.op
            node.op = ast.And() if isinstance(kept, ast.Or) else ast.Or()
            yield node.lineno, before, ast.unparse(node)
            node.op = kept
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            before, negated, kept_operand = ast.unparse(node), node.op, node.operand
            node.operand = ast.UnaryOp(ast.Not(), kept_operand, lineno=node.lineno, col_offset=node.col_offset)
            ast.fix_missing_locations(node)
            yield node.lineno, before, ast.unparse(node)
            node.op, node.operand = negated, kept_operand
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            before, sign = ast.unparse(node), node.op
            node.op = ast.Sub() if isinstance(sign, ast.Add) else ast.Add()
            yield node.lineno, before, ast.unparse(node)
            node.op = sign


def mutants_of(path: Path) -> list[Mutant]:
    """List every change of a file."""
    found = changes(ast.parse(path.read_text()))
    return [Mutant(path, number, *change) for number, change in enumerate(found)]


def pure_files() -> list[Path]:
    """List the files of the pure layers that are written by hand."""
    named = [PACKAGE / name for name in PURE]
    files = [file for path in named for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    return [file for file in files if not file.is_relative_to(GENERATED)]


def test_files() -> list[str]:
    """List the test files without a server."""
    units = [file for file in (ROOT / "tests" / "unit").glob("test_*.py") if not any(w in file.stem for w in ELSEWHERE)]
    return [str(file) for file in (*units, *(ROOT / "tests" / "property" / f"test_{name}.py" for name in PROPERTIES))]


def function_of(code: CodeType) -> Function:
    """Return what distinguishes the code of a function from others."""
    return code.co_filename, code.co_firstlineno, code.co_qualname


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code and those of all functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Qualified names of code that runs only once, when its module is loaded."""


def replacements(mutant: Mutant) -> dict[Function, CodeType]:
    """Return the changed code of each function that a change is in; of none if it is made when a module is loaded."""
    tree, path = ast.parse(mutant.path.read_text()), str(mutant.path)
    before = compile(tree, path, "exec", dont_inherit=True)
    for number, _ in enumerate(changes(tree)):
        if number == mutant.number:
            break
    after = compile(tree, path, "exec", dont_inherit=True)
    pairs = zip(codes_in(before), codes_in(after), strict=True)
    return {
        function_of(old): new
        for old, new in pairs
        if old != new and new.co_flags & inspect.CO_OPTIMIZED and new.co_qualname not in COMPREHENSIONS
    }


def apply(new: dict[Function, CodeType]) -> None:
    """Replace the code of functions that are loaded, and forget what they have returned."""
    gc.unfreeze()  # the test session froze what it imported, which hides it
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and (code := new.get(function_of(thing.__code__))):
            thing.__code__ = code
        elif isinstance(thing, functools._lru_cache_wrapper):
            thing.cache_clear()


class Trial:
    """A pytest plugin in place of its loop: runs all tests once, then those that concern each change.

    Args:
        mutants: The changes.

    Attributes:
        tried: The changes that were made.
        survivors: Those that no test noticed.
    """

    def __init__(self, mutants: list[Mutant]) -> None:
        self._mutants = mutants
        self._calls: dict[pytest.Item, set[Function]] = {}
        self._seconds: dict[pytest.Item, float] = {}
        self.tried: list[Mutant] = []
        self.survivors: list[Mutant] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests, then try each change."""
        files = {str(mutant.path) for mutant in self._mutants}
        for item in session.items:
            called = self._calls[item] = set[Function]()

            def see(frame: FrameType, event: str, _: object, called: set[Function] = called) -> None:
                if event == "call" and frame.f_code.co_filename in files:
                    called.add(function_of(frame.f_code))

            started = time.monotonic()
            sys.setprofile(see)
            try:
                if has_failed(item):
                    raise pytest.UsageError(f"{item.nodeid} fails without any change")
            finally:
                sys.setprofile(None)
            self._seconds[item] = time.monotonic() - started
        for mutant in self._mutants:
            if not (new := replacements(mutant)):
                continue
            self.tried.append(mutant)
            items = [item for item, called in self._calls.items() if called & new.keys()]
            if not self._is_caught(new, sorted(items, key=self._seconds.__getitem__)):
                self.survivors.append(mutant)
                how = "is equivalent" if mutant.is_equivalent else f"survived {len(items)} tests"
                print(f"{how} ({len(self.tried)} tried): {mutant}", flush=True)
        return True

    def _is_caught(self, new: dict[Function, CodeType], items: list[pytest.Item]) -> bool:
        limit_s = PATIENCE * (1 + sum(self._seconds[item] for item in items))
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s),) * 2)  # an endless loop outlives no parent
            apply(new)
            os._exit(any(map(has_failed, items)))
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status != 0
            time.sleep(0.002)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True


def has_failed(item: pytest.Item) -> bool:
    """Run a test, and return whether it failed."""
    item._initrequest()  # type: ignore[attr-defined]  # its fixtures are made again
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def main() -> int:
    """Try a sample; return 1 when more than a tenth survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws another sample")
    parser.add_argument("--only", nargs="+", help="files or folders below the package; tries all their changes")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    chosen = tuple(arguments.only or [""])
    files = [file for file in pure_files() if str(file.relative_to(PACKAGE)).startswith(chosen)]
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    if not arguments.only:
        mutants = random.Random(arguments.seed).sample(mutants, min(arguments.count, len(mutants)))  # noqa: S311  no secret
    trial = Trial(mutants)
    # Plain asserts: pytest would load the package by a loader of its own, which rewrites them.
    words = ["-q", "--assert=plain", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={ROOT}"]
    if pytest.main([*words, *test_files()], [trial]):
        return 1
    tried, missed = (Counter(mutant.folder for mutant in each) for each in (trial.tried, trial.survivors))
    for folder, count in tried.items():
        print(f"{folder}: {count - missed[folder]} of {count} changes caught")
    caught = tried.total() - missed.total()
    print(f"{caught} of {tried.total()} changes caught ({100 * caught // max(tried.total(), 1)} %)")
    return 1 if 10 * missed.total() > tried.total() else 0


if __name__ == "__main__":
    sys.exit(main())
