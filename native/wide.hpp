// Kernels on bfloat16 by those on floats: read what they take as floats, run them, round what they wrote.
//
// Kernels that treat every channel by itself go channel by channel, others in pieces or whole.
#pragma once

#include "bf16.hpp"

namespace ringlet::RINGLET_ISA {

namespace {

inline const Kernels<float>& singles() { return current_table().single; }

// A copy as floats in a scratch slot of this thread.
inline float* as_floats(int slot, const bfloat16* source, long count) {
    float* wide = scratch_array<float>(slot, count);
    widen(source, wide, count);
    return wide;
}
inline float* room(int slot, long count) { return scratch_array<float>(slot, count); }

// Room for a result: what is there, if that is added to.
inline float* result(int slot, const bfloat16* there, long count, bool read) { return read ? as_floats(slot, there, count) : room(slot, count); }

// Calls body(first, count) for pieces of an array.
template <typename Body>
inline void in_chunks(long count, Body body) {
    constexpr long kChunk = 4096;
    const long chunks = (count + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (chunks > 4)
    for (long chunk = 0; chunk < chunks; ++chunk) {
        const long first = chunk * kChunk;
        body(first, count - first < kChunk ? count - first : kChunk);
    }
}

template <typename Body>
inline void each_channel(long channels, long size, Body body) {
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (channels * size > 16384)
    for (long channel = 0; channel < channels; ++channel) body(channel);
}

// The same number of elements in parallel.
inline void widen_all(const bfloat16* source, float* target, long count) {
    in_chunks(count, [&](long first, long some) { widen(source + first, target + first, some); });
}
inline void narrow_all(const float* source, bfloat16* target, long count) {
    in_chunks(count, [&](long first, long some) { narrow(source + first, target + first, some); });
}
inline float* all_as_floats(int slot, const bfloat16* source, long count) {
    float* wide = room(slot, count);
    widen_all(source, wide, count);
    return wide;
}

// Weights as they are multiplied: rounded.
inline float* rounded_weights(int slot, const float* weight, long count) {
    float* result = room(slot, count);
    in_chunks(count, [&](long first, long some) {
        for (long i = first; i < first + some; ++i) {
            const uint32_t bits = rounded_bits(weight[i]);
            memcpy(result + i, &bits, 4);
        }
    });
    return result;
}

// -- data movement --------------------------------------------------------------------------------------------------------
void wide_pack(const float* samples, long n, long features, long lanes, bfloat16* out) {
    float* wide = room(kScratchWide0, features * lanes);
    singles().pack(samples, n, features, lanes, wide);
    narrow_all(wide, out, features * lanes);
}
void wide_pack_bytes(const uint8_t* samples, long n, long features, long lanes, bfloat16* out) {
    float* wide = room(kScratchWide0, features * lanes);
    singles().pack_bytes(samples, n, features, lanes, wide);
    narrow_all(wide, out, features * lanes);
}
void wide_unpack(const bfloat16* activations, long n, long features, long lanes, float* out) {
    singles().unpack(all_as_floats(kScratchWide0, activations, features * lanes), n, features, lanes, out);
}
void wide_add(const bfloat16* a, const bfloat16* b, bfloat16* out, long count) {
    in_chunks(count, [&](long first, long some) {
        long at = first;
        for (; at + kWide <= first + some; at += kWide) store_narrow(out + at, load_wide(a + at) + load_wide(b + at));
        if (at < first + some) {
            const long rest = first + some - at;
            float *left = as_floats(kScratchWide0, a + at, rest), *right = as_floats(kScratchWide1, b + at, rest);
            for (long i = 0; i < rest; ++i) left[i] += right[i];
            narrow(left, out + at, rest);
        }
    });
}

// -- convolution and dense layers -------------------------------------------------------------------------------------------
// Some groups at a time, so that the copies stay small: calls body(shape, group) for each part.
template <typename Body>
inline void in_group_parts(const ConvShape& s, Body body) {
    const long size = s.group_channels() * s.height * s.width * s.lanes + s.group_filters() * s.out_height * s.out_width * s.lanes;
    long some = size > 0 ? (64l << 10) / size : s.groups;
    some = some < 1 ? 1 : some;
    for (long group = 0; group < s.groups; group += some) {
        ConvShape part = s;
        part.groups = s.groups - group < some ? s.groups - group : some;
        part.channels = s.group_channels() * part.groups;
        part.filters = s.group_filters() * part.groups;
        body(part, group);
    }
}

void wide_forward(const ConvShape& s, const bfloat16* x, const float* weight, const float* bias, bfloat16* y, bool relu,
                  ConvAlgorithm algorithm) {
    const long per_filter = s.group_channels() * s.taps();
    const float* weights = rounded_weights(kScratchWide2, weight, s.filters * per_filter);
    in_group_parts(s, [&](const ConvShape& part, long group) {
        const long in = s.height * s.width * s.lanes, out = s.out_height * s.out_width * s.lanes, filter = group * s.group_filters();
        float* wide = all_as_floats(kScratchWide0, x + group * s.group_channels() * in, part.channels * in);
        float* sums = room(kScratchWide1, part.filters * out);
        singles().conv2d_forward(part, wide, weights + filter * per_filter, bias ? bias + filter : nullptr, sums, relu, algorithm);
        narrow_all(sums, y + filter * out, part.filters * out);
    });
}

void wide_backward_data(const ConvShape& s, const bfloat16* dy, const float* weight, bfloat16* dx, const bfloat16* mask, bool accumulate,
                        ConvAlgorithm algorithm) {
    const long per_filter = s.group_channels() * s.taps();
    const float* weights = rounded_weights(kScratchWide2, weight, s.filters * per_filter);
    in_group_parts(s, [&](const ConvShape& part, long group) {
        const long in = s.height * s.width * s.lanes, out = s.out_height * s.out_width * s.lanes, filter = group * s.group_filters();
        const long first = group * s.group_channels() * in, size = part.channels * in;
        float* wide = all_as_floats(kScratchWide0, dy + filter * out, part.filters * out);
        float* sums = room(kScratchWide1, size);
        if (accumulate) widen_all(dx + first, sums, size);
        const float* masks = mask ? all_as_floats(kScratchWide3, mask + first, size) : nullptr;
        singles().conv2d_backward_data(part, wide, weights + filter * per_filter, sums, masks, accumulate, algorithm);
        narrow_all(sums, dx + first, size);
    });
}

void wide_backward_weight(const ConvShape& s, const bfloat16* x, const bfloat16* dy, float* dweight, ConvAlgorithm algorithm) {
    in_group_parts(s, [&](const ConvShape& part, long group) {
        const long in = s.height * s.width * s.lanes, out = s.out_height * s.out_width * s.lanes, filter = group * s.group_filters();
        float* wide = all_as_floats(kScratchWide0, x + group * s.group_channels() * in, part.channels * in);
        float* gradient = all_as_floats(kScratchWide1, dy + filter * out, part.filters * out);
        singles().conv2d_backward_weight(part, wide, gradient, dweight + filter * s.group_channels() * s.taps(), algorithm);
    });
}

void wide_dense_forward(long outputs, long inputs, long lanes, const bfloat16* x, const float* weight, const float* bias, bfloat16* y, bool relu) {
    float* sums = room(kScratchWide1, outputs * lanes);
    singles().dense_forward(outputs, inputs, lanes, all_as_floats(kScratchWide0, x, inputs * lanes),
                            rounded_weights(kScratchWide2, weight, outputs * inputs), bias, sums, relu);
    narrow_all(sums, y, outputs * lanes);
}
void wide_dense_backward_data(long outputs, long inputs, long lanes, const bfloat16* dy, const float* weight, bfloat16* dx, bool accumulate) {
    float* sums = room(kScratchWide1, inputs * lanes);
    if (accumulate) widen_all(dx, sums, inputs * lanes);
    singles().dense_backward_data(outputs, inputs, lanes, all_as_floats(kScratchWide0, dy, outputs * lanes),
                                  rounded_weights(kScratchWide2, weight, outputs * inputs), sums, accumulate);
    narrow_all(sums, dx, inputs * lanes);
}
void wide_dense_backward_weight(long outputs, long inputs, long lanes, const bfloat16* x, const bfloat16* dy, float* dweight) {
    singles().dense_backward_weight(outputs, inputs, lanes, all_as_floats(kScratchWide0, x, inputs * lanes),
                                    all_as_floats(kScratchWide1, dy, outputs * lanes), dweight);
}

void wide_bias_forward(bfloat16* y, const float* bias, long channels, long count, bool relu) {
    each_channel(channels, count, [&](long channel) {
        float* wide = as_floats(kScratchWide0, y + channel * count, count);
        singles().bias_forward(wide, bias + channel, 1, count, relu);
        narrow(wide, y + channel * count, count);
    });
}
void wide_bias_backward(const bfloat16* dy, float* dbias, long channels, long count) {
    each_channel(channels, count, [&](long channel) {
        singles().bias_backward(as_floats(kScratchWide0, dy + channel * count, count), dbias + channel, 1, count);
    });
}

// -- pooling ----------------------------------------------------------------------------------------------------------------
struct PoolPlanes {
    PoolShape one;
    long in, out;

    explicit PoolPlanes(const PoolShape& s) : one(s), in(s.height * s.width * s.lanes), out(s.out_height * s.out_width * s.lanes) {
        one.channels = 1;
    }
};

void wide_max_pool2d_forward(const PoolShape& s, const bfloat16* x, bfloat16* y, uint16_t* argmax, bool relu) {
    const PoolPlanes p(s);
    each_channel(s.channels, p.in, [&](long c) {
        float* maxima = room(kScratchWide1, p.out);
        singles().max_pool2d_forward(p.one, as_floats(kScratchWide0, x + c * p.in, p.in), maxima, argmax + c * p.out, relu);
        narrow(maxima, y + c * p.out, p.out);
    });
}
void wide_max_pool2d_backward(const PoolShape& s, const bfloat16* dy, const uint16_t* argmax, bfloat16* dx, float* sums, bool accumulate) {
    const PoolPlanes p(s);
    each_channel(s.channels, p.in, [&](long c) {
        float* gradient = result(kScratchWide1, dx + c * p.in, p.in, accumulate);
        singles().max_pool2d_backward(p.one, as_floats(kScratchWide0, dy + c * p.out, p.out), argmax + c * p.out, gradient,
                                      sums ? sums + c : nullptr, accumulate);
        narrow(gradient, dx + c * p.in, p.in);
    });
}
void wide_avg_pool2d_forward(const PoolShape& s, const bfloat16* x, bfloat16* y) {
    const PoolPlanes p(s);
    each_channel(s.channels, p.in, [&](long c) {
        float* means = room(kScratchWide1, p.out);
        singles().avg_pool2d_forward(p.one, as_floats(kScratchWide0, x + c * p.in, p.in), means);
        narrow(means, y + c * p.out, p.out);
    });
}
void wide_avg_pool2d_backward(const PoolShape& s, const bfloat16* dy, bfloat16* dx, bool accumulate) {
    const PoolPlanes p(s);
    each_channel(s.channels, p.in, [&](long c) {
        float* gradient = result(kScratchWide1, dx + c * p.in, p.in, accumulate);
        singles().avg_pool2d_backward(p.one, as_floats(kScratchWide0, dy + c * p.out, p.out), gradient, accumulate);
        narrow(gradient, dx + c * p.in, p.in);
    });
}

// -- batch normalisation ------------------------------------------------------------------------------------------------------
void wide_batch_norm_forward_train(const Extent& e, const bfloat16* x, const float* gamma, const float* beta, bfloat16* y, float* mean,
                                   float* inv_std, float* running_mean, float* running_var, double momentum, double epsilon, bool relu) {
    const long size = e.pixels * e.lanes;
    each_channel(e.channels, size, [&](long c) {
        float* values = room(kScratchWide1, size);
        singles().batch_norm_forward_train(Extent{1, e.pixels, e.lanes, e.n}, as_floats(kScratchWide0, x + c * size, size), gamma + c, beta + c,
                                           values, mean + c, inv_std + c, running_mean + c, running_var + c, momentum, epsilon, relu);
        narrow(values, y + c * size, size);
    });
}
void wide_batch_norm_forward_infer(const Extent& e, const bfloat16* x, const float* gamma, const float* beta, const float* running_mean,
                                   const float* running_var, bfloat16* y, double epsilon, bool relu) {
    const long size = e.pixels * e.lanes;
    each_channel(e.channels, size, [&](long c) {
        float* values = room(kScratchWide1, size);
        singles().batch_norm_forward_infer(Extent{1, e.pixels, e.lanes, e.n}, as_floats(kScratchWide0, x + c * size, size), gamma + c, beta + c,
                                           running_mean + c, running_var + c, values, epsilon, relu);
        narrow(values, y + c * size, size);
    });
}
void wide_batch_norm_backward(const Extent& e, const bfloat16* x, const bfloat16* y, const float* gamma, const bfloat16* dy, const float* mean,
                              const float* inv_std, bfloat16* dx, float* dgamma, float* dbeta, bool relu, bool accumulate) {
    const long size = e.pixels * e.lanes;
    each_channel(e.channels, size, [&](long c) {
        float* gradient = result(kScratchWide3, dx + c * size, size, accumulate);
        const float* inputs = as_floats(kScratchWide0, x + c * size, size);
        const float* outputs = relu ? as_floats(kScratchWide1, y + c * size, size) : inputs;
        singles().batch_norm_backward(Extent{1, e.pixels, e.lanes, e.n}, inputs, outputs, gamma + c,
                                      as_floats(kScratchWide2, dy + c * size, size), mean + c, inv_std + c, gradient, dgamma + c, dbeta + c, relu,
                                      accumulate);
        narrow(gradient, dx + c * size, size);
    });
}

// -- element by element ---------------------------------------------------------------------------------------------------------
void wide_activation_forward(ActivationKind kind, const bfloat16* x, bfloat16* y, long count, double slope) {
    in_chunks(count, [&](long first, long some) {
        float* wide = as_floats(kScratchWide0, x + first, some);
        singles().activation_forward(kind, wide, wide, some, slope);
        narrow(wide, y + first, some);
    });
}
void wide_activation_backward(ActivationKind kind, const bfloat16* y, const bfloat16* dy, bfloat16* dx, long count, double slope,
                              bool accumulate) {
    in_chunks(count, [&](long first, long some) {
        float* gradient = result(kScratchWide2, dx + first, some, accumulate);
        singles().activation_backward(kind, as_floats(kScratchWide0, y + first, some), as_floats(kScratchWide1, dy + first, some), gradient, some,
                                      slope, accumulate);
        narrow(gradient, dx + first, some);
    });
}
void wide_dropout(const bfloat16* x, bfloat16* y, long features, long lanes, double rate, uint64_t key, bool accumulate) {
    const long count = features * lanes;
    float* kept = room(kScratchWide1, count);
    if (accumulate) widen_all(y, kept, count);
    singles().dropout(all_as_floats(kScratchWide0, x, count), kept, features, lanes, rate, key, accumulate);
    narrow_all(kept, y, count);
}
void wide_softmax_forward(const Extent& e, const bfloat16* x, bfloat16* y) {
    const long count = e.channels * e.pixels * e.lanes;
    float* wide = all_as_floats(kScratchWide0, x, count);
    singles().softmax_forward(e, wide, wide);
    narrow_all(wide, y, count);
}
void wide_softmax_backward(const Extent& e, const bfloat16* y, const bfloat16* dy, bfloat16* dx, bool accumulate) {
    const long count = e.channels * e.pixels * e.lanes;
    float* gradient = room(kScratchWide2, count);
    if (accumulate) widen_all(dx, gradient, count);
    singles().softmax_backward(e, all_as_floats(kScratchWide0, y, count), all_as_floats(kScratchWide1, dy, count), gradient, accumulate);
    narrow_all(gradient, dx, count);
}
double wide_loss(LossKind kind, const Extent& e, const bfloat16* prediction, const float* target, const int32_t* labels, bfloat16* dprediction,
                 double scale) {
    const long count = e.channels * e.pixels * e.lanes;
    float* gradient = dprediction ? room(kScratchWide1, count) : nullptr;
    const double sum = singles().loss(kind, e, all_as_floats(kScratchWide0, prediction, count), target, labels, gradient, scale);
    if (dprediction) narrow_all(gradient, dprediction, count);
    return sum;
}

}  // namespace

}  // namespace ringlet::RINGLET_ISA
