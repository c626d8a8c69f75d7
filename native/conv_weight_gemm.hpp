// Weight gradient as matrix products: for each tap, filters x channels, summed over pixels and samples.
//
// A block of the input, a few channels wide, is transposed into a panel, [row][column][lane][channel]. A tap is a shift of that
// panel, so one transposition serves all taps and filters; taps that read padding are left out.
#pragma once

#include "geometry.hpp"
#include "panels.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T>
class GemmWeightGradient {
    static constexpr int Width = kNativeWidth<T>;
    static constexpr long kPanelBytes = 256l << 10;

  public:
    GemmWeightGradient(const ConvShape& shape, const T* x, const T* dy, T* dweight) : s_(shape), x_(x), dy_(dy), dweight_(dweight) {}

    void run() const {
        in_panels<T>(s_.channels, [&](auto vectors, long first, long count) { run_panel<decltype(vectors)::value>(first, count); });
    }

  private:
    // What a panel holds: input rows [in_first, in_last) for the outputs of some rows, and some lanes.
    struct Block {
        Range rows;
        long in_first, in_last, lane, lanes;
    };

    template <int Vectors>
    void run_panel(long channel, long count) const {
        constexpr long Line = Vectors * Width;
        const long lanes = lanes_per_block(Line), rows = rows_per_block(Line, lanes);
        T* panel = scratch_array<T>(kScratchShared0, input_rows(rows) * s_.width * lanes * Line);
        T* sums = scratch_array<T>(kScratchShared1, s_.taps() * s_.filters * Line);
#pragma omp parallel num_threads(num_threads())
        {
#pragma omp for schedule(static)
            for (long tap = 0; tap < s_.taps(); ++tap) memset(sums + tap * s_.filters * Line, 0, sizeof(T) * s_.filters * Line);
            for (long row = 0; row < s_.out_height; row += rows)
                for (long lane = 0; lane < s_.lanes; lane += lanes) {
                    const Block block = block_at(row, rows, lane, lanes);
#pragma omp for schedule(static)
                    for (long in_row = block.in_first; in_row < block.in_last; ++in_row) fill<Line>(block, in_row, channel, count, panel);
#pragma omp for schedule(static)
                    for (long filter = 0; filter < s_.filters; filter += kTileRows)
                        add_products<Vectors>(block, filter, panel, sums + filter * Line);
                }
#pragma omp for schedule(static)
            for (long filter = 0; filter < s_.filters; ++filter) write<Line>(filter, channel, count, sums + filter * Line);
        }
    }

    long input_rows(long rows) const { return (rows - 1) * s_.stride_h + (s_.kernel_height - 1) * s_.dilation_h + 1; }

    // All lanes, or half as many as long as one row of outputs does not fit.
    long lanes_per_block(long line) const {
        long lanes = s_.lanes;
        while (lanes % 16 == 0 && lanes > 16 && bytes(1, line, lanes) > kPanelBytes) lanes /= 2;
        return lanes;
    }
    long rows_per_block(long line, long lanes) const {
        long rows = 1;
        while (rows < s_.out_height && bytes(rows + 1, line, lanes) <= kPanelBytes) ++rows;
        return rows;
    }
    long bytes(long rows, long line, long lanes) const { return input_rows(rows) * s_.width * lanes * line * long(sizeof(T)); }

    Block block_at(long row, long rows, long lane, long lanes) const {
        const Range out = Range{row, row + rows}.cut(Range{0, s_.out_height});
        const long top = out.first * s_.stride_h - s_.padding_h;
        const Range in = Range{top, top + input_rows(out.last - out.first)}.cut(Range{0, s_.height});
        return Block{out, in.first, in.last, lane, lanes};
    }

    template <long Line>
    void fill(const Block& block, long in_row, long channel, long count, T* panel) const {
        const long plane = s_.height * s_.width * s_.lanes;
        T* target = panel + (in_row - block.in_first) * s_.width * block.lanes * Line;
        if (block.lanes == s_.lanes)
            return transpose(count, s_.width * s_.lanes, x_ + channel * plane + in_row * s_.width * s_.lanes, plane, target, Line);
        for (long column = 0; column < s_.width; ++column, target += block.lanes * Line)
            transpose(count, block.lanes, x_ + channel * plane + (in_row * s_.width + column) * s_.lanes + block.lane, plane, target, Line);
    }

    // sums[tap][filter][channel] grow by this block's part, for the filters of one tile.
    template <int Vectors>
    void add_products(const Block& block, long filter, const T* panel, T* sums) const {
        constexpr long Line = Vectors * Width;
        const long pixel = block.lanes * Line, plane = s_.out_height * s_.out_width * s_.lanes;
        const long filters = s_.filters - filter < kTileRows ? s_.filters - filter : kTileRows;
        for (long tap = 0; tap < s_.taps(); ++tap) {
            const long down = tap / s_.kernel_width * s_.dilation_h - s_.padding_h;
            const long across = tap % s_.kernel_width * s_.dilation_w - s_.padding_w;
            const Range rows = outputs_inside(s_.height, s_.out_height, s_.stride_h, down).cut(block.rows);
            const Range columns = outputs_inside(s_.width, s_.out_width, s_.stride_w, across);
            Walk walk{rows.last - rows.first, s_.out_width * s_.lanes, s_.stride_h * s_.width * pixel,
                      columns.last - columns.first, s_.lanes, s_.stride_w * pixel, block.lanes};
            if (walk.rows == 0 || walk.pixels == 0) continue;
            if (s_.stride_w == 1 && block.lanes == s_.lanes) walk.run *= walk.pixels, walk.pixels = 1;
            const T* left = dy_ + filter * plane + (rows.first * s_.out_width + columns.first) * s_.lanes + block.lane;
            const long in_row = rows.first * s_.stride_h + down - block.in_first, in_column = columns.first * s_.stride_w + across;
            panel_product<T, Vectors>(filters, walk, left, plane, panel + (in_row * s_.width + in_column) * pixel,
                                      sums + tap * s_.filters * Line, Line, true);
        }
    }

    template <long Line>
    void write(long filter, long channel, long count, const T* sums) const {
        T* target = dweight_ + (filter * s_.channels + channel) * s_.taps();
        for (long c = 0; c < count; ++c)
            for (long tap = 0; tap < s_.taps(); ++tap) *target++ = sums[tap * s_.filters * Line + c];
    }

    const ConvShape s_;
    const T *x_, *dy_;
    T* dweight_;
};

}  // namespace ringlet::RINGLET_ISA
