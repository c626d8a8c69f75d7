// Direct convolution: a register tile of output channels x vectors of samples walks the taps; nothing is copied or packed.
//
// One input vector serves all output channels of the tile; weights are broadcast from where they lie. Pixels near the
// border run the same tile with fewer taps.
#pragma once

#include "gemm.hpp"
#include "geometry.hpp"

namespace ringlet::RINGLET_ISA {

// The taps of one run of outputs as flat lists: where each reads the input and its weight, in elements.
struct TapList {
    long count;
    const long *input, *weight;
};

// Rows [r0, r1) x columns [s0, s1) of the kernel for all input channels.
inline TapList list_taps(const ConvProblem& p, long r0, long r1, long s0, long s1, long* memory) {
    const long x_row = p.rows.tap_step * p.in_row, x_column = p.columns.tap_step * p.lanes;
    const long w_row = p.rows.weight_step * p.weight_row, w_column = p.columns.weight_step;
    const long count = p.in_channels * (r1 - r0) * (s1 - s0);
    long *input = memory, *weight = memory + count;
    for (long c = 0; c < p.in_channels; ++c)
        for (long r = r0; r < r1; ++r)
            for (long s = s0; s < s1; ++s) {
                *input++ = c * p.in_plane + r * x_row + s * x_column;
                *weight++ = c * p.weight_in + r * w_row + s * w_column;
            }
    return TapList{count, memory, memory + count};
}

// A row of tiles side by side (one tile, if its vectors lie apart).
template <typename T, int Width, int Rows, int Vectors, bool Contiguous>
__attribute__((noinline)) void direct_tiles(long tiles, const TapList& taps, const T* x, const long (&in_offset)[Vectors],
                                            const T* weight, long weight_stride, T* y, const long (&out_offset)[Vectors],
                                            long out_plane, const Epilogue<T>& epilogue, long first_channel) {
    using V = Vec<T, Width>;
    for (long tile = 0; tile < tiles; ++tile, x += Vectors * Width, y += Vectors * Width) {
        V acc[Rows][Vectors], right[Vectors];
        unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { acc[i][j] = V{}; }); });
        const long *input = taps.input, *weights = taps.weight, *end = input + taps.count;
        for (; input < end; ++input, ++weights) {
            const T* source = x + *input;
            const T* w = weight + *weights;
            unroll<Vectors>([&](auto j) { right[j] = load<V>(source + (Contiguous ? j * Width : in_offset[j])); });
            unroll<Rows>([&](auto i) {
                const V left = splat<V>(w[i * weight_stride]);
                unroll<Vectors>([&](auto j) { acc[i][j] += left * right[j]; });
            });
        }
        epilogue.template write_tile<V, Rows, Vectors>(
            first_channel, [&](auto i, auto j) { return acc[i][j]; },
            [&](auto i, auto j) { return y + i * out_plane + (Contiguous ? j * Width : out_offset[j]); });
    }
}

// All output channels for a few tiles. Their input stays in the first-level cache while the channels pass.
template <typename T, int Width, int Vectors, bool Contiguous>
inline void direct_channels(long tiles, const ConvProblem& p, const TapList& taps, const T* x, const long (&in_offset)[Vectors],
                            const T* weight, T* y, const long (&out_offset)[Vectors], const Epilogue<T>& epilogue) {
    in_halving_tiles<kTileRows>(p.out_channels, [&](auto rows, long channel) {
        direct_tiles<T, Width, decltype(rows)::value, Vectors, Contiguous>(
            tiles, taps, x, in_offset, weight + channel * p.weight_out, p.weight_out, y + channel * p.out_plane, out_offset,
            p.out_plane, epilogue, channel);
    });
}

// Contiguous vectors as runs of tiles: short lists of taps pay for a call only together.
template <typename T, int Width>
inline void direct_contiguous(const ConvProblem& p, const TapList& taps, long vectors, const T* x, const T* weight, T* y,
                              const Epilogue<T>& epilogue) {
    const long run = taps.count <= 128 ? 8 : 1;
    const auto tiles_of = [&](auto tile, long start, long tiles) {
        constexpr int Vectors = decltype(tile)::value;
        const long unused[Vectors] = {};
        direct_channels<T, Width, Vectors, true>(tiles, p, taps, x + start * Width, unused, weight, y + start * Width, unused, epilogue);
    };
    long rest = vectors % 3;
    if (rest == 1 && vectors > 3) rest = 4;
    const long triples = (vectors - rest) / 3;
    for (long tile = 0; tile < triples; tile += run)
        tiles_of(std_integer<3>{}, 3 * tile, triples - tile < run ? triples - tile : run);
    if (rest >= 2) tiles_of(std_integer<2>{}, vectors - rest, rest / 2);
    if (rest == 1) tiles_of(std_integer<1>{}, vectors - rest, 1);
}

// Outputs [first, last) of one row, all with the same taps; x and y point to the row.
template <typename T, int Width>
inline void direct_segment(const ConvProblem& p, const TapList& taps, long first, long last, const T* x, const T* weight, T* y,
                           const Epilogue<T>& epilogue) {
    const Axis& columns = p.columns;
    const long per_pixel = p.lanes / Width, vectors = (last - first) * per_pixel;
    const T* source = x + (columns.in_base + first * columns.in_step) * p.lanes;
    T* target = y + (columns.out_base + first * columns.out_step) * p.lanes;
    if (columns.in_step == 1 && columns.out_step == 1)
        return direct_contiguous<T, Width>(p, taps, vectors, source, weight, target, epilogue);
    in_vector_tiles(vectors, [&](auto tile, long start) {
        constexpr int Vectors = decltype(tile)::value;
        long in_offset[Vectors], out_offset[Vectors];
        for (int j = 0; j < Vectors; ++j) {
            const long pixel = (start + j) / per_pixel, lane = (start + j) % per_pixel * Width;
            in_offset[j] = pixel * columns.in_step * p.lanes + lane;
            out_offset[j] = pixel * columns.out_step * p.lanes + lane;
        }
        direct_channels<T, Width, Vectors, false>(1, p, taps, source, in_offset, weight, target, out_offset, epilogue);
    });
}

// Outputs [first, last) of a row whose valid taps are the columns [s0, s1).
struct Segment {
    long first, last, s0, s1;
};

inline long cut_into_segments(const Axis& columns, Segment* segments) {
    long count = 0;
    for (long i = 0; i < columns.outputs; ++i) {
        long s0, s1;
        columns.valid_taps(i, s0, s1);
        if (count > 0 && segments[count - 1].s0 == s0 && segments[count - 1].s1 == s1)
            segments[count - 1].last = i + 1;
        else
            segments[count++] = Segment{i, i + 1, s0, s1};
    }
    return count;
}

// The lists of taps of all segments; the next row uses them again unless other rows of the kernel are valid there.
class RowTaps {
  public:
    RowTaps(const ConvProblem& problem, const Segment* segments, long count)
        : p_(problem), segments_(segments), count_(count), size_(2 * problem.in_channels * problem.rows.taps * problem.columns.taps),
          memory_(scratch_array<long>(kScratchOwn0, count * size_)) {}

    void move_to(long row) {
        long r0, r1;
        p_.rows.valid_taps(row, r0, r1);
        if (r0 == r0_ && r1 == r1_) return;
        for (long i = 0; i < count_; ++i) list_taps(p_, r0, r1, segments_[i].s0, segments_[i].s1, memory_ + i * size_);
        r0_ = r0, r1_ = r1;
    }

    TapList of(long segment) const {
        const long taps = p_.in_channels * (r1_ - r0_) * (segments_[segment].s1 - segments_[segment].s0);
        return TapList{taps, memory_ + segment * size_, memory_ + segment * size_ + taps};
    }

  private:
    const ConvProblem& p_;
    const Segment* segments_;
    long count_, size_;
    long* memory_;
    long r0_ = -1, r1_ = -1;
};

template <typename T, int Width>
void direct_row(const ConvProblem& p, long row, const Segment* segments, long count, const RowTaps& taps, const T* x, const T* weight, T* y,
                const Epilogue<T>& epilogue) {
    const T* x_row = x + (p.rows.in_base + row * p.rows.in_step) * p.in_row;
    T* y_row = y + (p.rows.out_base + row * p.rows.out_step) * p.out_row;
    const T* w = weight + p.rows.weight_base * p.weight_row + p.columns.weight_base;
    for (long i = 0; i < count; ++i)
        direct_segment<T, Width>(p, taps.of(i), segments[i].first, segments[i].last, x_row, w, y_row, epilogue);
}

// One convolution problem for all groups; x, weight and y advance by these strides from group to group.
struct GroupStrides {
    long groups, x, weight, y, bias;
};

template <typename T>
void convolve_direct(const ConvProblem& p, const GroupStrides& g, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    Segment* segments = scratch_array<Segment>(kScratchShared1, p.columns.outputs);
    const long count = cut_into_segments(p.columns, segments);
    with_width<T>(p.lanes, [&](auto width) {
#pragma omp parallel num_threads(num_threads())
        {
            RowTaps taps(p, segments, count);
#pragma omp for schedule(dynamic) collapse(2)
            for (long group = 0; group < g.groups; ++group)
                for (long row = 0; row < p.rows.outputs; ++row) {
                    Epilogue<T> own = epilogue;
                    if (own.bias) own.bias += group * g.bias;
                    taps.move_to(row);
                    direct_row<T, decltype(width)::value>(p, row, segments, count, taps, x + group * g.x, weight + group * g.weight,
                                                          y + group * g.y, own);
                }
        }
    });
}

}  // namespace ringlet::RINGLET_ISA
