// One instruction set's table of kernels. Compiled once per instruction set with RINGLET_ISA and the matching -march.
#include "combine.hpp"
#include "convolution.hpp"
#include "dense.hpp"
#include "elementwise.hpp"
#include "kernels.hpp"
#include "losses.hpp"
#include "mixed.hpp"
#include "normalization.hpp"
#include "pooling.hpp"
#include "tree.hpp"
#include "updates.hpp"

#define RINGLET_TEXT_OF(name) #name
#define RINGLET_TEXT(name) RINGLET_TEXT_OF(name)

namespace ringlet::RINGLET_ISA {

template <typename T>
Kernels<T> table_of() {
    Kernels<T> k;
    k.pack = pack<T>;
    k.pack_bytes = pack_bytes<T>;
    k.unpack = unpack<T>;
    k.add = add<T>;
    k.conv2d_forward = conv2d_forward<T>;
    k.conv2d_backward_data = conv2d_backward_data<T>;
    k.conv2d_backward_weight = conv2d_backward_weight<T>;
    k.bias_forward = bias_forward<T>;
    k.bias_backward = bias_backward<T>;
    k.dense_forward = dense_forward<T>;
    k.dense_backward_data = dense_backward_data<T>;
    k.dense_backward_weight = dense_backward_weight<T>;
    k.max_pool2d_forward = max_pool2d_forward<T>;
    k.max_pool2d_backward = max_pool2d_backward<T>;
    k.avg_pool2d_forward = avg_pool2d_forward<T>;
    k.avg_pool2d_backward = avg_pool2d_backward<T>;
    k.batch_norm_forward_train = batch_norm_forward_train<T>;
    k.batch_norm_forward_infer = batch_norm_forward_infer<T>;
    k.batch_norm_backward = batch_norm_backward<T>;
    k.activation_forward = activation_forward<T>;
    k.activation_backward = activation_backward<T>;
    k.dropout = dropout<T>;
    k.softmax_forward = softmax_forward<T>;
    k.softmax_backward = softmax_backward<T>;
    k.loss = loss<T>;
    k.sgd_update = sgd_update<T>;
    k.rmsprop_update = rmsprop_update<T>;
    k.adam_update = adam_update<T>;
    k.adadelta_update = adadelta_update<T>;
    k.sum_squares = sum_squares<T>;
    k.scale = scale<T>;
    k.add_tree = add_tree<T>;
    return k;
}

const KernelTable& kernel_table() {
    static const KernelTable table{RINGLET_TEXT(RINGLET_ISA), table_of<float>(), table_of<double>(), mixed_kernels(), combine, copy_bytes};
    return table;
}

}  // namespace ringlet::RINGLET_ISA
