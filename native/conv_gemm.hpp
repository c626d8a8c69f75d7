// Convolution as matrix product: the taps of a few columns are packed into a panel that stays in the first-level cache,
// then all output channels pass over it. For many channels, where packing is cheap beside the arithmetic.
#pragma once

#include "conv_direct.hpp"

namespace ringlet::RINGLET_ISA {

constexpr long kPanelDepth = 256;

// Where each vector of a panel reads its input and writes its output.
template <int Vectors>
struct PanelColumns {
    long pixel[Vectors], lane[Vectors], out_offset[Vectors];
};

// panel[d - first][j] = x at tap d of column j, taps numbered (channel, row, column).
template <typename T, int Width, int Vectors>
inline void pack_panel(const ConvProblem& p, long row, const PanelColumns<Vectors>& at, long first, long last, const T* x, T* panel) {
    using V = Vec<T, Width>;
    const long taps = p.rows.taps * p.columns.taps;
    long channel = first / taps, tap = first % taps;
    for (long d = first; d < last; ++d) {
        const long in_row = p.rows.in_base + row * p.rows.in_step + tap / p.columns.taps * p.rows.tap_step;
        const bool row_inside = in_row >= 0 && in_row < p.rows.in_size;
        const T* source = x + channel * p.in_plane + in_row * p.in_row;
        const long shift = p.columns.in_base + tap % p.columns.taps * p.columns.tap_step;
        for (int j = 0; j < Vectors; ++j) {
            const long column = shift + at.pixel[j] * p.columns.in_step;
            const bool inside = row_inside && column >= 0 && column < p.columns.in_size;
            store(panel + j * Width, inside ? load<V>(source + column * p.lanes + at.lane[j]) : V{});
        }
        panel += Vectors * Width;
        if (++tap == taps) tap = 0, ++channel;
    }
}

template <typename T, int Width, int Vectors>
inline void gemm_columns(const ConvProblem& p, long row, long start, const T* x, const T* a, long row_stride, long depth_stride,
                         T* y, const Epilogue<T>& epilogue, T* panel) {
    const long per_pixel = p.lanes / Width;
    PanelColumns<Vectors> at;
    for (int j = 0; j < Vectors; ++j) {
        at.pixel[j] = (start + j) / per_pixel;
        at.lane[j] = (start + j) % per_pixel * Width;
        at.out_offset[j] = (p.columns.out_base + at.pixel[j] * p.columns.out_step) * p.lanes + at.lane[j];
    }
    const long depth = p.in_channels * p.rows.taps * p.columns.taps;
    long first = 0;
    do {
        const long last = first + kPanelDepth < depth ? first + kPanelDepth : depth;
        pack_panel<T, Width, Vectors>(p, row, at, first, last, x, panel);
        in_halving_tiles<kTileRows>(p.out_channels, [&](auto rows, long channel) {
            constexpr int Rows = decltype(rows)::value;
            T tile[Rows * Vectors * Width];
            multiply_tile<T, Width, Rows, Vectors>(last - first, a + channel * row_stride + first * depth_stride, row_stride,
                                                   depth_stride, panel, Vectors * Width, tile);
            const Epilogue<T> part{first == 0 ? epilogue.bias : nullptr, epilogue.accumulate || first > 0,
                                   epilogue.relu && last == depth, last == depth ? epilogue.mask_shift : 0};
            finish_tile<T, Width, Rows, Vectors>(tile, y + channel * p.out_plane, p.out_plane, at.out_offset, part, channel);
        });
        first = last;
    } while (first < depth);
}

// a(channel, d) = a[channel * row_stride + d * depth_stride] with taps d numbered (input channel, row, column).
template <typename T>
void convolve_gemm(const ConvProblem& p, const GroupStrides& g, const T* x, const T* a, long row_stride, long depth_stride, T* y,
                   const Epilogue<T>& epilogue) {
    with_width<T>(p.lanes, [&](auto width) {
        constexpr int Width = decltype(width)::value;
        const long vectors = p.columns.outputs * (p.lanes / Width);
        const long tiles = (vectors + kTileVectors - 1) / kTileVectors;
#pragma omp parallel num_threads(num_threads())
        {
            T* panel = scratch_array<T>(kScratchOwn0, kPanelDepth * kTileVectors * Width);
#pragma omp for schedule(dynamic) collapse(3)
            for (long group = 0; group < g.groups; ++group)
                for (long row = 0; row < p.rows.outputs; ++row)
                    for (long tile = 0; tile < tiles; ++tile) {
                        Epilogue<T> own = epilogue;
                        if (own.bias) own.bias += group * g.bias;
                        const long start = tile * kTileVectors;
                        const long count = vectors - start < kTileVectors ? vectors - start : kTileVectors;
                        T* y_row = y + group * g.y + (p.rows.out_base + row * p.rows.out_step) * p.out_row;
                        in_vector_tiles(count, [&](auto pieces, long offset) {
                            gemm_columns<T, Width, decltype(pieces)::value>(p, row, start + offset, x + group * g.x,
                                                                            a + group * g.weight, row_stride, depth_stride, y_row,
                                                                            own, panel);
                        });
                    }
        }
    });
}

}  // namespace ringlet::RINGLET_ISA
