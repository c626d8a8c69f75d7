// Exponential, logarithm, sigmoid and hyperbolic functions on vectors.
#pragma once

#include <cmath>
#include <limits>

#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T, typename V, typename Function>
inline V per_lane(V value, Function function) {
    constexpr int Width = sizeof(V) / sizeof(T);
    for (int i = 0; i < Width; ++i) value[i] = function(value[i]);
    return value;
}

template <int Width>
inline Vec<float, Width> exponential_single(Vec<float, Width> x) {
    using V = Vec<float, Width>;
    using I = Vec<int32_t, Width>;
    const auto vanishes = x < splat<V>(-87.3f);
    x = minimum(maximum(x, splat<V>(-87.3f)), splat<V>(88.3f));
    // x = n ln 2 + r, |r| <= ln 2 / 2; adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    constexpr float kRound = 12582912.0f;
    const V n = (x * 1.44269504088896341f + kRound) - kRound;
    const V r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    V p = splat<V>(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const I exponent = (__builtin_convertvector(n, I) + 127) << 23;
    return vanishes ? V{} : p * (V)exponent;
}

template <typename T, typename V>
inline V exponential(V x) {
    constexpr int Width = sizeof(V) / sizeof(T);
    if constexpr (sizeof(T) == sizeof(float))
        return exponential_single<Width>(x);
    else
        return per_lane<T>(x, [](T value) { return std::exp(value); });
}

template <typename T, typename V>
inline V sigmoid(V x) {
    // exp of a negative number only: no overflow on either side
    const V small = exponential<T>(x < V{} ? x : -x);
    const V share = T(1) / (T(1) + small);
    return x < V{} ? small * share : share;
}

template <typename T, typename V>
inline V hyperbolic_tangent(V x) {
    if constexpr (sizeof(T) == sizeof(float)) {
        const V magnitude = x < V{} ? -x : x;
        const V small = exponential<T>(-2.0f * magnitude);
        const V large_result = (1.0f - small) / (1.0f + small);
        const V square = x * x;
        V p = splat<V>(-5.70498872745e-3f);
        p = p * square + 2.06390887954e-2f;
        p = p * square - 5.37397155531e-2f;
        p = p * square + 1.33314422036e-1f;
        p = p * square - 3.33332819422e-1f;
        const V small_result = p * square * x + x;
        return magnitude < splat<V>(0.625f) ? small_result : (x < V{} ? -large_result : large_result);
    } else {
        return per_lane<T>(x, [](T value) { return std::tanh(value); });
    }
}

// log(x) for normal x > 0; what is not finite stays.
template <int Width>
inline Vec<float, Width> logarithm_single(Vec<float, Width> x) {
    using V = Vec<float, Width>;
    using I = Vec<int32_t, Width>;
    // x = 2^n m, sqrt(1/2) <= m < sqrt(2): what is above the bits of sqrt(1/2) counts whole powers
    const I shifted = (I)x - 0x3f3504f3, n = shifted >> 23;
    const V m = (V)((I)x - (n << 23)) - 1.0f, square = m * m, power = __builtin_convertvector(n, V);
    V p = splat<V>(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const V result = m + (p * m * square + (power * -2.12194440e-4f - 0.5f * square)) + power * 0.693359375f;
    return x < splat<V>(std::numeric_limits<float>::infinity()) ? result : x;
}

template <typename T, typename V>
inline V logarithm(V x) {
    constexpr int Width = sizeof(V) / sizeof(T);
    if constexpr (sizeof(T) == sizeof(float))
        return logarithm_single<Width>(x);
    else
        return per_lane<T>(x, [](T value) { return std::log(value); });
}

// log(1 - x) for 0 < x < 1: what 1 - x loses by rounding is added to first order.
template <typename T, typename V>
inline V log_one_minus(V x) {
    if constexpr (sizeof(T) == sizeof(float)) {
        const V rest = 1.0f - x, lost = (1.0f - rest) - x;
        return logarithm<T>(rest) + lost / rest;
    } else {
        return per_lane<T>(x, [](T value) { return std::log1p(-value); });
    }
}

// log(1 + x) for 0 <= x <= 1.
template <typename T, typename V>
inline V log_one_plus(V x) {
    if constexpr (sizeof(T) == sizeof(float)) {
        // log(1 + x) = 2 artanh(x / (2 + x)), and x / (2 + x) <= 1/3
        const V t = x / (2.0f + x), square = t * t;
        V p = splat<V>(2.0f / 13);
        p = p * square + 2.0f / 11;
        p = p * square + 2.0f / 9;
        p = p * square + 2.0f / 7;
        p = p * square + 2.0f / 5;
        p = p * square + 2.0f / 3;
        return (p * square + 2.0f) * t;
    } else {
        return per_lane<T>(x, [](T value) { return std::log1p(value); });
    }
}

// Arctanh saturates here with derivative zero, so that padding lanes stay finite whatever they hold.
template <typename T>
constexpr T kArctanhLimit = T(7.25);

template <typename T, typename V>
inline V limited_arctanh(V x) {
    return per_lane<T>(x, [](T value) {
        const T result = std::fabs(value) < T(1) ? std::atanh(value) : (value < 0 ? -kArctanhLimit<T> : kArctanhLimit<T>);
        return result > kArctanhLimit<T> ? kArctanhLimit<T> : (result < -kArctanhLimit<T> ? -kArctanhLimit<T> : result);
    });
}

template <typename T, typename V>
inline V limited_arctanh_derivative(V y) {
    return per_lane<T>(y, [](T value) {
        const T cosine = std::cosh(value);
        return std::fabs(value) < kArctanhLimit<T> ? cosine * cosine : T(0);
    });
}

template <typename T, typename V>
inline V log_sigmoid(V x) {
    return per_lane<T>(x, [](T value) { return (value < 0 ? value : T(0)) - std::log1p(std::exp(-std::fabs(value))); });
}

template <typename T, typename V>
inline V log_sigmoid_derivative(V y) {
    return per_lane<T>(y, [](T value) { return -std::expm1(value); });
}

}  // namespace ringlet::RINGLET_ISA
