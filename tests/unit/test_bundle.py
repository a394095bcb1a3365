"""The bundler: one contract per function, written in Lua, and everything else made from it."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestration_queue.protocol.functions import REVISIONS, glidemq
from orchestration_queue.protocol.keys import QueueKeys

ROOT = Path(__file__).parents[2]
TEXT = ROOT / "orchestration_queue" / "protocol" / "lua" / "glidemq.lua"


def bundle(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools" / "bundle_lua.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources alone, to be broken."""
    for folder in ("tools", "lua"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "orchestration_queue" / "protocol").mkdir(parents=True)
    shutil.copy(ROOT / "orchestration_queue" / "protocol" / "keys.py", tmp_path / "orchestration_queue" / "protocol")
    return tmp_path


class TestOutputs:
    def test_the_number_of_each_text_is_recorded(self) -> None:
        result = bundle(ROOT, "--check")
        assert (result.returncode, result.stderr) == (0, "")

    def test_a_check_writes_nothing(self, copy: Path) -> None:
        (copy / "lua" / "revisions").write_text("")
        result = bundle(copy, "--check")
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert "python tools/bundle_lua.py" in result.stderr
        assert (copy / "lua" / "revisions").read_text() == ""
        assert not (copy / "orchestration_queue" / "protocol" / "lua").exists()

    def test_sources_alone_give_the_same_files(self, copy: Path) -> None:
        assert bundle(copy).returncode == 0
        for path in (copy / "orchestration_queue").rglob("*.*"):
            assert path.read_bytes() == (ROOT / path.relative_to(copy)).read_bytes(), path.name
        assert (copy / "lua" / "revisions").read_bytes() == (ROOT / "lua" / "revisions").read_bytes()


class TestRevisions:
    """Each text has a number of its own, and a later text a higher one."""

    @pytest.mark.parametrize("library", REVISIONS)
    def test_a_changed_line_gives_its_library_the_next_number(self, copy: Path, library: str) -> None:
        bundle(copy)
        before = numbers(copy)
        source = next((copy / "lua" / library).rglob("*.lua"))
        source.write_text(f"{source.read_text().rstrip()} -- changed\n")
        result = bundle(copy, "--check")
        assert result.returncode == 1
        assert "lua/revisions" in result.stderr
        assert numbers(copy) == before
        assert bundle(copy).returncode == 0
        assert numbers(copy) == before | {library: before[library] + 1}
        text = (copy / "orchestration_queue" / "protocol" / "lua" / f"{library}.lua").read_text()
        assert text.count(f'local REVISION = "{before[library] + 1}"\n') == 1
        assert bundle(copy, "--check").returncode == 0

    def test_a_change_of_a_shared_module_numbers_every_library_that_uses_it(self, copy: Path) -> None:
        before = numbers(copy)
        source = copy / "lua" / "lib" / "record.lua"
        source.write_text(source.read_text().rstrip() + " -- changed\n")
        bundle(copy)
        grown = {name for name, number in numbers(copy).items() if number > before[name]}
        assert grown == {"glidemq", "orchestration_queue_1"}

    def test_a_text_that_returns_gets_a_new_number(self, copy: Path) -> None:
        before = numbers(copy)
        source = copy / "lua" / "glidemq" / "tryLock.lua"
        original = source.read_text()
        for content in (original.rstrip() + " -- changed\n", original):
            source.write_text(content)
            bundle(copy)
        assert numbers(copy) == before | {"glidemq": before["glidemq"] + 2}

    def test_a_merge_of_two_branches_gets_a_number_above_both(self, copy: Path) -> None:
        before = numbers(copy)
        number = before["qless"]
        sides = [f"qless {number + grown} {digit * 64}" for grown, digit in ((1, "a"), (3, "b"))]
        record = copy / "lua" / "revisions"
        kept = [line for line in record.read_text().splitlines() if not line.startswith("qless ")]
        record.write_text("\n".join([*kept, "<<<<<<< HEAD", sides[0], "=======", sides[1], ">>>>>>> theirs", ""]))
        assert bundle(copy).returncode == 0
        assert numbers(copy) == before | {"qless": number + 4}
        assert "<<<" not in record.read_text()

    def test_two_branches_with_the_same_number_are_told_apart(self, copy: Path) -> None:
        before = numbers(copy)
        record = copy / "lua" / "revisions"
        record.write_text(f"{record.read_text()}qless {before['qless']} {'a' * 64}\n")
        bundle(copy)
        assert numbers(copy) == before | {"qless": before["qless"] + 1}

    def test_no_number_ever_went_down(self) -> None:
        """As it would when a change is reverted together with its number: servers would keep the later text."""
        command = ["git", "log", "--format=", "--patch", "--unified=0", "--", "lua/revisions"]
        log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
        if log.returncode:
            pytest.skip("not a checkout of the repository")
        now = numbers(ROOT)
        for library, number in re.findall(r"^\+(\w+) (\d+) ", log.stdout, re.M):
            assert int(number) <= now[library], library


def numbers(root: Path) -> dict[str, int]:
    """The number of each library in a checkout."""
    return {
        library: int(number)
        for library, number in re.findall(r"^(\w+) (\d+) ", (root / "lua" / "revisions").read_text(), re.M)
    }


class TestRefusals:
    @pytest.mark.parametrize(
        ("old", "new", "complaint"),
        [
            ("--- @cost    O(1)\n", "", "@cost"),
            ("@returns", "@replies", "unknown @replies"),
            ("--- @key   lock ", "--- @key   Lock ", "cannot read the key"),
            ("text         names this holder", "word         names this holder", "cannot read the argument"),
            ('"PX", ttl_ms', '"PX", 1000', "ttl_ms is declared but not used"),
            ("return redis", 'local locks = require("locks")\n\nreturn redis', "there is no module lua/lib/locks.lua"),
        ],
    )
    def test_a_broken_source_is_told_in_one_line(self, copy: Path, old: str, new: str, complaint: str) -> None:
        source = copy / "lua" / "glidemq" / "tryLock.lua"
        assert old in source.read_text()
        source.write_text(source.read_text().replace(old, new))
        result = bundle(copy)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert complaint in result.stderr
        assert "tryLock" in result.stderr
        assert not (copy / "orchestration_queue" / "protocol" / "lua").exists()


class TestLibrary:
    def test_it_names_itself_in_its_first_line(self) -> None:
        assert TEXT.read_text().splitlines()[0] == "#!lua name=glidemq"

    def test_each_function_file_is_registered_once_and_has_a_call(self) -> None:
        registered = re.findall(r'register_function\("glidemq_(\w+)"', TEXT.read_text())
        assert sorted(registered) == sorted(path.stem for path in (ROOT / "lua" / "glidemq").glob("*.lua"))
        assert len(registered) == 45
        snake = {re.sub(r"(?=[A-Z])", "_", name).lower() for name in registered}
        assert snake == {name for name in glidemq.__all__ if name.islower()}

    def test_it_speaks_to_either_server(self) -> None:
        assert "server." not in TEXT.read_text()


class TestNamesOfTheServer:
    """The server runs what is read in lua/; only names differ, and a renaming that can be undone changes no meaning."""

    @pytest.mark.parametrize("library", ["glidemq", "orchestration_queue_1", "chasquimq"])
    def test_without_its_locals_a_library_is_the_text_of_its_sources(self, library: str) -> None:
        text = TEXT.with_stem(library).read_text()
        found = re.search(r"\nlocal (.+)\n\nlocal function look_up\(\)\n  \1 = (.+)\nend\n", text)
        assert found is not None
        for local, name in zip(found[1].split(", "), found[2].split(", "), strict=True):
            text = re.sub(rf"(?<![\w.]){local}\b", name, text)
        for path in (ROOT / "lua" / library).glob("*.lua"):
            assert body(path.read_text()) in text, path
        modules = [*(ROOT / "lua" / library).glob("lib/*.lua"), *(ROOT / "lua" / "lib").glob("*.lua")]
        used = [path for path in modules if f"modules.{path.stem} = " in text]
        assert used
        for path in used:
            assert path.read_text().strip() in text, path


def body(source: str) -> str:
    """What a function's source says after its header, without the modules that it needs, as it is in a library."""
    text = re.sub(r"\A(---.*\n)+|^local \w+ = require\(.*\n", "", source, flags=re.M).strip("\n")
    return re.sub(r"^(?=.)", "    ", text, flags=re.M)


class TestCalls:
    def test_keys_and_arguments_come_in_wire_order(self) -> None:
        call = glidemq.try_lock(lock_key="glide:{q}:lock", token="mine", ttl_ms=5000)
        assert call.words == ("FCALL", "glidemq_tryLock", 1, "glide:{q}:lock", "mine", 5000)

    def test_defaults_are_sent_and_absent_keys_are_not(self) -> None:
        call = glidemq.move_to_active(job_key="glide:{q}:job:7", now_ms=1)
        assert call.words == ("FCALL", "glidemq_moveToActive", 1, "glide:{q}:job:7", 1, "", "", "", 0)

    @pytest.mark.parametrize(("flag", "word"), [(True, 1), (False, 0)])
    def test_a_flag_is_one_or_zero(self, flag: bool, word: int) -> None:
        call = glidemq.drain(
            QueueKeys("q"),
            drain_delayed=flag,
        )
        assert call.args == (word, "workers")
        assert type(call.args[0]) is int

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_lists_carry_their_lengths(self, count: int) -> None:
        child = glidemq.FlowChild(
            QueueKeys("c"),
            name="child",
            data="{}",
            opts="{}",
            delay_ms=0,
            priority=0,
            max_attempts=0,
            queue_prefix="glide:{c}",
            parent_queue="q",
        )
        call = glidemq.add_flow(
            QueueKeys("q"),
            children=[child] * count,
            parent_name="parent",
            parent_data="{}",
            parent_opts="{}",
            timestamp_ms=1,
            extra_deps=["a"] * count,
        )
        names = ("id", "stream", "scheduled", "events")
        theirs = tuple(f"glide:{{c}}:{name}" for name in names)
        assert call.keys == tuple(f"glide:{{q}}:{name}" for name in names) + theirs * count
        child_words = ("child", "{}", "{}", 0, 0, 0, "glide:{c}", "q", "")
        head = ("parent", "{}", "{}", 1, 0, 0, 0, count, "")
        assert call.args == head + child_words * count + (count,) + ("a",) * count

    def test_every_call_is_made_by_name_and_documented(self) -> None:
        for name in glidemq.__all__:
            function = getattr(glidemq, name)
            assert inspect.getdoc(function), name
            if inspect.isclass(function):
                continue  # an entry of a list: its fields follow the wire's order
            parameters = inspect.signature(function).parameters.values()
            kinds = {parameter.kind for parameter in parameters if parameter.name != "keys"}
            assert kinds <= {inspect.Parameter.KEYWORD_ONLY}, name
