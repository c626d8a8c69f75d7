// Element by element: data movement, activations, dropout, softmax.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "mathematics.hpp"
#include "transpose.hpp"
#include "vector.hpp"

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

template <typename T>
void bias_forward(T* y, const T* bias, long channels, long count, bool relu) {
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (channels * count > kParallelElements)
    for (long c = 0; c < channels; ++c) {
        T* plane = y + c * count;
        for (long i = 0; i < count; ++i) {
            const T value = plane[i] + bias[c];
            plane[i] = relu && value < T(0) ? T(0) : value;
        }
    }
}

template <typename T>
void bias_backward(const T* dy, T* dbias, long channels, long count) {
    constexpr int Width = kNativeWidth<T>;
    constexpr long kPiece = 4096;
    using V = Vec<T, Width>;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (channels * count > kParallelElements)
    for (long c = 0; c < channels; ++c) {
        const T* plane = dy + c * count;
        double total = 0;
        for (long first = 0; first < count; first += kPiece) {
            const long last = first + kPiece < count ? first + kPiece : count;
            V sums[4] = {};
            long at = first;
            for (; at + 4 * Width <= last; at += 4 * Width)
                for (int k = 0; k < 4; ++k) sums[k] += load<V>(plane + at + k * Width);
            for (; at + Width <= last; at += Width) sums[0] += load<V>(plane + at);
            T rest = horizontal_sum<T, Width>((sums[0] + sums[1]) + (sums[2] + sums[3]));
            for (; at < last; ++at) rest += plane[at];
            total += rest;
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

inline uint32_t mix32(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

template <typename T>
void dropout(const T* x, T* y, long features, long lanes, double rate, uint64_t key, bool accumulate) {
    const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
    const double limit = rate * 4294967296.0;
    const uint32_t threshold = static_cast<uint32_t>(limit);
    const T scale = T(1.0 / (1.0 - rate));
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (features * lanes > kParallelElements)
    for (long feature = 0; feature < features; ++feature) {
        const uint32_t base = mix32(static_cast<uint32_t>(feature) ^ low);
        const T* source = x + feature * lanes;
        T* target = y + feature * lanes;
        for (long lane = 0; lane < lanes; ++lane) {
            const uint32_t hash = mix32((base + static_cast<uint32_t>(lane) * 0x9E3779B9u) ^ high);
            const T value = hash >= threshold ? source[lane] * scale : T(0);
            target[lane] = accumulate ? target[lane] + value : value;
        }
    }
}

template <typename T>
void softmax_forward(const Extent& e, const T* x, T* y) {
    const long stride = e.pixels * e.lanes;
    with_width<T>(e.lanes, [&](auto width) {
        constexpr int Width = decltype(width)::value;
        using V = Vec<T, Width>;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (e.channels * stride > kParallelElements)
        for (long at = 0; at < stride; at += Width) {
            V largest = load<V>(x + at);
            for (long c = 1; c < e.channels; ++c) largest = maximum(largest, load<V>(x + c * stride + at));
            V total{};
            for (long c = 0; c < e.channels; ++c) {
                const V value = exponential<T>(load<V>(x + c * stride + at) - largest);
                total += value;
                store(y + c * stride + at, value);
            }
            for (long c = 0; c < e.channels; ++c) store(y + c * stride + at, load<V>(y + c * stride + at) / total);
        }
    });
}

template <typename T>
void softmax_backward(const Extent& e, const T* y, const T* dy, T* dx, bool accumulate) {
    const long stride = e.pixels * e.lanes;
    with_width<T>(e.lanes, [&](auto width) {
        constexpr int Width = decltype(width)::value;
        using V = Vec<T, Width>;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (e.channels * stride > kParallelElements)
        for (long at = 0; at < stride; at += Width) {
            V total{};
            for (long c = 0; c < e.channels; ++c) total += load<V>(y + c * stride + at) * load<V>(dy + c * stride + at);
            for (long c = 0; c < e.channels; ++c) {
                V value = load<V>(y + c * stride + at) * (load<V>(dy + c * stride + at) - total);
                if (accumulate) value += load<V>(dx + c * stride + at);
                store(dx + c * stride + at, value);
            }
        }
    });
}

}  // namespace ringlet::RINGLET_ISA
