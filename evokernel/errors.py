"""Owns the exception tree: what we or the user's set-up did wrong, never what a candidate did.

EvoKernelError                 exit code 1
├── UsageError                 exit code 2: the command, a file or the set-up must change first
│   ├── ConfigError            an option, a name or a value that cannot be used
│   ├── TaskError              a task file that cannot be loaded or does not fit the machine
│   │   ├── TaskTooLarge       one that does not fit the machine's memory
│   │   └── ModuleNotCaptured  a live module that cannot be written down as a task
│   ├── CompilerMissing        no compiler for the chosen backend
│   ├── DeviceMissing          no GPU, or nothing here that can load a kernel into it
│   ├── StoreError             a memory that is damaged, locked or made with another embedder
│   ├── RecordError            a run folder that cannot be written, read or resumed
│   ├── PatchError             a kernel that cannot take the place of a module
│   ├── SessionError           a request that is not the open one, or a session that is closed
│   └── NoTemplate             the built-in templates do not cover this task
├── WorkerError                the measuring processes failed, and not by the candidate
└── ModelError                 the model could not be asked; the run is kept and can be resumed
    ├── KeyRefused             its server refuses the key
    ├── NoSuchModel            its server does not know the name
    ├── RateLimited            still too many requests after every retry, or the credit is spent
    ├── PromptTooLong          the prompt does not fit, shortened as far as it goes
    ├── ContentRefused         a filter refuses the prompt
    ├── ParameterRefused       its server refuses a parameter that cannot be left out
    ├── ToolsRefused           the model, or its server, takes no tools
    ├── RecordingEnded         a recording has no further reply
    ├── Unreachable            nobody answers at its address, or only with faults of the server
    └── ReplyTimeout           no reply within the time limit

A candidate's faults are a `Status` (see `evokernel.evaluation`), a reply's a `Fault` (`attempt`).
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


class TaskTooLarge(TaskError):
    """A task that needs more memory than may be used."""


class ModuleNotCaptured(TaskError):
    """A live module that cannot be written down as a task."""


class CompilerMissing(UsageError):
    """No compiler for the chosen backend was found."""


class DeviceMissing(UsageError):
    """There is no GPU, its driver is too old, or the library that loads kernels is missing."""


class StoreError(UsageError):
    """A memory that is damaged, locked, or made with another embedder."""


class RecordError(UsageError):
    """A run folder that cannot be written, read or resumed."""


class PatchError(UsageError):
    """A kernel that cannot take the place of a module, because it was verified for another one."""


class SessionError(UsageError):
    """A session that is closed, or an answer to another request than the one that waits."""


class NoTemplate(UsageError):
    """The built-in templates do not cover this task."""


class WorkerError(EvoKernelError):
    """The measuring processes failed for a reason that is not the candidate's."""


class ModelError(EvoKernelError):
    """The model could not be asked, or answered with something that is no reply."""


class KeyRefused(ModelError):
    """The model's server refuses the key."""


class NoSuchModel(ModelError):
    """The model's server does not know the name."""


class RateLimited(ModelError):
    """The server still refuses after every retry: too many requests, or the credit is spent."""


class PromptTooLong(ModelError):
    """The prompt does not fit into the model's context."""


class ContentRefused(ModelError):
    """A content filter refuses the prompt."""


class ParameterRefused(ModelError):
    """The model's server refuses a parameter of the call."""


class ToolsRefused(ModelError):
    """The model cannot call tools, or its server does not take any."""


class RecordingEnded(ModelError):
    """A recorded conversation has no further reply."""


class Unreachable(ModelError):
    """Nobody answers at the server's address, or only with faults of the server's own."""


class ReplyTimeout(ModelError):
    """No reply came within the time limit."""
