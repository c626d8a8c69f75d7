// Batch normalisation per channel over all pixels and the n real lanes.
//
// Statistics are taken chunk by chunk (mean and squared deviation of a chunk while it is in cache, merged in double
// precision by Chan's formula), so one pass over memory is as accurate as two.
#pragma once

#include <cmath>
#include <limits>

#include "planes.hpp"

namespace ringlet::RINGLET_ISA {

constexpr long kChunk = 2048;  // elements; a multiple of every vector's width

struct Moments {
    double count = 0, mean = 0, squares = 0;

    void merge(double other_count, double other_mean, double other_squares) {
        const double total = count + other_count, difference = other_mean - mean;
        mean += difference * other_count / total;
        squares += other_squares + difference * difference * count * other_count / total;
        count = total;
    }
};

// Calls body(first, last) on the chunks of a plane.
template <typename Body>
inline __attribute__((always_inline)) void in_chunks(const Extent& e, Body body) {
    const long plane = e.pixels * e.lanes;
    for (long first = 0; first < plane; first += kChunk) body(first, first + kChunk < plane ? first + kChunk : plane);
}

template <typename T, typename Real>
Moments channel_moments(const Extent& e, const T* x, const Real real) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    Moments moments;
    in_chunks(e, [&](long first, long last) {
        const double count = real_elements(e, last) - real_elements(e, first);
        if (count == 0) return;
        const V sum = sum_sections<T, V>(e.lanes, first, last,
                                         [=](auto section, long at, long phase) { return real(section, section.read(x + at), phase); });
        const T mean = T(horizontal_sum<T, Width>(sum) / count);
        const V squares = sum_sections<T, V>(e.lanes, first, last, [=](auto section, long at, long phase) {
            const V deviation = real(section, section.read(x + at) - mean, phase);
            return deviation * deviation;
        });
        moments.merge(count, mean, horizontal_sum<T, Width>(squares));
    });
    return moments;
}

// Padding lanes are no part of the statistics, and become zero: where the variance is small they would grow from layer to layer.
template <typename T, typename Real>
void normalise_plane(const Extent& e, const T* x, T* y, T mean, T scale, T shift, bool relu, const Real real) {
    using V = Vec<T, kNativeWidth<T>>;
    const V floor = splat<V>(relu ? T(0) : -std::numeric_limits<T>::infinity());
    in_sections<T>(e.lanes, 0, e.pixels * e.lanes, [=](auto section, long at, long phase) {
        const V value = (section.read(x + at) - mean) * scale + shift;
        section.write(y + at, real(section, maximum(value, floor), phase));
    });
}

template <typename T>
void batch_norm_forward_train(const Extent& e, const T* x, const T* gamma, const T* beta, T* y, T* mean, T* inv_std, T* running_mean,
                              T* running_var, double momentum, double epsilon, bool relu) {
    const long plane = e.pixels * e.lanes;
    with_real_lanes<T>(e, [&](auto real) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
        for (long c = 0; c < e.channels; ++c) {
            const Moments moments = channel_moments(e, x + c * plane, real);
            const double variance = moments.squares / moments.count;
            const double unbiased = moments.count > 1 ? moments.squares / (moments.count - 1) : variance;
            mean[c] = T(moments.mean);
            inv_std[c] = T(1.0 / std::sqrt(variance + epsilon));
            running_mean[c] = T(momentum * running_mean[c] + (1 - momentum) * moments.mean);
            running_var[c] = T(momentum * running_var[c] + (1 - momentum) * unbiased);
            normalise_plane(e, x + c * plane, y + c * plane, mean[c], gamma[c] * inv_std[c], beta[c], relu, real);
        }
    });
}

template <typename T>
void batch_norm_forward_infer(const Extent& e, const T* x, const T* gamma, const T* beta, const T* running_mean, const T* running_var,
                              T* y, double epsilon, bool relu) {
    const long plane = e.pixels * e.lanes;
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long c = 0; c < e.channels; ++c) {
        const T scale = T(gamma[c] / std::sqrt(running_var[c] + epsilon));
        normalise_plane(e, x + c * plane, y + c * plane, running_mean[c], scale, beta[c], relu, EveryLane<T>{});
    }
}

// A channel's arrays. With a ReLU on top, gradients flow where y is positive.
template <typename T>
struct BackwardPlanes {
    const T *x, *y, *dy;
    T* dx;

    template <bool Relu, typename Section>
    auto gradient(const Section& section, long at) const {
        const auto value = section.read(dy + at);
        if constexpr (!Relu) return value;
        else return section.read(y + at) > decltype(value){} ? value : decltype(value){};
    }
};

// Sums of gradients, and of gradients times deviations from the mean.
template <typename V>
struct GradientSums {
    V plain, weighted;
    GradientSums& operator+=(const GradientSums& other) {
        plain += other.plain;
        weighted += other.weighted;
        return *this;
    }
};

template <bool Relu, typename T, typename Real>
void channel_backward(const Extent& e, const BackwardPlanes<T> planes, T gamma, T mean, T inv_std, T& dgamma, T& dbeta, bool accumulate,
                      const Real real) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    using Sums = GradientSums<V>;
    double sum = 0, product = 0;
    in_chunks(e, [&](long first, long last) {
        const Sums sums = sum_sections<T, Sums>(e.lanes, first, last, [=](auto section, long at, long) {
            const V gradient = planes.template gradient<Relu>(section, at);
            return Sums{gradient, gradient * (section.read(planes.x + at) - mean)};
        });
        sum += horizontal_sum<T, Width>(sums.plain);
        product += horizontal_sum<T, Width>(sums.weighted) * double(inv_std);
    });
    dbeta = T(sum);
    dgamma = T(product);
    // dx = a g + b (x - mean) + c
    const double count = double(e.pixels) * e.n;
    const double a = double(gamma) * inv_std, b = -a * inv_std * product / count;
    const T av = T(a), bv = T(b), cv = T(-a * sum / count);
    in_sections<T>(e.lanes, 0, e.pixels * e.lanes, [=](auto section, long at, long phase) {
        const V gradient = planes.template gradient<Relu>(section, at);
        V value = real(section, gradient * av + ((section.read(planes.x + at) - mean) * bv + cv), phase);
        if (accumulate) value += section.read(planes.dx + at);
        section.write(planes.dx + at, value);
    });
}

template <typename T>
void batch_norm_backward(const Extent& e, const T* x, const T* y, const T* gamma, const T* dy, const T* mean, const T* inv_std, T* dx,
                         T* dgamma, T* dbeta, bool relu, bool accumulate) {
    with_real_lanes<T>(e, [&](auto real) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
        for (long c = 0; c < e.channels; ++c) {
            const long plane = c * e.pixels * e.lanes;
            const BackwardPlanes<T> planes{x + plane, y + plane, dy + plane, dx + plane};
            const auto backward = [&](auto with_relu) {
                channel_backward<decltype(with_relu)::value == 1>(e, planes, gamma[c], mean[c], inv_std[c], dgamma[c], dbeta[c], accumulate, real);
            };
            relu ? backward(std_integer<1>{}) : backward(std_integer<0>{});
        }
    });
}

}  // namespace ringlet::RINGLET_ISA
