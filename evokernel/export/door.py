"""Owns the processes in which candidates and exported files run while one is being exported."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from evokernel.config import compiler_environment
from evokernel.errors import ConfigError
from evokernel.export.survey import Survey
from evokernel.frozen import Frozen
from evokernel.task import Task

LIMIT_S = 600.0
"""Seconds after which such a process is stopped."""
_ALONE = (
    "import runpy, sys; sys.modules['evokernel'] = None; sys.argv = sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Runs a file where `import evokernel` fails, as on a machine that has torch only."""


class Check(Frozen):
    """What an exported file said of one workload in one mode; see `checking.compared`."""

    workload: str
    mode: str
    is_right: bool
    error: float
    allowed: float
    is_state_kept: bool
    reasons: dict[str, int]
    bits: tuple[str, str]

    @property
    def is_well(self) -> bool:
        """The kernel served every call, and did what the original does."""
        return self.is_right and self.is_state_kept and not self.reasons

    @property
    def trouble(self) -> str:
        """What is not well, in words."""
        if self.reasons:
            return f"the kernel does not serve it: {next(iter(self.reasons))}"
        if not self.is_right:
            return f"its error of {self.error:.3g} is above {self.allowed:.3g}"
        return "the original changes its buffers in `forward`, and the kernel does not"


def surveyed(task: Task, source: str) -> Survey:
    """Run a candidate once and see which C++ sources it asks for.

    Raises:
        ConfigError: It does not run.
    """
    with tempfile.TemporaryDirectory(prefix="evokernel-export-") as folder:
        place = Path(folder)
        names = ("task.json", "candidate.py", "answer.json")
        (place / names[0]).write_text(task.model_dump_json(), encoding="utf-8")
        (place / names[1]).write_text(source, encoding="utf-8")
        _run([sys.executable, "-P", "-m", "evokernel.export.survey", *names], place)
        answer = Survey.model_validate_json((place / names[2]).read_bytes())
    if answer.fault:
        raise ConfigError(f"the kernel cannot be exported: running it raised `{answer.fault}`")
    return answer


def checked(text: str) -> tuple[Check, ...]:
    """Let the text of an exported file check itself, in a process that cannot import EvoKernel.

    Raises:
        ConfigError: It does not run.
    """
    with tempfile.TemporaryDirectory(prefix="evokernel-export-") as folder:
        file = Path(folder, "exported.py")
        file.write_text(text, encoding="utf-8")
        done = _run([sys.executable, "-I", "-c", _ALONE, file.name, "--json"], Path(folder), (0, 1))
    return tuple(Check.model_validate(one) for one in json.loads(done.splitlines()[-1]))


def modes_served(checks: tuple[Check, ...], verified: str) -> tuple[str, ...]:
    """The modes in which a kernel may serve.

    Args:
        checks: Of every workload in both modes.
        verified: The mode that it was judged in. What was found there holds in the other one where
            the original, and the kernel too, give the very same bits in both.

    Raises:
        ConfigError: It does not serve in the verified mode.
    """
    before = {check.workload: check for check in checks if check.mode == verified}
    if trouble := [check.trouble for check in before.values() if not check.is_well]:
        raise ConfigError(
            f"the kernel cannot be exported, and nothing was written: in the file, {trouble[0]}"
        )
    others = [check for check in checks if check.mode != verified]
    is_same = all(check.is_well and check.bits == before[check.workload].bits for check in others)
    return ("train", "eval") if others and is_same else (verified,)


def _run(command: list[str], place: Path, codes: tuple[int, ...] = (0,)) -> str:
    """Run a process without keys and tokens in its environment, and give what it printed."""
    kept = ("CXX", "EVOKERNEL_HOME", "EVOKERNEL_EXPORT_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME")
    named = {name: os.environ[name] for name in kept if name in os.environ}
    paths = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env={**compiler_environment(), **named, **paths},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"the kernel cannot be exported: running it was stopped after {LIMIT_S:.0f} s"
        ) from error
    if done.returncode not in codes or not (done.stdout or codes == (0,)):
        last = " / ".join(done.stderr.strip().splitlines()[-3:]) or f"exit code {done.returncode}"
        raise ConfigError(f"the kernel cannot be exported: running it ended with `{last}`")
    return done.stdout
