// The two matrix kernels everything else is made of.
//
//  - multiply: C(rows x columns) = A(rows x depth) * B(depth x columns), vectors along columns (samples);
//    A is read element by element with any strides, so neither weights nor their transpose are ever packed.
//  - dot: C(rows x columns) = A(rows x depth) * B(columns x depth)^T, vectors along depth (samples), lanes summed at the end.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

// tile[i][j] = sum_d a[i * row_stride + d * depth_stride] * b[d * b_stride + j * Width …], stored one after the other.
// Not inlined: inside larger functions the compiler runs out of registers for the strides.
template <typename T, int Width, int Rows, int Vectors>
__attribute__((noinline)) void multiply_tile(long depth, const T* a, long row_stride, long depth_stride, const T* b, long b_stride, T* tile) {
    using V = Vec<T, Width>;
    V acc[Rows][Vectors] = {};
    for (long d = 0; d < depth; ++d) {
        V right[Vectors];
        for (int j = 0; j < Vectors; ++j) right[j] = load<V>(b + j * Width);
        for (int i = 0; i < Rows; ++i) {
            const V left = splat<V>(a[i * row_stride]);
            for (int j = 0; j < Vectors; ++j) acc[i][j] += left * right[j];
        }
        a += depth_stride;
        b += b_stride;
    }
    for (int i = 0; i < Rows; ++i)
        for (int j = 0; j < Vectors; ++j) store(tile + (i * Vectors + j) * Width, acc[i][j]);
}

// What happens to a finished tile: y = tile (+ bias) (+ y) and ReLU on top.
template <typename T>
struct Epilogue {
    const T* bias = nullptr;  // per row, may be null
    bool accumulate = false;
    bool relu = false;
};

// Row i, vector j of the tile goes to y + i * row_stride + offset[j].
template <typename T, int Width, int Rows, int Vectors>
inline __attribute__((always_inline)) void finish_tile(const T* tile, T* y, long row_stride, const long (&offset)[Vectors],
                                                       const Epilogue<T>& epilogue, long first_row) {
    using V = Vec<T, Width>;
    for (int i = 0; i < Rows; ++i) {
        const V bias = epilogue.bias ? splat<V>(epilogue.bias[first_row + i]) : V{};
        for (int j = 0; j < Vectors; ++j) {
            T* target = y + i * row_stride + offset[j];
            V value = load<V>(tile + (i * Vectors + j) * Width) + bias;
            if (epilogue.accumulate) value += load<V>(target);
            if (epilogue.relu) value = maximum(value, V{});
            store(target, value);
        }
    }
}

// Sums of the lanes of four vectors at once, as four numbers.
template <typename T, int Width>
inline __attribute__((always_inline)) void sum_four(const Vec<T, Width> (&v)[4], T* out) {
    T lanes[4][Width];
    for (int i = 0; i < 4; ++i) store(lanes[i], v[i]);
    for (int i = 0; i < 4; ++i) {
        for (int half = Width / 2; half > 0; half /= 2)
            for (int k = 0; k < half; ++k) lanes[i][k] += lanes[i][k + half];
        out[i] = lanes[i][0];
    }
}

#if defined(__AVX__)
inline __attribute__((always_inline)) void sum_four_avx(__m256 a, __m256 b, __m256 c, __m256 d, float* out) {
    const __m256 quarters = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(quarters), _mm256_extractf128_ps(quarters, 1)));
}

template <>
inline __attribute__((always_inline)) void sum_four<float, 8>(const Vec<float, 8> (&v)[4], float* out) {
    sum_four_avx((__m256)v[0], (__m256)v[1], (__m256)v[2], (__m256)v[3], out);
}
#endif

// c[i * row_stride + j * column_stride] (+)= sum_d a[i][d] * b[j][d] for a tile of Rows x 4; Columns of the four count.
template <typename T, int Width, int Rows, int Columns>
__attribute__((noinline)) void dot_tile(
    long depth, const T* a, long a_stride, const T* b, long b_stride, T* c, long row_stride, bool accumulate) {
    using V = Vec<T, Width>;
    V acc[Rows][Columns] = {};
    for (long d = 0; d < depth; d += Width) {
        V right[Columns];
        for (int j = 0; j < Columns; ++j) right[j] = load<V>(b + j * b_stride + d);
        for (int i = 0; i < Rows; ++i) {
            const V left = load<V>(a + i * a_stride + d);
            for (int j = 0; j < Columns; ++j) acc[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < Rows; ++i) {
        T sums[4];
        if constexpr (Columns == 4)
            sum_four<T, Width>(acc[i], sums);
        else
            for (int j = 0; j < Columns; ++j) sums[j] = horizontal_sum<T, Width>(acc[i][j]);
        T* target = c + i * row_stride;
        for (int j = 0; j < Columns; ++j) target[j] = accumulate ? target[j] + sums[j] : sums[j];
    }
}

// A block of rows x columns by dot tiles; rows by threes, columns by fours.
template <typename T, int Width>
inline void dot_block(long rows, long columns, long depth, const T* a, long a_stride, const T* b, long b_stride, T* c,
                      long row_stride, bool accumulate) {
    in_vector_tiles(rows, [&](auto tile_rows, long i) {
        in_halving_tiles<4>(columns, [&](auto tile_columns, long j) {
            dot_tile<T, Width, decltype(tile_rows)::value, decltype(tile_columns)::value>(
                depth, a + i * a_stride, a_stride, b + j * b_stride, b_stride, c + i * row_stride + j, row_stride, accumulate);
        });
    });
}

}  // namespace ringlet::RINGLET_ISA
