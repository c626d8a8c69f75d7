// Vectors by the compilers' vector extensions: the same source serves SSE, AVX2, AVX-512 and NEON.
//
// Everything below lives in a namespace of its own per instruction set (RINGLET_ISA), because this header is compiled
// several times with different flags and the linker must never merge two versions of one inline function.
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "platform.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T, int Width>
struct VectorOf {
    typedef T type __attribute__((vector_size(Width * sizeof(T))));
};

template <typename T, int Width>
using Vec = typename VectorOf<T, Width>::type;

// Lanes of the widest register.
template <typename T>
constexpr int kNativeWidth = RINGLET_VECTOR_BYTES / sizeof(T);

// Register tile of the matrix kernels: output rows x vectors. 16 registers hold 4 x 3 accumulators, 3 operands and a
// broadcast; the 32 registers of AVX-512 and NEON hold 8 x 3.
constexpr int kTileRows = RINGLET_REGISTERS >= 32 ? 8 : 4;
constexpr int kTileVectors = 3;

// Memory is aligned to elements only.
template <typename V, typename T>
inline V load(const T* source) {
    typedef V Unaligned __attribute__((aligned(sizeof(T)), may_alias));
    return *reinterpret_cast<const Unaligned*>(source);
}

template <typename V, typename T>
inline void store(T* target, V value) {
    typedef V Unaligned __attribute__((aligned(sizeof(T)), may_alias));
    *reinterpret_cast<Unaligned*>(target) = value;
}

// The first `count` lanes, zeros in the others; memory beyond them is not read.
template <typename V, typename T>
inline __attribute__((always_inline)) V load_part(const T* source, long count) {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
        return (V)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), source);
    else if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
        return (V)_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1), source);
    else
#elif defined(__AVX2__)
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4)
        return (V)_mm256_maskload_ps(source, _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
    else if constexpr (sizeof(V) == 32 && sizeof(T) == 8)
        return (V)_mm256_maskload_pd(source, _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3)));
    else
#endif
    {
        V value{};
        for (long i = 0; i < count; ++i) value[i] = source[i];
        return value;
    }
}

// Writes the first `count` lanes.
template <typename V, typename T>
inline __attribute__((always_inline)) void store_part(T* target, V value, long count) {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
        _mm512_mask_storeu_ps(target, static_cast<__mmask16>((1u << count) - 1), (__m512)value);
    else if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
        _mm512_mask_storeu_pd(target, static_cast<__mmask8>((1u << count) - 1), (__m512d)value);
    else
#elif defined(__AVX2__)
    if constexpr (sizeof(V) == 32 && sizeof(T) == 4)
        _mm256_maskstore_ps(target, _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), (__m256)value);
    else if constexpr (sizeof(V) == 32 && sizeof(T) == 8)
        _mm256_maskstore_pd(target, _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3)), (__m256d)value);
    else
#endif
        for (long i = 0; i < count; ++i) target[i] = value[i];
}

// A value that several instructions use, read from memory once: compilers think reading it again in each of them costs nothing.
template <typename V>
inline __attribute__((always_inline)) V in_register(V value) {
#if defined(__x86_64__)
    __asm__("" : "+v"(value));
#elif defined(__aarch64__)
    __asm__("" : "+w"(value));
#endif
    return value;
}

// Calls body(std_integer<0>), … body(std_integer<Count - 1>) in the source itself: a loop that the compiler unrolls late
// leaves register tiles in memory.
template <int Count, int Index = 0, typename Body>
inline __attribute__((always_inline)) void unroll(Body&& body) {
    if constexpr (Index < Count) {
        body(std_integer<Index>{});
        unroll<Count, Index + 1>(static_cast<Body&&>(body));
    }
}

template <typename V, typename T>
inline V splat(T value) {
    return value - V{};  // x - 0 folds into a plain broadcast; 0 + x does not, because of -0
}

// The larger one; not a number if a is not.
template <typename V>
inline V maximum(V a, V b) {
    return b > a ? b : a;
}

template <typename V>
inline V minimum(V a, V b) {
    return b < a ? b : a;
}

// Sum of a vector's lanes along a fixed binary tree.
template <typename T, int Width>
inline T horizontal_sum(Vec<T, Width> value) {
    T lanes[Width];
    store(lanes, value);
    for (int half = Width / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
}

// Calls body with the vector width that divides the number of lanes (lanes are a multiple of 8).
template <typename T, typename Body>
inline void with_width(long lanes, Body body) {
    if constexpr (kNativeWidth<T> > 8) {
        if (lanes % kNativeWidth<T> == 0)
            body(std_integer<kNativeWidth<T>>{});
        else
            body(std_integer<8>{});
    } else {
        body(std_integer<kNativeWidth<T>>{});
    }
}

// Splits count into pieces of Largest, Largest / 2, … 1 and calls body(std_integer<piece>, start) for each.
template <int Largest, typename Body>
inline void in_halving_tiles(long count, Body body) {
    long start = 0;
    for (; start + Largest <= count; start += Largest) body(std_integer<Largest>{}, start);
    if constexpr (Largest > 1)
        in_halving_tiles<Largest / 2>(count - start, [&](auto piece, long offset) { body(piece, start + offset); });
}

// Splits count into pieces of Largest and one smaller piece and calls body(std_integer<piece>, start) for each.
template <int Largest, typename Body>
inline void in_pieces(long count, Body body) {
    long start = 0;
    for (; start + Largest <= count; start += Largest) body(std_integer<Largest>{}, start);
    unroll<Largest - 1>([&](auto i) {
        if (count - start == i + 1) body(std_integer<i + 1>{}, start);
    });
}

// Splits count vectors into tiles of 3, 2, 1.
template <typename Body>
inline void in_vector_tiles(long count, Body body) {
    long start = 0;
    for (; start + 3 <= count && count - start != 4; start += 3) body(std_integer<3>{}, start);
    for (; start + 2 <= count; start += 2) body(std_integer<2>{}, start);
    if (start < count) body(std_integer<1>{}, start);
}

}  // namespace ringlet::RINGLET_ISA
