// Direct convolution: a register tile of output channels x vectors of pixels and samples walks the taps.
//
// One input vector serves all output channels of the tile; weights are broadcast from where they lie. Rows that touch the border
// of the image, or that a stride cuts, become lines first (lines.hpp): each input row once, for all rows of outputs that read it.
#pragma once

#include "gemm.hpp"
#include "lines.hpp"

namespace ringlet::RINGLET_ISA {

// The taps of one row of outputs as flat lists: where each reads the input and its weight, in elements.
struct TapList {
    long count;
    const long *input, *weight;
};

// A row of tiles side by side; with Part the last vector of the (only) tile has `left` elements.
template <typename T, int Rows, int Vectors, bool Part>
__attribute__((noinline)) void direct_tiles(long tiles, const TapList& taps, const T* x, const T* weight, long weight_stride, T* y,
                                            long out_plane, const Epilogue<T>& epilogue, long first_channel, [[maybe_unused]] long left) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    for (long tile = 0; tile < tiles; ++tile, x += Vectors * Width, y += Vectors * Width) {
        V acc[Rows][Vectors], right[Vectors];
        unroll<Rows>([&](auto i) { unroll<Vectors>([&](auto j) { acc[i][j] = V{}; }); });
        const long *input = taps.input, *weights = taps.weight, *end = input + taps.count;
        for (; input < end; ++input, ++weights) {
            const T* source = x + *input;
            const T* w = weight + *weights;
            unroll<Vectors>([&](auto j) {
                if constexpr (Part && j == Vectors - 1)
                    right[j] = load_part<V>(source + j * Width, left);
                else
                    right[j] = load<V>(source + j * Width);
            });
            unroll<Rows>([&](auto i) {
                const V factor = splat<V>(w[i * weight_stride]);
                unroll<Vectors>([&](auto j) { acc[i][j] += factor * right[j]; });
            });
        }
        epilogue.template write_tile<V, Rows, Vectors, Part>(
            first_channel, [&](auto i, auto j) { return acc[i][j]; }, [&](auto i, auto j) { return y + i * out_plane + j * Width; }, left);
    }
}

// `count` elements of a row for all output channels. A few tiles at a time: their input stays in the first-level cache while the
// channels pass, and short lists of taps pay for a call only together.
template <typename T>
inline void direct_row(const ConvProblem& p, const TapList& taps, long count, const T* x, const T* weight, T* y, long out_plane,
                       const Epilogue<T>& epilogue) {
    constexpr int Width = kNativeWidth<T>;
    const auto tiles_of = [&](auto tile, auto part, long start, long tiles, long left) {
        constexpr int Vectors = decltype(tile)::value;
        in_halving_tiles<kTileRows>(p.out_channels, [&](auto rows, long channel) {
            direct_tiles<T, decltype(rows)::value, Vectors, decltype(part)::value == 1>(
                tiles, taps, x + start, weight + channel * p.weight_out, p.weight_out, y + channel * out_plane + start, out_plane, epilogue,
                channel, left);
        });
    };
    const long run = taps.count <= 128 ? 8 : 1, whole = count / Width, left = count % Width;
    const long vectors = whole + (left > 0 ? 1 : 0);
    const auto last_of = [&](auto tile, long start) {
        if (left > 0)
            tiles_of(tile, std_integer<1>{}, start * Width, 1, left);
        else
            tiles_of(tile, std_integer<0>{}, start * Width, 1, 0);
    };
    long rest = vectors % 3;  // the last tiles: 2 + 2 rather than 3 + 1
    if (rest == 0 && left > 0 && vectors > 0) rest = 3;
    if (rest == 1 && vectors > 3) rest = 4;
    const long triples = (vectors - rest) / 3;
    for (long tile = 0; tile < triples; tile += run)
        tiles_of(std_integer<3>{}, std_integer<0>{}, 3 * tile * Width, triples - tile < run ? triples - tile : run, 0);
    const long start = 3 * triples;
    if (rest == 4) tiles_of(std_integer<2>{}, std_integer<0>{}, start * Width, 1, 0);
    if (rest == 3) last_of(std_integer<3>{}, start);
    if (rest == 2 || rest == 4) last_of(std_integer<2>{}, start + rest - 2);
    if (rest == 1) last_of(std_integer<1>{}, start);
}

// Rows of outputs, one after the other, of one thread: keeps the lines that the next row reads too.
template <typename T>
class DirectRows {
  public:
    DirectRows(const ConvProblem& problem, const T* x)
        : p_(problem), x_(x), lines_(problem.columns, problem.lanes),
          num_lines_((problem.rows.taps - 1) * (problem.rows.tap_step < 0 ? -problem.rows.tap_step : problem.rows.tap_step) + 1),
          list_size_(2 * problem.in_channels * problem.rows.taps * problem.columns.taps) {
        const long lines = lines_.copied() ? num_lines_ * p_.in_channels * lines_.size() : 0;
        ring_ = scratch_array<T>(kScratchOwn0, lines + lines_.spare_size());
        spare_ = ring_ + lines;
        lists_ = scratch_array<long>(kScratchOwn1, num_lists() * (list_size_ + 2) + num_lines_);
        held_ = lists_ + num_lists() * (list_size_ + 2);
        for (long i = 0; i < num_lines_; ++i) held_[i] = -1;
        for (long i = 0; i < num_lists(); ++i) lists_[i * (list_size_ + 2)] = lists_[i * (list_size_ + 2) + 1] = -1;
    }

    // Channel k of the row goes to y + k * out_plane.
    void compute(long row, const T* weight, T* y, long out_plane, const Epilogue<T>& epilogue) {
        long first, last;
        p_.rows.valid_taps(row, first, last);
        const long origin = p_.rows.in_base + row * p_.rows.in_step;
        for (long r = first; lines_.copied() && r < last; ++r) hold(origin + r * p_.rows.tap_step);
        const TapList taps = taps_of(origin, first, last);
        const T* base = lines_.copied() ? ring_ : x_ + origin * p_.in_row;
        const T* w = weight + p_.rows.weight_base * p_.weight_row + p_.columns.weight_base;
        direct_row<T>(p_, taps, p_.columns.outputs * p_.lanes, base, w, y, out_plane, epilogue);
    }

  private:
    long num_lists() const { return lines_.copied() ? num_lines_ : 1; }

    void hold(long in_row) {
        const long place = in_row % num_lines_;
        if (held_[place] == in_row) return;
        for (long c = 0; c < p_.in_channels; ++c)
            lines_.fill(x_ + c * p_.in_plane + in_row * p_.in_row, ring_ + (place * p_.in_channels + c) * lines_.size(), spare_);
        held_[place] = in_row;
    }

    // Lists are kept for every rotation of the ring; most rows have all taps of the kernel.
    TapList taps_of(long origin, long first, long last) {
        const long rotation = lines_.copied() ? (origin % num_lines_ + num_lines_) % num_lines_ : 0;
        long* list = lists_ + rotation * (list_size_ + 2);
        const long count = p_.in_channels * (last - first) * p_.columns.taps;
        long *input = list + 2, *weight = input + count;
        const TapList taps{count, input, weight};
        if (list[0] == first && list[1] == last) return taps;
        list[0] = first, list[1] = last;
        for (long c = 0; c < p_.in_channels; ++c)
            for (long r = first; r < last; ++r) {
                const long line = lines_.copied() ? ((origin + r * p_.rows.tap_step) % num_lines_ * p_.in_channels + c) * lines_.size()
                                                  : c * p_.in_plane + r * p_.rows.tap_step * p_.in_row;
                for (long s = 0; s < p_.columns.taps; ++s) {
                    *input++ = line + lines_.tap(s);
                    *weight++ = c * p_.weight_in + r * p_.rows.weight_step * p_.weight_row + s * p_.columns.weight_step;
                }
            }
        return taps;
    }

    const ConvProblem& p_;
    const T* x_;
    Lines<T> lines_;
    long num_lines_, list_size_;
    T *ring_, *spare_;
    long *lists_, *held_;
};

// One convolution problem for all groups; x, weight and y advance by these strides from group to group.
struct GroupStrides {
    long groups, x, weight, y, bias;

    template <typename T>
    Epilogue<T> epilogue_of(long group, Epilogue<T> epilogue) const {
        if (epilogue.bias) epilogue.bias += group * bias;
        return epilogue;
    }
};

// Bands of rows for threads; a band makes the lines again that its neighbour has made.
inline long rows_per_band(long rows, long groups) {
    const long bands = groups >= 4 * num_threads() ? 1 : (num_threads() == 1 ? 1 : 4 * num_threads() / groups);
    const long band = (rows + bands - 1) / bands;
    return band < 1 ? 1 : band;
}

template <typename T>
void convolve_direct(const ConvProblem& p, const GroupStrides& g, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    const long band = rows_per_band(p.rows.outputs, g.groups), bands = (p.rows.outputs + band - 1) / band;
#pragma omp parallel for schedule(dynamic) num_threads(num_threads()) collapse(2)
    for (long group = 0; group < g.groups; ++group)
        for (long index = 0; index < bands; ++index) {
            DirectRows<T> rows(p, x + group * g.x);
            const Epilogue<T> own = g.epilogue_of(group, epilogue);
            const long last = (index + 1) * band < p.rows.outputs ? (index + 1) * band : p.rows.outputs;
            for (long row = index * band; row < last; ++row)
                rows.compute(row, weight + group * g.weight, y + group * g.y + (p.rows.out_base + row * p.rows.out_step) * p.out_row,
                             p.out_plane, own);
        }
}

// Problems whose outputs are the phases of a row: their results are joined. `problems` has `step` of them, all with the same rows.
template <typename T>
void convolve_direct_phases(const ConvProblem* problems, long step, long width, const GroupStrides& g, const T* x, const T* weight, T* y,
                            const Epilogue<T>& epilogue) {
    constexpr long kBand = 4;
    const ConvProblem& any = problems[0];
    const long pixels = width / step, lanes = any.lanes, line = (pixels + 1) * lanes, channels = any.out_channels;
    const long bands = (any.rows.outputs + kBand - 1) / kBand;
    const Phases<T> phases(step, lanes);
#pragma omp parallel for schedule(dynamic) num_threads(num_threads()) collapse(2)
    for (long group = 0; group < g.groups; ++group)
        for (long band = 0; band < bands; ++band) {
            const long first = band * kBand, last = first + kBand < any.rows.outputs ? first + kBand : any.rows.outputs;
            T* parts = scratch_array<T>(kScratchOwn2, (kBand * channels * step + 1) * line + width * lanes);  // [row][channel][phase]
            T* joined = parts + kBand * channels * step * line;
            for (long k = 0; k < step; ++k) {
                if (problems[k].rows.taps * problems[k].columns.taps == 0) {
                    for (long i = 0; i < (last - first) * channels; ++i) clear_elements(parts + (i * step + k) * line, line);
                    continue;
                }
                DirectRows<T> rows(problems[k], x + group * g.x);
                for (long row = first; row < last; ++row)
                    rows.compute(row, weight + group * g.weight, parts + ((row - first) * channels * step + k) * line, step * line, {});
            }
            const Epilogue<T> own = g.epilogue_of(group, epilogue);
            for (long row = first; row < last; ++row)
                for (long c = 0; c < channels; ++c) {
                    const T* from = parts + ((row - first) * channels + c) * step * line;
                    phases.join(from, line, pixels, joined);
                    for (long k = 0; k < width % step; ++k)
                        copy_elements(from + k * line + pixels * lanes, joined + (pixels * step + k) * lanes, lanes);
                    own.write_line(c, joined, y + group * g.y + c * any.out_plane + (any.rows.out_base + row * any.rows.out_step) * any.out_row,
                                   width * lanes);
                }
        }
}

}  // namespace ringlet::RINGLET_ISA
