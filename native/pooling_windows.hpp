// What the forms of pooling share: how maxima and the places that they came from are kept.
#pragma once

#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T>
struct IndexOf;
template <>
struct IndexOf<float> {
    using type = int32_t;
};
template <>
struct IndexOf<double> {
    using type = int64_t;
};

template <typename I>
inline I splat_index(long value) {
    return I{} + static_cast<__typeof__(I{}[0] + 0)>(value);
}

// With a ReLU on top, a maximum that is not positive gives zero and names no element: nothing flows back.
constexpr long kNoElement = 65535;

template <typename T, int Width, typename I>
inline void store_maximum(Vec<T, Width> value, I index, T* y, uint16_t* argmax, bool relu) {
    using V = Vec<T, Width>;
    if (relu) {
        const auto rest = value <= V{};
        value = rest ? V{} : value;
        index = rest ? splat_index<I>(kNoElement) : index;
    }
    store(y, value);
    store(argmax, __builtin_convertvector(index, Vec<uint16_t, Width>));
}

}  // namespace ringlet::RINGLET_ISA
