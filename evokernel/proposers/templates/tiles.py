"""Owns the innermost part of products in C++: one tile in registers, panels that feed it.

A tile is `TILE_ROWS x TILE_COLS` numbers of the result. Panels hold what tiles read in the order
in which they read it: of the left operand `TILE_ROWS` numbers per step along the depth, of the
right one `TILE_COLS`; edges are filled with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

from evokernel.frozen import Frozen
from evokernel.proposers.templates.choices import Value

SCALARS = 8
"""Numbers that stand for a vector where there are no vectors."""


def shape_of(choices: Mapping[str, Value]) -> tuple[int, int]:
    """Rows and vectors of a plan's tile."""
    rows, vectors = str(choices.get("tile", "4x1")).split("x")
    return int(rows), int(vectors)


class Tile(Frozen):
    """How a tile is written."""

    rows: int
    vectors: int
    """Vectors per row."""
    form: str
    """`vector` for vectors of floats; else plain loops."""
    steps: int
    """Steps along the depth that one turn of the loop takes."""
    fetch: int
    """Fetch the right operand so many steps ahead; 0 leaves that to the processor."""
    type: str
    """C++ type of a number."""

    @classmethod
    def of(cls, choices: Mapping[str, Value], form: str, type_: str) -> Tile:
        """The tile that a plan's choices describe."""
        rows, vectors = shape_of(choices)
        return cls(
            rows=rows,
            vectors=vectors,
            form=form,
            steps=int(choices.get("steps", 1)),
            fetch=int(choices.get("fetch", 0)),
            type=type_,
        )

    @property
    def text(self) -> str:
        """Constants and functions that the stages use."""
        lanes = "LANES" if self.form == "vector" else str(SCALARS)
        sizes = f"TILE_ROWS = {self.rows}, TILE_COLS = {self.vectors} * {lanes}"
        is_vector = self.form == "vector"
        panels = _PANELS.replace("    SQUARES\n", _SQUARES if is_vector else "")
        parts = [self._multiply, *[_TRANSPOSE] * is_vector, panels, _PATCHES]
        functions = "\n".join(parts).replace("NUMBER", self.type)
        functions = f"namespace tiles {{\n\n{functions}\n}}  // namespace tiles\n"
        return f"constexpr int64_t {sizes};\n\n{functions}"

    @property
    def _multiply(self) -> str:
        ahead = ""
        if self.fetch:
            ahead = f"    __builtin_prefetch(right + (k + {self.fetch}) * next);\n"
        unroll = f"#pragma GCC unroll {self.steps}\n" if self.steps > 1 else ""
        text = _VECTORS if self.form == "vector" else _LOOPS
        text = text.replace("NUMBER", self.type).replace("  UNROLL\n", unroll)
        return text.replace("    AHEAD\n", ahead).replace("COUNT", str(self.vectors))


_VECTORS = """\
// One tile: sums = left @ right, or more of it. A number of `left` lies `down` from the one above
// it and `across` from the one before; a row of `right` lies `next` from the one before.
inline void multiply(int64_t depth, const float* left, int64_t down, int64_t across,
                     const float* right, int64_t next, float* sums, bool more) {
  V sum[TILE_ROWS][COUNT];
#pragma GCC unroll 16
  for (int i = 0; i < TILE_ROWS; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < COUNT; ++v) sum[i][v] = V(0.0f);
  UNROLL
  for (int64_t k = 0; k < depth; ++k) {
    AHEAD
    V beside[COUNT];
#pragma GCC unroll 16
    for (int v = 0; v < COUNT; ++v) beside[v] = load(right + k * next + v * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; ++i) {
      const V each = left[i * down + k * across];
#pragma GCC unroll 16
      for (int v = 0; v < COUNT; ++v) sum[i][v] = fma(each, beside[v], sum[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < TILE_ROWS; ++i)
#pragma GCC unroll 16
    for (int v = 0; v < COUNT; ++v) {
      float* const place = sums + i * TILE_COLS + v * LANES;
      store(place, more ? load(place) + sum[i][v] : sum[i][v]);
    }
}
"""

_LOOPS = """\
// One tile: sums = left @ right, or more of it. A number of `left` lies `down` from the one above
// it and `across` from the one before; a row of `right` lies `next` from the one before.
inline void multiply(int64_t depth, const NUMBER* left, int64_t down, int64_t across,
                     const NUMBER* right, int64_t next, NUMBER* sums, bool more) {
  NUMBER sum[TILE_ROWS][TILE_COLS] = {};
  UNROLL
  for (int64_t k = 0; k < depth; ++k) {
    AHEAD
    for (int i = 0; i < TILE_ROWS; ++i)
      for (int j = 0; j < TILE_COLS; ++j)
        sum[i][j] += left[i * down + k * across] * right[k * next + j];
  }
  for (int i = 0; i < TILE_ROWS; ++i)
    for (int j = 0; j < TILE_COLS; ++j) {
      NUMBER& place = sums[i * TILE_COLS + j];
      place = more ? place + sum[i][j] : sum[i][j];
    }
}
"""

_PANELS = """\
constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
// As many whole tiles as `n` numbers touch.
constexpr int64_t whole(int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; }

// The first place behind `p` at which a cache line begins.
inline NUMBER* aligned(NUMBER* p) {
  return reinterpret_cast<NUMBER*>((reinterpret_cast<uintptr_t>(p) + 63) / 64 * 64);
}

// Rows of the left operand, tile by tile.
inline void pack_left(int64_t rows, int64_t depth, const NUMBER* from, int64_t down,
                      int64_t across, NUMBER* to) {
  for (int64_t i = 0; i < rows; i += TILE_ROWS) {
    const int64_t here = least(TILE_ROWS, rows - i);
    for (int64_t k = 0; k < depth; ++k, to += TILE_ROWS)
      for (int64_t t = 0; t < TILE_ROWS; ++t)
        to[t] = t < here ? from[(i + t) * down + k * across] : 0;
  }
}

// Columns of the right operand, tile by tile.
inline void pack_right(int64_t depth, int64_t cols, const NUMBER* from, int64_t down,
                       int64_t across, NUMBER* to) {
  constexpr int64_t RUN = 64;  // steps along the depth whose numbers the first cache holds
  for (int64_t j = 0; j < cols; j += TILE_COLS, to += depth * TILE_COLS) {
    const NUMBER* const column = from + j * across;
    const int64_t here = least(TILE_COLS, cols - j);
    if (across == 1 && here == TILE_COLS) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t t = 0; t < TILE_COLS; ++t) to[k * TILE_COLS + t] = column[k * down + t];
      continue;
    }
    int64_t begin = 0;
    SQUARES
    for (; begin < depth; begin += RUN)
      for (int64_t t = 0; t < TILE_COLS; ++t)
        for (int64_t k = begin; k < least(depth, begin + RUN); ++k)
          to[k * TILE_COLS + t] = t < here ? column[k * down + t * across] : 0;
  }
}
"""

_TRANSPOSE = """\
// Half of an exchange: of each square of STEP numbers the upper right and the lower left one.
template <int STEP, int... I>
inline void exchange(V& a, V& b, std::integer_sequence<int, I...>) {
  const V upper = __builtin_shufflevector(a.v, b.v, ((I & STEP) ? LANES + I - STEP : I)...);
  b = __builtin_shufflevector(a.v, b.v, ((I & STEP) ? LANES + I : I + STEP)...);
  a = upper;
}

// Rows and columns of LANES vectors exchanged, in log2(LANES) rounds.
template <int STEP = LANES / 2>
inline void transpose(V (&square)[LANES]) {
  if constexpr (STEP > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES; ++i)
      if (!(i & STEP))
        exchange<STEP>(square[i], square[i + STEP], std::make_integer_sequence<int, LANES>{});
    transpose<STEP / 2>(square);
  }
}
"""

_SQUARES = """\
    if (down == 1 && here == TILE_COLS)
      for (; begin + LANES <= depth; begin += LANES)
        for (int64_t t = 0; t < TILE_COLS; t += LANES) {
          V square[LANES];
#pragma GCC unroll 16
          for (int i = 0; i < LANES; ++i) square[i] = load(column + (t + i) * across + begin);
          transpose(square);
#pragma GCC unroll 16
          for (int i = 0; i < LANES; ++i) store(to + (begin + i) * TILE_COLS + t, square[i]);
        }
"""

_PATCHES = """\
// Windows of an image as columns, tile by tile; `taps` says where each number of a window lies,
// `places` where the window of each column begins.
inline void pack_patches(int64_t depth, int64_t cols, const NUMBER* image, const int64_t* taps,
                         const int64_t* places, NUMBER* to) {
  for (int64_t j = 0; j < cols; j += TILE_COLS, places += TILE_COLS) {
    bool straight = true;
    for (int64_t t = 1; t < TILE_COLS; ++t) straight &= places[t] == places[0] + t;
    for (int64_t k = 0; k < depth; ++k, to += TILE_COLS) {
      const NUMBER* const from = image + taps[k];
      if (straight)
        for (int64_t t = 0; t < TILE_COLS; ++t) to[t] = from[places[0] + t];
      else
        for (int64_t t = 0; t < TILE_COLS; ++t) to[t] = from[places[t]];
    }
  }
}
"""
