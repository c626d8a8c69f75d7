// The weight gradient that belongs to Winograd along rows; see winograd_rows.hpp.
#pragma once

#include "conv_weight.hpp"
#include "winograd_rows.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T>
__attribute__((noinline)) void transform_gradient_row(const TileRows<T, RowTransform::M>& rows, long filters, const T* dy, const Strip& strip,
                                                      long row, T* m, const PointLayout& layout, T* memory) {
    rows.transform(filters, dy, strip, row, m, layout, memory,
                   [](const auto* d, auto* points) { Transform<4>::output_adjoint(d, 1, points, 1); });
}

// dg = G^T [ sum over rows, tiles and samples of (A dy) * (B^T d) ] for every row of every kernel.
template <typename T>
class RowWinogradWeightGradient {
    static constexpr int Width = kNativeWidth<T>;
    static constexpr int M = RowTransform::M, Points = RowTransform::kPoints, kTaps = RowTransform::kTaps;
    static constexpr long kStripVectors = 1536 / (Width * sizeof(T)), kStripRows = 8;  // a tile's part of dy stays in cache while channels pass
    using V = Vec<T, Width>;

  public:
    RowWinogradWeightGradient(long channels, long filters, const TileGrid& in, const TileGrid& out, const T* x, const T* dy, T* dweight)
        : channels(channels), filters(filters), in(in), out(out), x(x), dy(dy), dweight(dweight), inputs(this->in), gradients(this->out) {}

    void run() const {
        const Strips strips(out, kStripVectors, Width, kStripRows);
        const long room = rounded_up(strips.columns * in.lanes, Width);
        T* v = scratch_array<T>(kScratchShared0, Points * (strips.rows + kTaps - 1) * channels * room);
        T* m = scratch_array<T>(kScratchShared1, Points * strips.rows * filters * room);
        T* sums = scratch_array<T>(kScratchShared2, Points * filters * channels * kTaps);
        memset(sums, 0, sizeof(T) * Points * filters * channels * kTaps);
#pragma omp parallel num_threads(num_threads())
        {
            const long in_size = inputs.memory_size(), out_size = gradients.memory_size();
            T* memory = scratch_array<T>(kScratchOwn2, in_size > out_size ? in_size : out_size);
            for (long i = 0; i < strips.across * strips.down; ++i) {
                const Strip strip = strips.at(out, i);
#pragma omp for schedule(static) nowait
                for (long row = 0; row < strip.rows() + kTaps - 1; ++row) make_input(strip, row, v, memory);
#pragma omp for schedule(static)
                for (long row = 0; row < strip.rows(); ++row) {
                    const long elements = strip.room(in.lanes, Width), m_row = filters * elements;
                    transform_gradient_row<T>(gradients, filters, dy, strip, strip.row_first + row, m + row * m_row,
                                              PointLayout{elements, Width, strip.rows() * m_row}, memory);
                }
#pragma omp for schedule(static) collapse(2)
                for (int point = 0; point < Points; ++point)
                    for (long k = 0; k < filters; k += kFilters) add_products(strip, point, k, v, m, sums);
            }
        }
        transform_sums(sums);
    }

  private:
    // v[point][row][channel][tile column, lane], zeros for rows outside the plane
    void make_input(const Strip& strip, long row, T* v, T* memory) const {
        const long elements = strip.room(in.lanes, Width), v_row = channels * elements, point_stride = (strip.rows() + kTaps - 1) * v_row;
        const long in_row = strip.row_first + row + in.offset_h;
        if (in_row >= 0 && in_row < in.height)
            return transform_input_row<T>(inputs, channels, x, strip, in_row, v + row * v_row, PointLayout{elements, Width, point_stride}, memory);
        for (int point = 0; point < Points; ++point) memset(v + point * point_stride + row * v_row, 0, sizeof(T) * v_row);
    }

    // sums[point][kernel row][channel][filter] grow by this strip's part, for the filters of one tile.
    void add_products(const Strip& strip, int point, long k, const T* v, const T* m, T* sums) const {
        const long elements = strip.room(in.lanes, Width), rows = strip.rows(), v_row = channels * elements;
        const Walk walk{rows, filters * elements, v_row, 1, 0, 0, elements};
        const T* left = m + (point * rows * filters + k) * elements;
        for (long c = 0; c < channels; ++c) {
            const T* right = v + point * (rows + kTaps - 1) * v_row + c * elements;
            const T* const streams[kStreams] = {right, right + v_row, right + 2 * v_row};
            V tile[kFilters * kStreams] = {};
            const long count = filters - k < kFilters ? filters - k : kFilters;
            in_halving_tiles<kFilters>(count, [&](auto tile_filters, long i) {
                weight_tile<T, Width, decltype(tile_filters)::value, kStreams>(walk, left + i * elements, elements, streams, tile + i * kStreams);
            });
            for (int r = 0; r < kTaps; ++r) {
                T* target = sums + ((point * kTaps + r) * channels + c) * filters + k;
                write_sums<T, Width>(count, tile + r, [&](long i, T sum) { target[i] += sum; });
            }
        }
    }

    void transform_sums(const T* sums) const {
        using One = Vec<T, 1>;
        for (long k = 0; k < filters; ++k)
            for (long c = 0; c < channels; ++c)
                for (int r = 0; r < kTaps; ++r) {
                    One points[Points], taps[kTaps];
                    for (int point = 0; point < Points; ++point) points[point] = One{sums[((point * kTaps + r) * channels + c) * filters + k]};
                    Transform<M>::filter_adjoint(points, 1, taps, 1);
                    for (int s = 0; s < kTaps; ++s) dweight[((k * channels + c) * kTaps + r) * kTaps + s] = taps[s][0];
                }
    }

    const long channels, filters;
    const TileGrid in, out;
    const T *x, *dy;
    T* dweight;
    const TileRows<T, Points> inputs;
    const TileRows<T, M> gradients;
};

}  // namespace ringlet::RINGLET_ISA
