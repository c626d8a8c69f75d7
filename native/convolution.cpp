// Convolution by any algorithm: forward and data gradient.
#include "convolution.hpp"

#include "conv_depthwise.hpp"
#include "conv_direct.hpp"
#include "elementwise.hpp"
#include "winograd.hpp"
#include "winograd_rows.hpp"

namespace ringlet::RINGLET_ISA {

// Convolutions of single pixels take rows together until they have about as many elements.
constexpr long kJoinedElements = 1024;

// Forward, or with turned weights the data gradient: what an image and its tiles are to Winograd's algorithms.
struct WinogradGrids {
    long in_channels, out_channels, tiles_h;
    TileGrid in, out;

    WinogradGrids(const ConvShape& s, bool turned, long tile_h, long tile_w) {
        const long tiles_w = tiles_along(turned ? s.width : s.out_width, tile_w);
        const TileGrid image{s.height, s.width, turned ? 0 : -s.padding_h, turned ? 0 : -s.padding_w, tiles_w, s.lanes};
        const TileGrid result{s.out_height, s.out_width, turned ? s.padding_h - 2 : 0, turned ? s.padding_w - 2 : 0, tiles_w, s.lanes};
        in = turned ? result : image, out = turned ? image : result;
        in_channels = turned ? s.filters : s.channels, out_channels = turned ? s.channels : s.filters;
        tiles_h = tiles_along(out.height, tile_h);
    }
};

template <typename T, int M>
void winograd(const ConvShape& s, const T* x, const T* weight, T* y, bool turned, const Epilogue<T>& epilogue) {
    const WinogradGrids g(s, turned, M, M);
    WinogradConvolution<T, M>(g.in_channels, g.out_channels, g.in, g.out, x, weight, turned, y, epilogue).run(g.tiles_h * g.out.tiles_w);
}

template <typename T>
void winograd_rows(const ConvShape& s, const T* x, const T* weight, T* y, bool turned, const Epilogue<T>& epilogue) {
    const WinogradGrids g(s, turned, 1, 4);
    RowWinograd<T>(g.in_channels, g.out_channels, g.in, g.out, x, weight, turned, y, epilogue).run();
}

template <typename T>
void conv2d_forward(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y, bool relu, ConvAlgorithm algorithm) {
    const Epilogue<T> epilogue{bias, false, relu};
    if (algorithm == kWinograd2) return winograd<T, 2>(s, x, weight, y, false, epilogue);
    if (algorithm == kWinograd4) return winograd<T, 4>(s, x, weight, y, false, epilogue);
    if (algorithm == kWinogradRows) return winograd_rows<T>(s, x, weight, y, false, epilogue);
    ConvProblem problem = forward_problem(s);
    join_rows(problem, kJoinedElements);
    const GroupStrides groups{s.groups, problem.in_channels * problem.in_plane, problem.out_channels * problem.weight_out,
                              problem.out_channels * problem.out_plane, problem.out_channels};
    if (suits_depthwise(problem)) return convolve_depthwise(problem, groups, x, weight, y, epilogue);
    convolve_direct(problem, groups, x, weight, y, epilogue);
}

// Without taps nothing reaches these rows.
template <typename T>
void clear_rows(const ConvShape& s, const ConvProblem& p, T* dx, const Epilogue<T>& epilogue) {
    if (epilogue.accumulate) return;
    for (long channel = 0; channel < s.channels; ++channel)
        for (long row = 0; row < p.rows.outputs; ++row)
            clear_elements(dx + channel * p.out_plane + (p.rows.out_base + row * p.rows.out_step) * p.out_row, p.out_row);
}

// The data gradient of every stride_h-th row of the image.
template <typename T>
void backward_data_rows(const ConvShape& s, long row_phase, const T* dy, const T* weight, T* dx, const Epilogue<T>& epilogue) {
    ConvProblem* problems = scratch_array<ConvProblem>(kScratchShared1, s.stride_w);
    for (long phase = 0; phase < s.stride_w; ++phase) problems[phase] = backward_problem(s, row_phase, phase);
    ConvProblem& p = problems[0];
    if (p.rows.outputs == 0) return;
    if (p.rows.taps == 0) return clear_rows(s, p, dx, epilogue);
    const GroupStrides groups{s.groups, p.in_channels * p.in_plane, p.in_channels * p.weight_in, p.out_channels * p.out_plane, 0};
    if (s.stride_w > 1) return convolve_direct_phases(problems, s.stride_w, s.width, groups, dy, weight, dx, epilogue);
    if (suits_depthwise(p)) return convolve_depthwise(p, groups, dy, weight, dx, epilogue);
    join_rows(p, kJoinedElements);
    convolve_direct(p, groups, dy, weight, dx, epilogue);
}

template <typename T>
void conv2d_backward_data(const ConvShape& s, const T* dy, const T* weight, T* dx, const T* mask, bool accumulate,
                          ConvAlgorithm algorithm) {
    const long size = s.channels * s.height * s.width * s.lanes;
    if (mask && accumulate) {
        conv2d_backward_data<T>(s, dy, weight, dx, nullptr, true, algorithm);
        return activation_backward<T>(ActivationKind::relu, mask, dx, dx, size, 0, false);
    }
    const Epilogue<T> epilogue{nullptr, accumulate, false, mask ? mask - dx : 0};
    if (algorithm == kWinograd2) return winograd<T, 2>(s, dy, weight, dx, true, epilogue);
    if (algorithm == kWinograd4) return winograd<T, 4>(s, dy, weight, dx, true, epilogue);
    if (algorithm == kWinogradRows) return winograd_rows<T>(s, dy, weight, dx, true, epilogue);
    for (long row_phase = 0; row_phase < s.stride_h; ++row_phase)
        backward_data_rows(s, row_phase, dy, weight, dx, epilogue);
}

template void conv2d_forward<float>(const ConvShape&, const float*, const float*, const float*, float*, bool, ConvAlgorithm);
template void conv2d_forward<double>(const ConvShape&, const double*, const double*, const double*, double*, bool, ConvAlgorithm);
template void conv2d_backward_data<float>(const ConvShape&, const float*, const float*, float*, const float*, bool, ConvAlgorithm);
template void conv2d_backward_data<double>(const ConvShape&, const double*, const double*, double*, const double*, bool, ConvAlgorithm);

}  // namespace ringlet::RINGLET_ISA
