"""Owns the counters of a GPU kernel: which few are asked for, and how Nsight Compute's page reads.

The page is the raw one as CSV with base units (`ncu --csv --page raw --print-units base`): a row of
names, a row of units, and a row for each launch. Before, between and after them stands whatever the
tool and the program say. Names of counters are those of the Nsight Compute documentation, "Metrics
Reference"; what a device or a version does not know is left out or empty, and stays unknown here.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping

from evokernel.frozen import Frozen
from evokernel.profile import Stall

_TIME = "gpu__time_duration.sum"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
_MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
_ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
_POSSIBLE = "sm__maximum_warps_per_active_cycle_pct"
_WAVES = "launch__waves_per_multiprocessor"
_REGISTERS = "launch__registers_per_thread"
_BLOCKS, _THREADS = "launch__grid_size", "launch__block_size"
_SHARED = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
_LOCAL = (
    "l1tex__t_bytes_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum",
)
_SECTORS = (
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
)
_LIMIT = "launch__occupancy_limit_"
_LIMITS = {
    "blocks": "the number of blocks",
    "warps": "the size of its blocks",
    "registers": "registers",
    "shared_mem": "shared memory",
    "barriers": "barriers",
}
"""Of equal ones the first is named: what the device fixes, nothing else could better."""
_STALL, _STALL_END = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
_REASONS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle"),
    *("long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction"),
    *("not_selected", "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait"),
)
_AT_WORK = frozenset({"selected", "not selected"})
"""Not waiting: it issues, or could and another warp does."""

METRICS = (
    *(_TIME, _READ, _WRITTEN, _DRAM, _MEMORY, _COMPUTE, *_TENSOR, _ACTIVE, _POSSIBLE, _WAVES),
    *(_REGISTERS, _BLOCKS, _THREADS, *_SHARED, *_LOCAL, *_SECTORS),
    *(f"{_LIMIT}{name}" for name in _LIMITS),
    *(f"{_STALL}{reason}{_STALL_END}" for reason in _REASONS),
)
"""What is asked for: a few passes over a kernel."""

_FULL = 0.99
"""Share of the places for warps from which on nothing limits them."""
_HEAD = "ID"
_KERNEL = "Kernel Name"


class Counters(Frozen):
    """What the hardware counted of one launch; None where it does not tell."""

    kernel: str
    """Name of the function."""
    seconds: float
    """On the device, with cold caches."""
    blocks: int = 0
    """Blocks of the grid."""
    threads: int = 0
    """Threads of a block."""
    registers: int = 0
    """32-bit registers of a thread."""
    shared_bytes: int = 0
    """Shared memory of a block, fixed and asked for."""
    dram_bytes: float | None = None
    """Read from and written to the device's memory."""
    dram_share: float | None = None
    """Share of the rate of the device's memory, 0..1."""
    memory_share: float | None = None
    """The same of the busiest part of the way to memory, caches included."""
    compute_share: float | None = None
    """The same of the busiest part of the multiprocessors."""
    tensor_share: float | None = None
    """The same of the tensor cores."""
    occupancy: float | None = None
    """Share of the places for warps that are filled, 0..1."""
    occupancy_limit: float | None = None
    """Share that can be."""
    limited_by: str = ""
    """What allows no more; empty where nothing does."""
    waves: float | None = None
    """How often the grid fills the device."""
    local_bytes: float | None = None
    """Moved between registers and local memory: spills, and arrays indexed at run time."""
    sector_use: float | None = None
    """Share of what is fetched from global memory, or written to it, that was asked for; the worse
    of both, 0..1."""
    stalls: tuple[Stall, ...] = ()
    """What its warps wait for, the most frequent first."""


def read(text: str) -> tuple[Counters, ...]:
    """The launches in a page, in their order; none where there is no page."""
    rows = csv.reader(line for line in text.splitlines() if line.startswith('"'))
    header: list[str] = []
    found = []
    for row in rows:
        if row[0] == _HEAD:
            header = row
        elif header and row[0] and len(row) == len(header):  # the row of units has no number
            found.append(_counters(dict(zip(header, row, strict=True))))
    return tuple(counters for counters in found if counters is not None)


def _counters(row: Mapping[str, str]) -> Counters | None:
    """One launch; None where not even its time is told."""
    figure = _figures(row)
    seconds = figure(_TIME)
    if seconds is None:
        return None
    limit = _share(figure(_POSSIBLE))
    return Counters(
        kernel=row.get(_KERNEL, ""),
        seconds=1e-9 * seconds,
        blocks=int(figure(_BLOCKS) or 0),
        threads=int(figure(_THREADS) or 0),
        registers=int(figure(_REGISTERS) or 0),
        shared_bytes=int(_total(map(figure, _SHARED)) or 0),
        dram_bytes=_total(map(figure, (_READ, _WRITTEN))),
        dram_share=_share(figure(_DRAM)),
        memory_share=_share(figure(_MEMORY)),
        compute_share=_share(figure(_COMPUTE)),
        tensor_share=_share(_first(map(figure, _TENSOR))),
        occupancy=_share(figure(_ACTIVE)),
        occupancy_limit=limit,
        limited_by=_limiter(figure) if limit is not None and limit < _FULL else "",
        waves=figure(_WAVES),
        local_bytes=_total(map(figure, _LOCAL)),
        sector_use=_share(_least(map(figure, _SECTORS))),
        stalls=_stalls(figure),
    )


Figure = Callable[[str], float | None]


def _figures(row: Mapping[str, str]) -> Figure:
    def figure(name: str) -> float | None:
        try:
            value = float(row.get(name, "").replace(",", ""))
        except ValueError:  # `n/a`, `(!) nan`, or not there
            return None
        return value if value == value else None

    return figure


def _limiter(figure: Figure) -> str:
    """What allows the fewest blocks on a multiprocessor."""
    known = {name: figure(f"{_LIMIT}{name}") for name in _LIMITS}
    told = {name: value for name, value in known.items() if value is not None}
    return _LIMITS[min(told, key=lambda name: told[name])] if told else ""


def _stalls(figure: Figure) -> tuple[Stall, ...]:
    """Shares of the time between two instructions of a warp, work left out of the list."""
    known = {r.replace("_", " "): figure(f"{_STALL}{r}{_STALL_END}") for r in _REASONS}
    told = {reason: value for reason, value in known.items() if value}
    total = sum(told.values())
    ranked = sorted(told.items(), key=lambda item: -item[1])
    return tuple(
        Stall(reason=reason, share=round(value / total, 4))
        for reason, value in ranked
        if reason not in _AT_WORK
    )


def _known(values: Iterable[float | None]) -> Iterator[float]:
    return (value for value in values if value is not None)


def _first(values: Iterable[float | None]) -> float | None:
    return next(_known(values), None)


def _least(values: Iterable[float | None]) -> float | None:
    """The least that is not zero: a kernel that does not load at all has no use of sectors."""
    return min((value for value in _known(values) if value > 0), default=None)


def _total(values: Iterable[float | None]) -> float | None:
    known = list(_known(values))
    return sum(known) if known else None


def _share(percentage: float | None) -> float | None:
    return None if percentage is None else round(percentage / 100, 4)
