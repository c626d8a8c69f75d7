// Losses with their gradients. A sample's loss is a mean over its pixels or elements; the sum over samples is returned.
#pragma once

#include <cmath>

#include "elementwise.hpp"

namespace ringlet::RINGLET_ISA {

constexpr double kProbabilityFloor = 1e-7;
constexpr double kDiceSmooth = 1.0;

// Sums of vectors in double precision.
template <typename T>
struct WideSum {
    static constexpr int Half = kNativeWidth<T> / 2;
    using D = Vec<double, Half>;
    D halves[2] = {};

    WideSum() = default;
    explicit WideSum(Vec<T, kNativeWidth<T>> value) {
        Vec<T, Half> parts[2];
        memcpy(parts, &value, sizeof(value));
        for (int k = 0; k < 2; ++k) halves[k] = __builtin_convertvector(parts[k], D);
    }
    WideSum& operator+=(const WideSum& other) {
        for (int k = 0; k < 2; ++k) halves[k] += other.halves[k];
        return *this;
    }
    double total() const { return horizontal_sum<double, Half>(halves[0] + halves[1]); }

    // Adds to as many numbers in memory.
    void add_to(double* target) const {
        for (int k = 0; k < 2; ++k) store(target + k * Half, load<D>(target + k * Half) + halves[k]);
    }
};

// Calls body(block, first, last) on blocks of [0, count) and adds up what it gives in their order: the result does not depend on the
// number of threads. Blocks have whole vectors, except for the last one.
template <typename Body>
double sum_blocks(long count, long block_size, Body body) {
    const long blocks = (count + block_size - 1) / block_size;
    double* partial = scratch_array<double>(kScratchShared0, blocks);
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (blocks > 1)
    for (long block = 0; block < blocks; ++block) {
        const long last = (block + 1) * block_size;
        partial[block] = body(block, block * block_size, last < count ? last : count);
    }
    double total = 0;
    for (long block = 0; block < blocks; ++block) total += partial[block];
    return total;
}

// The sum of body(section, at, phase), a vector of losses, over the elements of samples in [0, count).
template <typename T, typename Real, typename Body>
double sum_losses(const Extent& e, long count, const Real real, const Body body) {
    return sum_blocks(count, 1024, [=](long, long first, long last) {
        return sum_sections<T, WideSum<T>, 1>(e.lanes, first, last, [=](auto section, long at, long phase) {
                   return WideSum<T>(real(section, body(section, at, phase), phase));
               }).total();
    });
}

// The classes of a vector's pixels, in numbers as wide as T so that they can be compared with each other.
template <typename T, typename Section>
inline auto read_classes(const Section& section, const int32_t* labels) {
    constexpr int Width = kNativeWidth<T>;
    using Narrow = Vec<int32_t, Width>;
    Narrow classes{};
    if constexpr (Section::is_whole)
        classes = load<Narrow>(labels);
    else
        for (long i = 0; i < section.count; ++i) classes[i] = labels[i];
    return __builtin_convertvector(classes, Vec<typename IntegerOf<T>::type, Width>);
}

template <typename T>
double softmax_cross_entropy(const Extent& e, const T* x, const int32_t* labels, T* dx, double scale) {
    using V = Vec<T, kNativeWidth<T>>;
    using Integer = typename IntegerOf<T>::type;
    const long stride = e.pixels * e.lanes, channels = e.channels;
    const T factor = T(scale / e.pixels);
    double total = 0;
    with_real_lanes<T>(e, [&](auto real) {
        total = sum_losses<T>(e, stride, real, [=](auto section, long at, long phase) {
            const auto classes = read_classes<T>(section, labels + at);
            V largest = section.read(x + at), sum{}, chosen{};
            for (long c = 1; c < channels; ++c) largest = maximum(largest, section.read(x + c * stride + at));
            for (long c = 0; c < channels; ++c) {
                const V value = section.read(x + c * stride + at) - largest, power = exponential<T>(value);
                chosen = classes == Integer(c) ? value : chosen;
                sum += power;
                if (dx) section.write(dx + c * stride + at, power);
            }
            if (dx) {
                const V share = real(section, factor / sum, phase), one = real(section, splat<V>(factor), phase);
                for (long c = 0; c < channels; ++c) {
                    T* const target = dx + c * stride + at;
                    section.write(target, section.read(target) * share - (classes == Integer(c) ? one : V{}));
                }
            }
            return logarithm<T>(sum) - chosen;
        });
    });
    return total / e.pixels;
}

template <typename T, typename V>
inline V clip_probability(V p) {
    return minimum(maximum(p, splat<V>(T(kProbabilityFloor))), splat<V>(T(1 - kProbabilityFloor)));
}

template <typename T>
double categorical_cross_entropy(const Extent& e, const T* p, const int32_t* labels, T* dp, double scale) {
    using V = Vec<T, kNativeWidth<T>>;
    using Integer = typename IntegerOf<T>::type;
    const long stride = e.pixels * e.lanes, channels = e.channels;
    const T factor = T(scale / e.pixels);
    double total = 0;
    with_real_lanes<T>(e, [&](auto real) {
        total = sum_losses<T>(e, stride, real, [=](auto section, long at, long phase) {
            const auto classes = read_classes<T>(section, labels + at);
            V chosen{};
            for (long c = 0; c < channels; ++c) chosen = classes == Integer(c) ? section.read(p + c * stride + at) : chosen;
            const V clipped = clip_probability<T>(chosen), slope = real(section, chosen == clipped ? -factor / clipped : V{}, phase);
            if (dp)
                for (long c = 0; c < channels; ++c) section.write(dp + c * stride + at, classes == Integer(c) ? slope : V{});
            return -logarithm<T>(clipped);
        });
    });
    return total / e.pixels;
}

// Losses that are a mean over independent elements: body(prediction, target, gradient) returns the losses of a vector.
template <typename T, typename Body>
double element_mean(const Extent& e, const T* p, const T* t, T* dp, double scale, const Body body) {
    using V = Vec<T, kNativeWidth<T>>;
    const long rows = e.channels * e.pixels;
    const T factor = T(scale / rows);
    double total = 0;
    with_real_lanes<T>(e, [&](auto real) {
        total = sum_losses<T>(e, rows * e.lanes, real, [=](auto section, long at, long phase) {
            V gradient;
            const V losses = body(section.read(p + at), section.read(t + at), gradient);
            if (dp) section.write(dp + at, real(section, gradient * factor, phase));
            return losses;
        });
    });
    return total / rows;
}

// The loss of logits; `chance` becomes sigmoid(x). log(1 + exp(-|x|)) and the sigmoid share one exponential.
template <typename T, typename V>
inline V sigmoid_entropy(V x, V target, V& chance) {
    const V zero{}, small = exponential<T>(x < zero ? x : -x);
    chance = (x < zero ? small : splat<V>(T(1))) / (T(1) + small);
    return maximum(x, zero) - x * target + log_one_plus<T>(small);
}

template <typename T>
double sigmoid_binary_cross_entropy(const Extent& e, const T* x, const T* t, T* dx, double scale) {
    return element_mean(e, x, t, dx, scale, [](auto value, auto target, auto& gradient) {
        const auto losses = sigmoid_entropy<T>(value, target, gradient);
        gradient -= target;
        return losses;
    });
}

template <typename T>
double binary_cross_entropy(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    return element_mean(e, p, t, dp, scale, [](auto value, auto target, auto& gradient) {
        const auto clipped = clip_probability<T>(value), rest = T(1) - clipped;
        gradient = clipped == value ? (clipped - target) / (clipped * rest) : decltype(value){};
        return -(target * logarithm<T>(clipped) + (T(1) - target) * log_one_minus<T>(clipped));
    });
}

template <typename T>
double mean_squared_error(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    return element_mean(e, p, t, dp, scale, [](auto value, auto target, auto& gradient) {
        const auto difference = value - target;
        gradient = T(2) * difference;
        return difference * difference;
    });
}

template <typename T>
double mean_absolute_error(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    return element_mean(e, p, t, dp, scale, [](auto value, auto target, auto& gradient) {
        using V = decltype(value);
        const V difference = value - target, zero{}, one = splat<V>(T(1));
        gradient = difference > zero ? one : (difference < zero ? -one : zero);
        return difference < zero ? -difference : difference;
    });
}

// The sums over a sample's elements that its dice coefficient is made of, for every lane: lines of products, predictions and targets.
class DiceSums {
  public:
    static constexpr int kLines = 3;

    DiceSums(double* memory, long line) : memory_(memory), line_(line) {
        for (long i = 0; i < kLines * line; ++i) memory[i] = 0;
    }

    // A vector whose first element belongs to lane `phase`; lines are patterns here.
    template <typename T, typename V>
    void add(long phase, V predictions, V targets) {
        const WideSum<T> p(predictions), t(targets);
        WideSum<T> products;
        for (int k = 0; k < 2; ++k) products.halves[k] = p.halves[k] * t.halves[k];
        products.add_to(memory_ + phase);
        p.add_to(memory_ + line_ + phase);
        t.add_to(memory_ + 2 * line_ + phase);
    }

    // Adds up the periods of lines that are patterns.
    void fold(DiceSums& target) const {
        for (long k = 0; k < kLines; ++k)
            for (long i = 0, lane = 0; i < line_; ++i, lane = lane + 1 < target.line_ ? lane + 1 : 0)
                target.memory_[k * target.line_ + lane] += memory_[k * line_ + i];
    }

    double products(long lane) const { return memory_[lane]; }
    double predictions(long lane) const { return memory_[line_ + lane]; }
    double targets(long lane) const { return memory_[2 * line_ + lane]; }

  private:
    double* memory_;
    long line_;
};

// 1 - (2 sum(p t) + s) / (sum p + sum t + s), summed over the samples; the gradient of p is own * t + shared, zero in padding lanes.
// `own` and `shared` are patterns.
template <typename T>
struct DiceGradient {
    T *own, *shared;
    double total = 0;

    DiceGradient(const Extent& e, const DiceSums& sums, double scale) {
        own = scratch_array<T>(kScratchShared2, 2 * pattern_size<T>(e.lanes));
        shared = own + pattern_size<T>(e.lanes);
        const auto denominator = [&](long lane) { return sums.predictions(lane) + sums.targets(lane) + kDiceSmooth; };
        const auto numerator = [&](long lane) { return 2 * sums.products(lane) + kDiceSmooth; };
        for (long lane = 0; lane < e.n; ++lane) total += 1 - numerator(lane) / denominator(lane);
        fill_pattern(own, e.lanes, [&](long lane) { return lane < e.n ? T(-2 * scale / denominator(lane)) : T(0); });
        fill_pattern(shared, e.lanes, [&](long lane) {
            return lane < e.n ? T(scale * numerator(lane) / (denominator(lane) * denominator(lane))) : T(0);
        });
    }
};

// The sums of a batch. body(section, at, phase, sums) adds a vector to them; what it returns is added up, too, into `total`.
// They are made block by block and joined in order, so that the number of threads does not matter.
template <typename T, typename Body>
DiceSums dice_sums(const Extent& e, double& total, const Body body) {
    constexpr long kBlock = 1l << 13;
    const long count = e.channels * e.pixels * e.lanes, blocks = (count + kBlock - 1) / kBlock, size = DiceSums::kLines * e.lanes;
    double* memory = scratch_array<double>(kScratchShared1, (blocks + 1) * size);
    total = sum_blocks(count, kBlock, [=](long block, long first, long last) {
        const long line = pattern_size<T>(e.lanes);
        DiceSums lines(scratch_array<double>(kScratchOwn0, DiceSums::kLines * line), line), folded(memory + (block + 1) * size, e.lanes);
        const WideSum<T> sum = sum_sections<T, WideSum<T>, 1>(
            e.lanes, first, last, [=](auto section, long at, long phase) mutable { return WideSum<T>(body(section, at, phase, lines)); });
        lines.fold(folded);
        return sum.total();
    });
    DiceSums sums(memory, e.lanes);
    for (long block = 1; block <= blocks; ++block)
        for (long i = 0; i < size; ++i) memory[i] += memory[block * size + i];
    return sums;
}

template <typename T, bool Accumulate = false>
double dice(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    using V = Vec<T, kNativeWidth<T>>;
    double unused = 0;
    const DiceSums sums = dice_sums<T>(e, unused, [=](auto section, long at, long phase, DiceSums& lines) {
        lines.add<T>(phase, section.read(p + at), section.read(t + at));
        return V{};
    });
    const DiceGradient<T> gradient(e, sums, scale);
    if (dp)
        over_elements(e.channels * e.pixels * e.lanes, [=, lanes = e.lanes](long first, long last) {
            in_sections<T>(lanes, first, last, [=](auto section, long at, long phase) {
                V value = load<V>(gradient.own + phase) * section.read(t + at) + load<V>(gradient.shared + phase);
                if (Accumulate) value += section.read(dp + at);
                section.write(dp + at, value);
            });
        });
    return gradient.total;
}

template <typename T>
double bce_dice(const Extent& e, const T* p, const T* t, T* dp, double scale) {
    const double entropy = binary_cross_entropy(e, p, t, dp, scale);
    return entropy + dice<T, true>(e, p, t, dp, scale);
}

// Both losses of one sigmoid. The first pass leaves p in dx, the second turns it into (p - t) * factor + dice's gradient * p (1 - p).
template <typename T>
double sigmoid_bce_dice(const Extent& e, const T* x, const T* t, T* dx, double scale) {
    using V = Vec<T, kNativeWidth<T>>;
    const long rows = e.channels * e.pixels;
    const T factor = T(scale / rows);
    double total = 0;
    with_real_lanes<T>(e, [&](auto real) {
        double entropy = 0;
        const DiceSums sums = dice_sums<T>(e, entropy, [=](auto section, long at, long phase, DiceSums& lines) {
            const V target = section.read(t + at);
            V chance;
            const V losses = sigmoid_entropy<T>(section.read(x + at), target, chance);
            lines.add<T>(phase, section.inside(chance), target);
            if (dx) section.write(dx + at, chance);
            return real(section, losses, phase);
        });
        const DiceGradient<T> gradient(e, sums, scale);
        total = entropy / rows + gradient.total;
        if (!dx) return;
        over_elements(rows * e.lanes, [=, lanes = e.lanes](long first, long last) {
            in_sections<T>(lanes, first, last, [=](auto section, long at, long phase) {
                const V p = section.read(dx + at), target = section.read(t + at);
                const V slope = load<V>(gradient.own + phase) * target + load<V>(gradient.shared + phase);
                section.write(dx + at, real(section, (p - target) * factor + slope * p * (T(1) - p), phase));
            });
        });
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
