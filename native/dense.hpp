// Dense layers on (features, lanes): matrix products without packing.
#pragma once

#include "gemm.hpp"

namespace ringlet::RINGLET_ISA {

// y(rows x lanes) = A(rows x depth) * x(depth x lanes), A given by its strides.
template <typename T, int Width>
void dense_multiply(long rows, long depth, long lanes, const T* a, long row_stride, long depth_stride, const T* x, T* y,
                    const Epilogue<T>& epilogue) {
    const long blocks = (rows + kTileRows - 1) / kTileRows;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (rows * depth * lanes > 65536)
    for (long block = 0; block < blocks; ++block) {
        const long first = block * kTileRows;
        const long count = rows - first < kTileRows ? rows - first : kTileRows;
        in_halving_tiles<kTileRows>(count, [&](auto tile_rows, long offset) {
            const long row = first + offset;
            in_vector_tiles(lanes / Width, [&](auto tile_vectors, long vector) {
                constexpr int Rows = decltype(tile_rows)::value, Vectors = decltype(tile_vectors)::value;
                T tile[Rows * Vectors * Width];
                long offset[Vectors];
                for (int j = 0; j < Vectors; ++j) offset[j] = j * Width;
                multiply_tile<T, Width, Rows, Vectors>(depth, a + row * row_stride, row_stride, depth_stride, x + vector * Width, lanes, tile);
                finish_tile<T, Width, Rows, Vectors>(tile, y + row * lanes + vector * Width, lanes, offset, epilogue, row);
            });
        });
    }
}

template <typename T>
void dense_forward(long outputs, long inputs, long lanes, const T* x, const T* weight, const T* bias, T* y, bool relu) {
    with_width<T>(lanes, [&](auto width) {
        dense_multiply<T, decltype(width)::value>(outputs, inputs, lanes, weight, inputs, 1, x, y, {bias, false, relu});
    });
}

template <typename T>
void dense_backward_data(long outputs, long inputs, long lanes, const T* dy, const T* weight, T* dx, bool accumulate) {
    with_width<T>(lanes, [&](auto width) {
        dense_multiply<T, decltype(width)::value>(inputs, outputs, lanes, weight, 1, inputs, dy, dx, {nullptr, accumulate, false});
    });
}

template <typename T>
void dense_backward_weight(long outputs, long inputs, long lanes, const T* x, const T* dy, T* dweight) {
    constexpr long kBlock = 48;  // inputs per block: their rows stay in the first-level cache
    with_width<T>(lanes, [&](auto width) {
        const long blocks = (inputs + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (outputs * inputs * lanes > 65536)
        for (long block = 0; block < blocks; ++block) {
            const long first = block * kBlock;
            const long count = inputs - first < kBlock ? inputs - first : kBlock;
            dot_block<T, decltype(width)::value>(outputs, count, lanes, dy, lanes, x + first * lanes, lanes, dweight + first,
                                                 inputs, false);
        }
    });
}

}  // namespace ringlet::RINGLET_ISA
