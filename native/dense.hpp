// Dense layers on (features, lanes): matrix products.
#pragma once

#include "gemm.hpp"
#include "panels.hpp"

namespace ringlet::RINGLET_ISA {

// Rows of A that share a cache line when A is read along its columns.
constexpr long kRowBlock = 16;

// target[d][row] = a[row + d * stride] for the rows of a block.
template <typename T>
inline void gather_rows(long depth, long count, const T* a, long stride, T* target) {
    for (long d = 0; d < depth; ++d, a += stride, target += kRowBlock)
        if (count == kRowBlock)
            memcpy(target, a, sizeof(T) * kRowBlock);  // of a size that the compiler knows: a few moves
        else
            memcpy(target, a, sizeof(T) * count);
}

// x(depth x lanes) as panels of a few vectors, each [depth][vectors]: the products read them front to back. The threads of a
// parallel region share the work.
template <typename T, int Width>
inline void pack_panels(long depth, long lanes, const T* x, T* panels) {
#pragma omp for schedule(static)
    for (long d = 0; d < depth; ++d)
        in_vector_tiles(lanes / Width, [&](auto tile, long vector) {
            constexpr int Vectors = decltype(tile)::value;
            T* panel = panels + vector * Width * depth;
            unroll<Vectors>([&](auto j) {
                store(panel + (d * Vectors + j) * Width, load<Vec<T, Width>>(x + d * lanes + (vector + j) * Width));
            });
        });
}

// y(rows x lanes) = A(rows x depth) * x(depth x lanes); A is given by its strides, one of which is 1.
template <typename T, int Width>
void dense_multiply(long rows, long depth, long lanes, const T* a, long row_stride, long depth_stride, const T* x, T* y,
                    const Epilogue<T>& epilogue) {
    T* panels = scratch_array<T>(kScratchShared0, depth * lanes);
    const bool plain = !epilogue.bias && !epilogue.accumulate && !epilogue.relu;
    const bool gather = depth_stride != 1;  // A is a transpose: its rows lie side by side
    const long blocks = (rows + kRowBlock - 1) / kRowBlock;
#pragma omp parallel num_threads(num_threads()) if (rows * depth * lanes > 65536)
    {
        pack_panels<T, Width>(depth, lanes, x, panels);
        T* gathered = gather ? scratch_array<T>(kScratchOwn0, depth * kRowBlock) : nullptr;
#pragma omp for schedule(static)
        for (long block = 0; block < blocks; ++block) {
            const long first = block * kRowBlock, count = rows - first < kRowBlock ? rows - first : kRowBlock;
            const T* block_a = a + first * row_stride;
            long block_row_stride = row_stride, block_depth_stride = depth_stride;
            if (gather) {
                gather_rows(depth, count, block_a, depth_stride, gathered);
                block_a = gathered, block_row_stride = 1, block_depth_stride = kRowBlock;
            }
            in_halving_tiles<kTileRows>(count, [&](auto tile_rows, long row) {
                in_vector_tiles(lanes / Width, [&](auto tile_vectors, long vector) {
                    constexpr int Rows = decltype(tile_rows)::value, Vectors = decltype(tile_vectors)::value;
                    const auto multiply = [&](T* c, long c_stride) {
                        multiply_tile<T, Width, Rows, Vectors>(depth, block_a + row * block_row_stride, block_row_stride, block_depth_stride,
                                                               panels + vector * Width * depth, Vectors * Width, c, c_stride);
                    };
                    T* target = y + (first + row) * lanes + vector * Width;
                    if (plain) return multiply(target, lanes);
                    T tile[Rows * Vectors * Width];
                    multiply(tile, Vectors * Width);
                    finish_tile<T, Width, Rows, Vectors>(tile, target, lanes, epilogue, first + row);
                });
            });
        }
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

// dweight = dy * x^T: a panel of inputs is transposed once and serves all outputs.
template <typename T>
void dense_backward_weight(long outputs, long inputs, long lanes, const T* x, const T* dy, T* dweight) {
    constexpr long Columns = kNativeWidth<T> * kTileVectors;
    const long panels = (inputs + Columns - 1) / Columns;
#pragma omp parallel num_threads(num_threads()) if (outputs * inputs * lanes > 65536)
    {
        T* panel = scratch_array<T>(kScratchOwn0, lanes * Columns);
        T* partial = scratch_array<T>(kScratchOwn1, outputs * Columns);
#pragma omp for schedule(static)
        for (long p = 0; p < panels; ++p) {
            const long first = p * Columns, count = inputs - first < Columns ? inputs - first : Columns;
            transpose(count, lanes, x + first * lanes, lanes, panel, Columns);
            T* target = dweight + first;
            const bool whole = count == Columns;
            panel_product<T, kTileVectors>(outputs, Walk::along(lanes), dy, lanes, panel, whole ? target : partial, whole ? inputs : Columns, false);
            for (long i = 0; i < (whole ? 0 : outputs); ++i) memcpy(target + i * inputs, partial + i * Columns, sizeof(T) * count);
        }
    }
}

}  // namespace ringlet::RINGLET_ISA
