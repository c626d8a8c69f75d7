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

// x(depth x lanes) as panels of a few vectors, each [depth][vectors], the last lanes filled up with zeros: the products read them
// front to back. The threads of a parallel region share the work.
template <typename T>
inline void pack_panels(long depth, long lanes, const T* x, T* panels) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
#pragma omp for schedule(static)
    for (long d = 0; d < depth; ++d)
        in_vector_tiles((lanes + Width - 1) / Width, [&](auto tile, long vector) {
            constexpr int Vectors = decltype(tile)::value;
            T* panel = panels + vector * Width * depth;
            unroll<Vectors>([&](auto j) {
                const long lane = (vector + j) * Width;
                const V values = lane + Width <= lanes ? load<V>(x + d * lanes + lane) : load_part<V>(x + d * lanes + lane, lanes - lane);
                store(panel + (d * Vectors + j) * Width, values);
            });
        });
}

// y(rows x lanes) = A(rows x depth) * x(depth x lanes); A is given by its strides, one of which is 1.
template <typename T>
void dense_multiply(long rows, long depth, long lanes, const T* a, long row_stride, long depth_stride, const T* x, T* y,
                    const Epilogue<T>& epilogue) {
    constexpr int Width = kNativeWidth<T>;
    const long num_vectors = (lanes + Width - 1) / Width;
    T* panels = scratch_array<T>(kScratchShared0, depth * num_vectors * Width);
    const bool plain = !epilogue.bias && !epilogue.accumulate && !epilogue.relu;
    const bool gather = depth_stride != 1;  // A is a transpose: its rows lie side by side
    const long blocks = (rows + kRowBlock - 1) / kRowBlock;
#pragma omp parallel num_threads(num_threads()) if (rows * depth * lanes > 65536)
    {
        pack_panels<T>(depth, lanes, x, panels);
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
                in_vector_tiles(num_vectors, [&](auto tile_vectors, long vector) {
                    constexpr int Rows = decltype(tile_rows)::value, Vectors = decltype(tile_vectors)::value;
                    const auto multiply = [&](T* c, long c_stride) {
                        multiply_tile<T, Width, Rows, Vectors>(depth, block_a + row * block_row_stride, block_row_stride, block_depth_stride,
                                                               panels + vector * Width * depth, Vectors * Width, c, c_stride);
                    };
                    T* target = y + (first + row) * lanes + vector * Width;
                    const long left = lanes - (vector + Vectors - 1) * Width;
                    if (plain && left >= Width) return multiply(target, lanes);
                    T tile[Rows * Vectors * Width];
                    multiply(tile, Vectors * Width);
                    if (left >= Width)
                        finish_tile<T, Width, Rows, Vectors>(tile, target, lanes, epilogue, first + row);
                    else
                        finish_tile<T, Width, Rows, Vectors, true>(tile, target, lanes, epilogue, first + row, left);
                });
            });
        }
    }
}

// In the data gradient few samples would fill no vector, and columns of the weights are far apart: vectors run along the inputs instead,
// and every row of the weights is read once, front to back. The sums have the same order as in dense_multiply.
constexpr long kFewLanes = 8;

// target[j] += the sum over Rows rows of dy[row] * weight[row][j], for one sample.
template <typename T, int Rows>
inline void add_rows(long count, const T* weight, long stride, const T* dy, long dy_stride, T* target) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    V factor[Rows];
    unroll<Rows>([&](auto i) { factor[i] = splat<V>(dy[i * dy_stride]); });
    long at = 0;
    for (; at + Width <= count; at += Width) {
        V sum = load<V>(target + at);
        unroll<Rows>([&](auto i) { sum += factor[i] * load<V>(weight + i * stride + at); });
        store(target + at, sum);
    }
    if (at < count) {
        V sum = load_part<V>(target + at, count - at);
        unroll<Rows>([&](auto i) { sum += factor[i] * load_part<V>(weight + i * stride + at, count - at); });
        store_part(target + at, sum, count - at);
    }
}

template <typename T>
void dense_backward_data_few(long outputs, long inputs, long lanes, const T* dy, const T* weight, T* dx, bool accumulate) {
    constexpr long kPiece = 1024;  // inputs whose sums stay in the first-level cache
    T* samples = scratch_array<T>(kScratchShared0, inputs * lanes);
    const long pieces = (inputs + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (outputs * inputs * lanes > 65536)
    for (long piece = 0; piece < pieces; ++piece) {
        const long first = piece * kPiece, count = inputs - first < kPiece ? inputs - first : kPiece;
        for (long lane = 0; lane < lanes; ++lane) memset(samples + lane * inputs + first, 0, sizeof(T) * count);
        in_halving_tiles<8>(outputs, [&](auto rows, long row) {
            for (long lane = 0; lane < lanes; ++lane)
                add_rows<T, decltype(rows)::value>(count, weight + row * inputs + first, inputs, dy + row * lanes + lane, lanes,
                                                   samples + lane * inputs + first);
        });
        for (long i = first; i < first + count; ++i)
            for (long lane = 0; lane < lanes; ++lane)
                dx[i * lanes + lane] = samples[lane * inputs + i] + (accumulate ? dx[i * lanes + lane] : T(0));
    }
}

template <typename T>
void dense_forward(long outputs, long inputs, long lanes, const T* x, const T* weight, const T* bias, T* y, bool relu) {
    dense_multiply<T>(outputs, inputs, lanes, weight, inputs, 1, x, y, {bias, false, relu});
}

template <typename T>
void dense_backward_data(long outputs, long inputs, long lanes, const T* dy, const T* weight, T* dx, bool accumulate) {
    if (lanes <= kFewLanes) return dense_backward_data_few(outputs, inputs, lanes, dy, weight, dx, accumulate);
    dense_multiply<T>(inputs, outputs, lanes, weight, 1, inputs, dy, dx, {nullptr, accumulate, false});
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
