// The activations with a compiled kernel, a line each: name, f(x), and f'(x) computed from y = f(x).
// The expressions see x or y, slope, zero and one, V (a vector of T). The functions are those of mathematics.hpp. Where the
// Python side says `reads_input`, what the derivative sees as y is x.
#pragma once

#define RINGLET_ACTIVATIONS(ACTIVATION)                                                                           \
    ACTIVATION(relu, maximum(x, zero), y > zero ? one : zero)                                                     \
    ACTIVATION(leaky_relu, x > zero ? x : x * slope, y > zero ? one : splat<V>(slope))                            \
    ACTIVATION(relu6, minimum(maximum(x, zero), splat<V>(T(6))), (y > zero) & (y < splat<V>(T(6))) ? one : zero)  \
    ACTIVATION(sigmoid, sigmoid<T>(x), y * (one - y))                                                             \
    ACTIVATION(tanh, hyperbolic_tangent<T>(x), one - y * y)                                                       \
    ACTIVATION(arctanh, limited_arctanh<T>(x), limited_arctanh_derivative<T>(y))                                  \
    ACTIVATION(log_sigmoid, log_sigmoid<T>(x), log_sigmoid_derivative<T>(y))

namespace ringlet {

enum class ActivationKind {
#define ACTIVATION(name, value, derivative) name,
    RINGLET_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION
};

constexpr const char* kActivationNames[] = {
#define ACTIVATION(name, value, derivative) #name,
    RINGLET_ACTIVATIONS(ACTIVATION)
#undef ACTIVATION
};

}  // namespace ringlet
