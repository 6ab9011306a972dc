"""What a candidate can reach from inside, as root and as a plain user, and what is said of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evokernel.bench import sandbox
from evokernel.bench.messages import Protections
from evokernel.confinement import files, kernel
from tests.intruder import KEY, loose

ROOT = Path(__file__).parent.parent
REFUSED = {"PermissionError", "FileNotFoundError", "ProcessLookupError"}
NOBODY = 65534

# Another user may not enter the home in which our interpreter may lie: it gets one of its own, with
# nothing in it but that.
AS_NOBODY = """
home=$1; python=$2; shift 2
case "$python" in "$home"/*)
    top=$home/$(printf %s "${python#"$home"/}" | cut -d/ -f1)
    kept=$(mktemp -d); mount --bind "$top" "$kept"
    mount -t tmpfs -o mode=755 none "$home"
    mkdir "$top"; mount --bind "$kept" "$top";;
esac
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"""

Seen = tuple[str, Protections, dict[str, Any]]
_found: dict[str, Any] = {}


@pytest.fixture(scope="module")
def as_nobody(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the intruder brings back as a plain user."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not _found:
        _found.update(_ask_as_nobody(tmp_path_factory.mktemp("nobody")))
    return _found


def _ask_as_nobody(home: Path) -> dict[str, Any]:
    os.chown(home, NOBODY, NOBODY)
    for folder in home.parents:
        if folder.owner() == "root" and folder.name.startswith("pytest"):
            folder.chmod(0o711)
    python = os.path.realpath(sys.executable)
    command = [sys.executable, str(ROOT / "tests" / "intruder.py"), "full", "bare"]
    places = {"HOME": str(home), "TMPDIR": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", AS_NOBODY, "sh", str(Path.home()), python, *command],
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], **places},
        cwd=home,
        check=False,
    )
    if "Permission denied" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"another user cannot run this: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(
    scope="module", params=["full", "basic", "bare", "full as nobody", "bare as nobody"]
)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    """What the intruder brings back under each isolation."""
    isolation, _, user = request.param.partition(" as ")
    if user:
        held, found = request.getfixturevalue("as_nobody")[isolation]
        yield isolation, Protections.model_validate(held), found
        return
    os.environ["PROBE_API_KEY"] = KEY
    try:
        with loose(isolation, tmp_path_factory.mktemp(isolation)) as (protections, found):
            yield isolation, protections, found
    finally:
        del os.environ["PROBE_API_KEY"]


def test_no_key_is_within_reach(seen: Seen) -> None:
    _, _, found = seen
    assert KEY not in found["environment"]
    assert KEY not in found["birth environment"]
    assert found["keys"] == []


def test_no_process_is_within_reach(seen: Seen) -> None:
    _, _, found = seen
    assert set(found["neighbours"]) == {"parent", "server", "sibling", "reaper"}
    for name, actions in found["neighbours"].items():
        for what, outcome in actions.items():
            # The reaper of a namespace is seen, and cannot be written to where /proc is read-only.
            assert outcome in REFUSED | {"OSError"}, (name, what, outcome)


def test_nobody_can_be_called(seen: Seen) -> None:
    _, protections, found = seen
    if not protections.system_calls:
        pytest.skip("there is no filter for this machine")
    assert set(found["network"].values()) == {"PermissionError"}
    assert found["pair"] == "b'through'"


def test_the_kernel_is_asked_for_little(seen: Seen) -> None:
    _, protections, found = seen
    if not protections.system_calls:
        pytest.skip("there is no filter for this machine")
    assert set(found["kernel"].values()) <= {"PermissionError", "OSError"}, found["kernel"]


def test_only_what_is_listed_is_read(seen: Seen) -> None:
    _, protections, found = seen
    if not protections.landlock:
        pytest.skip("nothing keeps files here, which is said")
    assert set(found["files"].values()) <= {"PermissionError", ""}
    listed = {Path(path).name: entries for path, entries in found["folders"].items()}
    assert listed["inductor"] == listed["cache"] == "PermissionError"


def test_the_reference_is_out_of_reach(seen: Seen) -> None:
    _, protections, found = seen
    if not protections.landlock:
        pytest.skip("nothing keeps files here, which is said")
    errors = REFUSED | {"ModuleNotFoundError", "AttributeError"}
    assert set(found["references"]) <= errors


def test_only_scratch_is_written(seen: Seen) -> None:
    _, protections, found = seen
    assert found["scratch"] == "written"
    if protections.landlock:
        assert found["sysctl"] in ("PermissionError", "OSError")
        # A home that does not exist cannot be written either.
        errors = {"PermissionError", "OSError", "FileNotFoundError"}
        assert set(found["written"].values()) <= errors


def test_privileges_are_gone_but_programs_run(seen: Seen) -> None:
    _, protections, found = seen
    assert int(found["capabilities"][:16], 16) == 0
    assert found["no new privileges"] == "1"
    assert found["program"].strip() == "Linux"
    assert found["open files"][:4] == ["0", "1", "2", "3"]
    assert len(found["open files"]) == 5  # the fifth reads the folder
    if protections.own_proc:
        assert len(found["processes"]) == 2  # the reaper and itself


def test_processes_are_limited(seen: Seen) -> None:
    _, protections, found = seen
    if protections.process_limit:
        assert abs(found["threads"] - sandbox.PROCESSES) < 20


def test_what_is_missing_is_said(seen: Seen) -> None:
    isolation, protections, _ = seen
    fields = protections.model_dump(exclude={"notes"})
    missing = [name for name, value in fields.items() if not value]
    assert bool(missing) == bool(protections.notes)
    assert protections.capabilities_dropped
    assert protections.memory_limit
    assert protections.landlock == (0 if isolation == "bare" else kernel.landlock_version())
    if isolation != "full":
        assert "namespaces: not asked for" in protections.notes


def test_a_step_that_the_system_refuses_becomes_a_note() -> None:
    report = sandbox.Report()

    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    assert report.attempt("no_new_privileges", lambda: None)
    assert not report.attempt("landlock", refuse)
    assert report.protections == Protections(
        no_new_privileges=True, notes=("landlock: Operation not permitted",)
    )


def test_what_is_hidden_is_carved_out_of_what_may_be_read(tmp_path: Path) -> None:
    for name in ("a/b/secret/x", "a/b/open", "a/other", "c/d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "c")
    paths = (str(tmp_path / "a"), str(tmp_path / "a" / "b" / "secret" / "x"))
    read = files.carve(paths, (str(tmp_path / "a" / "b" / "secret"),))
    assert {Path(path).name for path in read.whole} == {"open", "other"}
    assert {Path(path).name for path in read.listed} == {"a", "b"}
    whole = files.carve((str(tmp_path / "c"),), (str(tmp_path / "a"),))
    assert (whole.whole, whole.listed) == ((str(tmp_path / "c"),), ())
