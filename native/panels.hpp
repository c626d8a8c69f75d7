// Products of two operands with samples innermost, as gradients of weights need them:
//
//   C(rows x columns) (+)= A(rows x depth) * B(columns x depth)^T
//
// A few vectors of B's rows are transposed into a panel, [depth][columns], that serves all rows of A. So vectors run along the
// columns of C, and there are no lanes to be summed up at the end: with many filters and few samples that would be most of the work.
#pragma once

#include "transpose.hpp"
#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

// The depth of a product, cut into rows of pixels with `run` elements each, and how far apart those are in both operands.
struct Walk {
    long rows, left_row, right_row;
    long pixels, left_pixel, right_pixel;
    long run;

    static Walk along(long depth) { return Walk{1, 0, 0, 1, 0, 0, depth}; }
};

constexpr long rounded_up(long count, long unit) { return (count + unit - 1) / unit * unit; }

// Calls body(std_integer<vectors>, first, count) for each panel of columns; the last one may be partly empty.
template <typename T, typename Body>
inline void in_panels(long columns, Body body) {
    constexpr int Width = kNativeWidth<T>;
    in_vector_tiles((columns + Width - 1) / Width, [&](auto vectors, long start) {
        const long first = start * Width, count = columns - first;
        body(vectors, first, count < vectors * Width ? count : vectors * Width);
    });
}

// c[i * c_stride + j] (+)= the sum over the walk of a[i * a_stride …] * panel[…][j].
template <typename T, int Rows, int Vectors>
__attribute__((noinline)) void panel_tile(const Walk& walk, const T* a, long a_stride, const T* panel, T* c, long c_stride, bool accumulate) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    V acc[Rows][Vectors], right[Vectors];
    unroll<Rows>([&](auto i) {
        unroll<Vectors>([&](auto j) { acc[i][j] = accumulate ? load<V>(c + i * c_stride + j * Width) : V{}; });
    });
    for (long row = 0; row < walk.rows; ++row)
        for (long pixel = 0; pixel < walk.pixels; ++pixel) {
            const T* left = a + row * walk.left_row + pixel * walk.left_pixel;
            const T* line = panel + row * walk.right_row + pixel * walk.right_pixel;
            for (const T* end = left + walk.run; left < end; ++left, line += Vectors * Width) {
                unroll<Vectors>([&](auto j) { right[j] = load<V>(line + j * Width); });
                unroll<Rows>([&](auto i) {
                    const V value = splat<V>(left[i * a_stride]);
                    unroll<Vectors>([&](auto j) { acc[i][j] += value * right[j]; });
                });
            }
        }
    unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { store(c + i * c_stride + j * Width, acc[i][j]); }); });
}

// All rows of A over one panel.
template <typename T, int Vectors>
inline void panel_product(long rows, const Walk& walk, const T* a, long a_stride, const T* panel, T* c, long c_stride, bool accumulate) {
    in_halving_tiles<kTileRows>(rows, [&](auto tile, long row) {
        panel_tile<T, decltype(tile)::value, Vectors>(walk, a + row * a_stride, a_stride, panel, c + row * c_stride, c_stride, accumulate);
    });
}

}  // namespace ringlet::RINGLET_ISA
