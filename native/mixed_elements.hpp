// Kernels on bfloat16 that read and write it directly: what memory bounds. Planes that are whole vectors of samples; others go
// through floats (wide.hpp).
#pragma once

#include <cmath>

#include "wide.hpp"

namespace ringlet::RINGLET_ISA {

namespace {

constexpr uint32_t kNoElement = 65535;  // as argmax: nothing flows back

inline bool is_whole(long size) { return size % kWide == 0; }

// The sum of body(at), a vector, over a plane: four sums side by side in float, added up in double.
template <typename Body>
inline __attribute__((always_inline)) double plane_sum(long size, Body body) {
    Floats sums[4] = {};
    long at = 0;
    for (; at + 4 * kWide <= size; at += 4 * kWide) unroll<4>([&](auto i) { sums[i] += body(at + i * kWide); });
    for (; at < size; at += kWide) sums[0] += body(at);
    return horizontal_sum<float, kWide>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// -- bias -------------------------------------------------------------------------------------------------------------------
void mixed_bias_forward(bfloat16* y, const float* bias, long channels, long count, bool relu) {
    if (!is_whole(count)) return wide_bias_forward(y, bias, channels, count, relu);
    each_channel(channels, count, [&](long channel) {
        const MixedEpilogue epilogue{bias, false, relu};
        bfloat16* plane = y + channel * count;
        for (long at = 0; at < count; at += kWide) epilogue.write(channel, plane + at, load_wide(plane + at));
    });
}

void mixed_bias_backward(const bfloat16* dy, float* dbias, long channels, long count) {
    if (!is_whole(count)) return wide_bias_backward(dy, dbias, channels, count);
    each_channel(channels, count, [&](long channel) {
        const bfloat16* plane = dy + channel * count;
        dbias[channel] = static_cast<float>(plane_sum(count, [&](long at) { return load_wide(plane + at); }));
    });
}

// -- ReLU ---------------------------------------------------------------------------------------------------------------------
void mixed_activation_forward(ActivationKind kind, const bfloat16* x, bfloat16* y, long count, double slope) {
    if (kind != ActivationKind::relu || !is_whole(count)) return wide_activation_forward(kind, x, y, count, slope);
    in_chunks(count, [&](long first, long some) {
        for (long at = first; at < first + some; at += kWide) store_narrow(y + at, maximum(load_wide(x + at), Floats{}));
    });
}

void mixed_activation_backward(ActivationKind kind, const bfloat16* y, const bfloat16* dy, bfloat16* dx, long count, double slope,
                               bool accumulate) {
    if (kind != ActivationKind::relu || !is_whole(count)) return wide_activation_backward(kind, y, dy, dx, count, slope, accumulate);
    in_chunks(count, [&](long first, long some) {
        for (long at = first; at < first + some; at += kWide) {
            Floats value = load_wide(y + at) > Floats{} ? load_wide(dy + at) : Floats{};
            if (accumulate) value += load_wide(dx + at);
            store_narrow(dx + at, value);
        }
    });
}

// -- maximum pools ----------------------------------------------------------------------------------------------------------
// Whether the windows tile the image, and vectors the samples of a pixel: what networks have, with no border to think of.
inline bool tiles_exactly(const PoolShape& s) {
    return s.kernel_h == s.stride_h && s.kernel_w == s.stride_w && s.padding_h == 0 && s.padding_w == 0 && is_whole(s.lanes) &&
           s.height == s.out_height * s.stride_h && s.width == s.out_width * s.stride_w;
}

// Calls body(window, out) for every vector of outputs of a channel: where its window begins in the plane, and where it is itself.
template <typename Body>
inline __attribute__((always_inline)) void each_window(const PoolShape& s, Body body) {
    for (long row = 0; row < s.out_height; ++row)
        for (long column = 0; column < s.out_width; ++column)
            for (long lane = 0; lane < s.lanes; lane += kWide)
                body((row * s.stride_h * s.width + column * s.stride_w) * s.lanes + lane, (row * s.out_width + column) * s.lanes + lane);
}

void mixed_max_pool2d_forward(const PoolShape& s, const bfloat16* x, bfloat16* y, uint16_t* argmax, bool relu) {
    if (!tiles_exactly(s)) return wide_max_pool2d_forward(s, x, y, argmax, relu);
    const PoolPlanes p(s);
    each_channel(s.channels, p.in, [&](long c) {
        each_window(s, [&](long window, long out) {
            const bfloat16* first = x + c * p.in + window;
            Floats best = load_wide(first);
            Bits where{};
            for (long r = 0; r < s.kernel_h; ++r)
                for (long k = 0; k < s.kernel_w; ++k) {
                    const Floats value = load_wide(first + (r * s.width + k) * s.lanes);
                    where = value > best ? splat_pair(uint32_t(r * s.kernel_w + k)) : where;
                    best = maximum(best, value);
                }
            if (relu) where = best <= Floats{} ? splat_pair(kNoElement) : where, best = maximum(best, Floats{});
            store_narrow(y + c * p.out + out, best);
            store(argmax + c * p.out + out, __builtin_convertvector(where, Halves16));
        });
    });
}

void mixed_max_pool2d_backward(const PoolShape& s, const bfloat16* dy, const uint16_t* argmax, bfloat16* dx, float* sums, bool accumulate) {
    if (!tiles_exactly(s)) return wide_max_pool2d_backward(s, dy, argmax, dx, sums, accumulate);
    const PoolPlanes p(s);
    each_channel(s.channels, p.in, [&](long c) {
        Floats total{};
        each_window(s, [&](long window, long out) {
            const Floats value = load_wide(dy + c * p.out + out);
            const Bits where = __builtin_convertvector(load<Halves16>(argmax + c * p.out + out), Bits);
            total += where != splat_pair(kNoElement) ? value : Floats{};
            for (long r = 0; r < s.kernel_h; ++r)
                for (long k = 0; k < s.kernel_w; ++k) {
                    bfloat16* target = dx + c * p.in + window + (r * s.width + k) * s.lanes;
                    const Floats part = where == splat_pair(uint32_t(r * s.kernel_w + k)) ? value : Floats{};
                    store_narrow(target, accumulate ? load_wide(target) + part : part);
                }
        });
        if (sums) sums[c] = horizontal_sum<float, kWide>(total);
    });
}

// -- batch normalisation --------------------------------------------------------------------------------------------------------
inline void normalize_plane(const bfloat16* x, float scale, float mean, float shift, bfloat16* y, long size, bool relu) {
    for (long at = 0; at < size; at += kWide) {
        const Floats value = scale * (load_wide(x + at) - mean) + shift;
        store_narrow(y + at, relu ? maximum(value, Floats{}) : value);
    }
}

void mixed_batch_norm_forward_train(const Extent& e, const bfloat16* x, const float* gamma, const float* beta, bfloat16* y, float* mean,
                                    float* inv_std, float* running_mean, float* running_var, double momentum, double epsilon, bool relu) {
    const long size = e.pixels * e.lanes;
    if (!is_whole(size) || e.n < e.lanes)
        return wide_batch_norm_forward_train(e, x, gamma, beta, y, mean, inv_std, running_mean, running_var, momentum, epsilon, relu);
    each_channel(e.channels, size, [&](long c) {
        const bfloat16* plane = x + c * size;
        const double average = plane_sum(size, [&](long at) { return load_wide(plane + at); }) / double(size);
        const float centre = static_cast<float>(average);
        const double variance = plane_sum(size, [&](long at) {
                                    const Floats difference = load_wide(plane + at) - centre;
                                    return difference * difference;
                                }) /
                                double(size);
        const double inverse = 1 / std::sqrt(variance + epsilon);
        mean[c] = centre;
        inv_std[c] = static_cast<float>(inverse);
        normalize_plane(plane, gamma[c] * inv_std[c], centre, beta[c], y + c * size, size, relu);
        const double unbiased = size > 1 ? variance * (double(size) / double(size - 1)) : variance;
        running_mean[c] = static_cast<float>(momentum * running_mean[c] + (1 - momentum) * average);
        running_var[c] = static_cast<float>(momentum * running_var[c] + (1 - momentum) * unbiased);
    });
}

void mixed_batch_norm_forward_infer(const Extent& e, const bfloat16* x, const float* gamma, const float* beta, const float* running_mean,
                                    const float* running_var, bfloat16* y, double epsilon, bool relu) {
    const long size = e.pixels * e.lanes;
    if (!is_whole(size)) return wide_batch_norm_forward_infer(e, x, gamma, beta, running_mean, running_var, y, epsilon, relu);
    each_channel(e.channels, size, [&](long c) {
        const float scale = static_cast<float>(gamma[c] / std::sqrt(running_var[c] + epsilon));
        normalize_plane(x + c * size, scale, running_mean[c], beta[c], y + c * size, size, relu);
    });
}

void mixed_batch_norm_backward(const Extent& e, const bfloat16* x, const bfloat16* y, const float* gamma, const bfloat16* dy, const float* mean,
                               const float* inv_std, bfloat16* dx, float* dgamma, float* dbeta, bool relu, bool accumulate) {
    const long size = e.pixels * e.lanes;
    if (!is_whole(size) || e.n < e.lanes)
        return wide_batch_norm_backward(e, x, y, gamma, dy, mean, inv_std, dx, dgamma, dbeta, relu, accumulate);
    each_channel(e.channels, size, [&](long c) {
        const bfloat16 *inputs = x + c * size, *outputs = y + c * size, *gradients = dy + c * size;
        const auto gradient = [&](long at) {
            const Floats value = load_wide(gradients + at);
            return relu ? (load_wide(outputs + at) > Floats{} ? value : Floats{}) : value;
        };
        Floats plain[2] = {}, products[2] = {};
        const auto add = [&](auto i, long at) {
            const Floats value = gradient(at);
            plain[i] += value;
            products[i] += value * (load_wide(inputs + at) - mean[c]);
        };
        long done = 0;
        for (; done + 2 * kWide <= size; done += 2 * kWide) unroll<2>([&](auto i) { add(i, done + i * kWide); });
        if (done < size) add(std_integer<0>{}, done);
        dbeta[c] = horizontal_sum<float, kWide>(plain[0] + plain[1]);
        dgamma[c] = horizontal_sum<float, kWide>(products[0] + products[1]) * inv_std[c];
        const float scale = gamma[c] * inv_std[c], offset = dbeta[c] / float(size), slope = inv_std[c] * dgamma[c] / float(size);
        for (long at = 0; at < size; at += kWide) {
            Floats value = scale * (gradient(at) - offset - (load_wide(inputs + at) - mean[c]) * slope);
            if (accumulate) value += load_wide(dx + c * size + at);
            store_narrow(dx + c * size + at, value);
        }
    });
}

}  // namespace

}  // namespace ringlet::RINGLET_ISA
