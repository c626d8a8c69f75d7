// Transposes: samples to lanes and back, and panels for matrix products.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

#if defined(__AVX__)
// target[j * target_stride + i] = source[i * source_stride + j] for i, j < 8.
inline __attribute__((always_inline)) void transpose_eight(const float* source, long source_stride, float* target, long target_stride) {
    __m256 row[8], pair[8], quad[8];
    unroll<8>([&](auto i) { row[i] = _mm256_loadu_ps(source + i * source_stride); });
    unroll<4>([&](auto i) {
        pair[2 * i] = _mm256_unpacklo_ps(row[2 * i], row[2 * i + 1]);
        pair[2 * i + 1] = _mm256_unpackhi_ps(row[2 * i], row[2 * i + 1]);
    });
    unroll<2>([&](auto i) {
        quad[4 * i] = _mm256_shuffle_ps(pair[4 * i], pair[4 * i + 2], 0x44);
        quad[4 * i + 1] = _mm256_shuffle_ps(pair[4 * i], pair[4 * i + 2], 0xEE);
        quad[4 * i + 2] = _mm256_shuffle_ps(pair[4 * i + 1], pair[4 * i + 3], 0x44);
        quad[4 * i + 3] = _mm256_shuffle_ps(pair[4 * i + 1], pair[4 * i + 3], 0xEE);
    });
    unroll<4>([&](auto i) {
        _mm256_storeu_ps(target + i * target_stride, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
        _mm256_storeu_ps(target + (i + 4) * target_stride, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
    });
}
#endif

// target[j * target_stride + i] = source[i * source_stride + j] for i < rows, j < columns.
template <typename To, typename From>
inline void transpose(long rows, long columns, const From* source, long source_stride, To* target, long target_stride) {
    long done_rows = 0, done_columns = 0;
#if defined(__AVX__)
    if constexpr (sizeof(To) == 4 && sizeof(From) == 4) {
        done_rows = rows / 8 * 8;
        done_columns = columns / 8 * 8;
        for (long i = 0; i < done_rows; i += 8)
            for (long j = 0; j < done_columns; j += 8)
                transpose_eight(source + i * source_stride + j, source_stride, target + j * target_stride + i, target_stride);
    }
#endif
    for (long i = 0; i < rows; ++i)
        for (long j = i < done_rows ? done_columns : 0; j < columns; ++j)
            target[j * target_stride + i] = To(source[i * source_stride + j]);
}

}  // namespace ringlet::RINGLET_ISA
