// Element by element: data movement, activations, dropout, softmax.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "mathematics.hpp"
#include "planes.hpp"
#include "transpose.hpp"

namespace ringlet::RINGLET_ISA {

// Below this many elements a second thread costs more than it brings.
constexpr long kParallelElements = 1l << 15;

// Calls body(first, last) on pieces of [0, count), in parallel when it pays off.
template <typename Body>
inline __attribute__((always_inline)) void over_elements(long count, Body body) {
    if (count < kParallelElements || num_threads() == 1) return body(0l, count);
    constexpr long kPiece = 1l << 13;
    const long pieces = (count + kPiece - 1) / kPiece;
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long piece = 0; piece < pieces; ++piece)
        body(piece * kPiece, (piece + 1) * kPiece < count ? (piece + 1) * kPiece : count);
}

// Calls body(width, at) on the vectors of [first, last), then on single elements as vectors of one. The body is a copy that
// nothing points to: its constants stay in registers, where stores cannot change them.
template <typename T, typename Body>
inline __attribute__((always_inline)) void in_vectors(long first, long last, const Body body) {
    constexpr int Width = kNativeWidth<T>;
    long at = first;
    for (; at + Width <= last; at += Width) body(std_integer<Width>{}, at);
    for (; at < last; ++at) body(std_integer<1>{}, at);
}

// The same on [0, count), in parallel when it pays off.
template <typename T, typename Body>
inline __attribute__((always_inline)) void over_vectors(long count, Body body) {
    over_elements(count, [=](long first, long last) { in_vectors<T>(first, last, body); });
}

// Transposes samples (n, features) to lanes (features, lanes) in blocks that stay in cache; padding lanes become zero.
template <typename T, typename From>
void pack_any(const From* samples, long n, long features, long lanes, T* out) {
    constexpr long kBlock = 64;
    const long blocks = (features + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (features * lanes > kParallelElements)
    for (long block = 0; block < blocks; ++block) {
        const long first = block * kBlock, count = features - first < kBlock ? features - first : kBlock;
        transpose(n, count, samples + first, features, out + first * lanes, lanes);
        for (long feature = first; feature < first + count; ++feature)
            for (long lane = n; lane < lanes; ++lane) out[feature * lanes + lane] = T(0);
    }
}

template <typename T>
void pack(const T* samples, long n, long features, long lanes, T* out) {
    pack_any<T, T>(samples, n, features, lanes, out);
}

template <typename T>
void pack_bytes(const uint8_t* samples, long n, long features, long lanes, T* out) {
    pack_any<T, uint8_t>(samples, n, features, lanes, out);
}

template <typename T>
void unpack(const T* activations, long n, long features, long lanes, T* out) {
    constexpr long kBlock = 64;
    const long blocks = (features + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (features * lanes > kParallelElements)
    for (long block = 0; block < blocks; ++block) {
        const long first = block * kBlock, count = features - first < kBlock ? features - first : kBlock;
        transpose(count, n, activations + first * lanes, lanes, out + first, features);
    }
}

template <typename T>
void add(const T* a, const T* b, T* out, long count) {
    over_vectors<T>(count, [=](auto width, long at) {
        using V = Vec<T, decltype(width)::value>;
        store(out + at, load<V>(a + at) + load<V>(b + at));
    });
}

// Adds a value per channel to planes of `count` elements. Where a plane is less than a vector, vectors of neighbours would overlap, and
// one would wait for the other's to reach the cache.
template <typename T>
void bias_forward(T* y, const T* bias, long channels, long count, bool relu) {
    using V = Vec<T, kNativeWidth<T>>;
    const T least = relu ? T(0) : -std::numeric_limits<T>::infinity();
    if (count == 1)
        return in_sections<T>(1, 0, channels, [=](auto section, long at, long) {
            section.write(y + at, maximum(section.read(y + at) + section.read(bias + at), splat<V>(least)));
        });
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (channels * count > kParallelElements)
    for (long c = 0; c < channels; ++c) {
        const T shift = bias[c];
        if (count < kNativeWidth<T>)
            for (long at = c * count; at < (c + 1) * count; ++at) y[at] = maximum(y[at] + shift, least);
        else
            in_sections<T>(1, c * count, (c + 1) * count, [=](auto section, long at, long) {
                section.write(y + at, maximum(section.read(y + at) + shift, splat<V>(least)));
            });
    }
}

template <typename T>
T sum_of_few(const T* values, long count) {
    T sum = 0;
    for (long i = 0; i < count; ++i) sum += values[i];
    return sum;
}

template <typename T>
void bias_backward(const T* dy, T* dbias, long channels, long count) {
    constexpr long kPiece = 4096;
    using V = Vec<T, kNativeWidth<T>>;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (channels * count > kParallelElements)
    for (long c = 0; c < channels; ++c) {
        const T* plane = dy + c * count;
        double total = 0;
        for (long first = 0; first < count; first += kPiece) {
            const long last = first + kPiece < count ? first + kPiece : count;
            const auto all = [=](auto section, long at, long) { return section.read(plane + at); };
            total += count < kNativeWidth<T> ? sum_of_few(plane, count) : horizontal_sum<T, kNativeWidth<T>>(sum_sections<T, V>(1, first, last, all));
        }
        dbias[c] = T(total);
    }
}

template <ActivationKind Kind, typename V, typename T>
inline __attribute__((always_inline)) V activate(V x, [[maybe_unused]] T slope) {
    [[maybe_unused]] const V zero{};
#define ACTIVATION(name, value, derivative) \
    if constexpr (Kind == ActivationKind::name) return value;
    RINGLET_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION
}

template <ActivationKind Kind, typename V, typename T>
inline __attribute__((always_inline)) V differentiate(V y, [[maybe_unused]] T slope) {
    [[maybe_unused]] const V zero{}, one = splat<V>(T(1));
#define ACTIVATION(name, value, derivative) \
    if constexpr (Kind == ActivationKind::name) return derivative;
    RINGLET_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION
}

template <typename Body>
inline void with_activation(ActivationKind kind, Body body) {
    switch (kind) {
#define ACTIVATION(name, value, derivative) \
        case ActivationKind::name: return body(std_integer<static_cast<int>(ActivationKind::name)>{});
        RINGLET_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION
    }
}

template <typename T>
void activation_forward(ActivationKind kind, const T* x, T* y, long count, double slope) {
    with_activation(kind, [&](auto which) {
        constexpr auto Kind = static_cast<ActivationKind>(decltype(which)::value);
        over_vectors<T>(count, [=](auto width, long at) {
            using V = Vec<T, decltype(width)::value>;
            store(y + at, activate<Kind>(load<V>(x + at), T(slope)));
        });
    });
}

template <typename T>
void activation_backward(ActivationKind kind, const T* y, const T* dy, T* dx, long count, double slope, bool accumulate) {
    with_activation(kind, [&](auto which) {
        constexpr auto Kind = static_cast<ActivationKind>(decltype(which)::value);
        over_vectors<T>(count, [=](auto width, long at) {
            using V = Vec<T, decltype(width)::value>;
            V value = load<V>(dy + at) * differentiate<Kind>(load<V>(y + at), T(slope));
            if (accumulate) value += load<V>(dx + at);
            store(dx + at, value);
        });
    });
}

template <typename U>
inline __attribute__((always_inline)) U mix32(U x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// Elements are kept where a hash of their feature and lane is large enough.
template <typename T>
class Dropout {
    static constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    using U = Vec<uint32_t, Width>;

  public:
    Dropout(const T* x, T* y, long lanes, double rate, uint64_t key, bool accumulate)
        : x_(x), y_(y), lanes_(lanes), low_(static_cast<uint32_t>(key)), high_(static_cast<uint32_t>(key >> 32)),
          threshold_(static_cast<uint32_t>(rate * 4294967296.0)), scale_(T(1.0 / (1.0 - rate))), accumulate_(accumulate) {
        lane_hashes_ = scratch_array<uint32_t>(kScratchShared0, 2 * pattern_size<T>(lanes));
        features_ = lane_hashes_ + pattern_size<T>(lanes);
        for (long i = 0; i < pattern_size<T>(lanes); ++i) {
            lane_hashes_[i] = static_cast<uint32_t>(i % lanes) * 0x9E3779B9u;
            features_[i] = static_cast<uint32_t>(i / lanes);
        }
    }

    // Features [first, last).
    void run(long first, long last) const {
        if (lanes_ % Width == 0)
            in_rows(first, last);
        else
            across_rows(first, last);
    }

  private:
    // The elements of a vector share their feature.
    void in_rows(long first, long last) const {
        for (long feature = first; feature < last; ++feature) {
            const U inner = splat<U>(mix32(static_cast<uint32_t>(feature) ^ low_));
            for (long lane = 0; lane < lanes_; lane += Width) write(Whole<T>{}, feature * lanes_ + lane, inner, lane);
        }
    }

    void across_rows(long first, long last) const {
        in_sections<T>(lanes_, first * lanes_, last * lanes_, [this, feature = first, previous = 0l](auto section, long at, long phase) mutable {
            feature += phase < previous ? 1 : 0;
            previous = phase;
            write(section, at, mix32((load<U>(features_ + phase) + static_cast<uint32_t>(feature)) ^ low_), phase);
            feature += Width / lanes_;
        });
    }

    template <typename Section>
    inline __attribute__((always_inline)) void write(const Section& section, long at, U inner, long phase) const {
        using Chosen = Vec<typename IntegerOf<T>::type, Width>;
        const U hash = mix32((inner + load<U>(lane_hashes_ + phase)) ^ high_);
        const Chosen kept = __builtin_convertvector(hash >= threshold_, Chosen);
        V value = kept ? section.read(x_ + at) * scale_ : V{};
        if (accumulate_) value += section.read(y_ + at);
        section.write(y_ + at, value);
    }

    const T* x_;
    T* y_;
    long lanes_;
    uint32_t low_, high_, threshold_;
    T scale_;
    bool accumulate_;
    uint32_t *lane_hashes_, *features_;  // patterns: of the lane, and how many features further an element is
};

template <typename T>
void dropout(const T* x, T* y, long features, long lanes, double rate, uint64_t key, bool accumulate) {
    const Dropout<T> kernel(x, y, lanes, rate, key, accumulate);
    const long block = 4096 / lanes + 1, blocks = (features + block - 1) / block;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (features * lanes > kParallelElements)
    for (long i = 0; i < blocks; ++i) kernel.run(i * block, (i + 1) * block < features ? (i + 1) * block : features);
}

// Calls body(whole or part, at) on the vectors of a plane of `count` elements.
template <typename T, typename Body>
inline void over_plane(long channels, long count, const Body body) {
    constexpr long Width = kNativeWidth<T>;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (channels * count > kParallelElements)
    for (long at = 0; at < count; at += Width) {
        if (at + Width <= count)
            body(Whole<T>{}, at);
        else
            body(Part<T>{count - at}, at);
    }
}

template <typename T>
void softmax_forward(const Extent& e, const T* x, T* y) {
    using V = Vec<T, kNativeWidth<T>>;
    const long stride = e.pixels * e.lanes, channels = e.channels;
    over_plane<T>(channels, stride, [=](auto section, long at) {
        V largest = section.read(x + at);
        for (long c = 1; c < channels; ++c) largest = maximum(largest, section.read(x + c * stride + at));
        V total{};
        for (long c = 0; c < channels; ++c) {
            const V value = exponential<T>(section.read(x + c * stride + at) - largest);
            total += value;
            section.write(y + c * stride + at, value);
        }
        for (long c = 0; c < channels; ++c) section.write(y + c * stride + at, section.read(y + c * stride + at) / total);
    });
}

template <typename T>
void softmax_backward(const Extent& e, const T* y, const T* dy, T* dx, bool accumulate) {
    using V = Vec<T, kNativeWidth<T>>;
    const long stride = e.pixels * e.lanes, channels = e.channels;
    over_plane<T>(channels, stride, [=](auto section, long at) {
        V total{};
        for (long c = 0; c < channels; ++c) total += section.read(y + c * stride + at) * section.read(dy + c * stride + at);
        for (long c = 0; c < channels; ++c) {
            V value = section.read(y + c * stride + at) * (section.read(dy + c * stride + at) - total);
            if (accumulate) value += section.read(dx + c * stride + at);
            section.write(dx + c * stride + at, value);
        }
    });
}

}  // namespace ringlet::RINGLET_ISA
