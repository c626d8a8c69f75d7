// Weight gradient without packing: dw[k,c,r,s] = sum over pixels and samples of dy[k] * (x[c] shifted by tap r, s).
//
// A tile of four or eight filters x three input streams (three taps of one channel, or three channels at one tap) keeps its sums in
// registers as vectors over pixels and samples; lanes are added at the very end. Small problems go over the image in blocks of rows
// that stay in cache and park the sums in memory between blocks. Borders and strides are a matter of lines (lines.hpp).
#pragma once

#include "gemm.hpp"
#include "lines.hpp"
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
    const long whole = walk.run / Width * Width, rest = walk.run - whole;
    for (long row = 0; row < walk.rows; ++row) {
        const T* left = dy + row * walk.left_row;
        const long shift = row * walk.right_row;
        for (long at = 0; at < whole; at += Width) {
            unroll<Streams>([&](auto j) { right[j] = load<V>(x[j] + shift + at); });
            unroll<Filters>([&](auto i) {
                const V value = in_register(load<V>(left + i * dy_plane + at));
                unroll<Streams>([&](auto j) { acc[i][j] += value * right[j]; });
            });
        }
        if (rest > 0) {
            unroll<Streams>([&](auto j) { right[j] = load_part<V>(x[j] + shift + whole, rest); });
            unroll<Filters>([&](auto i) {
                const V value = load_part<V>(left + i * dy_plane + whole, rest);
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

// Up to three input streams: a channel and a column of the kernel each.
struct StreamTile {
    int count;
    long channel[kStreams], tap[kStreams];
};

struct FilterTile {
    int count;
    long filter;
};

template <typename T>
class WeightGradient {
    static constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;

  public:
    WeightGradient(const ConvShape& shape, const T* x, const T* dy, T* dweight)
        : s_(shape), x_(x), dy_(dy), dweight_(dweight),
          lines_(forward_axis(shape.width, shape.out_width, shape.kernel_width, shape.stride_w, shape.padding_w, shape.dilation_w), shape.lanes) {
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
        if (s_.groups >= 2 * num_threads()) {
#pragma omp parallel for schedule(dynamic) num_threads(num_threads())
            for (long group = 0; group < s_.groups; ++group) run_parked(group, 1);
            return;
        }
        for (long group = 0; group < s_.groups; ++group)
            if (num_items() * kSums * long(sizeof(V)) <= kParkedBytes)
                run_parked(group, num_threads());
            else
                run_whole(group);
    }

  private:
    static constexpr long kSums = kFilters * kStreams;
    static constexpr long kParkedBytes = 4l << 20, kBlockBytes = 32l << 10, kInputBytes = 256l << 10;

    long num_items() const { return num_filters_ * s_.kernel_height * num_streams_; }

    // Where the walks read the input: lines of some rows of some channels, or the image itself.
    struct Input {
        const T* first;  // the first row of the first channel
        long row, plane, first_channel, first_row;
    };

    // Few weights: all sums stay in memory while the image passes in blocks.
    void run_parked(long group, int team) const {
        const long items = num_items(), rows = lines_.copied() ? rows_of_lines() : s_.out_height;
        T* lines = lines_.copied() ? scratch_array<T>(kScratchShared0, s_.group_channels() * input_rows(rows) * lines_.size()) : nullptr;
#pragma omp parallel num_threads(team)
        {
#ifdef _OPENMP
            const long threads = omp_get_num_threads();
#else
            const long threads = 1;
#endif
            const long first = items * thread_index() / threads, last = items * (thread_index() + 1) / threads;
            V* sums = scratch_array<V>(kScratchOwn0, (last - first) * kSums);
            for (long i = 0; i < (last - first) * kSums; ++i) sums[i] = V{};
            for (long row = 0; row < s_.out_height; row += rows) {
                const Range block = Range{row, row + rows}.cut(Range{0, s_.out_height});
                const Input input = make_lines(group, Range{0, s_.group_channels()}, block, lines);
                walk_block(group, block, input, first, last, sums);
                if (lines_.copied()) {
#pragma omp barrier
                }
            }
            for (long item = first; item < last; ++item) write_item(group, item_at(item), sums + (item - first) * kSums);
        }
    }

    // A block in pieces: the filters' part of a piece of dy stays in the first-level cache while all taps and channels pass.
    void walk_block(long group, const Range& block, const Input& input, long first, long last, V* sums) const {
        const long elements = s_.out_width * s_.lanes, per_row = kFilters * elements * long(sizeof(T));
        const long rows = kBlockBytes / per_row > 0 ? kBlockBytes / per_row : 1, columns = kBlockBytes / (kFilters * long(sizeof(T)));
        for (long row = block.first; row < block.last; row += rows)
            for (long column = 0; column < elements; column += columns)
                for (long item = first; item < last; ++item)
                    walk_item(group, item_at(item), input, Range{row, row + rows}.cut(block), Range{column, column + columns}.cut(Range{0, elements}),
                              sums + (item - first) * kSums);
    }

    // Many weights: each is finished at once. A block of input channels stays in cache while all filters pass.
    void run_whole(long group) const {
        const long per_channel = s_.height * s_.width * s_.lanes * long(sizeof(T));
        long block = kInputBytes / per_channel / kStreams * kStreams;
        if (block < kStreams) block = kStreams;
        const Range all{0, s_.out_height};
        T* lines = lines_.copied() ? scratch_array<T>(kScratchShared0, block * s_.height * lines_.size()) : nullptr;
        for (long channel = 0; channel < s_.group_channels(); channel += block) {
            const Range channels = Range{channel, channel + block}.cut(Range{0, s_.group_channels()});
#pragma omp parallel num_threads(num_threads())
            {
                const Input input = make_lines(group, channels, all, lines);
#pragma omp for schedule(static)
                for (long filter = 0; filter < num_filters_; ++filter)
                    for (long row = 0; row < s_.kernel_height; ++row)
                        for (long stream = 0; stream < num_streams_; ++stream) {
                            if (streams_[stream].channel[0] < channels.first || streams_[stream].channel[0] >= channels.last) continue;
                            const Item item{row, filters_ + filter, streams_ + stream};
                            V sums[kSums] = {};
                            walk_item(group, item, input, all, Range{0, s_.out_width * s_.lanes}, sums);
                            write_item(group, item, sums);
                        }
            }
        }
    }

    long input_rows(long rows) const {
        const long span = (rows - 1) * s_.stride_h + (s_.kernel_height - 1) * s_.dilation_h + 1;
        return span < s_.height ? span : s_.height;
    }

    // Rows of outputs whose lines stay in the second-level cache, several, since blocks share lines.
    long rows_of_lines() const {
        const long line = s_.group_channels() * lines_.size() * long(sizeof(T));
        long rows = 1;
        while (rows < s_.out_height && (rows < 4 || input_rows(rows + 1) * line <= 2 * kInputBytes)) ++rows;
        return rows;
    }

    // The input of some rows of outputs. All threads of a team must call it.
    Input make_lines(long group, const Range& channels, const Range& rows, T* lines) const {
        const long plane = s_.height * s_.width * s_.lanes, row_size = s_.width * s_.lanes;
        const T* x = x_ + group * s_.group_channels() * plane;
        if (!lines_.copied()) return Input{x, row_size, plane, 0, 0};
        const long top = rows.first * s_.stride_h - s_.padding_h;
        const long bottom = (rows.last - 1) * s_.stride_h + (s_.kernel_height - 1) * s_.dilation_h + 1 - s_.padding_h;
        const Range inside = Range{top, bottom}.cut(Range{0, s_.height});
        const long num_rows = inside.last - inside.first, all = (channels.last - channels.first) * num_rows;
        T* spare = scratch_array<T>(kScratchOwn1, lines_.spare_size());
#pragma omp for schedule(static)
        for (long i = 0; i < all; ++i)
            lines_.fill(x + (channels.first + i / num_rows) * plane + (inside.first + i % num_rows) * row_size, lines + i * lines_.size(), spare);
        return Input{lines, lines_.size(), num_rows * lines_.size(), channels.first, inside.first};
    }

    void collect_tiles() {
        const long channels = s_.group_channels();
        streams_ = new StreamTile[channels * s_.kernel_width];
        filters_ = new FilterTile[s_.group_filters()];
        rows_ = new Range[s_.kernel_height];
        for (long r = 0; r < s_.kernel_height; ++r)
            rows_[r] = outputs_inside(s_.height, s_.out_height, s_.stride_h, r * s_.dilation_h - s_.padding_h);
        // Taps of one row share their input in the first-level cache.
        if (channels >= kStreams && s_.kernel_width % kStreams != 0)
            for (long first = 0; first < channels; first += kStreams)
                for (long tap = 0; tap < s_.kernel_width; ++tap)
                    add_streams(channels - first < kStreams ? int(channels - first) : kStreams, first, 1, tap, 0);
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
        for (int j = 0; j < count; ++j) streams.channel[j] = channel + j * channel_step, streams.tap[j] = tap + j * tap_step;
    }

    struct Item {
        long kernel_row;
        const FilterTile* filters;
        const StreamTile* streams;
    };

    Item item_at(long index) const {
        Item item;
        item.streams = streams_ + index % num_streams_;
        index /= num_streams_;
        item.kernel_row = index % s_.kernel_height;
        item.filters = filters_ + index / s_.kernel_height;
        return item;
    }

    // Rows of outputs, and elements of each.
    void walk_item(long group, const Item& item, const Input& input, const Range& row_block, const Range& elements, V* sums) const {
        const Range rows = rows_[item.kernel_row].cut(row_block);
        if (rows.first >= rows.last) return;
        const long row_size = s_.out_width * s_.lanes, dy_plane = s_.out_height * row_size;
        const Walk walk{rows.last - rows.first, row_size, s_.stride_h * input.row, 1, 0, 0, elements.last - elements.first};
        const T* dy = dy_ + (group * s_.group_filters() + item.filters->filter) * dy_plane + rows.first * row_size + elements.first;
        const long in_row = rows.first * s_.stride_h + item.kernel_row * s_.dilation_h - s_.padding_h - input.first_row;
        const T* x[kStreams] = {};
        for (int j = 0; j < item.streams->count; ++j)
            x[j] = input.first + (item.streams->channel[j] - input.first_channel) * input.plane + in_row * input.row +
                   lines_.tap(item.streams->tap[j]) + elements.first;
        by_filters<kFilters>(item.filters->count, item.streams->count, walk, dy, dy_plane, x, sums);
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

    void write_item(long group, const Item& item, const V* sums) const {
        const long filter = group * s_.group_filters() + item.filters->filter;
        const long stride = s_.group_channels() * s_.taps();
        for (int j = 0; j < item.streams->count; ++j) {
            T* target = dweight_ + filter * stride + item.streams->channel[j] * s_.taps() + item.kernel_row * s_.kernel_width +
                        item.streams->tap[j];
            write_sums<T, Width>(item.filters->count, sums + j, [&](long i, T sum) { target[i * stride] = sum; });
        }
    }

    const ConvShape s_;
    const T *x_, *dy_;
    T* dweight_;
    Lines<T> lines_;
    StreamTile* streams_ = nullptr;
    FilterTile* filters_ = nullptr;
    Range* rows_ = nullptr;
    long num_streams_ = 0, num_filters_ = 0;
};

// A convolution without neighbours sees one long row.
inline ConvShape joined_rows(ConvShape s) {
    if (s.kernel_height == 1 && s.kernel_width == 1 && s.stride_h == 1 && s.stride_w == 1 && s.padding_h == 0 && s.padding_w == 0) {
        s.width *= s.height, s.out_width *= s.out_height;
        s.height = s.out_height = 1;
    }
    return s;
}

template <typename T>
void weight_gradient_direct(const ConvShape& shape, const T* x, const T* dy, T* dweight) {
    WeightGradient<T>(joined_rows(shape), x, dy, dweight).run();
}

}  // namespace ringlet::RINGLET_ISA
