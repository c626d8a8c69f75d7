// Direct convolution: a register tile of output channels x vectors of samples walks the taps; nothing is copied or packed.
//
// One input vector serves all output channels of the tile; weights are broadcast from where they lie. Pixels near the
// border run the same tile with fewer taps.
#pragma once

#include "gemm.hpp"
#include "geometry.hpp"

namespace ringlet::RINGLET_ISA {

// The taps of one tile: rows [r0, r1) x columns [s0, s1), all input channels.
struct TapRange {
    long r0, r1, s0, s1;
};

template <typename T, int Width, int Rows, int Vectors, bool Contiguous>
__attribute__((noinline)) void direct_tile(
    const ConvProblem& p, const TapRange& taps, const T* x, const long (&in_offset)[Vectors], const T* weight, T* y,
    const long (&out_offset)[Vectors], const Epilogue<T>& epilogue, long first_channel) {
    using V = Vec<T, Width>;
    V acc[Rows][Vectors] = {};
    const long x_row = p.rows.tap_step * p.in_row, x_column = p.columns.tap_step * p.lanes;
    const long w_row = p.rows.weight_step * p.weight_row, w_column = p.columns.weight_step;
    const long w_out = p.weight_out;
    const long num_columns = taps.s1 - taps.s0;
    const T* x_first = x + taps.r0 * x_row + taps.s0 * x_column;
    const T* w_first = weight + taps.r0 * w_row + taps.s0 * w_column;
    for (long c = 0; c < p.in_channels; ++c) {
        for (long r = 0; r < taps.r1 - taps.r0; ++r) {
            const T* source = x_first + c * p.in_plane + r * x_row;
            const T* w = w_first + c * p.weight_in + r * w_row;
            for (long s = 0; s < num_columns; ++s) {
                V right[Vectors];
                for (int j = 0; j < Vectors; ++j) right[j] = load<V>(source + (Contiguous ? j * Width : in_offset[j]));
                for (int i = 0; i < Rows; ++i) {
                    const V left = splat<V>(w[i * w_out]);
                    for (int j = 0; j < Vectors; ++j) acc[i][j] += left * right[j];
                }
                source += x_column;
                w += w_column;
            }
        }
    }
    for (int i = 0; i < Rows; ++i) {
        const V bias = epilogue.bias ? splat<V>(epilogue.bias[first_channel + i]) : V{};
        for (int j = 0; j < Vectors; ++j) {
            T* target = y + i * p.out_plane + (Contiguous ? j * Width : out_offset[j]);
            V value = acc[i][j] + bias;
            if (epilogue.accumulate) value += load<V>(target);
            if (epilogue.relu) value = maximum(value, V{});
            store(target, value);
        }
    }
}

// All output channels for one tile of vectors. Input stays in the first-level cache while the channels pass.
template <typename T, int Width, int Vectors, bool Contiguous>
inline void direct_channels(const ConvProblem& p, const TapRange& taps, const T* x, const long (&in_offset)[Vectors],
                            const T* weight, T* y, const long (&out_offset)[Vectors], const Epilogue<T>& epilogue) {
    in_halving_tiles<kTileRows>(p.out_channels, [&](auto rows, long channel) {
        direct_tile<T, Width, decltype(rows)::value, Vectors, Contiguous>(
            p, taps, x, in_offset, weight + channel * p.weight_out, y + channel * p.out_plane, out_offset, epilogue, channel);
    });
}

// Outputs [first, last) of one row, all with the same taps.
template <typename T, int Width>
inline void direct_segment(const ConvProblem& p, const TapRange& taps, long row_input, long first, long last, const T* x,
                           const T* weight, T* y, const Epilogue<T>& epilogue) {
    const Axis& columns = p.columns;
    const long per_pixel = p.lanes / Width;
    const bool contiguous = columns.in_step == 1 && columns.out_step == 1;
    const T* x_row = x + row_input * p.in_row;
    in_vector_tiles((last - first) * per_pixel, [&](auto tile, long start) {
        constexpr int Vectors = decltype(tile)::value;
        long in_offset[Vectors], out_offset[Vectors];
        for (int j = 0; j < Vectors; ++j) {
            const long pixel = first + (start + j) / per_pixel, lane = (start + j) % per_pixel * Width;
            in_offset[j] = (columns.in_base + pixel * columns.in_step) * p.lanes + lane;
            out_offset[j] = (columns.out_base + pixel * columns.out_step) * p.lanes + lane;
        }
        const T* source = x_row + in_offset[0];
        T* target = y + out_offset[0];
        const long in_first = in_offset[0], out_first = out_offset[0];
        for (int j = 0; j < Vectors; ++j) in_offset[j] -= in_first, out_offset[j] -= out_first;
        if (contiguous)
            direct_channels<T, Width, Vectors, true>(p, taps, source, in_offset, weight, target, out_offset, epilogue);
        else
            direct_channels<T, Width, Vectors, false>(p, taps, source, in_offset, weight, target, out_offset, epilogue);
    });
}

template <typename T, int Width>
void direct_row(const ConvProblem& p, long row, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    TapRange taps;
    p.rows.valid_taps(row, taps.r0, taps.r1);
    const long row_input = p.rows.in_base + row * p.rows.in_step;
    T* y_row = y + (p.rows.out_base + row * p.rows.out_step) * p.out_row;
    const T* w = weight + p.rows.weight_base * p.weight_row + p.columns.weight_base;
    long first = 0;
    while (first < p.columns.outputs) {
        p.columns.valid_taps(first, taps.s0, taps.s1);
        long last = first + 1;
        for (; last < p.columns.outputs; ++last) {
            long s0, s1;
            p.columns.valid_taps(last, s0, s1);
            if (s0 != taps.s0 || s1 != taps.s1) break;
        }
        direct_segment<T, Width>(p, taps, row_input, first, last, x, w, y_row, epilogue);
        first = last;
    }
}

// One convolution problem for all groups; x, weight and y advance by these strides from group to group.
struct GroupStrides {
    long groups, x, weight, y, bias;
};

template <typename T>
void convolve_direct(const ConvProblem& p, const GroupStrides& g, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    with_width<T>(p.lanes, [&](auto width) {
#pragma omp parallel for schedule(dynamic) collapse(2) num_threads(num_threads())
        for (long group = 0; group < g.groups; ++group)
            for (long row = 0; row < p.rows.outputs; ++row) {
                Epilogue<T> own = epilogue;
                if (own.bias) own.bias += group * g.bias;
                direct_row<T, decltype(width)::value>(p, row, x + group * g.x, weight + group * g.weight, y + group * g.y, own);
            }
    });
}

}  // namespace ringlet::RINGLET_ISA
