// The weight gradient of a convolution by any algorithm.
#include "conv_depthwise.hpp"
#include "conv_weight.hpp"
#include "conv_weight_gemm.hpp"
#include "convolution.hpp"
#include "winograd.hpp"
#include "winograd_rows_weight.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T, int M>
void winograd_backward_weight(const ConvShape& s, const T* x, const T* dy, T* dweight) {
    const long tiles_h = tiles_along(s.out_height, M), tiles_w = tiles_along(s.out_width, M);
    WinogradWeightGradient<T, M> gradient(s.channels, s.filters, TileGrid{s.height, s.width, -s.padding_h, -s.padding_w, tiles_w, s.lanes},
                                          TileGrid{s.out_height, s.out_width, 0, 0, tiles_w, s.lanes}, x, dy, dweight);
    gradient.run(tiles_h * tiles_w);
}

template <typename T>
void winograd_rows_backward_weight(const ConvShape& s, const T* x, const T* dy, T* dweight) {
    const long tiles = tiles_along(s.out_width, 4);
    RowWinogradWeightGradient<T>(s.channels, s.filters, TileGrid{s.height, s.width, -s.padding_h, -s.padding_w, tiles, s.lanes},
                                 TileGrid{s.out_height, s.out_width, 0, 0, tiles, s.lanes}, x, dy, dweight)
        .run();
}

template <typename T>
void conv2d_backward_weight(const ConvShape& s, const T* x, const T* dy, T* dweight, ConvAlgorithm algorithm) {
    if (algorithm == kWinograd2) return winograd_backward_weight<T, 2>(s, x, dy, dweight);
    if (algorithm == kWinograd4) return winograd_backward_weight<T, 4>(s, x, dy, dweight);
    if (algorithm == kWinogradRows) return winograd_rows_backward_weight<T>(s, x, dy, dweight);
    if (const ConvProblem p = forward_problem(s); suits_depthwise(p)) return depthwise_weight_gradient(p, s.groups, x, dy, dweight);
    if (algorithm == kGemm && s.groups == 1) return GemmWeightGradient<T>(joined_rows(s), x, dy, dweight).run();
    weight_gradient_direct(s, x, dy, dweight);
}

template void conv2d_backward_weight<float>(const ConvShape&, const float*, const float*, float*, ConvAlgorithm);
template void conv2d_backward_weight<double>(const ConvShape&, const double*, const double*, double*, ConvAlgorithm);

}  // namespace ringlet::RINGLET_ISA
