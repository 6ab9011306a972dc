"""Owns the exception tree: what we or the user's set-up did wrong, never what a candidate did.

EvoKernelError                 exit code 1
├── UsageError                 exit code 2: the command, a file or the set-up must change first
│   ├── ConfigError            an option, a name or a value that cannot be used
│   ├── TaskError              a task file that cannot be loaded or does not fit the machine
│   ├── CompilerMissing        no compiler for the chosen backend
│   ├── StoreError             a memory that is damaged, locked or made with another embedder
│   ├── RecordError            a run folder that cannot be written, read or resumed
│   └── NoTemplate             the built-in templates do not cover this task
└── WorkerError                the measuring processes failed, and not by the candidate

A candidate's faults are a `Status` (see `evokernel.evaluation`).
"""


class EvoKernelError(Exception):
    """Root of the tree; the message names the thing, what was expected and what to do."""

    exit_code = 1


class UsageError(EvoKernelError):
    """The user can repair this by changing the command, a file or the set-up."""

    exit_code = 2


class ConfigError(UsageError):
    """An option, a name or a value that cannot be used."""


class TaskError(UsageError):
    """A task file that cannot be loaded, does not run, or does not fit the machine."""


class CompilerMissing(UsageError):
    """No compiler for the chosen backend was found."""


class StoreError(UsageError):
    """A memory that is damaged, locked, or made with another embedder."""


class RecordError(UsageError):
    """A run folder that cannot be written, read or resumed."""


class NoTemplate(UsageError):
    """The built-in templates do not cover this task."""


class WorkerError(EvoKernelError):
    """The measuring processes failed for a reason that is not the candidate's."""
