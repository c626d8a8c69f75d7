// Values of several ranks combined element by element, in the order of the ranks: the loops of ringlet.comm's reductions.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels.hpp"
#include "vector.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ringlet::RINGLET_ISA {

// Elements are combined in blocks that stay in the first-level cache.
constexpr long kBlockBytes = 4096;

// -- 16-bit floating point: computed in float, rounded to nearest even once ----------------------------------------------
struct Half {
    uint16_t bits;
};
struct Brain {
    uint16_t bits;
};

inline float as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t as_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float widen(Brain value) { return as_float(uint32_t(value.bits) << 16); }

inline void narrow(float value, Brain& result) {
    const uint32_t bits = as_bits(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
    result.bits = uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

inline float widen(Half value) {
    const uint32_t sign = uint32_t(value.bits & 0x8000u) << 16, rest = value.bits & 0x7fffu;
    const uint32_t normal = (rest << 13) + (112u << 23);
    const uint32_t special = (rest << 13) | 0x7f800000u | (rest > 0x7c00u ? 0x00400000u : 0u);  // infinite or not a number
    const uint32_t tiny = as_bits(float(rest) * 0x1p-24f);                                    // subnormal or zero
    return as_float(sign | (rest >= 0x7c00u ? special : rest < 0x0400u ? tiny : normal));
}

inline void narrow(float value, Half& result) {
    const uint32_t bits = as_bits(value), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
    const uint32_t normal = (rest - (112u << 23) + 0x0fffu + ((rest >> 13) & 1u)) >> 13;  // carries into infinity
    const uint32_t tiny = as_bits(as_float(rest) + 0.5f) - as_bits(0.5f);                 // the addition rounds
    const uint32_t special = rest > 0x7f800000u ? 0x7e00u | ((rest >> 13) & 0x3ffu) : 0x7c00u;
    result.bits = uint16_t(sign | (rest >= 0x47800000u ? special : rest < 0x38800000u ? tiny : normal));
}

template <typename T>
inline void widen_block(const T* source, float* target, long count) {
    long at = 0;
#if defined(__F16C__) && defined(__AVX__)
    if constexpr (std::is_same_v<T, Half>)
        for (; at + 8 <= count; at += 8)
            _mm256_storeu_ps(target + at, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at))));
#endif
    for (; at < count; ++at) target[at] = widen(source[at]);
}

template <typename T>
inline void narrow_block(const float* source, T* target, long count) {
    long at = 0;
#if defined(__F16C__) && defined(__AVX__)
    if constexpr (std::is_same_v<T, Half>)
        for (; at + 8 <= count; at += 8)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(target + at),
                             _mm256_cvtps_ph(_mm256_loadu_ps(source + at), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; at < count; ++at) narrow(source[at], target[at]);
}

// -- how two values become one -------------------------------------------------------------------------------------------
// Integers wrap around; what is not a number stays so, for minimum and maximum too. V is a vector, or one element.
template <Combination How, typename V>
inline V combined(V a, V b) {
    if constexpr (How == kMinimum) return (b < a) | (b != b) ? b : a;
    if constexpr (How == kMaximum) return (b > a) | (b != b) ? b : a;
    if constexpr (How == kProduct) return a * b;
    return a + b;
}

// Unsigned, where only the bits matter: overflow is then defined.
template <typename T, Combination How>
using Lane = typename std::conditional_t<std::is_integral_v<T> && How != kMinimum && How != kMaximum, std::make_unsigned<T>,
                                         std::type_identity<T>>::type;

// Count vectors of Width elements from element `at` on, of all sources, to where out and copy (if there is one) point.
template <typename T, Combination How, int Width, int Count>
inline void combine_vectors(const void* const* sources, int num, long at, T* out, T* copy) {
    using V = Vec<Lane<T, How>, Width>;
    V total[Count];
    const auto source = [&](int rank, int i) { return load<V>(static_cast<const T*>(sources[rank]) + at + i * Width); };
    unroll<Count>([&](auto i) { total[i] = source(0, i); });
    for (int rank = 1; rank < num; ++rank) unroll<Count>([&](auto i) { total[i] = combined<How>(total[i], source(rank, i)); });
    unroll<Count>([&](auto i) {
        if constexpr (How == kAverage && std::is_floating_point_v<T>) total[i] = total[i] / T(num);
        store(out + i * Width, total[i]);
        if (copy != nullptr) store(copy + i * Width, total[i]);
    });
}

// Elements [first, end) of all sources, to where out (which may be one of them) and copy point.
template <typename T, Combination How>
inline void combine_range(const void* const* sources, int num, long first, long end, T* out, T* copy) {
    constexpr int Width = kNativeWidth<T>;
    long at = first;
    const auto combine = [&](auto width, auto count) {
        constexpr int kWidth = decltype(width)::value, kCount = decltype(count)::value;
        for (; at + kWidth * kCount <= end; at += kWidth * kCount)
            combine_vectors<T, How, kWidth, kCount>(sources, num, at, out + (at - first), copy ? copy + (at - first) : nullptr);
    };
    combine(std_integer<Width>{}, std_integer<4>{});
    combine(std_integer<Width>{}, std_integer<1>{});
    combine(std_integer<1>{}, std_integer<1>{});
}

// The same for 16-bit floating point, at most a block.
template <typename T, Combination How>
inline void combine_short_range(const void* const* sources, int num, long at, long end, T* target) {
    constexpr long kBlock = kBlockBytes / sizeof(T);
    alignas(64) float total[kBlock], next[kBlock];
    const void* const pair[2] = {total, next};
    const long count = end - at;
    widen_block(static_cast<const T*>(sources[0]) + at, total, count);
    for (int rank = 1; rank < num; ++rank) {
        widen_block(static_cast<const T*>(sources[rank]) + at, next, count);
        combine_range<float, How == kAverage ? kSum : How>(pair, 2, 0, count, total, nullptr);
    }
    if constexpr (How == kAverage)
        for (long i = 0; i < count; ++i) total[i] /= float(num);
    narrow_block(total, target, count);
}

// Copies through the caches. The C library's memcpy uses string instructions from a few kB on, which some processors run
// slowly if source and target lie alike in their pages, as slots and arrays do.
inline void plain_copy(void* target, const void* source, long bytes) {
    using Line = Vec<uint8_t, RINGLET_VECTOR_BYTES>;
    char* to = static_cast<char*>(target);
    const char* from = static_cast<const char*>(source);
    constexpr long kStep = 4 * sizeof(Line);
    for (; bytes >= kStep; bytes -= kStep, to += kStep, from += kStep) {
        const Line a = load<Line>(from), b = load<Line>(from + sizeof(Line)), c = load<Line>(from + 2 * sizeof(Line)),
                   d = load<Line>(from + 3 * sizeof(Line));
        asm volatile("" ::: "memory");  // keeps the compiler from calling memcpy after all
        store(to, a), store(to + sizeof(Line), b), store(to + 2 * sizeof(Line), c), store(to + 3 * sizeof(Line), d);
    }
    std::memcpy(to, from, bytes);
}

// Copies past the caches: for results too large to be found there later. Ends with finish_stream().
inline void stream_copy(void* target, const void* source, long bytes) {
    char* to = static_cast<char*>(target);
    const char* from = static_cast<const char*>(source);
#if defined(__AVX__)
    using Line = __m256i;
    const auto move = [&] { _mm256_stream_si256(reinterpret_cast<Line*>(to), _mm256_loadu_si256(reinterpret_cast<const Line*>(from))); };
#elif defined(__SSE2__)
    using Line = __m128i;
    const auto move = [&] { _mm_stream_si128(reinterpret_cast<Line*>(to), _mm_loadu_si128(reinterpret_cast<const Line*>(from))); };
#endif
#if defined(__SSE2__)
    const long ahead = long((sizeof(Line) - reinterpret_cast<uintptr_t>(to) % sizeof(Line)) % sizeof(Line));
    if (bytes >= ahead + long(sizeof(Line))) {
        std::memcpy(to, from, ahead);
        to += ahead, from += ahead, bytes -= ahead;
        for (; bytes >= long(sizeof(Line)); bytes -= sizeof(Line), to += sizeof(Line), from += sizeof(Line)) move();
    }
#endif
    std::memcpy(to, from, bytes);
}

inline void finish_stream() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

template <typename T, Combination How>
void combine_all(const void* const* sources, int num, long count, const CombineTargets& to) {
    constexpr long kBlock = kBlockBytes / sizeof(T);
    T *out = static_cast<T*>(to.out), *copy = static_cast<T*>(to.copy);
    if constexpr (std::is_arithmetic_v<T>)
        if (!to.stream) return combine_range<T, How>(sources, num, 0, count, out, copy);
    alignas(64) T block[kBlock];
    for (long at = 0; at < count; at += kBlock) {
        const long end = count - at < kBlock ? count : at + kBlock;
        if constexpr (std::is_arithmetic_v<T>)
            combine_range<T, How>(sources, num, at, end, block, copy ? copy + at : nullptr);
        else
            combine_short_range<T, How>(sources, num, at, end, block);
        if (copy != nullptr && !std::is_arithmetic_v<T>) plain_copy(copy + at, block, (end - at) * sizeof(T));
        if (to.stream)
            stream_copy(out + at, block, (end - at) * sizeof(T));
        else if (!std::is_arithmetic_v<T>)
            plain_copy(out + at, block, (end - at) * sizeof(T));
    }
    if (to.stream) finish_stream();
}

template <typename T>
void combine_as(Combination how, const void* const* sources, int num, long count, const CombineTargets& to) {
    switch (how) {
        case kSum: return combine_all<T, kSum>(sources, num, count, to);
        case kAverage: return combine_all<T, kAverage>(sources, num, count, to);
        case kMinimum: return combine_all<T, kMinimum>(sources, num, count, to);
        case kMaximum: return combine_all<T, kMaximum>(sources, num, count, to);
        case kProduct: return combine_all<T, kProduct>(sources, num, count, to);
    }
}

inline void combine(Element element, Combination how, const void* const* sources, int num, long count, const CombineTargets& to) {
    switch (element) {
        case kFloat32: return combine_as<float>(how, sources, num, count, to);
        case kFloat64: return combine_as<double>(how, sources, num, count, to);
        case kFloat16: return combine_as<Half>(how, sources, num, count, to);
        case kBfloat16: return combine_as<Brain>(how, sources, num, count, to);
        case kInt8: return combine_as<int8_t>(how, sources, num, count, to);
        case kInt16: return combine_as<int16_t>(how, sources, num, count, to);
        case kInt32: return combine_as<int32_t>(how, sources, num, count, to);
        case kInt64: return combine_as<int64_t>(how, sources, num, count, to);
        case kUint8: return combine_as<uint8_t>(how, sources, num, count, to);
        case kUint16: return combine_as<uint16_t>(how, sources, num, count, to);
        case kUint32: return combine_as<uint32_t>(how, sources, num, count, to);
        case kUint64: return combine_as<uint64_t>(how, sources, num, count, to);
    }
}

inline void copy_bytes(void* target, const void* source, long bytes, bool stream) {
    if (!stream) return plain_copy(target, source, bytes);
    stream_copy(target, source, bytes);
    finish_stream();
}

}  // namespace ringlet::RINGLET_ISA
