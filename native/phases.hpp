// Rows of pixels cut into phases, and put together again: what a stride, a pool's window or Winograd's tiles need.
//
// A pixel is a block of `lanes` elements. Phase k of a row has the pixels k, k + step, k + 2 * step, …; in memory of its own it is
// contiguous, so vectors run over pixels and samples alike, whatever the number of samples.
#pragma once

#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

// Copies `count` elements, also where a copy by the library's function would be a call for a few bytes.
template <typename T>
inline __attribute__((always_inline)) void copy_elements(const T* source, T* target, long count) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    long at = 0;
    for (; at + Width <= count; at += Width) store(target + at, load<V>(source + at));
    if (at < count) store_part(target + at, load_part<V>(source + at, count - at), count - at);
}

template <typename T>
inline __attribute__((always_inline)) void fill_elements(T* target, long count, T value) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    const V all = splat<V>(value);
    long at = 0;
    for (; at + Width <= count; at += Width) store(target + at, all);
    if (at < count) store_part(target + at, all, count - at);
}

template <typename T>
inline __attribute__((always_inline)) void clear_elements(T* target, long count) {
    fill_elements(target, count, T(0));
}

// Pairs of vectors cut into even and odd blocks, and back, for blocks that a vector holds several of.
template <typename T>
struct Halves {
    static constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;

    static constexpr bool possible(long block) {
#if defined(__AVX512F__)
        return block <= Width && Width % block == 0;
#else
        return block == 0;
#endif
    }

#if defined(__AVX512F__)
    using Index = __m512i;

    template <typename Place>
    static Index index_of(Place place) {
        if constexpr (sizeof(T) == 4) {
            int32_t at[Width];
            for (int i = 0; i < Width; ++i) at[i] = static_cast<int32_t>(place(i));
            return _mm512_loadu_si512(at);
        } else {
            int64_t at[Width];
            for (int i = 0; i < Width; ++i) at[i] = place(i);
            return _mm512_loadu_si512(at);
        }
    }
    static V pick(V a, Index index, V b) {
        if constexpr (sizeof(T) == 4)
            return (V)_mm512_permutex2var_ps((__m512)a, index, (__m512)b);
        else
            return (V)_mm512_permutex2var_pd((__m512d)a, index, (__m512d)b);
    }

    explicit Halves(long block)
        : even(index_of([&](int i) { return i / block * 2 * block + i % block; })),
          odd(index_of([&](int i) { return i / block * 2 * block + i % block + block; })),
          low(index_of([&](int i) { return joined(i, block); })), high(index_of([&](int i) { return joined(i + Width, block); })) {}

    void split(V a, V b, V& first, V& second) const { first = pick(a, even, b), second = pick(a, odd, b); }
    void join(V first, V second, V& a, V& b) const { a = pick(first, low, second), b = pick(first, high, second); }

  private:
    static long joined(long i, long block) { return i / (2 * block) * block + i % block + (i / block % 2 ? Width : 0); }
    Index even, odd, low, high;
#else
    explicit Halves(long) {}
    void split(V, V, V&, V&) const {}
    void join(V, V, V&, V&) const {}
#endif
};

// Cuts rows into `step` phases of `pixels` pixels each. source has step * pixels pixels.
template <typename T>
class Phases {
    static constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;

  public:
    Phases(long step, long lanes) : step_(step), lanes_(lanes), halves_(lanes), twice_(2 * lanes) {
        by_halves_ = Halves<T>::possible(lanes) && (step == 2 || (step == 4 && Halves<T>::possible(2 * lanes)));
    }

    // target[k * stride + t * lanes + l] = source[(t * step + k) * lanes + l]
    void split(const T* source, long pixels, T* target, long stride) const {
        const long elements = pixels * lanes_;
        long at = 0;
        if (by_halves_ && step_ == 2)
            for (; at + Width <= elements; at += Width) {
                V first, second;
                halves_.split(load<V>(source + 2 * at), load<V>(source + 2 * at + Width), first, second);
                store(target + at, first);
                store(target + stride + at, second);
            }
        else if (by_halves_)
            for (; at + Width <= elements; at += Width) {
                V low[2], high[2], phase[4];
                twice_.split(load<V>(source + 4 * at), load<V>(source + 4 * at + Width), low[0], high[0]);
                twice_.split(load<V>(source + 4 * at + 2 * Width), load<V>(source + 4 * at + 3 * Width), low[1], high[1]);
                halves_.split(low[0], low[1], phase[0], phase[1]);
                halves_.split(high[0], high[1], phase[2], phase[3]);
                for (int k = 0; k < 4; ++k) store(target + k * stride + at, phase[k]);
            }
        for (long pixel = at / lanes_; pixel < pixels; ++pixel)
            for (long k = 0; k < step_; ++k) copy_block(source + (pixel * step_ + k) * lanes_, target + k * stride + pixel * lanes_);
    }

    // target[(t * step + k) * lanes + l] = source[k * stride + t * lanes + l]
    void join(const T* source, long stride, long pixels, T* target) const {
        const long elements = pixels * lanes_;
        long at = 0;
        if (by_halves_ && step_ == 2)
            for (; at + Width <= elements; at += Width) {
                V a, b;
                halves_.join(load<V>(source + at), load<V>(source + stride + at), a, b);
                store(target + 2 * at, a);
                store(target + 2 * at + Width, b);
            }
        else if (by_halves_)
            for (; at + Width <= elements; at += Width) {
                V low[2], high[2], row[4];
                halves_.join(load<V>(source + at), load<V>(source + stride + at), low[0], low[1]);
                halves_.join(load<V>(source + 2 * stride + at), load<V>(source + 3 * stride + at), high[0], high[1]);
                twice_.join(low[0], high[0], row[0], row[1]);
                twice_.join(low[1], high[1], row[2], row[3]);
                for (int k = 0; k < 4; ++k) store(target + 4 * at + k * Width, row[k]);
            }
        for (long pixel = at / lanes_; pixel < pixels; ++pixel)
            for (long k = 0; k < step_; ++k) copy_block(source + k * stride + pixel * lanes_, target + (pixel * step_ + k) * lanes_);
    }

  private:
    void copy_block(const T* source, T* target) const {
        if (lanes_ == 1)
            *target = *source;
        else
            copy_elements(source, target, lanes_);
    }

    long step_, lanes_;
    bool by_halves_;
    Halves<T> halves_, twice_;
};

}  // namespace ringlet::RINGLET_ISA
