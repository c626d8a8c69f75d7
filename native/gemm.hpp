// The matrix kernel that forward passes and data gradients are made of, and what happens to its results:
// C(rows x columns) = A(rows x depth) * B(depth x columns), vectors along columns (samples). A is read element by element with
// any strides, so neither weights nor their transpose are ever packed. For gradients of weights see panels.hpp.
#pragma once

#include <limits>

#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

// c[i * c_stride + j * Width …] = sum_d a[i * row_stride + d * depth_stride] * b[d * b_stride + j * Width …].
// Not inlined: inside larger functions the compiler runs out of registers for the strides.
template <typename T, int Width, int Rows, int Vectors>
__attribute__((noinline)) void multiply_tile(long depth, const T* a, long row_stride, long depth_stride, const T* b, long b_stride, T* c,
                                             long c_stride = Vectors * Width) {
    using V = Vec<T, Width>;
    V acc[Rows][Vectors], right[Vectors];
    unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { acc[i][j] = V{}; }); });
    for (long d = 0; d < depth; ++d) {
        unroll<Vectors>([&](auto j) { right[j] = load<V>(b + j * Width); });
        unroll<Rows>([&](auto i) {
            const V left = splat<V>(a[i * row_stride]);
            unroll<Vectors>([&](auto j) { acc[i][j] += left * right[j]; });
        });
        a += depth_stride;
        b += b_stride;
    }
    unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { store(c + i * c_stride + j * Width, acc[i][j]); }); });
}

// What happens to a finished vector: y = value (+ bias) (+ y), ReLU on top, zero where a mask is not positive.
template <typename T>
struct Epilogue {
    const T* bias = nullptr;  // per row, may be null
    bool accumulate = false;
    bool relu = false;
    long mask_shift = 0;  // elements from an element of y to its element of the mask; 0: no mask

    bool plain() const { return !accumulate && mask_shift == 0; }
    T floor() const { return relu ? T(0) : -std::numeric_limits<T>::infinity(); }

    // A tile of Rows x Vectors: value(i, j) goes to target(i, j). With Part the last vector of a row has `count` elements only.
    // The usual case has no branch per vector.
    template <typename V, int Rows, int Vectors, bool Part = false, typename Value, typename Target>
    inline __attribute__((always_inline)) void write_tile(long first_row, Value value, Target target, [[maybe_unused]] long count = 0) const {
        const V least = splat<V>(floor());
        const bool simple = plain();
        unroll<Rows>([&](auto i) {
            const V shift = bias ? splat<V>(bias[first_row + i]) : V{};
            unroll<Vectors>([&](auto j) {
                constexpr bool Cut = Part && j == Vectors - 1;
                T* at = target(i, j);
                V result = value(i, j) + shift;
                if (!simple) result = with_memory<Cut>(at, result, count);
                put<Cut>(at, maximum(result, least), count);
            });
        });
    }

    template <bool Part = false, typename V>
    inline __attribute__((always_inline)) V with_memory(const T* target, V value, [[maybe_unused]] long count = 0) const {
        if (accumulate) value += get<Part, V>(target, count);
        return mask_shift == 0 ? value : (get<Part, V>(target + mask_shift, count) > V{} ? value : V{});
    }

    // Finished sums of one row: `values` go to `target`.
    inline void write_line(long row, const T* values, T* target, long count) const {
        constexpr int Width = kNativeWidth<T>;
        using V = Vec<T, Width>;
        long at = 0;
        const auto one = [&](auto part, long left) {
            constexpr bool Part = decltype(part)::value == 1;
            write_tile<V, 1, 1, Part>(
                row, [&](auto, auto) { return get<Part, V>(values + at, left); }, [&](auto, auto) { return target + at; }, left);
        };
        for (; at + Width <= count; at += Width) one(std_integer<0>{}, Width);
        if (at < count) one(std_integer<1>{}, count - at);
    }

  private:
    template <bool Part, typename V>
    static inline __attribute__((always_inline)) V get(const T* source, [[maybe_unused]] long count) {
        if constexpr (Part)
            return load_part<V>(source, count);
        else
            return load<V>(source);
    }
    template <bool Part, typename V>
    static inline __attribute__((always_inline)) void put(T* target, V value, [[maybe_unused]] long count) {
        if constexpr (Part)
            store_part(target, value, count);
        else
            store(target, value);
    }
};

// One convolution problem for all groups; x, weight and y advance by these strides from group to group.
struct GroupStrides {
    long groups, x, weight, y, bias;

    template <typename T>
    Epilogue<T> epilogue_of(long group, Epilogue<T> epilogue) const {
        if (epilogue.bias) epilogue.bias += group * bias;
        return epilogue;
    }
};

// Vectors of the tile lie side by side; the last one has `count` elements if Part.
template <typename T, int Width, int Rows, int Vectors, bool Part = false>
inline __attribute__((always_inline)) void finish_tile(const T* tile, T* y, long row_stride, const Epilogue<T>& epilogue, long first_row,
                                                       long count = 0) {
    using V = Vec<T, Width>;
    epilogue.template write_tile<V, Rows, Vectors, Part>(
        first_row, [&](auto i, auto j) { return load<V>(tile + (i * Vectors + j) * Width); },
        [&](auto i, auto j) { return y + i * row_stride + j * Width; }, count);
}

// A vector's halves added up.
template <typename T, int Width>
inline __attribute__((always_inline)) Vec<T, Width / 2> fold(Vec<T, Width> value) {
    Vec<T, Width / 2> half[2];
    memcpy(half, &value, sizeof(value));
    return half[0] + half[1];
}

// The lane sums of four vectors as one vector of four.
template <typename T, int Width>
inline __attribute__((always_inline)) Vec<T, 4> sum_four(Vec<T, Width> a, Vec<T, Width> b, Vec<T, Width> c, Vec<T, Width> d) {
#if defined(__AVX__)
    if constexpr (sizeof(T) == 4 && Width == 8) {
        const __m256 quarters = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a, (__m256)b), _mm256_hadd_ps((__m256)c, (__m256)d));
        return (Vec<T, 4>)_mm_add_ps(_mm256_castps256_ps128(quarters), _mm256_extractf128_ps(quarters, 1));
    }
#endif
    if constexpr (sizeof(T) * Width > 32)
        return sum_four<T, Width / 2>(fold<T, Width>(a), fold<T, Width>(b), fold<T, Width>(c), fold<T, Width>(d));
    return Vec<T, 4>{horizontal_sum<T, Width>(a), horizontal_sum<T, Width>(b), horizontal_sum<T, Width>(c),
                     horizontal_sum<T, Width>(d)};
}

}  // namespace ringlet::RINGLET_ISA
