// Convolution by any algorithm. Its templates are most of the kernels' code, so they are compiled in files of their own, side by
// side: convolution.cpp has the forward pass and the data gradient, convolution_weight.cpp the weight gradient.
#pragma once

#include "kernels.hpp"
#include "platform.hpp"

namespace ringlet::RINGLET_ISA {

inline long tiles_along(long outputs, long tile) { return (outputs + tile - 1) / tile; }

template <typename T>
void conv2d_forward(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y, bool relu, ConvAlgorithm algorithm);

template <typename T>
void conv2d_backward_data(const ConvShape& s, const T* dy, const T* weight, T* dx, const T* mask, bool accumulate,
                          ConvAlgorithm algorithm);

template <typename T>
void conv2d_backward_weight(const ConvShape& s, const T* x, const T* dy, T* dweight, ConvAlgorithm algorithm);

}  // namespace ringlet::RINGLET_ISA
