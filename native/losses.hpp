// Losses with their gradients. A sample's loss is a mean over its pixels or elements; the sum over samples is returned.
#pragma once

#include <cmath>

#include "elementwise.hpp"

namespace ringlet::RINGLET_ISA {

constexpr double kProbabilityFloor = 1e-7;
constexpr double kDiceSmooth = 1.0;

// One row per pixel of partial sums, added in order at the end: the result does not depend on the number of threads.
template <typename Body>
double sum_over(long count, Body body) {
    double* partial = scratch_array<double>(kScratchShared0, count);
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (count > 64)
    for (long i = 0; i < count; ++i) partial[i] = body(i);
    double total = 0;
    for (long i = 0; i < count; ++i) total += partial[i];
    return total;
}

template <typename T>
double softmax_cross_entropy(const Extent& e, const T* x, const int32_t* labels, T* dx, double scale) {
    const long stride = e.pixels * e.lanes;
    const T factor = T(scale / e.pixels);
    double total = 0;
    with_width<T>(e.lanes, [&](auto width) {
        constexpr int Width = decltype(width)::value;
        using V = Vec<T, Width>;
        total = sum_over(e.pixels, [&](long pixel) {
            double sum = 0;
            for (long at = pixel * e.lanes, left = e.n; at < (pixel + 1) * e.lanes; at += Width, left -= Width) {
                const long count = left < 0 ? 0 : (left < Width ? left : Width);  // the others are padding
                V largest = load<V>(x + at), exponentials{};
                for (long c = 1; c < e.channels; ++c) largest = maximum(largest, load<V>(x + c * stride + at));
                for (long c = 0; c < e.channels; ++c) {
                    const V value = exponential<T>(load<V>(x + c * stride + at) - largest);
                    exponentials += value;
                    if (dx) store(dx + c * stride + at, value);
                }
                for (long i = 0; i < count; ++i)
                    sum += double(std::log(exponentials[i])) - double(x[labels[at + i] * stride + at + i] - largest[i]);
                if (!dx) continue;
                const V share = factor / exponentials;
                for (long c = 0; c < e.channels; ++c) {
                    T* const target = dx + c * stride + at;
                    store(target, load<V>(target) * share);
                    for (long i = count; i < Width; ++i) target[i] = 0;
                }
                for (long i = 0; i < count; ++i) dx[labels[at + i] * stride + at + i] -= factor;
            }
            return sum;
        });
    });
    return total / e.pixels;
}

template <typename T>
double categorical_cross_entropy(const Extent& e, const T* p, const int32_t* labels, T* dp, double scale) {
    const long stride = e.pixels * e.lanes;
    const T low = T(kProbabilityFloor), high = T(1 - kProbabilityFloor), factor = T(scale / e.pixels);
    const double total = sum_over(e.pixels, [&](long pixel) {
        double sum = 0;
        for (long lane = 0; lane < e.lanes; ++lane) {
            const long at = pixel * e.lanes + lane;
            if (dp)
                for (long c = 0; c < e.channels; ++c) dp[c * stride + at] = T(0);
            if (lane >= e.n) continue;
            const long here = labels[at] * stride + at;
            const T clipped = p[here] < low ? low : (p[here] > high ? high : p[here]);
            sum -= std::log(clipped);
            if (dp && p[here] == clipped) dp[here] = -factor / clipped;
        }
        return sum;
    });
    return total / e.pixels;
}

// Losses that are a mean over independent elements: body(prediction, target, gradient) returns the element's loss.
template <typename T, typename Body>
double element_mean(const Extent& e, const T* p, const T* t, T* dp, double scale, Body body) {
    const long rows = e.channels * e.pixels;
    const T factor = T(scale / rows);
    const double total = sum_over(rows, [&](long row) {
        double sum = 0;
        for (long lane = 0; lane < e.lanes; ++lane) {
            const long at = row * e.lanes + lane;
            T gradient = 0;
            if (lane < e.n) sum += body(p[at], t[at], gradient);
            if (dp) dp[at] = gradient * factor;
        }
        return sum;
    });
    return total / rows;
}

// log(1 + exp(-|x|)) and sigmoid share one exponential; vectors over samples because images have many pixels.
template <typename T>
double sigmoid_binary_cross_entropy(const Extent& e, const T* x, const T* t, T* dx, double scale) {
    const long rows = e.channels * e.pixels;
    const T factor = T(scale / rows);
    double total = 0;
    with_width<T>(e.lanes, [&](auto width) {
        constexpr int Width = decltype(width)::value;
        using V = Vec<T, Width>;
        total = sum_over(rows, [&](long row) {
            double sum = 0;
            for (long lane = 0; lane < e.lanes; lane += Width) {
                const long at = row * e.lanes + lane;
                const V value = load<V>(x + at), target = load<V>(t + at), zero{};
                const V small = exponential<T>(value < zero ? value : -value);
                const V losses = maximum(value, zero) - value * target + log_one_plus<T>(small);
                V gradients = ((value < zero ? small : splat<V>(T(1))) / (T(1) + small) - target) * factor;
                for (int i = 0; i < Width; ++i) {
                    if (lane + i < e.n)
                        sum += losses[i];
                    else
                        gradients[i] = 0;
                }
                if (dx) store(dx + at, gradients);
            }
            return sum;
        });
    });
    return total / rows;
}

template <typename T>
double binary_cross_entropy(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    return element_mean(e, p, t, dp, scale, [](T value, T target, T& gradient) {
        const T low = T(kProbabilityFloor), high = T(1 - kProbabilityFloor);
        const T clipped = value < low ? low : (value > high ? high : value);
        if (clipped == value) gradient = (clipped - target) / (clipped * (T(1) - clipped));
        return -(target * std::log(clipped) + (T(1) - target) * std::log1p(-clipped));
    });
}

template <typename T>
double mean_squared_error(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    return element_mean(e, p, t, dp, scale, [](T value, T target, T& gradient) {
        gradient = T(2) * (value - target);
        return (value - target) * (value - target);
    });
}

template <typename T>
double mean_absolute_error(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    return element_mean(e, p, t, dp, scale, [](T value, T target, T& gradient) {
        gradient = value > target ? T(1) : (value < target ? T(-1) : T(0));
        return std::fabs(value - target);
    });
}

// The sums over a sample's elements that its dice coefficient is made of, for every lane.
struct DiceSums {
    double *products, *predictions, *targets;

    DiceSums(double* memory, long lanes) : products(memory), predictions(memory + lanes), targets(memory + 2 * lanes) {
        for (long i = 0; i < 3 * lanes; ++i) memory[i] = 0;
    }

    template <typename T>
    void add(long lane, T prediction, T target) {
        products[lane] += double(prediction) * target;
        predictions[lane] += prediction;
        targets[lane] += target;
    }
};

// 1 - (2 sum(p t) + s) / (sum p + sum t + s) over the samples; the gradient of p is own * t + shared, zero in padding lanes.
template <typename T>
double dice_from(const Extent& e, const DiceSums& sums, T* own, T* shared, double scale) {
    double total = 0;
    for (long lane = 0; lane < e.lanes; ++lane) {
        const double numerator = 2 * sums.products[lane] + kDiceSmooth;
        const double denominator = sums.predictions[lane] + sums.targets[lane] + kDiceSmooth;
        if (lane < e.n) total += 1 - numerator / denominator;
        own[lane] = lane < e.n ? T(-2 * scale / denominator) : T(0);
        shared[lane] = lane < e.n ? T(scale * numerator / (denominator * denominator)) : T(0);
    }
    return total;
}

template <typename T, bool Accumulate = false>
double dice(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    const long rows = e.channels * e.pixels;
    DiceSums sums(scratch_array<double>(kScratchShared1, 3 * e.lanes), e.lanes);
    for (long row = 0; row < rows; ++row)
        for (long lane = 0; lane < e.lanes; ++lane) sums.add(lane, p[row * e.lanes + lane], t[row * e.lanes + lane]);
    T* own = scratch_array<T>(kScratchShared2, 2 * e.lanes);
    T* shared = own + e.lanes;
    const double total = dice_from(e, sums, own, shared, scale);
    if (dp)
        over_elements(rows * e.lanes, [&](long first, long last) {
            for (long at = first; at < last; ++at) {
                const T gradient = own[at % e.lanes] * t[at] + shared[at % e.lanes];
                dp[at] = Accumulate ? dp[at] + gradient : gradient;
            }
        });
    return total;
}

template <typename T>
double bce_dice(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    const double entropy = binary_cross_entropy(e, p, t, dp, scale);
    return entropy + dice<T, true>(e, p, t, dp, scale);
}

// Both losses of one sigmoid. The first pass leaves p in dx, the second turns it into (p - t) * factor + dice's gradient * p (1 - p).
// Sums are made by blocks of rows and added in order, so that the number of threads does not matter.
template <typename T>
double sigmoid_bce_dice(const Extent& e, const T* x, const T* t, T* dx, double scale) {
    constexpr long kBlock = 128;
    const long rows = e.channels * e.pixels, blocks = (rows + kBlock - 1) / kBlock;
    double* memory = scratch_array<double>(kScratchShared1, (blocks + 1) * 3 * e.lanes);
    double entropy = 0;
    with_width<T>(e.lanes, [&](auto width) {
        constexpr int Width = decltype(width)::value;
        using V = Vec<T, Width>;
        entropy = sum_over(blocks, [&](long block) {
            DiceSums sums(memory + (block + 1) * 3 * e.lanes, e.lanes);
            double sum = 0;
            const long last = (block + 1) * kBlock < rows ? (block + 1) * kBlock : rows;
            for (long row = block * kBlock; row < last; ++row)
                for (long lane = 0; lane < e.lanes; lane += Width) {
                    const long at = row * e.lanes + lane;
                    const V value = load<V>(x + at), target = load<V>(t + at), zero{};
                    const V small = exponential<T>(value < zero ? value : -value);
                    const V losses = maximum(value, zero) - value * target + log_one_plus<T>(small);
                    const V chances = (value < zero ? small : splat<V>(T(1))) / (T(1) + small);
                    for (int i = 0; i < Width; ++i) {
                        if (lane + i < e.n) sum += losses[i];
                        sums.add(lane + i, chances[i], target[i]);
                    }
                    if (dx) store(dx + at, chances);
                }
            return sum;
        });
    });
    DiceSums sums(memory, e.lanes);
    for (long block = 1; block <= blocks; ++block)
        for (long i = 0; i < 3 * e.lanes; ++i) memory[i] += memory[block * 3 * e.lanes + i];
    T* own = scratch_array<T>(kScratchShared2, 2 * e.lanes);
    T* shared = own + e.lanes;
    const double total = entropy / rows + dice_from(e, sums, own, shared, scale);
    const T factor = T(scale / rows);
    if (dx)
        over_elements(rows * e.lanes, [&](long first, long last) {
            for (long at = first; at < last; ++at) {
                const long lane = at % e.lanes;
                const T p = dx[at], slope = own[lane] * t[at] + shared[lane];
                dx[at] = lane < e.n ? (p - t[at]) * factor + slope * p * (T(1) - p) : T(0);
            }
        });
    return total;
}

template <typename T>
double loss(LossKind kind, const Extent& e, const T* prediction, const T* target, const int32_t* labels, T* dprediction, double scale) {
    switch (kind) {
        case kSoftmaxCrossEntropy: return softmax_cross_entropy(e, prediction, labels, dprediction, scale);
        case kCategoricalCrossEntropy: return categorical_cross_entropy(e, prediction, labels, dprediction, scale);
        case kSigmoidBinaryCrossEntropy: return sigmoid_binary_cross_entropy(e, prediction, target, dprediction, scale);
        case kBinaryCrossEntropy: return binary_cross_entropy(e, prediction, target, dprediction, scale);
        case kDice: return dice(e, prediction, target, dprediction, scale);
        case kBceDice: return bce_dice(e, prediction, target, dprediction, scale);
        case kSigmoidBceDice: return sigmoid_bce_dice(e, prediction, target, dprediction, scale);
        case kMse: return mean_squared_error(e, prediction, target, dprediction, scale);
        case kMae: return mean_absolute_error(e, prediction, target, dprediction, scale);
    }
    return 0;
}

}  // namespace ringlet::RINGLET_ISA
