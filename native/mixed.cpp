// Mixed precision: the table of layer kernels with activations in bfloat16. Compiled once per instruction set.
//
// Products of many channels are products of pairs (mixed_products.hpp, mixed_winograd.cpp); what memory bounds reads and writes
// bfloat16 (mixed_elements.hpp). Everything else widens what it reads, channel by channel, runs the kernel for floats and rounds
// what that wrote (wide.hpp).
#include "mixed.hpp"

#include "mixed_elements.hpp"
#include "mixed_products.hpp"

namespace ringlet::RINGLET_ISA {

bool fills_vectors(long lanes) { return lanes % kWide == 0; }

namespace {

// -- convolution ----------------------------------------------------------------------------------------------------------
// A convolution of single pixels sees the whole image as samples: that fills vectors, whatever the batch.
ConvShape flattened(const ConvShape& s) {
    if (s.taps() != 1 || s.stride_h != 1 || s.stride_w != 1 || s.padding_h != 0 || s.padding_w != 0 || s.groups != 1 ||
        s.out_height != s.height || s.out_width != s.width)
        return s;
    ConvShape flat = s;
    flat.lanes = s.height * s.width * s.lanes;
    flat.height = flat.width = flat.out_height = flat.out_width = 1;
    return flat;
}

void conv2d_forward(const ConvShape& shape, const bfloat16* x, const float* weight, const float* bias, bfloat16* y, bool relu,
                    ConvAlgorithm algorithm) {
    const ConvShape s = flattened(shape);
    if (!fills_vectors(s.lanes) || algorithm == kDirect || algorithm == kWinogradRows || s.groups > 1)
        return wide_forward(s, x, weight, bias, y, relu, algorithm);
    if (algorithm != kGemm) return mixed_winograd_forward(s, x, weight, bias, y, relu, algorithm == kWinograd2 ? 2 : 4);
    PairConvolution(forward_problem(s), x, weight, y, MixedEpilogue{bias, false, relu, nullptr, y}).run();
}

void conv2d_backward_data(const ConvShape& shape, const bfloat16* dy, const float* weight, bfloat16* dx, const bfloat16* mask, bool accumulate,
                          ConvAlgorithm algorithm) {
    const ConvShape s = flattened(shape);
    if (!fills_vectors(s.lanes) || algorithm == kDirect || algorithm == kWinogradRows || s.groups > 1)
        return wide_backward_data(s, dy, weight, dx, mask, accumulate, algorithm);
    if (algorithm != kGemm) return mixed_winograd_backward_data(s, dy, weight, dx, mask, accumulate, algorithm == kWinograd2 ? 2 : 4);
    const MixedEpilogue epilogue{nullptr, accumulate, false, mask, dx};
    for (long row_phase = 0; row_phase < s.stride_h; ++row_phase)
        for (long column_phase = 0; column_phase < s.stride_w; ++column_phase) {
            const ConvProblem problem = backward_problem(s, row_phase, column_phase);
            if (problem.rows.outputs > 0 && problem.columns.outputs > 0) PairConvolution(problem, dy, weight, dx, epilogue).run();
        }
}

// Products are pairs of samples: two of them are enough.
void conv2d_backward_weight(const ConvShape& s, const bfloat16* x, const bfloat16* dy, float* dweight, ConvAlgorithm algorithm) {
    if (algorithm == kGemm && s.groups == 1 && s.lanes % 2 == 0) return PairWeightGradient(s, x, dy, dweight).run();
    if (fills_vectors(s.lanes) && (algorithm == kWinograd2 || algorithm == kWinograd4))
        return mixed_winograd_backward_weight(s, x, dy, dweight, algorithm == kWinograd2 ? 2 : 4);
    wide_backward_weight(s, x, dy, dweight, algorithm);
}

// -- dense ------------------------------------------------------------------------------------------------------------------
void dense_forward(long outputs, long inputs, long lanes, const bfloat16* x, const float* weight, const float* bias, bfloat16* y, bool relu) {
    if (!fills_vectors(lanes)) return wide_dense_forward(outputs, inputs, lanes, x, weight, bias, y, relu);
    pair_dense(outputs, inputs, lanes, weight, inputs, 1, x, y, MixedEpilogue{bias, false, relu, nullptr, y});
}

void dense_backward_data(long outputs, long inputs, long lanes, const bfloat16* dy, const float* weight, bfloat16* dx, bool accumulate) {
    if (!fills_vectors(lanes)) return wide_dense_backward_data(outputs, inputs, lanes, dy, weight, dx, accumulate);
    pair_dense(inputs, outputs, lanes, weight, 1, inputs, dy, dx, MixedEpilogue{nullptr, accumulate, false, nullptr, dx});
}

void dense_backward_weight(long outputs, long inputs, long lanes, const bfloat16* x, const bfloat16* dy, float* dweight) {
    if (!fills_vectors(lanes)) return wide_dense_backward_weight(outputs, inputs, lanes, x, dy, dweight);
    pair_dense_weight(outputs, inputs, lanes, x, dy, dweight);
}

}  // namespace

LayerKernels<bfloat16> mixed_kernels() {
    LayerKernels<bfloat16> k;
    k.pack = wide_pack;
    k.pack_bytes = wide_pack_bytes;
    k.unpack = wide_unpack;
    k.add = wide_add;
    k.conv2d_forward = conv2d_forward;
    k.conv2d_backward_data = conv2d_backward_data;
    k.conv2d_backward_weight = conv2d_backward_weight;
    k.bias_forward = mixed_bias_forward;
    k.bias_backward = mixed_bias_backward;
    k.dense_forward = dense_forward;
    k.dense_backward_data = dense_backward_data;
    k.dense_backward_weight = dense_backward_weight;
    k.max_pool2d_forward = mixed_max_pool2d_forward;
    k.max_pool2d_backward = mixed_max_pool2d_backward;
    k.avg_pool2d_forward = wide_avg_pool2d_forward;
    k.avg_pool2d_backward = wide_avg_pool2d_backward;
    k.batch_norm_forward_train = mixed_batch_norm_forward_train;
    k.batch_norm_forward_infer = mixed_batch_norm_forward_infer;
    k.batch_norm_backward = mixed_batch_norm_backward;
    k.activation_forward = mixed_activation_forward;
    k.activation_backward = mixed_activation_backward;
    k.dropout = wide_dropout;
    k.softmax_forward = wide_softmax_forward;
    k.softmax_backward = wide_softmax_backward;
    k.loss = wide_loss;
    return k;
}

}  // namespace ringlet::RINGLET_ISA
