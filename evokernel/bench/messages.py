"""Owns the records between the pool and whoever judges: specs, plans, outcomes, faults."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from evokernel.evaluation import Diagnostic, Status
from evokernel.frozen import Frozen

Role = Literal["candidate", "eager", "compile"]
Way = Literal["single", "batch", "graph"]
"""How calls are timed on a GPU: each by itself, many short ones in a row, or out of a graph."""

CAPTURED = 8
"""Calls in a graph that is replayed again and again."""


class WorkerSpec(Frozen):
    """What a worker is born for. Trusted baselines are the same make as candidates."""

    role: Role
    """`candidate` and `eager` run the module as it is, `compile` runs it under torch.compile."""
    source: str
    """Text of the module that is imported in the worker, shown in tracebacks as `candidate.py`."""
    class_name: str = "ModelNew"
    """`ModelNew` for candidates, `Model` for references."""
    mode: Literal["train", "eval"] = "eval"
    """Mode that the module is put into before it is called."""
    dtype: str | None = None
    """Floating type to which the constructed module is converted, e.g. `float16`; None keeps it."""
    device: str = "cpu"
    """Where module and inputs live: `cpu`, or a GPU as torch names it, e.g. `cuda:0`."""
    is_tf32: bool = False
    """Whether products of float32 may be computed with TF32; on GPUs only."""
    is_blocking: bool = False
    """Each launch waits for its kernel, so that a fault is told by the kernel that made it."""
    device_bytes: int = Field(default=0, ge=0)
    """Memory of the GPU that torch may allocate for it; 0 is no limit."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of torch and OpenMP."""
    memory_bytes: int = Field(default=4 << 30, ge=64 << 20)
    """Address space that the worker may use beyond what it is born with, the harness's buffers
    (inputs x (slots + 1), outputs, flush buffer) included; with a GPU, memory in use (CUDA reserves
    far more addresses than it uses)."""
    scratch_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """Size limit of the scratch folder."""
    output_bytes: int = Field(default=1 << 20, ge=1 << 10)
    """Size limit of standard output and error together."""
    run_s: float = Field(default=60.0, gt=0)
    """Default wall limit of one call, seconds; the time of the trusted compiler is not counted."""
    build_s: float = Field(default=120.0, gt=0)
    """Added to the limit of `load` and `run` for the role `compile`, seconds."""


class Protections(Frozen):
    """Which protections hold for a worker; what is missing is False and has its note."""

    pid_namespace: bool = False
    """Own PID namespace: killing its init kills every descendant."""
    network_namespace: bool = False
    """No network interface but a loopback that is down."""
    mount_namespace: bool = False
    """File systems read-only, own /proc, scratch on a tmpfs of limited size."""
    own_proc: bool = False
    """Own /proc, in which the processes of others do not appear."""
    ipc_namespace: bool = False
    """Own System V and POSIX message queues and shared memory."""
    landlock: int = 0
    """Version of Landlock that limits file access, signals and TCP; 0 is none."""
    system_calls: bool = False
    """A filter (seccomp) refuses sockets, calls on other processes, deep parts of the kernel."""
    capabilities_dropped: bool = False
    """No capability is left, also not over exec."""
    no_new_privileges: bool = False
    """setuid programs give nothing."""
    process_limit: bool = False
    """The number of processes and threads is limited (root is exempt from RLIMIT_NPROC)."""
    memory_limit: bool = False
    """RLIMIT_AS is set."""
    notes: tuple[str, ...] = ()
    """Why a protection is missing, in words."""


class Fault(Frozen):
    """What a worker's code did wrong."""

    status: Status
    """Never `passed`."""
    reason: str
    """One sentence."""
    phase: str
    """The call during which it happened: `birth`, `load`, `put`, `run`, `time`, `batch` ..."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Compiler messages or the traceback's last line inside `candidate.py`."""
    log: str = ""
    """Tail of the traceback and of the standard streams."""


class Faulted(Exception):
    """Carries a `Fault` from a worker's call to the one place that turns it into a verdict.

    It is not an `EvoKernelError`: nobody on our side is broken. Catch it once per judgement. After
    it the worker is dead, except where `fault.status` is RUNTIME_ERROR, INVALID_SOURCE,
    WRONG_STRUCTURE or a failed compilation.
    """

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{fault.phase}: {fault.status}: {fault.reason}")
        self.fault = fault


class Loaded(Frozen):
    """What came of importing and constructing the module."""

    import_s: float
    """Seconds to import it, its kernels' building excluded."""
    build_s: float
    """Seconds that the parent spent in the trusted compiler for it."""
    construct_s: float
    """Seconds of the constructor."""
    kernels: tuple[str, ...]
    """Names of the kernels that were built or found in the cache, in order."""
    state: Literal["loaded", "seeded", "absent"]
    """`loaded`: names and shapes of the given state matched and it was loaded; `seeded`: they did
    not match, weights come from the seeded constructor; `absent`: no state was given."""
    denormals_kept: bool
    """False when loading it switched the process to flushing denormals to zero."""


class TensorFacts(Frozen):
    """What is known of one output tensor besides its values."""

    path: str
    """Where in the returned structure, e.g. `` (the whole), `0`, `1.hidden`."""
    dtype: str
    """E.g. `float32`."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    device: str
    type_name: str
    """Exact type, `torch.Tensor` for a plain one."""
    requires_grad: bool
    aliases: int | None
    """Index (in order of appearance) of the input tensor whose memory it shares, or None."""


class Foreign(Frozen):
    """Stands for an output that is neither dense tensor, number, text nor container."""

    type_name: str
    """Exact type of the object."""


class Launch(Frozen):
    """One launch of a kernel that the module built through `evokernel.jit`."""

    kernel: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """One `forward`, run on a private copy of the inputs.

    `outputs` has lists, tuples (named tuples become plain ones), dicts, numbers, text, None,
    `Foreign` and contiguous CPU tensors in memory that no worker can change any more.
    """

    outputs: Any
    facts: tuple[TensorFacts, ...]
    """One per output tensor in order of appearance."""
    changed_inputs: tuple[int, ...]
    """Indices (order of appearance) of input tensors whose bytes differ after the call."""
    seconds: float
    """Wall seconds of the call; a rough figure, not a measurement."""
    operators: dict[str, int]
    """With `instrument`: names (`aten.add.Tensor`) and counts of every dispatched operator."""
    launches: tuple[Launch, ...]
    """With `instrument`: the launches of its own kernels."""
    threads_left: int
    """Threads and processes that the call left beyond those of the harness and the OpenMP pool."""


class Bounds(Frozen):
    """What the tensors of an input set have to remain while they vary, by order of appearance."""

    nonnegative: tuple[int, ...] = ()
    """Tensors that must not become negative: sign is taken as 1, offset as its absolute value."""
    mixed: tuple[tuple[int, int], ...] = ()
    """Tensors that stay between 0 and 1, and the length of the rows that sum to one (1: none do):
    all elements move towards one level between 0 and 1, that of rows being one over their
    length."""
    moved: tuple[int, ...] = ()
    """Whole numbers that keep their values: they only change places, each tensor by another number
    of them."""
    fixed: tuple[int, ...] = ()
    """Tensors that are copied unchanged."""


class Variant(Bounds):
    """How the inputs of one timed repetition are made from the put ones.

    Floating tensors become ``x * (sign * scale) + offset`` in their own dtype (see `tensors.vary`,
    which the oracle uses too, bit for bit); others are copied.
    """

    slot: int = Field(default=0, ge=0)
    """Which buffer set (address); taken modulo the slots of `put`."""
    sign: Literal[1, -1] = 1
    scale: float = 1.0
    offset: float = 0.0
    roll: int = Field(default=0, ge=0)
    """By how many places the elements of a tensor move on in memory, the last ones to its start."""


class TimePlan(Frozen):
    """What one `time` message does: a few repetitions, each with its own variant."""

    variants: tuple[Variant, ...] = (Variant(),)
    """One per repetition."""
    calls: int = Field(default=1, ge=1)
    """Inner calls per repetition, for kernels too short for the clock."""
    warmups: int = Field(default=0, ge=0)
    """Untimed calls before the first repetition, on its inputs."""
    flush_bytes: int = Field(default=0, ge=0)
    """Bytes read and written before each repetition to evict the caches; 0 leaves them warm."""
    way: Way = "single"
    """How a GPU is to time them; a processor knows one way only."""
    wall: Variant | None = None
    """On a GPU, values of one more call, which the host's clock times from launch to end."""


class Repetition(Frozen):
    """One timed repetition."""

    nanoseconds: int
    """Time of all its calls: wall time; on a GPU device time, between events on its stream."""
    calls: int
    involuntary: int
    """Involuntary context switches of the whole process meanwhile."""
    faults: int
    """Minor page faults of the process meanwhile; many of them mean cold output memory."""
    cpu_ns: int
    """CPU time of all threads meanwhile; coarse, the kernel books other threads by the tick."""
    way: Way = "single"
    """How a GPU timed them; `batch` where the wish for a graph could not be granted."""
    wall_ns: int | None = None
    """On a GPU, wall time of a call from launch to end, where it was wished for."""
    late_ns: int = 0
    """On a GPU, device time for which other streams went on after the last event."""

    @property
    def seconds(self) -> float:
        """Seconds per call."""
        return self.nanoseconds / self.calls / 1e9


class Place(Frozen):
    """Where an output lies in the memory of the worker, as it told before it was asked to keep it.

    What else is known of the tensor has the form of `TensorFacts`.
    """

    address: int = Field(ge=0)
    """Of the first element."""
    facts: TensorFacts


class Turn(Frozen):
    """One timed call as it was seen from outside."""

    repetition: Repetition
    """What the worker's own clock said."""
    wall_s: float
    """Seconds from sending the request to having the reply, by the parent's clock."""
    cpu_s: float
    """Processor seconds of all its processes meanwhile."""
    early_s: float
    """The same between the preparation and the call, when it has nothing to do."""
    late_s: float
    """The same between the turn before and the preparation, when it has nothing to do."""
    is_held: bool = False
    """It was stopped before and after."""
    tree: Any = None
    """Structure of what the call returned, see `trees`."""
    places: tuple[Place, ...] = ()
    """Its tensors, in order of appearance."""
    refusal: str = ""
    """Why it returned what cannot be described."""

    @property
    def outside_s(self) -> float:
        """What the parent's clock saw beyond the worker's."""
        return self.wall_s - 1e-9 * self.repetition.nanoseconds


class Batch(Frozen):
    """Calls without any clock inside, timed by the parent around the whole message."""

    wall_s: float
    """Seconds between sending the request and having the reply, by the parent's clock."""
    calls: int


class Launched(Frozen):
    """One of the module's own kernels over some calls."""

    kernel: str
    count: int = Field(ge=0)
    """How often it was launched."""
    seconds: float = Field(ge=0)
    """Wall seconds inside it."""


class Probe(Frozen):
    """Calls for the profile: how long, and how much of it inside own kernels.

    The worker's own figures: hints for whoever improves the kernel, no measurement of it.
    """

    calls: int
    threads: int
    """Threads that torch and OpenMP were allowed."""
    wall_s: float = Field(gt=0)
    """Seconds of all calls."""
    launched: tuple[Launched, ...]
    """One per kernel."""

    @property
    def seconds(self) -> float:
        """Wall seconds per call."""
        return self.wall_s / self.calls

    @property
    def launches(self) -> float:
        """Launches per call."""
        return sum(kernel.count for kernel in self.launched) / self.calls

    @property
    def inside_s(self) -> float:
        """Seconds inside own kernels per call."""
        return sum(kernel.seconds for kernel in self.launched) / self.calls


class Traced(Frozen):
    """One thing that a GPU did for a call, as its worker was told by CUPTI."""

    name: str
    """Of the kernel, or what it copied or filled."""
    ns: int = Field(ge=0)
    """Device time, nanoseconds."""
    stream: int
    """Number of the stream."""


class Usage(Frozen):
    """What the parent sees of a worker through /proc, without asking it."""

    threads: int = 0
    """Threads of the worker's main process."""
    processes: int = 0
    """Living processes of the worker, its main process included."""
    cpu_s: float = 0.0
    """CPU seconds of all threads of the main process since birth."""
    resident_bytes: int = 0
    """Resident memory of the main process."""
    peak_resident_bytes: int = 0
    """The most that it was since birth or since the last `peak_bytes`."""
