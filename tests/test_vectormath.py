"""The vector functions against fp64 over all exponents, and what moves, folds and scans lanes."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from evokernel.bench.correctness import compare
from evokernel.bench.tolerance import limits
from evokernel.jit import CppModule, cpp_module
from evokernel.proposers.templates.header import preamble, sections
from evokernel.task import Tolerance

INFINITY, NAN = float("inf"), float("nan")
SMALLEST = 2.0**-149
NORMAL = 2.0**-126

REFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": lambda x: x * torch.erfc(-x * 0.5**0.5) / 2,  # torch's own cancels on the left
    "gelu_tanh": lambda x: x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x**3)),
    "mish": lambda x: x * torch.tanh(F.softplus(x, threshold=1e9)),
    "softplus": lambda x: torch.clamp(x, min=0) + torch.log1p(torch.exp(-x.abs())),
    "sin": torch.sin,
    "erfc": torch.erfc,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "sign": torch.sign,
    "abs": torch.abs,
}

ULPS = {"tanh": 3, "log10": 3, "sigmoid": 3, "silu": 4, "softplus": 3, "mish": 4, "erfc": 3}
ULPS |= {"gelu": 4, "gelu_tanh": 24}
"""Bounds in units of the last place of the result, measured and rounded up; 2 unless named. The
tanh form of gelu rounds its argument, which counts on the left (there torch is off by hundreds)."""

TAILS = {
    "sigmoid": (1e-37, 0.0, 1e-37),
    "silu": (1e-35, 0.0, 1e-35),
    "gelu": (0.17, 3e-6, 7e-9),
    "gelu_tanh": (1e-6, 2e-5, 1e-37),
    "mish": (1e-35, 1e-5, 1e-37),
}
"""Size below which other bounds hold, relative and absolute: intermediate results leave the range
of a float there, in torch as well (1 + exp(88.8) is infinite), and without fused multiply-add a
square in an exponent loses its last digits."""

SHORT: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
    "exp_short": (torch.exp, 2),
    "sigmoid_short": (torch.sigmoid, 3),
    "silu_short": (F.silu, 4),
    "gelu_tanh_short": (REFERENCES["gelu_tanh"], 24),
    "gelu_short": (REFERENCES["gelu"], 3),
}
"""References of the functions without the ends of their range, and bounds as above."""

PAIRS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
}

UNARY = """
void {name}_all(const float* x, float* y, int64_t n) {{
  int64_t c = 0;
  for (; c + LANES <= n; c += LANES) store(y + c, {name}(load(x + c)));
  if (c < n) store_first(y + c, {name}(load_first(x + c, n - c)), n - c);
}}
"""
PAIR = """
void {name}_all(const float* a, const float* b, float* y, int64_t n) {{
  int64_t c = 0;
  for (; c + LANES <= n; c += LANES) store(y + c, {name}(load(a + c), load(b + c)));
  if (c < n) {{
    const V rest = {name}(load_first(a + c, n - c), load_first(b + c, n - c));
    store_first(y + c, rest, n - c);
  }}
}}
"""
MOVES = """
int64_t lanes() { return LANES; }
void rest(const float* x, float* y, int64_t n) { store_first(y, load_first(x, n), n); }
void masks(const bool* x, bool* y, int64_t n) {
  if (n == LANES) store(y, !load_mask(x));
  else store_first(y, !load_mask_first(x, n), n);
}
void chosen(const float* x, const float* y, float* z, int64_t n) {
  store(z, select(first(n) & (load(x) < load(y)), load(x), load(y)));
}
void number(float x, float* y) { store(y, V(x)); }
void aligned(const float* x, float* y) { stream(y, load(x)); stream_fence(); }
void mirrored(const float* x, float* y, int64_t n) {
  if (n == LANES) store_back(y + n - 1, load_back(x + n - 1));
  else if (n > 0) store_back_first(y + n - 1, load_back_first(x + n - 1, n), n);
}
void turned_round(const float* x, float* y) { store(y, load_back(x + LANES - 1)); }
void inside(const float* x, float* y, int64_t k, int64_t size) {
  store(y, load_inside<1>(x + k, k, size, LANES));
}
void apart(const float* x, float* y) {
  store(y, load_apart<2>(x, LANES)), store(y + LANES, load_apart<3>(x, LANES));
}
void wide(const float* x, double* y) {
  const V v = load(x);
  store_wide(y, load_wide(y) + v);
  store(const_cast<float*>(x), narrow(load_wide(y) * v));
}
void places(const float* x, int64_t n, int64_t* y) {
  const V low_end = -__builtin_inff(), high_end = __builtin_inff();
  V best[2] = {low_end, low_end}, least[2] = {high_end, high_end};
  Ints at[2] = {same_place(0), same_place(0)}, low[2] = {same_place(0), same_place(0)};
  for (int64_t c = 0; c < n; c += LANES) {
    const int u = c / LANES % 2;
    keep_above(best[u], at[u], load(x + c), places_from(c));
    keep_below(least[u], low[u], load(x + c), places_from(c));
  }
  y[0] = place_above(best, at, 2), y[1] = place_below(least, low, 2);
}
void folded(const float* x, float* y) {
  const V v = load(x);
  y[0] = reduce_sum(v), y[1] = reduce_prod(v), y[2] = reduce_max(v), y[3] = reduce_min(v);
  y[4] = reduce_fmax(v), y[5] = reduce_fmin(v);
}
void truths(const bool* x, bool* y) {
  y[0] = reduce_any(load_mask(x)), y[1] = reduce_all(load_mask(x));
}
void scanned(const float* x, float* y) {
  const V v = load(x);
  double product = 1.0;
  store(y, scan_sum(v)), store(y + LANES, running_product(product, v));
  store(y + 2 * LANES, scan_max(v)), store(y + 3 * LANES, scan_min(v));
  y[4 * LANES] = last(v);
}
"""


@pytest.fixture(
    scope="module",
    params=[(), ("-march=x86-64",)],
    ids=["native", "plain"],
)
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CppModule:
    """Everything in one file, as wide as this machine and with the four lanes of any machine."""
    body = "".join(UNARY.format(name=name) for name in (*REFERENCES, *SHORT))
    body += "".join(PAIR.format(name=name) for name in PAIRS) + MOVES
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVOKERNEL_HOME", str(tmp_path_factory.mktemp("home")))
        return cpp_module(f'{preamble(body)}\nextern "C" {{\n{body}}}\n', flags=request.param)


def sweep() -> torch.Tensor:
    """Both signs, every exponent, and dense where the functions bend."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.arange(255, dtype=torch.int32)[:, None] << 23
    mantissas = torch.randint(0, 1 << 23, (255, 100), generator=generator, dtype=torch.int32)
    wide = (exponents | mantissas).view(torch.float32).flatten()
    dense = torch.linspace(-110, 110, 40_001)
    return torch.cat([wide, -wide, dense, dense / 50, torch.tensor([0.0, -0.0])])


@pytest.mark.parametrize("name", REFERENCES)
def test_accuracy(name: str, module: CppModule) -> None:
    x = sweep()
    result = torch.full_like(x, 7)
    expected = REFERENCES[name](x.double())

    getattr(module, f"{name}_all")(x, result, x.numel())

    rounded = expected.float()
    assert torch.equal(rounded.isnan(), result.isnan())
    finite = rounded.isfinite()
    assert torch.equal(rounded[~finite].nan_to_num(0.5), result[~finite].nan_to_num(0.5))
    error = (result.double() - expected)[finite].abs()
    size = expected[finite].abs()
    unit = 2.0 ** (torch.floor(torch.log2(size.clamp(min=NORMAL))) - 23)
    limit = ULPS.get(name, 2) * unit
    below, relative, absolute = TAILS.get(name, (0.0, 0.0, 0.0))
    limit = torch.where(size < below, (relative * size + absolute).maximum(limit), limit)
    worst = (error / limit).max()
    assert worst <= 1, f"{worst * ULPS.get(name, 2)} ulp at {x[finite][(error / limit).argmax()]}"


def followed(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """What torch makes of special values: in fp64 where a processor's own kernels lose them."""
    own, exact = function(x), function(x.double()).float()
    is_lost = (own.isnan() & ~exact.isnan()) | (~own.isfinite() & exact.isfinite())
    return torch.where(is_lost, exact, own)


@pytest.mark.parametrize("name", REFERENCES)
def test_special_values_follow_torch(name: str, module: CppModule) -> None:
    nan_with_payload = torch.tensor([0x7FC00002, -1], dtype=torch.int32).view(torch.float32)
    x = torch.cat(
        [
            torch.tensor([0.0, -0.0, INFINITY, -INFINITY, NAN, SMALLEST, 3.4e38, -3.4e38, 1.0]),
            nan_with_payload,
        ]
    )
    result = torch.full_like(x, 7)
    ours = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "mish": F.mish}
    expected = followed(ours.get(name, REFERENCES[name]), x)

    getattr(module, f"{name}_all")(x, result, x.numel())

    torch.testing.assert_close(result, expected, rtol=1e-6, atol=2e-45, equal_nan=True)


@pytest.mark.parametrize("name", SHORT)
def test_short_functions_are_accurate_away_from_the_ends(name: str, module: CppModule) -> None:
    x = sweep()
    x = x[(x.abs() < 85) & (x.abs() > NORMAL)]
    result = torch.full_like(x, 7)
    reference, ulps = SHORT[name]
    expected = reference(x.double())

    getattr(module, f"{name}_all")(x, result, x.numel())

    size = expected.abs()
    limit = ulps * 2.0 ** (torch.floor(torch.log2(size.clamp(min=NORMAL))) - 23)
    if name == "gelu_short":  # a rational function, as good as its comment says
        limit = limit.maximum(torch.where(x.abs() < 1.5, 4e-7, 1.5e-6))
    if name == "gelu_tanh_short":  # its exponential overflows where the result is next to nothing
        limit = limit.maximum(torch.where(size < 1e-6, 2e-5 * size + 1e-36, 0.0))
    worst = (result.double() - expected).abs() / limit
    assert worst.max() <= 1, f"{worst.max()} of the limit at {x[worst.argmax()]}"


@pytest.mark.parametrize("name", SHORT)
def test_short_functions_end_as_they_should(name: str, module: CppModule) -> None:
    x = torch.tensor([NAN, INFINITY, -INFINITY, 0.0, 88.0, -100.0, 200.0, -200.0])
    result = torch.full_like(x, 7)
    ours = {"gelu_short": F.gelu, "gelu_tanh_short": REFERENCES["gelu_tanh"]}
    expected = followed(ours.get(name, SHORT[name][0]), x)

    getattr(module, f"{name}_all")(x, result, x.numel())

    torch.testing.assert_close(result, expected, rtol=2e-6, atol=2e-6, equal_nan=True)


def test_small_results_of_gelu_satisfy_the_oracle(module: CppModule) -> None:
    """Rows of nothing but small results: no large neighbour lends its scale."""
    starts = torch.linspace(-6, 0, 97)[:-1]
    x = starts[:, None] + torch.linspace(0, 6 / 96, 257)[None, :]
    result = torch.full_like(x, 7)
    exact = REFERENCES["gelu"](x.double())

    module.gelu_all(x, result, x.numel())

    allowed = limits(F.gelu(x), exact, Tolerance(), depth=1, follow=True)
    assert compare(allowed, result).worst_ratio <= 1


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_follow_torch(name: str, module: CppModule) -> None:
    some = torch.tensor([0.0, -1.5, 1.5, 2.0, INFINITY, -INFINITY, NAN, 7.25, -7.25, 1e-3])
    a, b = torch.cartesian_prod(some, some).unbind(1)
    a, b = a.contiguous(), b.contiguous()
    result = torch.full_like(a, 7)

    getattr(module, f"{name}_all")(a, b, result, a.numel())

    torch.testing.assert_close(result, PAIRS[name](a, b), equal_nan=True)


def test_a_rest_reads_and_writes_no_further(module: CppModule) -> None:
    lanes = module.lanes()
    x = torch.arange(1.0, lanes + 1)
    for n in range(lanes + 1):
        result = torch.zeros(lanes)
        module.rest(x, result, n)
        assert torch.equal(result, torch.where(torch.arange(lanes) < n, x, 0))


def test_masks_move_as_truth_values(module: CppModule) -> None:
    lanes = module.lanes()
    x = torch.arange(lanes) % 3 == 0
    for n in (lanes, lanes - 1):
        result = torch.zeros(lanes, dtype=torch.bool)
        module.masks(x, result, n)
        assert torch.equal(result, ~x & (torch.arange(lanes) < n))


def test_selection_and_numbers(module: CppModule) -> None:
    lanes = module.lanes()
    x, y = torch.arange(lanes) * 1.0, torch.full((lanes,), 2.5)
    result = torch.empty(lanes)
    module.chosen(x, y, result, 2)
    assert torch.equal(result, torch.where((torch.arange(lanes) < 2) & (x < y), x, y))
    module.number(-0.0, result)
    assert result.signbit().all()
    assert not result.any()


def test_streaming_stores(module: CppModule) -> None:
    x = torch.randn(64)
    start = (-x.data_ptr() // 4) % 16
    target = torch.zeros(96)
    place = (-target.data_ptr() // 4) % 16
    module.aligned(x[start:], target[place:])
    assert torch.equal(target[place : place + module.lanes()], x[start : start + module.lanes()])


def test_vectors_run_backwards(module: CppModule) -> None:
    lanes = module.lanes()
    x = torch.randn(lanes)
    result = torch.empty(lanes)
    module.turned_round(x, result)
    assert torch.equal(result, x.flip(0))
    for n in range(lanes + 1):
        result = torch.zeros(lanes)
        module.mirrored(x, result, n)
        assert torch.equal(result, torch.where(torch.arange(lanes) < n, x, 0))


@pytest.mark.parametrize("size", [0, 1, 5, 40])
def test_padded_vectors_read_zeros_outside(size: int, module: CppModule) -> None:
    lanes = module.lanes()
    x = torch.randn(40)
    for k in range(-lanes - 1, size + 2):
        result = torch.full((lanes,), 7.0)
        module.inside(x, result, k, size)
        index = torch.arange(k, k + lanes)
        is_inside = (index >= 0) & (index < size)
        assert torch.equal(result, torch.where(is_inside, x[index.clamp(0, 39)], 0)), k


def test_columns_that_lie_apart(module: CppModule) -> None:
    lanes = module.lanes()
    x = torch.randn(3 * lanes)
    result = torch.empty(2 * lanes)
    module.apart(x, result)
    assert torch.equal(result[:lanes], x[: 2 * lanes : 2])
    assert torch.equal(result[lanes:], x[::3])


def test_sums_in_double(module: CppModule) -> None:
    lanes = module.lanes()
    x, total = torch.randn(lanes), torch.randn(lanes, dtype=torch.float64) * 1e-9
    own, expected = x.clone(), total + x.double()
    module.wide(own, total)
    assert torch.equal(total, expected)
    assert torch.equal(own, (expected * x.double()).float())


TIES = {9: 99.0, 30: 99.0, 1: -99.0, 33: -99.0}


@pytest.mark.parametrize(
    "changes", [{}, TIES, {20: NAN, 7: NAN}, dict.fromkeys(range(64), -INFINITY)]
)
def test_places_of_extrema(changes: dict[int, float], module: CppModule) -> None:
    x = torch.randn(64)
    for place, value in changes.items():
        x[place] = value
    result = torch.empty(2, dtype=torch.int64)
    module.places(x, 64, result)
    assert result.tolist() == [int(x.argmax()), int(x.argmin())]


@pytest.mark.parametrize("nan", [None, 0, 2, -1])
def test_lanes_fold_to_one_number(nan: int | None, module: CppModule) -> None:
    x = torch.randn(module.lanes())
    if nan is not None:
        x[nan] = NAN
    result = torch.empty(6)

    module.folded(x, result)

    expected = torch.stack([x.sum(), x.prod(), x.amax(), x.amin()])
    torch.testing.assert_close(result[:4], expected, equal_nan=True)
    if nan is None:
        torch.testing.assert_close(result[4:], expected[2:])


def test_masks_fold_to_one_truth(module: CppModule) -> None:
    lanes = module.lanes()
    result = torch.empty(2, dtype=torch.bool)
    for count in (0, 1, lanes):
        module.truths(torch.arange(lanes) >= lanes - count, result)
        assert result.tolist() == [count > 0, count == lanes]


@pytest.mark.parametrize("nan", [False, True])
def test_running_reductions_over_lanes(nan: bool, module: CppModule) -> None:
    lanes = module.lanes()
    x = torch.randn(lanes)
    if nan:
        x[1] = NAN
    result = torch.empty(4 * lanes + 1)

    module.scanned(x, result)

    expected = [x.cumsum(0), x.cumprod(0), x.cummax(0).values, x.cummin(0).values, x[-1:]]
    torch.testing.assert_close(result, torch.cat(expected), equal_nan=True)


def test_a_source_gets_only_what_it_uses() -> None:
    text = preamble("const V y = exp(load(x + c));")
    assert "inline V exp(V x)" in text
    assert "Power split_power" in text
    assert "inline V log(" not in text
    assert "namespace scalar" not in text


def test_scalar_functions_stand_alone() -> None:
    text = preamble("y[0] = scalar::gelu(x[0]) + std::exp(x[1]);")
    assert "namespace scalar" in text
    assert "inline T gelu(T x)" in text
    assert "immintrin" not in text
    assert "struct V" not in text


def test_a_source_without_functions_gets_includes_only() -> None:
    assert "namespace" not in preamble("y[0] = x[0] + std::exp(x[1]);")


def test_sections_need_only_earlier_ones() -> None:
    seen: set[str] = set()
    for section in sections():
        if not section.scalar:
            assert set(section.needs) <= seen, section.name
            seen.add(section.name)
