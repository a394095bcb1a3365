"""Changes the pure layers one operator at a time and prints the changes that no test without a server notices.

``python tools/mutants.py --count 100 --seed 1`` tries a sample, ``--only flows/dag.py`` every change of one file.
A change turns a comparison, `and`, `or`, `not`, `+` or `-` into its neighbor. It lives in the memory of a forked
process, so no file is written. A test that fails or outlasts its limit catches it.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import io
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "orchestration_queue"
PURE = ("flows", "schedules", "protocol", "options", "worker/machine.py", "worker/slots.py")
GENERATED = PACKAGE / "protocol" / "functions"
ELSEWHERE = ("spark", "java", "lua", "mutants", "bundle", "session", "time_limits", "voice", "pipes", "parity")
"""Words in the names of unit tests that never reach the pure layers."""
SECONDS_PER_MUTANT = 240

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


def tests_for(path: Path) -> list[str]:
    """List the test files without a server, the likeliest to catch a change of this file first."""
    units = [file for file in (ROOT / "tests" / "unit").glob("test_*.py") if not any(w in file.stem for w in ELSEWHERE)]
    files = [*units, *(ROOT / "tests" / "property" / f"test_{name}.py" for name in ("flows", "schedules"))]
    module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    package = ".".join(module.split(".")[:2])

    texts = {str(file): file.read_text() for file in files}
    near = [file for file, text in texts.items() if package in text or "from orchestration_queue import" in text]
    return sorted(near, key=lambda file: (module not in texts[file], package not in texts[file], file))


def is_caught(mutant: Mutant) -> bool:
    """Run the tests in a forked process that loads the changed file."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os._exit(_run(mutant))
    deadline = time.monotonic() + SECONDS_PER_MUTANT
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _run(mutant: Mutant) -> int:
    tree = ast.parse(mutant.path.read_text())
    for number, _ in enumerate(changes(tree)):
        if number == mutant.number:
            break
    code = compile(tree, str(mutant.path), "exec", dont_inherit=True)
    load = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        return code if Path(self.path) == mutant.path else load(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
    # Plain asserts: pytest would load the package by a loader of its own, which rewrites them.
    options = [
        "-x",
        "-q",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--timeout=60",
        f"--rootdir={ROOT}",
    ]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return int(pytest.main([*options, *tests_for(mutant.path)]))


def main() -> int:
    """Try a sample; return 1 when more than a tenth survives."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="how many changes to try")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws another sample")
    parser.add_argument("--only", help="a file or folder below orchestration_queue/; tries all its changes")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    files = [file for file in pure_files() if str(file.relative_to(PACKAGE)).startswith(arguments.only or "")]
    mutants = [mutant for file in files for mutant in mutants_of(file)]
    if not arguments.only:
        mutants = random.Random(arguments.seed).sample(mutants, min(arguments.count, len(mutants)))  # noqa: S311  no secret
    survivors = []
    for tried, mutant in enumerate(mutants, 1):
        if not is_caught(mutant):
            survivors.append(mutant)
            print(f"survived ({tried} tried): {mutant}", flush=True)
    caught = len(mutants) - len(survivors)
    print(f"{caught} of {len(mutants)} changes caught ({100 * caught // max(len(mutants), 1)} %)")
    return 1 if 10 * len(survivors) > len(mutants) else 0


if __name__ == "__main__":
    sys.exit(main())
