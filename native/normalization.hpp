// Batch normalisation per channel over all pixels and the n real lanes.
//
// Statistics are taken chunk by chunk (mean and squared deviation of a chunk while it is in cache, merged in double
// precision by Chan's formula), so one pass over memory is as accurate as two.
#pragma once

#include <cmath>

#include "kernels.hpp"
#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

constexpr long kChunk = 2048;

// Calls body(offset, mask) for every vector of `pixels` pixels; mask is 1 in real lanes, 0 in padding.
template <typename T, int Width, bool Full, typename Body>
inline __attribute__((always_inline)) void for_each_vector(const Extent& e, long pixels, Body body) {
    using V = Vec<T, Width>;
    if constexpr (Full) {
        for (long at = 0; at < pixels * e.lanes; at += Width) body(at, V{} + T(1));
    } else {
        for (long pixel = 0; pixel < pixels; ++pixel)
            for (long lane = 0; lane < e.lanes; lane += Width) {
                V mask;
                for (int i = 0; i < Width; ++i) mask[i] = lane + i < e.n ? T(1) : T(0);
                body(pixel * e.lanes + lane, mask);
            }
    }
}

template <typename T, typename Body>
inline void with_fullness(const Extent& e, Body body) {
    with_width<T>(e.lanes, [&](auto width) {
        if (e.n == e.lanes)
            body(width, std_integer<1>{});
        else
            body(width, std_integer<0>{});
    });
}

struct Moments {
    double count = 0, mean = 0, squares = 0;

    void merge(double other_count, double other_mean, double other_squares) {
        const double total = count + other_count, difference = other_mean - mean;
        mean += difference * other_count / total;
        squares += other_squares + difference * difference * count * other_count / total;
        count = total;
    }
};

template <typename T, int Width, bool Full>
Moments channel_moments(const Extent& e, const T* x) {
    using V = Vec<T, Width>;
    Moments moments;
    const long chunk_pixels = kChunk / e.lanes > 0 ? kChunk / e.lanes : 1;
    for (long first = 0; first < e.pixels; first += chunk_pixels) {
        const long pixels = e.pixels - first < chunk_pixels ? e.pixels - first : chunk_pixels;
        const T* chunk = x + first * e.lanes;
        V sum{};
        for_each_vector<T, Width, Full>(e, pixels, [&](long at, V mask) { sum += Full ? load<V>(chunk + at) : load<V>(chunk + at) * mask; });
        const double count = double(pixels) * e.n;
        const T mean = T(horizontal_sum<T, Width>(sum) / count);
        V squares{};
        for_each_vector<T, Width, Full>(e, pixels, [&](long at, V mask) {
            V deviation = load<V>(chunk + at) - mean;
            if constexpr (!Full) deviation *= mask;
            squares += deviation * deviation;
        });
        moments.merge(count, mean, horizontal_sum<T, Width>(squares));
    }
    return moments;
}

template <typename T>
void normalise_plane(const T* x, T* y, long count, T mean, T scale, T shift, bool relu) {
    if (relu)
        for (long i = 0; i < count; ++i) {
            const T value = (x[i] - mean) * scale + shift;
            y[i] = value < T(0) ? T(0) : value;
        }
    else
        for (long i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale + shift;
}

// Padding lanes are no part of the statistics: where the variance is small they would grow from layer to layer.
template <typename T>
void clear_padding(const Extent& e, T* plane) {
    if (e.n == e.lanes) return;
    for (long pixel = 0; pixel < e.pixels; ++pixel)
        for (long lane = e.n; lane < e.lanes; ++lane) plane[pixel * e.lanes + lane] = T(0);
}

template <typename T>
void batch_norm_forward_train(const Extent& e, const T* x, const T* gamma, const T* beta, T* y, T* mean, T* inv_std, T* running_mean,
                              T* running_var, double momentum, double epsilon, bool relu) {
    with_fullness<T>(e, [&](auto width, auto full) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
        for (long c = 0; c < e.channels; ++c) {
            const T* plane = x + c * e.pixels * e.lanes;
            const Moments moments = channel_moments<T, decltype(width)::value, decltype(full)::value == 1>(e, plane);
            const double variance = moments.squares / moments.count;
            const double unbiased = moments.count > 1 ? moments.squares / (moments.count - 1) : variance;
            mean[c] = T(moments.mean);
            inv_std[c] = T(1.0 / std::sqrt(variance + epsilon));
            running_mean[c] = T(momentum * running_mean[c] + (1 - momentum) * moments.mean);
            running_var[c] = T(momentum * running_var[c] + (1 - momentum) * unbiased);
            T* out = y + c * e.pixels * e.lanes;
            normalise_plane(plane, out, e.pixels * e.lanes, mean[c], gamma[c] * inv_std[c], beta[c], relu);
            clear_padding(e, out);
        }
    });
}

template <typename T>
void batch_norm_forward_infer(const Extent& e, const T* x, const T* gamma, const T* beta, const T* running_mean, const T* running_var,
                              T* y, double epsilon, bool relu) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long c = 0; c < e.channels; ++c) {
        const T scale = T(gamma[c] / std::sqrt(running_var[c] + epsilon));
        const long plane = e.pixels * e.lanes;
        normalise_plane(x + c * plane, y + c * plane, plane, running_mean[c], scale, beta[c], relu);
    }
}

template <typename T, int Width, bool Full>
void channel_backward(const Extent& e, const T* x, const T* y, const T* dy, T* dx, T gamma, T mean, T inv_std, T& dgamma, T& dbeta,
                      bool relu, bool accumulate) {
    using V = Vec<T, Width>;
    const auto gradient_at = [&](long at) {
        const V gradient = load<V>(dy + at);
        return relu ? (load<V>(y + at) > V{} ? gradient : V{}) : gradient;
    };
    double sum = 0, product = 0;
    const long chunk_pixels = kChunk / e.lanes > 0 ? kChunk / e.lanes : 1;
    for (long first = 0; first < e.pixels; first += chunk_pixels) {
        const long pixels = e.pixels - first < chunk_pixels ? e.pixels - first : chunk_pixels;
        V sums[2] = {}, products[2] = {};
        long at = first * e.lanes;
        const long last = (first + pixels) * e.lanes;
        for (; at + 2 * Width <= last; at += 2 * Width)
            for (int k = 0; k < 2; ++k) {
                const V gradient = gradient_at(at + k * Width);
                sums[k] += gradient;
                products[k] += gradient * (load<V>(x + at + k * Width) - mean);
            }
        for (; at < last; at += Width) {
            const V gradient = gradient_at(at);
            sums[0] += gradient;
            products[0] += gradient * (load<V>(x + at) - mean);
        }
        sum += horizontal_sum<T, Width>(sums[0] + sums[1]);
        product += horizontal_sum<T, Width>(products[0] + products[1]) * double(inv_std);
    }
    dbeta = T(sum);
    dgamma = T(product);
    // dx = a g + b (x - mean) + c
    const double count = double(e.pixels) * e.n;
    const double a = double(gamma) * inv_std, b = -a * inv_std * product / count;
    const T av = T(a), bv = T(b), cv = T(-a * sum / count);
    for_each_vector<T, Width, Full>(e, e.pixels, [&](long at, V mask) {
        V value = gradient_at(at) * av + ((load<V>(x + at) - mean) * bv + cv);
        if constexpr (!Full) value *= mask;
        if (accumulate) value += load<V>(dx + at);
        store(dx + at, value);
    });
}

template <typename T>
void batch_norm_backward(const Extent& e, const T* x, const T* y, const T* gamma, const T* dy, const T* mean, const T* inv_std, T* dx,
                         T* dgamma, T* dbeta, bool relu, bool accumulate) {
    with_fullness<T>(e, [&](auto width, auto full) {
#pragma omp parallel for schedule(static) num_threads(num_threads())
        for (long c = 0; c < e.channels; ++c) {
            const long plane = c * e.pixels * e.lanes;
            channel_backward<T, decltype(width)::value, decltype(full)::value == 1>(e, x + plane, y + plane, dy + plane, dx + plane,
                                                                                    gamma[c], mean[c], inv_std[c], dgamma[c],
                                                                                    dbeta[c], relu, accumulate);
        }
    });
}

}  // namespace ringlet::RINGLET_ISA
