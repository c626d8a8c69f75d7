// Direct convolution: a register tile of output channels x vectors of pixels and samples walks the taps.
//
// One input vector serves all output channels of the tile; weights are broadcast from where they lie. Images that need padding, or
// that a stride cuts, are arranged first (lines.hpp), in bands of rows. Small images are one run of vectors, across the ends of rows.
#pragma once

#include <new>

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

// `count` elements of a row of one output channel with few taps, whose weights stay in registers.
template <typename T, int Taps>
__attribute__((noinline)) void single_row(const TapList& taps, long count, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    V factor[Taps];
    const T* source[Taps];
    unroll<Taps>([&](auto i) { factor[i] = splat<V>(weight[taps.weight[i]]), source[i] = x + taps.input[i]; });
    const bool plain = epilogue.plain();
    const V bias = splat<V>(epilogue.bias ? epilogue.bias[0] : T(0)), floor = splat<V>(epilogue.floor());
    long at = 0;
    for (; at + Width <= count; at += Width) {
        V sum{};
        unroll<Taps>([&](auto i) { sum += factor[i] * load<V>(source[i] + at); });
        sum += bias;  // last, as where results are written later
        if (!plain) sum = epilogue.with_memory(y + at, sum);
        store(y + at, maximum(sum, floor));
    }
    if (at == count) return;
    V sum{};
    unroll<Taps>([&](auto i) { sum += factor[i] * load_part<V>(source[i] + at, count - at); });
    sum += bias;
    if (!plain) sum = epilogue.template with_memory<true>(y + at, sum, count - at);
    store_part(y + at, maximum(sum, floor), count - at);
}

// Calls the one for the number of taps; false if there are too many of them.
template <typename T, int Taps = 9>
inline bool single_row_of(const TapList& taps, long count, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    if (taps.count == Taps) {
        single_row<T, Taps>(taps, count, x, weight, y, epilogue);
        return true;
    }
    if constexpr (Taps > 1)
        return single_row_of<T, Taps - 1>(taps, count, x, weight, y, epilogue);
    else
        return false;
}

// A row of outputs, cut into tiles, for all output channels.
template <typename T>
class DirectRow {
    static constexpr int Width = kNativeWidth<T>;
    static constexpr long kNearBytes = 512l << 10;  // what stays in the second-level cache

  public:
    const ConvProblem& p;
    const TapList& taps;
    const T *x, *weight;
    T* y;
    long out_plane;
    const Epilogue<T>& epilogue;

    // `count` elements.
    void run(long count) const {
        if (p.out_channels == 1 && single_row_of<T>(taps, count, x, weight, y, epilogue)) return;
        // Many weights and a small image: every weight is read once. Otherwise the input of a few tiles stays in the first-level cache
        // while all channels pass; short lists of taps pay for a call only together.
        const long input_bytes = p.in_channels * count * long(sizeof(T)), weight_bytes = p.out_channels * taps.count * long(sizeof(T));
        if (weight_bytes > kNearBytes && input_bytes <= kNearBytes)
            in_halving_tiles<kTileRows>(p.out_channels, [&](auto rows, long channel) {
                each_tile(count, [&](auto tile, auto part, long start, long tiles, long left) {
                    tiles_of<decltype(rows)::value, decltype(tile)::value, decltype(part)::value == 1>(channel, start, tiles, left);
                });
            });
        else
            each_tile(count, [&](auto tile, auto part, long start, long tiles, long left) {
                in_halving_tiles<kTileRows>(p.out_channels, [&](auto rows, long channel) {
                    tiles_of<decltype(rows)::value, decltype(tile)::value, decltype(part)::value == 1>(channel, start, tiles, left);
                });
            });
    }

  private:
    template <int Rows, int Vectors, bool Part>
    void tiles_of(long channel, long start, long tiles, long left) const {
        direct_tiles<T, Rows, Vectors, Part>(tiles, taps, x + start, weight + channel * p.weight_out, p.weight_out,
                                             y + channel * out_plane + start, out_plane, epilogue, channel, left);
    }

    // Calls body(vectors of a tile, is part, first element, tiles side by side, elements of the last vector).
    template <typename Body>
    void each_tile(long count, Body body) const {
        const long run = taps.count <= 128 ? 8 : 1, left = count % Width, vectors = (count + Width - 1) / Width;
        const auto last_of = [&](auto tile, long start) {
            if (left > 0)
                body(tile, std_integer<1>{}, start * Width, 1l, left);
            else
                body(tile, std_integer<0>{}, start * Width, 1l, 0l);
        };
        long rest = vectors % 3;  // the last tiles: 2 + 2 rather than 3 + 1
        if (rest == 0 && left > 0) rest = 3;
        if (rest == 1 && vectors > 3) rest = 4;
        const long triples = (vectors - rest) / 3;
        for (long tile = 0; tile < triples; tile += run)
            body(std_integer<3>{}, std_integer<0>{}, 3 * tile * Width, triples - tile < run ? triples - tile : run, 0l);
        const long start = 3 * triples;
        if (rest == 4) body(std_integer<2>{}, std_integer<0>{}, start * Width, 1l, 0l);
        if (rest == 3) last_of(std_integer<3>{}, start);
        if (rest == 2 || rest == 4) last_of(std_integer<2>{}, start + rest - 2);
        if (rest == 1) last_of(std_integer<1>{}, start);
    }
};

// Bands of rows of outputs; what is the same for all of them.
template <typename T>
class DirectBands {
    static constexpr int Width = kNativeWidth<T>;
    static constexpr long kBandBytes = 384l << 10, kLeastRows = 4;

  public:
    // `list` has list_size(problem) elements and must live as long as this.
    DirectBands(const ConvProblem& problem, long* list, long most_rows)
        : p_(problem), rows_(rows_per_band(problem, most_rows)), input_(problem, rows_) {
        const long count = p_.in_channels * p_.rows.taps * p_.columns.taps;
        long *input = list, *weight = list + count;
        taps_ = TapList{count, input, weight};
        for (long c = 0; c < p_.in_channels; ++c)
            for (long r = 0; r < p_.rows.taps; ++r)
                for (long s = 0; s < p_.columns.taps; ++s) {
                    *input++ = input_.tap(c, r, s);
                    *weight++ = c * p_.weight_in + r * p_.rows.weight_step * p_.weight_row + s * p_.columns.weight_step;
                }
        // Rows that end within a vector waste the rest of it; in one run what is wasted are the zeros between the rows.
        const long row = row_size(), by_rows = (row + Width - 1) / Width * Width;
        one_run_ = p_.rows.in_step == 1 || input_.copied();
        one_run_ = one_run_ && rows_ > 1 && (count >= 64 ? 105 : 150) * input_.pitch() < 100 * by_rows;
    }

    static long list_size(const ConvProblem& p) { return 2 * p.in_channels * p.rows.taps * p.columns.taps; }

    long rows() const { return rows_; }
    long row_size() const { return p_.columns.outputs * p_.lanes; }
    // Elements of memory that `compute` needs.
    long memory_size() const { return input_.size() + (one_run_ ? p_.out_channels * run_stride() : 0); }

    // Rows [first, last), at most rows(), of all channels of x: channel k of row i goes to y(i) + k * out_plane.
    template <typename Target>
    void compute(long first, long last, const T* x, const T* weight, Target y, long out_plane, const Epilogue<T>& epilogue, T* memory) const {
        const T* input = input_.fill(x, first, last - first, memory);
        const T* w = weight + p_.rows.weight_base * p_.weight_row + p_.columns.weight_base;
        const long pitch = input_.copied() ? input_.pitch() : p_.rows.in_step * p_.in_row;
        if (!one_run_) {
            for (long row = first; row < last; ++row)
                DirectRow<T>{p_, taps_, input + (row - first) * pitch, w, y(row), out_plane, epilogue}.run(row_size());
            return;
        }
        T* run = memory + input_.size();
        DirectRow<T>{p_, taps_, input, w, run, run_stride(), {}}.run((last - first - 1) * pitch + row_size());
        for (long k = 0; k < p_.out_channels; ++k)
            for (long row = first; row < last; ++row)
                epilogue.write_line(k, run + k * run_stride() + (row - first) * pitch, y(row) + k * out_plane, row_size());
    }

  private:
    static long rows_per_band(const ConvProblem& p, long most_rows) {
        const long per_row = p.in_channels * (p.columns.outputs * p.columns.in_step + p.columns.taps) * p.lanes * p.rows.in_step * long(sizeof(T));
        long rows = kBandBytes / per_row;
        if (rows < kLeastRows) rows = kLeastRows;
        if (rows > most_rows) rows = most_rows;
        return rows < p.rows.outputs ? (rows < 1 ? 1 : rows) : p.rows.outputs;
    }
    long run_stride() const { return rows_ * input_.pitch(); }

    const ConvProblem& p_;
    long rows_;
    InputBand<T> input_;
    TapList taps_;
    bool one_run_;
};

// How many rows of outputs a thread takes at most, so that all have some.
inline long rows_for_threads(long rows, long groups) {
    const long parts = groups >= 4 * num_threads() || num_threads() == 1 ? 1 : 4 * num_threads() / groups;
    return (rows + parts - 1) / parts;
}

template <typename T>
void convolve_direct(const ConvProblem& p, const GroupStrides& g, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    long* list = scratch_array<long>(kScratchShared2, DirectBands<T>::list_size(p));
    const DirectBands<T> bands(p, list, rows_for_threads(p.rows.outputs, g.groups));
    const long count = (p.rows.outputs + bands.rows() - 1) / bands.rows();
#pragma omp parallel num_threads(num_threads())
    {
        T* memory = scratch_array<T>(kScratchOwn0, bands.memory_size());
#pragma omp for schedule(dynamic) collapse(2)
        for (long group = 0; group < g.groups; ++group)
            for (long band = 0; band < count; ++band) {
                const Range rows = Range{band * bands.rows(), (band + 1) * bands.rows()}.cut(Range{0, p.rows.outputs});
                T* target = y + group * g.y + p.rows.out_base * p.out_row;
                bands.compute(
                    rows.first, rows.last, x + group * g.x, weight + group * g.weight,
                    [&](long row) { return target + row * p.rows.out_step * p.out_row; }, p.out_plane, g.epilogue_of(group, epilogue), memory);
            }
    }
}

// Problems whose outputs are the phases of a row: their results are joined. `problems` has `step` of them, all with the same rows.
template <typename T>
void convolve_direct_phases(const ConvProblem* problems, long step, long width, const GroupStrides& g, const T* x, const T* weight, T* y,
                            const Epilogue<T>& epilogue) {
    const ConvProblem& any = problems[0];
    DirectBands<T>* phases = scratch_array<DirectBands<T>>(kScratchShared3, step);
    long lists = 0, rows = 8, memory_size = 0;
    for (long k = 0; k < step; ++k) lists += DirectBands<T>::list_size(problems[k]);
    long* list = scratch_array<long>(kScratchShared2, lists);
    const auto is_empty = [&](long k) { return problems[k].columns.outputs == 0 || problems[k].columns.taps == 0; };
    for (long k = 0; k < step; ++k) {
        if (is_empty(k)) continue;
        new (phases + k) DirectBands<T>(problems[k], list, rows);
        list += DirectBands<T>::list_size(problems[k]);
        if (phases[k].rows() < rows) rows = phases[k].rows();
        if (phases[k].memory_size() > memory_size) memory_size = phases[k].memory_size();
    }
    const long pixels = width / step, lanes = any.lanes, line = (pixels + 1) * lanes, channels = any.out_channels;
    const long bands = (any.rows.outputs + rows - 1) / rows;
    const Phases<T> joiner(step, lanes);
#pragma omp parallel num_threads(num_threads())
    {
        T* parts = scratch_array<T>(kScratchOwn2, rows * channels * step * line + (width + 1) * lanes);  // [row][channel][phase]
        T* joined = parts + rows * channels * step * line;
        T* memory = scratch_array<T>(kScratchOwn0, memory_size);
#pragma omp for schedule(dynamic) collapse(2)
        for (long group = 0; group < g.groups; ++group)
            for (long band = 0; band < bands; ++band) {
                const Range block = Range{band * rows, (band + 1) * rows}.cut(Range{0, any.rows.outputs});
                for (long k = 0; k < step; ++k) {
                    const auto target = [&](long row) { return parts + ((row - block.first) * channels * step + k) * line; };
                    if (!is_empty(k))
                        phases[k].compute(block.first, block.last, x + group * g.x, weight + group * g.weight, target, step * line, {}, memory);
                    else
                        for (long i = 0; i < (block.last - block.first) * channels; ++i) clear_elements(parts + (i * step + k) * line, line);
                }
                const Epilogue<T> own = g.epilogue_of(group, epilogue);
                for (long i = 0; i < (block.last - block.first) * channels; ++i) {
                    const long row = any.rows.out_base + (block.first + i / channels) * any.rows.out_step, c = i % channels;
                    const T* from = parts + i * step * line;
                    joiner.join(from, line, pixels, joined);
                    for (long k = 0; k < width % step; ++k)
                        copy_elements(from + k * line + pixels * lanes, joined + (pixels * step + k) * lanes, lanes);
                    own.write_line(c, joined, y + group * g.y + c * any.out_plane + row * any.out_row, width * lanes);
                }
            }
    }
}

}  // namespace ringlet::RINGLET_ISA
