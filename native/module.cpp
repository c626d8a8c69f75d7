// Python bindings: checks arrays, picks the instruction set, calls the kernels without the interpreter lock.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "kernels.hpp"
#include "platform.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace ringlet {

namespace x86_64_v2 { const KernelTable& kernel_table(); }
namespace x86_64_v3 { const KernelTable& kernel_table(); }
namespace x86_64_v4 { const KernelTable& kernel_table(); }
namespace x86_64_v4_bf16 { LayerKernels<bfloat16> mixed_kernels(); }
namespace generic { const KernelTable& kernel_table(); }

namespace {

using In = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Pair = std::pair<long, long>;

#ifdef RINGLET_HAS_x86_64_v4_bf16
// Instructions for bfloat16 change mixed precision alone.
const KernelTable& table_with_bf16() {
    static const KernelTable table = [] {
        KernelTable made = x86_64_v4::kernel_table();
        made.instruction_set = "x86_64_v4_bf16";
        made.mixed = x86_64_v4_bf16::mixed_kernels();
        return made;
    }();
    return table;
}
#endif

std::vector<const KernelTable*> supported_tables() {
    std::vector<const KernelTable*> tables;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
#else
    const bool v2 = false, v3 = false, v4 = false;
#endif
#ifdef RINGLET_HAS_x86_64_v4_bf16
    if (v4 && __builtin_cpu_supports("avx512bf16")) tables.push_back(&table_with_bf16());
#endif
#ifdef RINGLET_HAS_x86_64_v4
    if (v4) tables.push_back(&x86_64_v4::kernel_table());
#endif
#ifdef RINGLET_HAS_x86_64_v3
    if (v3) tables.push_back(&x86_64_v3::kernel_table());
#endif
#ifdef RINGLET_HAS_x86_64_v2
    if (v2) tables.push_back(&x86_64_v2::kernel_table());
#endif
#ifdef RINGLET_HAS_generic
    tables.push_back(&generic::kernel_table());
#endif
    static_cast<void>(v2), static_cast<void>(v3), static_cast<void>(v4);
    return tables;
}

const KernelTable* current = nullptr;

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

void use_instruction_set(const std::string& name) {
    for (const KernelTable* table : supported_tables())
        if (name == table->instruction_set) {
            current = table;
            return;
        }
    throw nb::value_error(("this processor cannot run instruction set '" + name + "'").c_str());
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const KernelTable* table : supported_tables()) names.emplace_back(table->instruction_set);
    return names;
}

// How NumPy's arrays look here; bfloat16, which it does not know, comes as bits.
template <typename T>
bool has_dtype(nb::dlpack::dtype dtype) {
    if constexpr (std::is_same_v<T, bfloat16>)
        return dtype == nb::dtype<uint16_t>();
    else
        return dtype == nb::dtype<T>();
}

// Calls body(kernels, number) with the kernels of the dtype of an activation.
template <typename Array, typename Body>
auto by_activation(const Array& array, Body body) {
    if (has_dtype<bfloat16>(array.dtype())) return body(current->mixed, bfloat16{});
    if (array.dtype() == nb::dtype<float>()) return body(static_cast<const LayerKernels<float>&>(current->single), float{});
    if (array.dtype() == nb::dtype<double>()) return body(static_cast<const LayerKernels<double>&>(current->twice), double{});
    throw nb::value_error("expected a float32, float64 or bfloat16 array");
}

// The same for parameters.
template <typename Array, typename Body>
auto by_dtype(const Array& array, Body body) {
    if (array.dtype() == nb::dtype<float>()) return body(current->single, float{});
    if (array.dtype() == nb::dtype<double>()) return body(current->twice, double{});
    throw nb::value_error("expected a float32 or float64 array");
}

template <typename T>
const T* read(const In& array) {
    require(has_dtype<T>(array.dtype()), "all floating arrays of one call must have the same dtype");
    return static_cast<const T*>(array.data());
}

template <typename T>
const T* read_optional(const In& array) {
    return array.is_valid() ? read<T>(array) : nullptr;
}

template <typename T>
T* write(const Out& array) {
    require(has_dtype<T>(array.dtype()), "all floating arrays of one call must have the same dtype");
    return static_cast<T*>(array.data());
}

template <typename A>
long extent(const A& array, size_t axis) {
    return static_cast<long>(array.shape(axis));
}

template <typename A, typename B>
void require_same_shape(const A& a, const B& b) {
    require(a.ndim() == b.ndim(), "arrays must have the same shape");
    for (size_t i = 0; i < a.ndim(); ++i) require(a.shape(i) == b.shape(i), "arrays must have the same shape");
}

// (channels, pixels, lanes) of an activation of any rank.
template <typename A>
Extent extent_of(const A& x, long n) {
    require(x.ndim() >= 2, "an activation has at least two axes: (features, lanes)");
    const long lanes = extent(x, x.ndim() - 1), channels = extent(x, 0);
    require(lanes > 0, "an activation has at least one lane");
    long pixels = 1;
    for (size_t i = 1; i + 1 < x.ndim(); ++i) pixels *= extent(x, i);
    require(n >= 0 && n <= lanes, "n must be between 0 and the number of lanes");
    return Extent{channels, pixels, lanes, n};
}

template <typename A>
Extent extent_of(const A& x) {
    return extent_of(x, x.ndim() > 0 ? extent(x, x.ndim() - 1) : 0);
}

template <typename A>
long size_of(const A& array) {
    return static_cast<long>(array.size());
}

template <int Count>
int index_of(const char* name, const char* const (&names)[Count], const char* message) {
    for (int i = 0; i < Count; ++i)
        if (std::strcmp(name, names[i]) == 0) return i;
    throw nb::value_error(message);
}

ConvAlgorithm algorithm_of(const char* name) {
    static const char* const names[] = {"direct", "gemm", "winograd_rows", "winograd2", "winograd4"};
    return static_cast<ConvAlgorithm>(index_of(name, names, "unknown convolution algorithm"));
}

ActivationKind activation_of(const char* name) {
    return static_cast<ActivationKind>(index_of(name, kActivationNames, "unknown activation"));
}

LossKind loss_of(const char* name) {
    static const char* const names[] = {"softmax_cross_entropy", "categorical_cross_entropy", "sigmoid_binary_cross_entropy",
                                        "binary_cross_entropy", "dice", "bce_dice", "sigmoid_bce_dice", "mse", "mae"};
    return static_cast<LossKind>(index_of(name, names, "unknown loss"));
}

template <typename X, typename W, typename Y>
ConvShape conv_shape(const X& x, const W& weight, const Y& y, Pair stride, Pair padding, Pair dilation, long groups, ConvAlgorithm algorithm) {
    require(x.ndim() == 4 && weight.ndim() == 4 && y.ndim() == 4, "convolution arrays have four axes");
    const ConvShape s{extent(x, 0), extent(x, 1), extent(x, 2), extent(weight, 0), extent(weight, 2), extent(weight, 3), extent(y, 1),
                      extent(y, 2), extent(x, 3), stride.first, stride.second, padding.first, padding.second, dilation.first,
                      dilation.second, groups};
    require(s.lanes > 0 && extent(y, 3) == s.lanes, "lanes must agree");
    require(groups > 0 && s.channels % groups == 0 && s.filters % groups == 0, "groups must divide channels and filters");
    require(extent(weight, 1) == s.channels / groups, "weight's second axis must be channels / groups");
    require(extent(y, 0) == s.filters, "y's channels must be the number of filters");
    require(s.stride_h > 0 && s.stride_w > 0 && s.dilation_h > 0 && s.dilation_w > 0 && s.padding_h >= 0 && s.padding_w >= 0,
            "stride and dilation must be positive, padding not negative");
    const auto fits = [](long in, long out, long kernel, long step, long pad, long gap) {
        return (out - 1) * step + (kernel - 1) * gap + 1 <= in + 2 * pad;
    };
    require(fits(s.height, s.out_height, s.kernel_height, s.stride_h, s.padding_h, s.dilation_h) &&
                fits(s.width, s.out_width, s.kernel_width, s.stride_w, s.padding_w, s.dilation_w),
            "y is larger than the convolution's output");
    if (algorithm != kDirect && algorithm != kGemm)
        require(s.kernel_height == 3 && s.kernel_width == 3 && s.stride_h == 1 && s.stride_w == 1 && s.dilation_h == 1 &&
                    s.dilation_w == 1 && groups == 1,
                "Winograd needs 3x3 kernels, stride 1, dilation 1 and one group");
    return s;
}

template <typename X, typename Y>
PoolShape pool_shape(const X& x, const Y& y, Pair kernel, Pair stride, Pair padding) {
    require(x.ndim() == 4 && y.ndim() == 4, "pooling arrays have four axes");
    require(extent(x, 0) == extent(y, 0) && extent(x, 3) == extent(y, 3) && extent(x, 3) > 0, "channels and lanes must agree");
    const PoolShape s{extent(x, 0), extent(x, 1), extent(x, 2), extent(y, 1), extent(y, 2), extent(x, 3), kernel.first,
                      kernel.second, stride.first, stride.second, padding.first, padding.second};
    require(s.kernel_h > 0 && s.kernel_w > 0 && s.stride_h > 0 && s.stride_w > 0, "kernel and stride must be positive");
    require(s.padding_h < s.kernel_h && s.padding_w < s.kernel_w, "padding must be smaller than the window");
    require(s.kernel_h * s.kernel_w < 65536, "a window has at most 65535 elements");
    require((s.out_height - 1) * s.stride_h - s.padding_h < s.height && (s.out_width - 1) * s.stride_w - s.padding_w < s.width,
            "the last window lies outside the input");
    return s;
}

// -- data movement ----------------------------------------------------------------------------------------------------
void pack(In samples, Out out) {
    const long lanes = extent(out, out.ndim() - 1), n = extent(samples, 0);
    const long features = size_of(out) / (lanes > 0 ? lanes : 1);
    require(n <= lanes && size_of(samples) == n * features, "samples (n, *shape) do not fit out (*shape, lanes)");
    by_activation(out, [&](const auto& k, auto number) {
        using T = decltype(number);
        if (samples.dtype() == nb::dtype<uint8_t>())
            k.pack_bytes(static_cast<const uint8_t*>(samples.data()), n, features, lanes, write<T>(out));
        else
            k.pack(read<Number<T>>(samples), n, features, lanes, write<T>(out));
    });
}

void unpack(In activations, Out out) {
    const long lanes = extent(activations, activations.ndim() - 1), n = extent(out, 0);
    const long features = size_of(activations) / (lanes > 0 ? lanes : 1);
    require(n <= lanes && size_of(out) == n * features, "out (n, *shape) does not fit activations (*shape, lanes)");
    by_activation(activations, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.unpack(read<T>(activations), n, features, lanes, write<Number<T>>(out));
    });
}

void add(In a, In b, Out out) {
    require_same_shape(a, b);
    require_same_shape(a, out);
    by_activation(out, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.add(read<T>(a), read<T>(b), write<T>(out), size_of(out));
    });
}

// -- convolution ------------------------------------------------------------------------------------------------------
void conv2d_forward(In x, In weight, In bias, Out y, Pair stride, Pair padding, Pair dilation, long groups, bool relu, const char* algorithm) {
    const ConvAlgorithm by = algorithm_of(algorithm);
    const ConvShape s = conv_shape(x, weight, y, stride, padding, dilation, groups, by);
    require(!bias.is_valid() || size_of(bias) == s.filters, "bias must have one element per filter");
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.conv2d_forward(s, read<T>(x), read<Number<T>>(weight), read_optional<Number<T>>(bias), write<T>(y), relu, by);
    });
}

void conv2d_backward_data(In dy, In weight, Out dx, In mask, Pair stride, Pair padding, Pair dilation, long groups, const char* algorithm, bool accumulate) {
    const ConvAlgorithm by = algorithm_of(algorithm);
    const ConvShape s = conv_shape(dx, weight, dy, stride, padding, dilation, groups, by);
    if (mask.is_valid()) require_same_shape(dx, mask);
    by_activation(dx, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.conv2d_backward_data(s, read<T>(dy), read<Number<T>>(weight), write<T>(dx), read_optional<T>(mask), accumulate, by);
    });
}

void conv2d_backward_weight(In x, In dy, Out dweight, Pair stride, Pair padding, Pair dilation, long groups, const char* algorithm) {
    const ConvAlgorithm by = algorithm_of(algorithm);
    const ConvShape s = conv_shape(x, dweight, dy, stride, padding, dilation, groups, by);
    by_activation(x, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.conv2d_backward_weight(s, read<T>(x), read<T>(dy), write<Number<T>>(dweight), by);
    });
}

void bias_forward(Out y, In bias, bool relu) {
    const long channels = extent(y, 0);
    require(size_of(bias) == channels, "bias must have one element per channel");
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.bias_forward(write<T>(y), read<Number<T>>(bias), channels, size_of(y) / channels, relu);
    });
}

void bias_backward(In dy, Out dbias) {
    const long channels = extent(dy, 0);
    require(size_of(dbias) == channels, "dbias must have one element per channel");
    by_activation(dy, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.bias_backward(read<T>(dy), write<Number<T>>(dbias), channels, size_of(dy) / channels);
    });
}

// -- dense ------------------------------------------------------------------------------------------------------------
struct DenseShape {
    long outputs, inputs, lanes;
};

template <typename X, typename W, typename Y>
DenseShape dense_shape(const X& x, const W& weight, const Y& y) {
    require(x.ndim() == 2 && weight.ndim() == 2 && y.ndim() == 2, "dense arrays have two axes");
    const DenseShape s{extent(weight, 0), extent(weight, 1), extent(x, 1)};
    require(extent(x, 0) == s.inputs && extent(y, 0) == s.outputs && extent(y, 1) == s.lanes && s.lanes > 0,
            "x (inputs, lanes), weight (outputs, inputs) and y (outputs, lanes) do not fit");
    return s;
}

void dense_forward(In x, In weight, In bias, Out y, bool relu) {
    const DenseShape s = dense_shape(x, weight, y);
    require(!bias.is_valid() || size_of(bias) == s.outputs, "bias must have one element per output");
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.dense_forward(s.outputs, s.inputs, s.lanes, read<T>(x), read<Number<T>>(weight), read_optional<Number<T>>(bias), write<T>(y), relu);
    });
}

void dense_backward_data(In dy, In weight, Out dx, bool accumulate) {
    const DenseShape s = dense_shape(dx, weight, dy);
    by_activation(dx, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.dense_backward_data(s.outputs, s.inputs, s.lanes, read<T>(dy), read<Number<T>>(weight), write<T>(dx), accumulate);
    });
}

void dense_backward_weight(In x, In dy, Out dweight) {
    const DenseShape s = dense_shape(x, dweight, dy);
    by_activation(x, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.dense_backward_weight(s.outputs, s.inputs, s.lanes, read<T>(x), read<T>(dy), write<Number<T>>(dweight));
    });
}

// -- pooling ----------------------------------------------------------------------------------------------------------
void max_pool2d_forward(In x, Out y, Out argmax, Pair kernel, Pair stride, Pair padding, bool relu) {
    const PoolShape s = pool_shape(x, y, kernel, stride, padding);
    require_same_shape(y, argmax);
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.max_pool2d_forward(s, read<T>(x), write<T>(y), write<uint16_t>(argmax), relu);
    });
}

void max_pool2d_backward(In dy, In argmax, Out dx, Out sums, Pair kernel, Pair stride, Pair padding, bool accumulate) {
    const PoolShape s = pool_shape(dx, dy, kernel, stride, padding);
    require_same_shape(dy, argmax);
    require(!sums.is_valid() || size_of(sums) == s.channels, "sums must have one element per channel");
    by_activation(dx, [&](const auto& k, auto number) {
        using T = decltype(number);
        Number<T>* totals = sums.is_valid() ? write<Number<T>>(sums) : nullptr;
        k.max_pool2d_backward(s, read<T>(dy), read<uint16_t>(argmax), write<T>(dx), totals, accumulate);
    });
}

void avg_pool2d_forward(In x, Out y, Pair kernel, Pair stride, Pair padding) {
    const PoolShape s = pool_shape(x, y, kernel, stride, padding);
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.avg_pool2d_forward(s, read<T>(x), write<T>(y));
    });
}

void avg_pool2d_backward(In dy, Out dx, Pair kernel, Pair stride, Pair padding, bool accumulate) {
    const PoolShape s = pool_shape(dx, dy, kernel, stride, padding);
    by_activation(dx, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.avg_pool2d_backward(s, read<T>(dy), write<T>(dx), accumulate);
    });
}

// -- batch normalisation ----------------------------------------------------------------------------------------------
template <typename... Arrays>
void require_per_channel(const Extent& e, const Arrays&... arrays) {
    require(((size_of(arrays) == e.channels) && ...), "scale, shift and statistics must have one element per channel");
}

void batch_norm_forward_train(In x, In gamma, In beta, Out y, Out mean, Out inv_std, Out running_mean, Out running_var, long n,
                              double momentum, double epsilon, bool relu) {
    const Extent e = extent_of(x, n);
    require_same_shape(x, y);
    require_per_channel(e, gamma, beta, mean, inv_std, running_mean, running_var);
    require(n > 0, "n must be positive");
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.batch_norm_forward_train(e, read<T>(x), read<Number<T>>(gamma), read<Number<T>>(beta), write<T>(y), write<Number<T>>(mean), write<Number<T>>(inv_std),
                                   write<Number<T>>(running_mean), write<Number<T>>(running_var), momentum, epsilon, relu);
    });
}

void batch_norm_forward_infer(In x, In gamma, In beta, In running_mean, In running_var, Out y, double epsilon, bool relu) {
    const Extent e = extent_of(x);
    require_same_shape(x, y);
    require_per_channel(e, gamma, beta, running_mean, running_var);
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.batch_norm_forward_infer(e, read<T>(x), read<Number<T>>(gamma), read<Number<T>>(beta), read<Number<T>>(running_mean), read<Number<T>>(running_var),
                                   write<T>(y), epsilon, relu);
    });
}

void batch_norm_backward(In x, In y, In gamma, In dy, In mean, In inv_std, Out dx, Out dgamma, Out dbeta, long n, bool relu,
                         bool accumulate) {
    const Extent e = extent_of(x, n);
    require_same_shape(x, y);
    require_same_shape(x, dy);
    require_same_shape(x, dx);
    require_per_channel(e, gamma, mean, inv_std, dgamma, dbeta);
    require(n > 0, "n must be positive");
    by_activation(dx, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.batch_norm_backward(e, read<T>(x), read<T>(y), read<Number<T>>(gamma), read<T>(dy), read<Number<T>>(mean), read<Number<T>>(inv_std), write<T>(dx),
                              write<Number<T>>(dgamma), write<Number<T>>(dbeta), relu, accumulate);
    });
}

// -- element by element -----------------------------------------------------------------------------------------------
void activation_forward(const char* kind, In x, Out y, double slope) {
    require_same_shape(x, y);
    const ActivationKind which = activation_of(kind);
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.activation_forward(which, read<T>(x), write<T>(y), size_of(y), slope);
    });
}

void activation_backward(const char* kind, In y, In dy, Out dx, double slope, bool accumulate) {
    require_same_shape(y, dy);
    require_same_shape(y, dx);
    const ActivationKind which = activation_of(kind);
    by_activation(dx, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.activation_backward(which, read<T>(y), read<T>(dy), write<T>(dx), size_of(dx), slope, accumulate);
    });
}

void dropout(In x, Out y, double rate, uint64_t key, bool accumulate) {
    require_same_shape(x, y);
    require(rate >= 0 && rate < 1, "rate must be in [0, 1)");
    const Extent e = extent_of(x);
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.dropout(read<T>(x), write<T>(y), e.channels * e.pixels, e.lanes, rate, key, accumulate);
    });
}

void softmax_forward(In x, Out y) {
    require_same_shape(x, y);
    by_activation(y, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.softmax_forward(extent_of(x), read<T>(x), write<T>(y));
    });
}

void softmax_backward(In y, In dy, Out dx, bool accumulate) {
    require_same_shape(y, dy);
    require_same_shape(y, dx);
    by_activation(dx, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.softmax_backward(extent_of(y), read<T>(y), read<T>(dy), write<T>(dx), accumulate);
    });
}

void require_labels(const Extent& e, const int32_t* labels) {
    const bool full = e.n == e.lanes;
    const long rows = full ? 1 : e.pixels, row = full ? e.pixels * e.lanes : e.lanes, count = full ? row : e.n;
    bool fit = true;
    for (long i = 0; i < rows; ++i)
        for (long j = 0; j < count; ++j) fit &= labels[i * row + j] >= 0 && labels[i * row + j] < e.channels;
    require(fit, "a label is outside the classes of the prediction");
}

double loss(const char* kind, In prediction, In target, Out dprediction, long n, double scale) {
    const LossKind which = loss_of(kind);
    const Extent e = extent_of(prediction, n);
    const bool categorical = which == kSoftmaxCrossEntropy || which == kCategoricalCrossEntropy;
    const int32_t* labels = categorical ? read<int32_t>(target) : nullptr;
    if (categorical) {
        require(size_of(target) == e.pixels * e.lanes, "target must hold one class per pixel and lane");
        require_labels(e, labels);
    } else {
        require_same_shape(prediction, target);
    }
    if (dprediction.is_valid()) require_same_shape(prediction, dprediction);
    return by_activation(prediction, [&](const auto& k, auto number) {
        using T = decltype(number);
        return k.loss(which, e, read<T>(prediction), categorical ? nullptr : read<Number<T>>(target), labels,
                      dprediction.is_valid() ? write<T>(dprediction) : nullptr, scale);
    });
}

// -- optimizers -------------------------------------------------------------------------------------------------------
template <typename... Arrays>
long require_same_size(const Arrays&... arrays) {
    long size = -1;
    ((size = size < 0 ? size_of(arrays) : size, require(size_of(arrays) == size, "flat arrays must have the same size")), ...);
    return size;
}

void sgd_update(Out parameters, In gradients, Out velocity, double learning_rate, double momentum, bool nesterov, double weight_decay,
                bool decoupled) {
    const long count = require_same_size(parameters, gradients);
    require(!velocity.is_valid() || size_of(velocity) == count, "flat arrays must have the same size");
    by_dtype(parameters, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.sgd_update(write<T>(parameters), read<T>(gradients), velocity.is_valid() ? write<T>(velocity) : nullptr, count,
                     learning_rate, momentum, nesterov, weight_decay, decoupled);
    });
}

void rmsprop_update(Out parameters, In gradients, Out square, double learning_rate, double rho, double epsilon, double weight_decay,
                    bool decoupled) {
    const long count = require_same_size(parameters, gradients, square);
    by_dtype(parameters, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.rmsprop_update(write<T>(parameters), read<T>(gradients), write<T>(square), count, learning_rate, rho, epsilon, weight_decay,
                         decoupled);
    });
}

void adam_update(Out parameters, In gradients, Out first, Out second, double learning_rate, double beta1, double beta2, double epsilon,
                 long step, double weight_decay, bool decoupled, bool nesterov) {
    const long count = require_same_size(parameters, gradients, first, second);
    require(step >= 1, "step counts from 1");
    by_dtype(parameters, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.adam_update(write<T>(parameters), read<T>(gradients), write<T>(first), write<T>(second), count,
                      AdamSettings{learning_rate, beta1, beta2, epsilon, weight_decay, step, decoupled, nesterov});
    });
}

void adadelta_update(Out parameters, In gradients, Out square, Out delta, double learning_rate, double rho, double epsilon,
                     double weight_decay, bool decoupled) {
    const long count = require_same_size(parameters, gradients, square, delta);
    by_dtype(parameters, [&](const auto& k, auto number) {
        using T = decltype(number);
        k.adadelta_update(write<T>(parameters), read<T>(gradients), write<T>(square), write<T>(delta), count, learning_rate, rho,
                          epsilon, weight_decay, decoupled);
    });
}

double sum_squares(In values) {
    return by_dtype(values, [&](const auto& k, auto number) { return k.sum_squares(read<decltype(number)>(values), size_of(values)); });
}

// A tree in postfix: every -1 finds two operands, one result is left, inputs exist.
void require_tree(const std::vector<int>& tree, size_t num_inputs) {
    long depth = 0;
    for (const int item : tree) {
        require(item >= -1 && item < static_cast<long>(num_inputs), "a tree holds numbers of inputs and -1");
        depth += item >= 0 ? 1 : -1;
        require(depth >= 1, "a tree adds two operands that come before its -1");
    }
    require(depth == 1, "a tree leaves exactly one sum");
}

void add_tree(const std::vector<In>& inputs, const std::vector<int>& tree, Out out) {
    require_tree(tree, inputs.size());
    for (const In& input : inputs) require(size_of(input) == size_of(out), "flat arrays must have the same size");
    by_dtype(out, [&](const auto& k, auto number) {
        using T = decltype(number);
        std::vector<const T*> sources;
        for (const In& input : inputs) sources.push_back(read<T>(input));
        k.add_tree(sources.data(), tree.data(), static_cast<int>(tree.size()), write<T>(out), size_of(out));
    });
}

void scale(Out values, double factor) {
    by_dtype(values, [&](const auto& k, auto number) { k.scale(write<decltype(number)>(values), size_of(values), factor); });
}

// -- calls that are made again and again --------------------------------------------------------------------------------
// A kernel with its arguments, converted from Python once; or several of them in turn.
struct PreparedCall {
    std::function<void()> run;
};

// How an argument is kept: text as a copy, because Python's may go.
template <typename T>
struct Kept {
    T value;
    const T& get() const { return value; }
};
template <>
struct Kept<const char*> {
    std::string value;
    const char* get() const { return value.c_str(); }
};

template <typename... Arguments>
auto preparer(void (*kernel)(Arguments...)) {
    return [kernel](Arguments... arguments) {
        return PreparedCall{[kernel, kept = std::tuple(Kept<Arguments>{arguments}...)] {
            std::apply([&](const auto&... values) { kernel(values.get()...); }, kept);
        }};
    };
}

PreparedCall in_turn(std::vector<PreparedCall> calls) {
    return PreparedCall{[calls = std::move(calls)] {
        for (const PreparedCall& call : calls) call.run();
    }};
}

using Unlocked = nb::call_guard<nb::gil_scoped_release>;

// Defines a kernel whose arguments are the same in every step twice: to be called, and in `prepare` to be called later.
template <typename Kernel, typename... Extra>
void define(nb::module_& m, nb::module_& prepare, const char* name, Kernel kernel, const Extra&... extra) {
    m.def(name, kernel, extra..., Unlocked());
    prepare.def(name, preparer(kernel), extra...);
}

}  // namespace

const KernelTable& current_table() { return *current; }

}  // namespace ringlet

NB_MODULE(_native, m) {
    using namespace ringlet;
    nb::set_leak_warnings(false);  // a channel that is open at the end of the program is no leak
    m.doc() = "Compiled kernels of the native engine; the contract is ringlet.kernels.contract.";
    const std::vector<const KernelTable*> tables = supported_tables();
    if (tables.empty()) throw nb::import_error("this processor lacks the x86-64-v2 instructions that the compiled kernels need");
    current = tables.front();

    m.def("instruction_set", [] { return std::string(current->instruction_set); }, "The instruction set in use.");
    m.def("instruction_sets", &instruction_sets, "All that this processor can run, best first.");
    m.def("use_instruction_set", &use_instruction_set, "name"_a, "Use another instruction set that this processor can run.");
    m.def("num_threads", &num_threads);
    m.def("set_num_threads", [](int count) { require(count >= 1, "the number of threads must be positive"); set_num_threads(count); }, "count"_a);
    m.def("scratch_bytes", &scratch_bytes, "Memory that kernels hold for use inside calls.");

    nb::list activations;
    for (const char* name : kActivationNames) activations.append(name);
    m.attr("activations") = nb::tuple(activations);

    nb::class_<PreparedCall>(m, "PreparedCall", "A kernel with its arguments.")
        .def("__call__", [](const PreparedCall& call) { call.run(); }, Unlocked());
    m.def("in_turn", &in_turn, "calls"_a, "Prepared calls as one.");
    nb::module_ prepare = m.def_submodule("prepare", "Kernels that give a PreparedCall instead of computing.");

    m.def("pack", &pack, "samples"_a, "out"_a, Unlocked());
    m.def("unpack", &unpack, "activations"_a, "out"_a, Unlocked());
    define(m, prepare, "add", &add, "a"_a, "b"_a, "out"_a);
    define(m, prepare, "conv2d_forward", &conv2d_forward, "x"_a, "weight"_a, "bias"_a.none(), "y"_a, nb::kw_only(), "stride"_a, "padding"_a,
           "dilation"_a, "groups"_a, "relu"_a, "algorithm"_a);
    define(m, prepare, "conv2d_backward_data", &conv2d_backward_data, "dy"_a, "weight"_a, "dx"_a, "mask"_a.none() = nb::none(),
           nb::kw_only(), "stride"_a, "padding"_a, "dilation"_a, "groups"_a, "algorithm"_a, "accumulate"_a);
    define(m, prepare, "conv2d_backward_weight", &conv2d_backward_weight, "x"_a, "dy"_a, "dweight"_a, nb::kw_only(), "stride"_a,
           "padding"_a, "dilation"_a, "groups"_a, "algorithm"_a);
    define(m, prepare, "bias_forward", &bias_forward, "y"_a, "bias"_a, nb::kw_only(), "relu"_a);
    define(m, prepare, "bias_backward", &bias_backward, "dy"_a, "dbias"_a);
    define(m, prepare, "dense_forward", &dense_forward, "x"_a, "weight"_a, "bias"_a.none(), "y"_a, nb::kw_only(), "relu"_a);
    define(m, prepare, "dense_backward_data", &dense_backward_data, "dy"_a, "weight"_a, "dx"_a, nb::kw_only(), "accumulate"_a);
    define(m, prepare, "dense_backward_weight", &dense_backward_weight, "x"_a, "dy"_a, "dweight"_a);
    define(m, prepare, "max_pool2d_forward", &max_pool2d_forward, "x"_a, "y"_a, "argmax"_a, nb::kw_only(), "kernel"_a, "stride"_a,
           "padding"_a, "relu"_a = false);
    define(m, prepare, "max_pool2d_backward", &max_pool2d_backward, "dy"_a, "argmax"_a, "dx"_a, "sums"_a.none() = nb::none(), nb::kw_only(),
           "kernel"_a, "stride"_a, "padding"_a, "accumulate"_a);
    define(m, prepare, "avg_pool2d_forward", &avg_pool2d_forward, "x"_a, "y"_a, nb::kw_only(), "kernel"_a, "stride"_a, "padding"_a);
    define(m, prepare, "avg_pool2d_backward", &avg_pool2d_backward, "dy"_a, "dx"_a, nb::kw_only(), "kernel"_a, "stride"_a, "padding"_a,
           "accumulate"_a);
    m.def("batch_norm_forward_train", &batch_norm_forward_train, "x"_a, "gamma"_a, "beta"_a, "y"_a, "mean"_a, "inv_std"_a, "running_mean"_a,
          "running_var"_a, nb::kw_only(), "n"_a, "momentum"_a, "epsilon"_a, "relu"_a, Unlocked());
    define(m, prepare, "batch_norm_forward_infer", &batch_norm_forward_infer, "x"_a, "gamma"_a, "beta"_a, "running_mean"_a, "running_var"_a,
           "y"_a, nb::kw_only(), "epsilon"_a, "relu"_a);
    m.def("batch_norm_backward", &batch_norm_backward, "x"_a, "y"_a, "gamma"_a, "dy"_a, "mean"_a, "inv_std"_a, "dx"_a, "dgamma"_a,
          "dbeta"_a, nb::kw_only(), "n"_a, "relu"_a, "accumulate"_a, Unlocked());
    define(m, prepare, "activation_forward", &activation_forward, "kind"_a, "x"_a, "y"_a, nb::kw_only(), "slope"_a);
    define(m, prepare, "activation_backward", &activation_backward, "kind"_a, "y"_a, "dy"_a, "dx"_a, nb::kw_only(), "slope"_a,
           "accumulate"_a);
    m.def("dropout", &dropout, "x"_a, "y"_a, nb::kw_only(), "rate"_a, "key"_a, "accumulate"_a, Unlocked());
    define(m, prepare, "softmax_forward", &softmax_forward, "x"_a, "y"_a);
    define(m, prepare, "softmax_backward", &softmax_backward, "y"_a, "dy"_a, "dx"_a, nb::kw_only(), "accumulate"_a);
    m.def("loss", &loss, "kind"_a, "prediction"_a, "target"_a, "dprediction"_a.none(), nb::kw_only(), "n"_a, "scale"_a, Unlocked());
    m.def("sgd_update", &sgd_update, "parameters"_a, "gradients"_a, "velocity"_a.none(), nb::kw_only(), "learning_rate"_a, "momentum"_a,
          "nesterov"_a, "weight_decay"_a, "decoupled"_a, Unlocked());
    m.def("rmsprop_update", &rmsprop_update, "parameters"_a, "gradients"_a, "square"_a, nb::kw_only(), "learning_rate"_a, "rho"_a,
          "epsilon"_a, "weight_decay"_a, "decoupled"_a, Unlocked());
    m.def("adam_update", &adam_update, "parameters"_a, "gradients"_a, "first"_a, "second"_a, nb::kw_only(), "learning_rate"_a, "beta1"_a,
          "beta2"_a, "epsilon"_a, "step"_a, "weight_decay"_a, "decoupled"_a, "nesterov"_a, Unlocked());
    m.def("adadelta_update", &adadelta_update, "parameters"_a, "gradients"_a, "square"_a, "delta"_a, nb::kw_only(), "learning_rate"_a,
          "rho"_a, "epsilon"_a, "weight_decay"_a, "decoupled"_a, Unlocked());
    m.def("sum_squares", &sum_squares, "values"_a, Unlocked());
    m.def("scale", &scale, "values"_a, "factor"_a, Unlocked());
    m.def("add_tree", &add_tree, "inputs"_a, "tree"_a, "out"_a, Unlocked());

    bind_channel(m);
}
