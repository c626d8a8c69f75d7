// Weight gradient without packing: dw[k,c,r,s] = sum over pixels and samples of dy[k] * (x[c] shifted by tap r, s).
//
// A tile of four or eight filters x three input streams (three channels at one tap, or three taps of one channel when there are
// fewer channels) keeps its sums in registers as vectors over samples; lanes are added at the very end. Small problems go
// over the image in blocks of rows that stay in cache and park the sums in memory between blocks.
#pragma once

#include "gemm.hpp"
#include "geometry.hpp"
#include "panels.hpp"

namespace ringlet::RINGLET_ISA {

constexpr int kStreams = 3;
constexpr int kFilters = kTileRows;

template <typename T, int Width, int Filters, int Streams>
__attribute__((noinline)) void weight_tile(const Walk& walk, const T* dy, long dy_plane, const T* const (&x)[kStreams],
                                                       Vec<T, Width>* sums) {
    using V = Vec<T, Width>;
    V acc[Filters][Streams], right[Streams];
    unroll<Filters>([&](auto i) { unroll<Streams>([&](auto j) { acc[i][j] = sums[i * kStreams + j]; }); });
    for (long row = 0; row < walk.rows; ++row)
        for (long pixel = 0; pixel < walk.pixels; ++pixel) {
            const T* left = dy + row * walk.left_row + pixel * walk.left_pixel;
            const long shift = row * walk.right_row + pixel * walk.right_pixel;
            for (long at = 0; at < walk.run; at += Width) {
                unroll<Streams>([&](auto j) { right[j] = load<V>(x[j] + shift + at); });
                unroll<Filters>([&](auto i) {
                    const V value = in_register(load<V>(left + i * dy_plane + at));
                    unroll<Streams>([&](auto j) { acc[i][j] += value * right[j]; });
                });
            }
        }
    unroll<Filters>([&](auto i) { unroll<Streams>([&](auto j) { sums[i * kStreams + j] = acc[i][j]; }); });
}

// Calls write(filter, sum) with the lane sums of one stream of a tile.
template <typename T, int Width, typename Write>
inline void write_sums(long filters, const Vec<T, Width>* sums, Write write) {
    for (long first = 0; first < filters; first += 4) {
        const Vec<T, Width>* from = sums + first * kStreams;
        const auto totals = sum_four<T, Width>(from[0], from[kStreams], from[2 * kStreams], from[3 * kStreams]);
        for (long i = 0; i < 4 && first + i < filters; ++i) write(first + i, totals[i]);
    }
}

// Up to three input streams: a channel and a column of the kernel each, and the outputs whose tap reads inside the input.
struct StreamTile {
    int count;
    long channel[kStreams], tap[kStreams];
    Range valid[kStreams], common;
};

struct FilterTile {
    int count;
    long filter;
};

template <typename T, int Width>
class WeightGradient {
    using V = Vec<T, Width>;

  public:
    WeightGradient(const ConvShape& shape, const T* x, const T* dy, T* dweight) : s_(shape), x_(x), dy_(dy), dweight_(dweight) {
        collect_tiles();
    }
    ~WeightGradient() {
        delete[] streams_;
        delete[] filters_;
        delete[] rows_;
    }
    WeightGradient(const WeightGradient&) = delete;
    WeightGradient& operator=(const WeightGradient&) = delete;

    void run() {
        const long items = s_.groups * num_filters_ * s_.kernel_height * num_streams_;
        if (items * kSums * long(sizeof(V)) <= kParkedBytes)
            run_parked(items);
        else
            run_whole();
    }

  private:
    static constexpr long kSums = kFilters * kStreams;
    static constexpr long kParkedBytes = 4l << 20, kBlockBytes = 32l << 10, kInputBytes = 256l << 10;

    // Few weights: all sums stay in memory while the image passes in blocks.
    void run_parked(long items) const {
        const long row_block = rows_per_block(), column_block = columns_per_block();
#pragma omp parallel num_threads(num_threads())
        {
#ifdef _OPENMP
            const long threads = omp_get_num_threads();
#else
            const long threads = 1;
#endif
            const long first = items * thread_index() / threads, last = items * (thread_index() + 1) / threads;
            V* sums = scratch_array<V>(kScratchOwn0, (last - first) * kSums);
            for (long i = 0; i < (last - first) * kSums; ++i) sums[i] = V{};
            for (long row = 0; row < s_.out_height; row += row_block)
                for (long column = 0; column < s_.out_width; column += column_block)
                    for (long item = first; item < last; ++item)
                        walk_item(item_at(item), Range{row, row + row_block}, Range{column, column + column_block},
                                  sums + (item - first) * kSums);
            for (long item = first; item < last; ++item) write_item(item_at(item), sums + (item - first) * kSums);
        }
    }

    // Many weights: each is finished at once. A block of input channels stays in cache while all filters pass.
    void run_whole() const {
        const long tile_bytes = kStreams * s_.height * s_.width * s_.lanes * long(sizeof(T)) / s_.kernel_width;
        const long block = kInputBytes / tile_bytes > 0 ? kInputBytes / tile_bytes : 1;
        for (long group = 0; group < s_.groups; ++group)
            for (long first = 0; first < num_streams_; first += block) {
                const long last = first + block < num_streams_ ? first + block : num_streams_;
#pragma omp parallel for schedule(static) num_threads(num_threads())
                for (long filter = 0; filter < num_filters_; ++filter)
                    for (long row = 0; row < s_.kernel_height; ++row)
                        for (long stream = first; stream < last; ++stream) {
                            const Item item{group, row, filters_ + filter, streams_ + stream};
                            V sums[kSums] = {};
                            walk_item(item, Range{0, s_.out_height}, Range{0, s_.out_width}, sums);
                            write_item(item, sums);
                        }
            }
    }

    // The filters' part of a block of dy stays in the first-level cache while all taps and channels pass.
    long columns_per_block() const {
        const long columns = kBlockBytes / (kFilters * s_.lanes * long(sizeof(T)));
        return columns < 1 ? 1 : (columns < s_.out_width ? columns : s_.out_width);
    }
    long rows_per_block() const {
        const long rows = kBlockBytes / (kFilters * s_.out_width * s_.lanes * long(sizeof(T)));
        return rows < 1 ? 1 : rows;
    }

    void collect_tiles() {
        const long channels = s_.group_channels();
        streams_ = new StreamTile[channels * s_.kernel_width];
        filters_ = new FilterTile[s_.group_filters()];
        rows_ = new Range[s_.kernel_height];
        for (long r = 0; r < s_.kernel_height; ++r)
            rows_[r] = outputs_inside(s_.height, s_.out_height, s_.stride_h, r * s_.dilation_h - s_.padding_h);
        // Taps of one row share their input in the first-level cache; with padding, border pixels would be walks of their own.
        const bool by_tap = s_.kernel_width % kStreams == 0 && s_.padding_w == 0;
        if (channels >= kStreams && !by_tap)
            in_vector_tiles(channels, [&](auto tile, long start) {
                for (long tap = 0; tap < s_.kernel_width; ++tap) add_streams(decltype(tile)::value, start, 1, tap, 0);
            });
        else
            for (long channel = 0; channel < channels; ++channel)
                in_vector_tiles(s_.kernel_width, [&](auto tile, long start) { add_streams(decltype(tile)::value, channel, 0, start, 1); });
        in_halving_tiles<kFilters>(s_.group_filters(), [&](auto tile, long start) {
            filters_[num_filters_++] = FilterTile{decltype(tile)::value, start};
        });
    }

    void add_streams(int count, long channel, long channel_step, long tap, long tap_step) {
        StreamTile& streams = streams_[num_streams_++];
        streams.count = count;
        for (int j = 0; j < count; ++j) {
            streams.channel[j] = channel + j * channel_step;
            streams.tap[j] = tap + j * tap_step;
            streams.valid[j] = outputs_inside(s_.width, s_.out_width, s_.stride_w, column_shift(streams.tap[j]));
            streams.common = j == 0 ? streams.valid[0] : streams.common.cut(streams.valid[j]);
        }
    }

    struct Item {
        long group, kernel_row;
        const FilterTile* filters;
        const StreamTile* streams;
    };

    Item item_at(long index) const {
        Item item;
        item.streams = streams_ + index % num_streams_;
        index /= num_streams_;
        item.kernel_row = index % s_.kernel_height;
        index /= s_.kernel_height;
        item.filters = filters_ + index % num_filters_;
        item.group = index / num_filters_;
        return item;
    }

    void walk_item(const Item& item, const Range& row_block, const Range& column_block, V* sums) const {
        const Range rows = rows_[item.kernel_row].cut(row_block);
        if (rows.first >= rows.last) return;
        const StreamTile& streams = *item.streams;
        const Range common = streams.common.cut(column_block);
        walk_streams(item, 0, streams.count, rows, common, sums);
        for (int j = 0; j < streams.count; ++j) {  // what this stream has to the left and right of the common part
            const Range own = streams.valid[j].cut(column_block);
            walk_streams(item, j, 1, rows, own.cut(Range{own.first, common.first}), sums + j);
            walk_streams(item, j, 1, rows, own.cut(Range{common.last > own.first ? common.last : own.first, own.last}), sums + j);
        }
    }

    long column_shift(long tap) const { return tap * s_.dilation_w - s_.padding_w; }

    void walk_streams(const Item& item, int from, int count, const Range& rows, const Range& columns, V* sums) const {
        if (columns.first >= columns.last) return;
        const long lanes = s_.lanes, dy_plane = s_.out_height * s_.out_width * lanes, x_plane = s_.height * s_.width * lanes;
        Walk walk{rows.last - rows.first, s_.out_width * lanes, s_.stride_h * s_.width * lanes, columns.last - columns.first, lanes,
                  s_.stride_w * lanes, lanes};
        if (s_.stride_w == 1) walk.run = walk.pixels * lanes, walk.pixels = 1;
        const T* dy = dy_ + (item.group * s_.group_filters() + item.filters->filter) * dy_plane +
                      rows.first * walk.left_row + columns.first * lanes;
        const long in_row = rows.first * s_.stride_h + item.kernel_row * s_.dilation_h - s_.padding_h;
        const T* x[kStreams] = {};
        for (int j = 0; j < count; ++j) {
            const long channel = item.group * s_.group_channels() + item.streams->channel[from + j];
            const long in_column = columns.first * s_.stride_w + column_shift(item.streams->tap[from + j]);
            x[j] = x_ + channel * x_plane + (in_row * s_.width + in_column) * lanes;
        }
        by_filters<kFilters>(item.filters->count, count, walk, dy, dy_plane, x, sums);
    }

    template <int Filters>
    static void by_filters(int filters, int streams, const Walk& walk, const T* dy, long dy_plane, const T* const (&x)[kStreams], V* sums) {
        if (filters == Filters) return by_streams<Filters>(streams, walk, dy, dy_plane, x, sums);
        if constexpr (Filters > 1) by_filters<Filters / 2>(filters, streams, walk, dy, dy_plane, x, sums);
    }

    template <int Filters>
    static void by_streams(int streams, const Walk& walk, const T* dy, long dy_plane, const T* const (&x)[kStreams], V* sums) {
        if (streams == 3) return weight_tile<T, Width, Filters, 3>(walk, dy, dy_plane, x, sums);
        if (streams == 2) return weight_tile<T, Width, Filters, 2>(walk, dy, dy_plane, x, sums);
        weight_tile<T, Width, Filters, 1>(walk, dy, dy_plane, x, sums);
    }

    void write_item(const Item& item, const V* sums) const {
        const long filter = item.group * s_.group_filters() + item.filters->filter;
        const long stride = s_.group_channels() * s_.taps();
        for (int j = 0; j < item.streams->count; ++j) {
            T* target = dweight_ + filter * stride + item.streams->channel[j] * s_.taps() + item.kernel_row * s_.kernel_width +
                        item.streams->tap[j];
            write_sums<T, Width>(item.filters->count, sums + j, [&](long i, T sum) { target[i * stride] = sum; });
        }
    }

    const ConvShape& s_;
    const T *x_, *dy_;
    T* dweight_;
    StreamTile* streams_ = nullptr;
    FilterTile* filters_ = nullptr;
    Range* rows_ = nullptr;
    long num_streams_ = 0, num_filters_ = 0;
};

template <typename T>
void weight_gradient_direct(const ConvShape& shape, const T* x, const T* dy, T* dweight) {
    with_width<T>(shape.lanes, [&](auto width) { WeightGradient<T, decltype(width)::value>(shape, x, dy, dweight).run(); });
}

}  // namespace ringlet::RINGLET_ISA
