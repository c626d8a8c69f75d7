// Convolution by any algorithm: forward and data gradient.
#include "convolution.hpp"

#include "conv_direct.hpp"
#include "conv_gemm.hpp"
#include "elementwise.hpp"
#include "winograd.hpp"
#include "winograd_rows.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T, int M>
void winograd_forward(const ConvShape& s, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    const long tiles_h = tiles_along(s.out_height, M), tiles_w = tiles_along(s.out_width, M);
    with_width<T>(s.lanes, [&](auto width) {
        WinogradConvolution<T, decltype(width)::value, M> convolution{
            s.channels, s.filters, TileGrid{s.height, s.width, -s.padding_h, -s.padding_w, tiles_w, s.lanes},
            TileGrid{s.out_height, s.out_width, 0, 0, tiles_w, s.lanes}, x, weight, false, y, epilogue};
        convolution.run(tiles_h * tiles_w);
    });
}

template <typename T, int M>
void winograd_backward_data(const ConvShape& s, const T* dy, const T* weight, T* dx, const Epilogue<T>& epilogue) {
    const long tiles_h = tiles_along(s.height, M), tiles_w = tiles_along(s.width, M);
    with_width<T>(s.lanes, [&](auto width) {
        WinogradConvolution<T, decltype(width)::value, M> convolution{
            s.filters, s.channels, TileGrid{s.out_height, s.out_width, s.padding_h - 2, s.padding_w - 2, tiles_w, s.lanes},
            TileGrid{s.height, s.width, 0, 0, tiles_w, s.lanes}, dy, weight, true, dx, epilogue};
        convolution.run(tiles_h * tiles_w);
    });
}

// Forward, or with turned weights the data gradient, along rows.
template <typename T>
void winograd_rows(const ConvShape& s, const T* x, const T* weight, T* y, bool turned, const Epilogue<T>& epilogue) {
    const long in_height = turned ? s.out_height : s.height, in_width = turned ? s.out_width : s.width;
    const long out_height = turned ? s.height : s.out_height, out_width = turned ? s.width : s.out_width;
    const long top = turned ? s.padding_h - 2 : -s.padding_h, left = turned ? s.padding_w - 2 : -s.padding_w;
    const long tiles = tiles_along(out_width, 4);
    with_width<T>(s.lanes, [&](auto width) {
        RowWinograd<T, decltype(width)::value>{turned ? s.filters : s.channels, turned ? s.channels : s.filters,
                                               TileGrid{in_height, in_width, top, left, tiles, s.lanes},
                                               TileGrid{out_height, out_width, 0, 0, tiles, s.lanes}, x, weight, turned, y, epilogue}
            .run();
    });
}

template <typename T>
void conv2d_forward(const ConvShape& s, const T* x, const T* weight, const T* bias, T* y, bool relu, ConvAlgorithm algorithm) {
    const Epilogue<T> epilogue{bias, false, relu};
    if (algorithm == kWinograd2) return winograd_forward<T, 2>(s, x, weight, y, epilogue);
    if (algorithm == kWinograd4) return winograd_forward<T, 4>(s, x, weight, y, epilogue);
    if (algorithm == kWinogradRows) return winograd_rows<T>(s, x, weight, y, false, epilogue);
    const ConvProblem problem = forward_problem(s);
    const GroupStrides groups{s.groups, problem.in_channels * problem.in_plane, problem.out_channels * problem.weight_out,
                              problem.out_channels * problem.out_plane, problem.out_channels};
    if (algorithm == kGemm)
        convolve_gemm(problem, groups, x, weight, problem.weight_out, 1, y, epilogue);
    else
        convolve_direct(problem, groups, x, weight, y, epilogue);
}

// Weights of one phase with output channels innermost: target[(filter, row tap, column tap)][channel].
template <typename T>
void gather_phase_weights(const ConvShape& s, const ConvProblem& p, const T* weight, T* target) {
    const long taps = p.rows.taps * p.columns.taps;
#pragma omp parallel for schedule(static) num_threads(num_threads()) if (p.in_channels * p.out_channels > 1024)
    for (long filter = 0; filter < s.filters; ++filter)
        for (long tap = 0; tap < taps; ++tap) {
            const long row = p.rows.weight_base + tap / p.columns.taps * p.rows.weight_step;
            const long column = p.columns.weight_base + tap % p.columns.taps * p.columns.weight_step;
            const T* source = weight + filter * p.weight_in + row * p.weight_row + column;
            T* line = target + (filter * taps + tap) * p.out_channels;
            for (long channel = 0; channel < p.out_channels; ++channel) line[channel] = source[channel * p.weight_out];
        }
}

// Without taps nothing reaches these positions.
template <typename T>
void clear_phase(const ConvShape& s, const ConvProblem& p, T* dx) {
    for (long channel = 0; channel < s.channels; ++channel)
        for (long row = 0; row < p.rows.outputs; ++row)
            for (long column = 0; column < p.columns.outputs; ++column)
                memset(dx + channel * p.out_plane + (p.rows.out_base + row * p.rows.out_step) * p.out_row +
                           (p.columns.out_base + column * p.columns.out_step) * p.lanes,
                       0, sizeof(T) * p.lanes);
}

template <typename T>
void backward_data_phase(const ConvShape& s, const ConvProblem& p, const T* dy, const T* weight, T* dx, const Epilogue<T>& epilogue,
                         ConvAlgorithm algorithm) {
    const long taps = p.rows.taps * p.columns.taps;
    if (taps == 0) {
        if (!epilogue.accumulate) clear_phase(s, p, dx);
        return;
    }
    GroupStrides groups{s.groups, p.in_channels * p.in_plane, p.in_channels * p.weight_in, p.out_channels * p.out_plane, 0};
    if (algorithm != kGemm) return convolve_direct(p, groups, dy, weight, dx, epilogue);
    T* gathered = scratch_array<T>(kScratchShared0, s.filters * taps * p.out_channels);
    gather_phase_weights(s, p, weight, gathered);
    groups.weight = p.in_channels * taps * p.out_channels;
    convolve_gemm(p, groups, dy, gathered, 1, p.out_channels, dx, epilogue);
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
    if (algorithm == kWinograd2) return winograd_backward_data<T, 2>(s, dy, weight, dx, epilogue);
    if (algorithm == kWinograd4) return winograd_backward_data<T, 4>(s, dy, weight, dx, epilogue);
    if (algorithm == kWinogradRows) return winograd_rows<T>(s, dy, weight, dx, true, epilogue);
    for (long row_phase = 0; row_phase < s.stride_h; ++row_phase)
        for (long column_phase = 0; column_phase < s.stride_w; ++column_phase)
            backward_data_phase(s, backward_problem(s, row_phase, column_phase), dy, weight, dx, epilogue, algorithm);
}

template void conv2d_forward<float>(const ConvShape&, const float*, const float*, const float*, float*, bool, ConvAlgorithm);
template void conv2d_forward<double>(const ConvShape&, const double*, const double*, const double*, double*, bool, ConvAlgorithm);
template void conv2d_backward_data<float>(const ConvShape&, const float*, const float*, float*, const float*, bool, ConvAlgorithm);
template void conv2d_backward_data<double>(const ConvShape&, const double*, const double*, double*, const double*, bool, ConvAlgorithm);

}  // namespace ringlet::RINGLET_ISA
