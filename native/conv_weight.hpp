// Weight gradient without packing: dw[k,c,r,s] = sum over pixels and samples of dy[k] * (x[c] shifted by tap r, s).
//
// A tile of four filters x three input streams (three channels at one tap, or three taps of one channel when there are
// fewer channels) keeps its sums in registers as vectors over samples; lanes are added at the very end. Small problems go
// over the image in blocks of rows that stay in cache and park the sums in memory between blocks.
#pragma once

#include "gemm.hpp"
#include "geometry.hpp"

namespace ringlet::RINGLET_ISA {

constexpr int kStreams = 3;
constexpr int kFilters = 4;

// The extent of one tile's walk over the image, in elements.
struct Walk {
    long rows, dy_row, x_row;
    long pixels, dy_pixel, x_pixel;
    long run;  // contiguous elements per pixel
};

template <typename T, int Width, int Filters, int Streams>
__attribute__((noinline)) void weight_tile(const Walk& walk, const T* dy, long dy_plane, const T* const (&x)[kStreams],
                                                       Vec<T, Width>* sums) {
    using V = Vec<T, Width>;
    V acc[Filters][Streams], right[Streams];
    unroll<Filters>([&](auto i) { unroll<Streams>([&](auto j) { acc[i][j] = sums[i * kStreams + j]; }); });
    for (long row = 0; row < walk.rows; ++row)
        for (long pixel = 0; pixel < walk.pixels; ++pixel) {
            const T* left = dy + row * walk.dy_row + pixel * walk.dy_pixel;
            const long shift = row * walk.x_row + pixel * walk.x_pixel;
            for (long at = 0; at < walk.run; at += Width) {
                unroll<Streams>([&](auto j) { right[j] = load<V>(x[j] + shift + at); });
                unroll<Filters>([&](auto i) {
                    const V value = load<V>(left + i * dy_plane + at);
                    unroll<Streams>([&](auto j) { acc[i][j] += value * right[j]; });
                });
            }
        }
    unroll<Filters>([&](auto i) { unroll<Streams>([&](auto j) { sums[i * kStreams + j] = acc[i][j]; }); });
}

struct StreamTile {
    int count;
    long channel[kStreams], tap[kStreams];
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
    }
    WeightGradient(const WeightGradient&) = delete;
    WeightGradient& operator=(const WeightGradient&) = delete;

    void run() {
        const long items = s_.groups * num_filters_ * s_.kernel_height * num_streams_;
        const long sums = kFilters * kStreams;
        const bool parked = items * sums * long(sizeof(V)) <= kParkedBytes;
        const long row_block = parked ? rows_per_block() : s_.out_height, column_block = parked ? columns_per_block() : s_.out_width;
#pragma omp parallel num_threads(num_threads())
        {
#ifdef _OPENMP
            const long threads = omp_get_num_threads();
#else
            const long threads = 1;
#endif
            const long first = items * thread_index() / threads, last = items * (thread_index() + 1) / threads;
            if (parked) {
                V* store_of = scratch_array<V>(kScratchOwn0, (last - first) * sums);
                for (long i = 0; i < (last - first) * sums; ++i) store_of[i] = V{};
                for (long row = 0; row < s_.out_height; row += row_block)
                    for (long column = 0; column < s_.out_width; column += column_block)
                        for (long item = first; item < last; ++item)
                            walk_item(item, row, row + row_block, column, column + column_block, store_of + (item - first) * sums);
                for (long item = first; item < last; ++item) write_item(item, store_of + (item - first) * sums);
            } else {
                for (long item = first; item < last; ++item) {
                    V own[kFilters * kStreams] = {};
                    walk_item(item, 0, s_.out_height, 0, s_.out_width, own);
                    write_item(item, own);
                }
            }
        }
    }

  private:
    static constexpr long kParkedBytes = 4l << 20, kBlockBytes = 12l << 10;

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
        // Taps of one row share their input in the first-level cache; with padding, border pixels would be walks of their own.
        const bool by_tap = s_.kernel_width % kStreams == 0 && s_.padding_w == 0;
        const bool by_channel = channels >= kStreams && !by_tap;
        const long outer = by_channel ? s_.kernel_width : channels, inner = by_channel ? channels : s_.kernel_width;
        for (long o = 0; o < outer; ++o)
            in_vector_tiles(inner, [&](auto tile, long start) {
                StreamTile& streams = streams_[num_streams_++];
                streams.count = decltype(tile)::value;
                for (int j = 0; j < streams.count; ++j) {
                    streams.channel[j] = by_channel ? start + j : o;
                    streams.tap[j] = by_channel ? o : start + j;
                }
            });
        in_halving_tiles<kFilters>(s_.group_filters(), [&](auto tile, long start) {
            filters_[num_filters_++] = FilterTile{decltype(tile)::value, start};
        });
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

    // Outputs whose tap reads inside the input: [first, last).
    static void valid_outputs(long in_size, long outputs, long stride, long shift, long& first, long& last) {
        first = shift < 0 ? (-shift + stride - 1) / stride : 0;
        last = in_size - shift > 0 ? (in_size - shift - 1) / stride + 1 : 0;
        if (last > outputs) last = outputs;
        if (first > last) first = last;
    }

    void walk_item(long index, long row_first, long row_last, long column_first, long column_last, V* sums) const {
        const Item item = item_at(index);
        const long shift_h = item.kernel_row * s_.dilation_h - s_.padding_h;
        long first, last;
        valid_outputs(s_.height, s_.out_height, s_.stride_h, shift_h, first, last);
        if (row_first > first) first = row_first;
        if (row_last < last) last = row_last;
        if (first >= last) return;
        const StreamTile& streams = *item.streams;
        long common_first = 0, common_last = s_.out_width, lower[kStreams] = {}, upper[kStreams] = {};
        for (int j = 0; j < streams.count; ++j) {
            valid_outputs(s_.width, s_.out_width, s_.stride_w, column_shift(streams.tap[j]), lower[j], upper[j]);
            if (lower[j] < column_first) lower[j] = column_first;
            if (upper[j] > column_last) upper[j] = column_last;
            if (upper[j] < lower[j]) upper[j] = lower[j];
            if (lower[j] > common_first) common_first = lower[j];
            if (upper[j] < common_last) common_last = upper[j];
        }
        if (common_first > common_last) common_first = common_last = upper[0];
        walk_streams(item, 0, streams.count, first, last, common_first, common_last, shift_h, sums);
        for (int j = 0; j < streams.count; ++j) {
            const long middle_first = common_first < lower[j] ? lower[j] : common_first;
            walk_streams(item, j, 1, first, last, lower[j], middle_first < upper[j] ? middle_first : upper[j], shift_h, sums + j);
            const long middle_last = common_last > lower[j] ? common_last : lower[j];
            if (middle_last >= middle_first) walk_streams(item, j, 1, first, last, middle_last, upper[j], shift_h, sums + j);
        }
    }

    long column_shift(long tap) const { return tap * s_.dilation_w - s_.padding_w; }

    void walk_streams(const Item& item, int from, int count, long row_first, long row_last, long first, long last, long shift_h,
                      V* sums) const {
        if (first >= last) return;
        const long lanes = s_.lanes, dy_plane = s_.out_height * s_.out_width * lanes, x_plane = s_.height * s_.width * lanes;
        Walk walk{row_last - row_first, s_.out_width * lanes, s_.stride_h * s_.width * lanes, last - first, lanes,
                  s_.stride_w * lanes, lanes};
        if (s_.stride_w == 1) walk.run = walk.pixels * lanes, walk.pixels = 1;
        const T* dy = dy_ + (item.group * s_.group_filters() + item.filters->filter) * dy_plane + row_first * walk.dy_row + first * lanes;
        const long in_row = row_first * s_.stride_h + shift_h;
        const T* x[kStreams] = {};
        for (int j = 0; j < count; ++j) {
            const long channel = item.group * s_.group_channels() + item.streams->channel[from + j];
            const long in_column = first * s_.stride_w + column_shift(item.streams->tap[from + j]);
            x[j] = x_ + channel * x_plane + (in_row * s_.width + in_column) * lanes;
        }
        by_filters(item.filters->count, count, walk, dy, dy_plane, x, sums);
    }

    static void by_filters(int filters, int streams, const Walk& walk, const T* dy, long dy_plane, const T* const (&x)[kStreams], V* sums) {
        if (filters == 4) return by_streams<4>(streams, walk, dy, dy_plane, x, sums);
        if (filters == 2) return by_streams<2>(streams, walk, dy, dy_plane, x, sums);
        by_streams<1>(streams, walk, dy, dy_plane, x, sums);
    }

    template <int Filters>
    static void by_streams(int streams, const Walk& walk, const T* dy, long dy_plane, const T* const (&x)[kStreams], V* sums) {
        if (streams == 3) return weight_tile<T, Width, Filters, 3>(walk, dy, dy_plane, x, sums);
        if (streams == 2) return weight_tile<T, Width, Filters, 2>(walk, dy, dy_plane, x, sums);
        weight_tile<T, Width, Filters, 1>(walk, dy, dy_plane, x, sums);
    }

    void write_item(long index, const V* sums) const {
        const Item item = item_at(index);
        const long taps = s_.taps();
        for (int i = 0; i < item.filters->count; ++i)
            for (int j = 0; j < item.streams->count; ++j) {
                const long filter = item.group * s_.group_filters() + item.filters->filter + i;
                dweight_[(filter * s_.group_channels() + item.streams->channel[j]) * taps + item.kernel_row * s_.kernel_width +
                         item.streams->tap[j]] = horizontal_sum<T, Width>(sums[i * kStreams + j]);
            }
    }

    const ConvShape& s_;
    const T *x_, *dy_;
    T* dweight_;
    StreamTile* streams_ = nullptr;
    FilterTile* filters_ = nullptr;
    long num_streams_ = 0, num_filters_ = 0;
};

template <typename T>
void weight_gradient_direct(const ConvShape& shape, const T* x, const T* dy, T* dweight) {
    with_width<T>(shape.lanes, [&](auto width) { WeightGradient<T, decltype(width)::value>(shape, x, dy, dweight).run(); });
}

}  // namespace ringlet::RINGLET_ISA
