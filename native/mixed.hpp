// Mixed precision: activations in bfloat16, everything else in float. mixed.cpp fills in the table.
#pragma once

#include "kernels.hpp"
#include "platform.hpp"

namespace ringlet::RINGLET_ISA {

LayerKernels<bfloat16> mixed_kernels();

// Whether vectors fill the samples of a pixel; products of pairs are for these, other batches are computed as floats.
bool fills_vectors(long lanes);

// Winograd with tiles of m x m outputs, m = 2 or 4, for samples that fill vectors: see mixed_winograd.cpp.
void mixed_winograd_forward(const ConvShape& s, const bfloat16* x, const float* weight, const float* bias, bfloat16* y, bool relu, int m);
void mixed_winograd_backward_data(const ConvShape& s, const bfloat16* dy, const float* weight, bfloat16* dx, const bfloat16* mask,
                                  bool accumulate, int m);
void mixed_winograd_backward_weight(const ConvShape& s, const bfloat16* x, const bfloat16* dy, float* dweight, int m);

}  // namespace ringlet::RINGLET_ISA
