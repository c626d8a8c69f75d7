// Vectors of bfloat16, the upper half of a float: they are computed with as floats, and rounded to the nearest when they are
// stored, ties to even. What is too small to be normal becomes zero, as by the processors' own instructions.
#pragma once

#include "kernels.hpp"
#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

constexpr int kWide = kNativeWidth<float>;
using Floats = Vec<float, kWide>;
using Bits = Vec<uint32_t, kWide>;
using Halves16 = Vec<uint16_t, kWide>;

// The rounded number; the lower half of its bits is zero.
inline __attribute__((always_inline)) Bits rounded_bits(Floats value) {
    const Bits bits = (Bits)value, magnitude = bits & 0x7fffffffu;
    Bits result = bits + 0x7fffu + ((bits >> 16) & 1u);
    result = magnitude < 0x00800000u ? bits & 0x80000000u : result;
    result = magnitude > 0x7f800000u ? bits | 0x00400000u : result;
    return result & 0xffff0000u;
}

inline uint32_t rounded_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t result = bits + 0x7fffu + ((bits >> 16) & 1u);
    result = magnitude < 0x00800000u ? bits & 0x80000000u : result;
    result = magnitude > 0x7f800000u ? bits | 0x00400000u : result;
    return result & 0xffff0000u;
}

inline __attribute__((always_inline)) Halves16 narrowed(Floats value) {
#if defined(__AVX512BF16__)
    return (Halves16)_mm512_cvtneps_pbh((__m512)value);
#else
    return __builtin_convertvector(rounded_bits(value) >> 16, Halves16);
#endif
}

inline __attribute__((always_inline)) Floats widened(Halves16 value) { return (Floats)(__builtin_convertvector(value, Bits) << 16); }

inline __attribute__((always_inline)) Floats load_wide(const bfloat16* source) {
    return widened(load<Halves16>(reinterpret_cast<const uint16_t*>(source)));
}
inline __attribute__((always_inline)) void store_narrow(bfloat16* target, Floats value) {
    store(reinterpret_cast<uint16_t*>(target), narrowed(value));
}

inline void widen(const bfloat16* source, float* target, long count) {
    long at = 0;
    for (; at + kWide <= count; at += kWide) store(target + at, load_wide(source + at));
    for (; at < count; ++at) {
        const uint32_t bits = uint32_t(source[at].bits) << 16;
        memcpy(target + at, &bits, 4);
    }
}

inline void narrow(const float* source, bfloat16* target, long count) {
    long at = 0;
    for (; at + kWide <= count; at += kWide) store_narrow(target + at, load<Floats>(source + at));
    for (; at < count; ++at) target[at].bits = uint16_t(rounded_bits(source[at]) >> 16);
}

// -- pairs: two numbers side by side in 32 bits, the first in the lower half ---------------------------------------------
inline __attribute__((always_inline)) Bits paired(Halves16 first, Halves16 second) {
    return __builtin_convertvector(first, Bits) | (__builtin_convertvector(second, Bits) << 16);
}

inline __attribute__((always_inline)) Bits paired(Floats first, Floats second) {
#if defined(__AVX512BF16__)
    alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    return (Bits)_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both);
#else
    return rounded_bits(second) | (rounded_bits(first) >> 16);
#endif
}

inline uint32_t paired(float first, float second) { return rounded_bits(second) | (rounded_bits(first) >> 16); }

// Pairs as a product wants them.
#if defined(__AVX512BF16__)
struct Operand {
    Bits bits;
};
inline __attribute__((always_inline)) Operand operand(Bits pairs) { return Operand{pairs}; }

// sum + second * second + first * first, in this order, each step rounded once: what the instruction does.
inline __attribute__((always_inline)) Floats add_products(Floats sum, Operand a, Operand b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a.bits, (__m512bh)b.bits);
}
#else
struct Operand {
    Floats first, second;
};
inline __attribute__((always_inline)) Operand operand(Bits pairs) {
    return Operand{(Floats)(pairs << 16), (Floats)(pairs & 0xffff0000u)};
}
inline __attribute__((always_inline)) Floats add_products(Floats sum, Operand a, Operand b) {
    sum += a.second * b.second;
    sum += a.first * b.first;
    return sum;
}
#endif

inline __attribute__((always_inline)) Bits splat_pair(uint32_t pair) { return pair - Bits{}; }

// c[i * c_stride + j * kWide …] (+)= sum_d a[i * row_stride + d * depth_stride] . b[d * b_stride + j * kWide …], of pairs.
template <int Rows, int Vectors>
__attribute__((noinline)) void pair_tile(long depth, const uint32_t* a, long row_stride, long depth_stride, const uint32_t* b,
                                         long b_stride, float* c, long c_stride, bool accumulate) {
    Floats acc[Rows][Vectors];
    unroll<Rows>([&](auto i) {
        unroll<Vectors>([&](auto j) { acc[i][j] = accumulate ? load<Floats>(c + i * c_stride + j * kWide) : Floats{}; });
    });
    for (long d = 0; d < depth; ++d) {
        Operand right[Vectors];
        unroll<Vectors>([&](auto j) { right[j] = operand(in_register(load<Bits>(b + j * kWide))); });
        unroll<Rows>([&](auto i) {
            const Operand left = operand(splat_pair(a[i * row_stride]));
            unroll<Vectors>([&](auto j) { acc[i][j] = add_products(acc[i][j], left, right[j]); });
        });
        a += depth_stride;
        b += b_stride;
    }
    unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { store(c + i * c_stride + j * kWide, acc[i][j]); }); });
}

// What happens to finished sums: y = value (+ bias) (+ y), ReLU on top, zero where a mask is not positive; rounded once.
struct MixedEpilogue {
    const float* bias = nullptr;  // per channel, may be null
    bool accumulate = false;
    bool relu = false;
    const bfloat16* mask = nullptr;  // of the array that `y` is the begin of
    bfloat16* y = nullptr;

    inline __attribute__((always_inline)) void write(long channel, bfloat16* at, Floats value) const {
        if (bias) value += bias[channel];
        if (accumulate) value += load_wide(at);
        if (mask) value = load_wide(mask + (at - y)) > Floats{} ? value : Floats{};
        if (relu) value = maximum(value, Floats{});
        store_narrow(at, value);
    }
};

}  // namespace ringlet::RINGLET_ISA
