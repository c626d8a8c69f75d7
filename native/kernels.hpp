// The table of kernels that each instruction set fills in; the module picks one table when it is loaded.
#pragma once

#include <cstdint>

#include "activations.hpp"
#include "geometry.hpp"

namespace ringlet {

enum ConvAlgorithm { kDirect, kGemm, kWinogradRows, kWinograd2, kWinograd4 };
enum LossKind { kSoftmaxCrossEntropy, kCategoricalCrossEntropy, kSigmoidBinaryCrossEntropy, kBinaryCrossEntropy, kDice, kBceDice,
                kSigmoidBceDice, kMse, kMae };

// What the reductions of ringlet.comm know; the numbers are those of ringlet/comm/channel/elements.py.
enum Element {
    kFloat32, kFloat64, kFloat16, kBfloat16, kInt8, kInt16, kInt32, kInt64, kUint8, kUint16, kUint32, kUint64
};
constexpr long kElementBytes[] = {4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8};
enum Combination { kSum, kAverage, kMinimum, kMaximum, kProduct };

// The upper half of a float: how activations are stored in mixed precision.
struct bfloat16 {
    uint16_t bits;
};

// Parameters, statistics and sums where activations are of type T.
template <typename T>
struct NumberOf {
    using type = T;
};
template <>
struct NumberOf<bfloat16> {
    using type = float;
};
template <typename T>
using Number = typename NumberOf<T>::type;

// (channels, pixels, lanes), n lanes of which hold samples.
struct Extent {
    long channels, pixels, lanes, n;
};

struct PoolShape {
    long channels, height, width, out_height, out_width, lanes;
    long kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
};

struct AdamSettings {
    double learning_rate, beta1, beta2, epsilon, weight_decay;
    long step;
    bool decoupled, nesterov;
};

// Passes through layers.
template <typename T>
struct LayerKernels {
    void (*pack)(const Number<T>* samples, long n, long features, long lanes, T* out);
    void (*pack_bytes)(const uint8_t* samples, long n, long features, long lanes, T* out);
    void (*unpack)(const T* activations, long n, long features, long lanes, Number<T>* out);
    void (*add)(const T* a, const T* b, T* out, long count);

    void (*conv2d_forward)(const ConvShape&, const T* x, const Number<T>* weight, const Number<T>* bias, T* y, bool relu, ConvAlgorithm);
    void (*conv2d_backward_data)(const ConvShape&, const T* dy, const Number<T>* weight, T* dx, const T* mask, bool accumulate, ConvAlgorithm);
    void (*conv2d_backward_weight)(const ConvShape&, const T* x, const T* dy, Number<T>* dweight, ConvAlgorithm);
    void (*bias_forward)(T* y, const Number<T>* bias, long channels, long count, bool relu);
    void (*bias_backward)(const T* dy, Number<T>* dbias, long channels, long count);

    void (*dense_forward)(long outputs, long inputs, long lanes, const T* x, const Number<T>* weight, const Number<T>* bias, T* y, bool relu);
    void (*dense_backward_data)(long outputs, long inputs, long lanes, const T* dy, const Number<T>* weight, T* dx, bool accumulate);
    void (*dense_backward_weight)(long outputs, long inputs, long lanes, const T* x, const T* dy, Number<T>* dweight);

    void (*max_pool2d_forward)(const PoolShape&, const T* x, T* y, uint16_t* argmax, bool relu);
    void (*max_pool2d_backward)(const PoolShape&, const T* dy, const uint16_t* argmax, T* dx, Number<T>* sums, bool accumulate);
    void (*avg_pool2d_forward)(const PoolShape&, const T* x, T* y);
    void (*avg_pool2d_backward)(const PoolShape&, const T* dy, T* dx, bool accumulate);

    void (*batch_norm_forward_train)(const Extent&, const T* x, const Number<T>* gamma, const Number<T>* beta, T* y, Number<T>* mean, Number<T>* inv_std,
                                     Number<T>* running_mean, Number<T>* running_var, double momentum, double epsilon, bool relu);
    void (*batch_norm_forward_infer)(const Extent&, const T* x, const Number<T>* gamma, const Number<T>* beta, const Number<T>* running_mean,
                                     const Number<T>* running_var, T* y, double epsilon, bool relu);
    void (*batch_norm_backward)(const Extent&, const T* x, const T* y, const Number<T>* gamma, const T* dy, const Number<T>* mean,
                                const Number<T>* inv_std, T* dx, Number<T>* dgamma, Number<T>* dbeta, bool relu, bool accumulate);

    void (*activation_forward)(ActivationKind, const T* x, T* y, long count, double slope);
    void (*activation_backward)(ActivationKind, const T* y, const T* dy, T* dx, long count, double slope, bool accumulate);
    void (*dropout)(const T* x, T* y, long features, long lanes, double rate, uint64_t key, bool accumulate);
    void (*softmax_forward)(const Extent&, const T* x, T* y);
    void (*softmax_backward)(const Extent&, const T* y, const T* dy, T* dx, bool accumulate);
    double (*loss)(LossKind, const Extent&, const T* prediction, const Number<T>* target, const int32_t* labels, T* dprediction, double scale);
};

template <typename T>
struct Kernels : LayerKernels<T> {
    void (*sgd_update)(T* w, const T* g, T* velocity, long count, double learning_rate, double momentum, bool nesterov,
                       double weight_decay, bool decoupled);
    void (*rmsprop_update)(T* w, const T* g, T* square, long count, double learning_rate, double rho, double epsilon,
                           double weight_decay, bool decoupled);
    void (*adam_update)(T* w, const T* g, T* first, T* second, long count, const AdamSettings&);
    void (*adadelta_update)(T* w, const T* g, T* square, T* delta, long count, double learning_rate, double rho, double epsilon,
                            double weight_decay, bool decoupled);
    double (*sum_squares)(const T* values, long count);
    void (*scale)(T* values, long count, double factor);
    void (*add_tree)(const T* const* inputs, const int* tree, int length, T* out, long count);
};

// Where combined values go: out, which may be one of the sources, past the caches if stream; and a copy, if there is one.
struct CombineTargets {
    void *out, *copy;
    bool stream;
};

struct KernelTable {
    const char* instruction_set;
    Kernels<float> single;
    Kernels<double> twice;
    LayerKernels<bfloat16> mixed;
    void (*combine)(Element, Combination, const void* const* sources, int num, long count, const CombineTargets&);
    void (*copy)(void* target, const void* source, long bytes, bool stream);  // stream: past the caches
};

// The table in use.
const KernelTable& current_table();

}  // namespace ringlet
