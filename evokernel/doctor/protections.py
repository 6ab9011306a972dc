"""Owns the check of what shuts candidates in here, and what is lost without each part of it."""

from evokernel.bench.messages import Protections
from evokernel.confinement import launch
from evokernel.doctor.finding import Facts, Finding, Settings
from evokernel.doctor.probe import ProbeFailed, ask

LOST = {
    "pid_namespace": "ending a candidate is a search for its processes instead of one blow",
    "network_namespace": "only the filter keeps candidates from the network",
    "mount_namespace": "scratch folders lie on the disk and are measured now and then",
    "own_proc": "candidates see the names and command lines of all processes",
    "ipc_namespace": "only the filter keeps candidates from shared segments and queues",
    "landlock": "candidates read your files, and write them where no own mounts forbid it",
    "system_calls": "candidates reach the network, Unix sockets and deep parts of the kernel",
    "capabilities_dropped": "candidates keep root's privileges",
    "no_new_privileges": "setuid programs give candidates the privileges of others",
    "process_limit": "too many processes are found only now and then, then ended",
    "memory_limit": "too much memory is found only now and then, then ended",
}
"""What a machine without a protection lacks, by field of `Protections`."""
_ADVICE = (
    "verdicts stay as good as docs/threat-model.md says, but candidates are less shut in: evaluate "
    "foreign ones in a virtual machine, or permit namespaces (in a container: `--cap-add "
    "SYS_ADMIN`), Landlock and seccomp"
)


def protections(settings: Settings) -> Finding:
    """Which protections hold for a worker on this machine."""
    try:
        held = ask("protections", Protections)
    except ProbeFailed as error:
        return Finding(
            name="protections",
            state="warning",
            found=f"could not be tried: {error}",
            advice=_ADVICE,
            facts=dict.fromkeys((*Protections.model_fields, "compiler_fenced")),
        )
    facts: Facts = {**held.model_dump(), "compiler_fenced": launch.confines()}
    return Finding(
        name="protections",
        state="warning" if held.notes else "ok",
        found=_told(held),
        advice=_ADVICE if held.notes else "",
        facts=facts,
    )


def _told(held: Protections) -> str:
    there = [name for name in LOST if getattr(held, name)]
    gone = [name for name in LOST if name not in there]
    if not gone:
        return f"all {len(there)} hold: {_named(there)}"
    lost = "; ".join(f"no {_words(name)}: {LOST[name]}" for name in gone)
    return f"{len(there)} of {len(LOST)} hold ({_named(there)}); {lost} ({'; '.join(held.notes)})"


def _named(names: list[str]) -> str:
    return ", ".join(map(_words, names))


def _words(name: str) -> str:
    return name.replace("_", " ")
