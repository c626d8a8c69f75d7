// Depthwise convolutions with 3x3 kernels and stride 1: the taps' weights stay in registers while a plane passes. Nothing is copied:
// the vectors at the ends of a row leave out what lies beyond it. In the weight gradient it is the sums that stay in registers.
#pragma once

#include "gemm.hpp"
#include "lines.hpp"

namespace ringlet::RINGLET_ISA {

constexpr int kDepthwiseTaps = 3;

inline bool suits_depthwise(const ConvProblem& p) {
    return p.in_channels == 1 && p.out_channels == 1 && p.rows.taps == kDepthwiseTaps && p.columns.taps == kDepthwiseTaps &&
           p.rows.in_step == 1 && p.columns.in_step == 1 && p.columns.out_step == 1 && p.rows.out_step == 1;
}

// The vectors of a row of outputs, and which of their lanes find each tap inside the row.
template <typename T>
class DepthwiseRow {
    static constexpr int Width = kNativeWidth<T>;

  public:
    using V = Vec<T, Width>;

    explicit DepthwiseRow(const ConvProblem& p) : size_(p.columns.outputs * p.lanes), count_((size_ + Width - 1) / Width) {
        lanes_ = scratch_array<Lanes>(kScratchShared2, count_ * kDepthwiseTaps);
        for (int s = 0; s < kDepthwiseTaps; ++s) {
            const long column = p.columns.in_base + s * p.columns.tap_step;
            const Range inside = outputs_inside(p.columns.in_size, p.columns.outputs, 1, column);
            shift[s] = column * p.lanes;
            for (long j = 0; j < count_; ++j)
                lanes_[j * kDepthwiseTaps + s] = Lanes::of(within(inside.first * p.lanes - j * Width), within(inside.last * p.lanes - j * Width));
        }
        while (inner_first < count_ && !is_inner(inner_first)) ++inner_first;
        inner_last = inner_first;
        while (inner_last < count_ && is_inner(inner_last)) ++inner_last;
    }

    long count() const { return count_; }
    // Lanes of vector j that are outputs.
    long outputs(long j) const { return size_ - j * Width < Width ? size_ - j * Width : Width; }
    // What vector j finds at tap s of a row.
    inline __attribute__((always_inline)) V read(const T* row, long j, int s) const {
        return lanes_[j * kDepthwiseTaps + s].load(row + shift[s] + j * Width);
    }

    long shift[kDepthwiseTaps];
    long inner_first = 0, inner_last = 0;  // vectors that are whole, and whole at every tap

  private:
    // Lanes [first, last).
    struct Lanes {
#if defined(__AVX512F__)
        __mmask16 mask;
        static Lanes of(long first, long last) { return Lanes{static_cast<__mmask16>(last > first ? (1u << last) - (1u << first) : 0u)}; }
        bool all() const { return mask == static_cast<__mmask16>((1u << Width) - 1); }
        inline __attribute__((always_inline)) V load(const T* source) const {
            if constexpr (sizeof(T) == 4)
                return (V)_mm512_maskz_loadu_ps(mask, source);
            else
                return (V)_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), source);
        }
#else
        int first, last;
        static Lanes of(long first, long last) { return Lanes{int(first), int(last)}; }
        bool all() const { return first == 0 && last == Width; }
        V load(const T* source) const {
            V value{};
            for (int i = first; i < last; ++i) value[i] = source[i];
            return value;
        }
#endif
    };

    static long within(long lane) { return lane < 0 ? 0 : (lane > Width ? Width : lane); }
    bool is_inner(long j) const {
        bool inner = outputs(j) == Width;
        for (int s = 0; s < kDepthwiseTaps; ++s) inner = inner && lanes_[j * kDepthwiseTaps + s].all();
        return inner;
    }

    long size_, count_;
    Lanes* lanes_;
};

// Calls body(std_integer<rows>, first tap, outputs) for the ranges of rows of outputs that have the same `rows` taps inside the image.
template <typename Body>
inline void each_run_of_rows(const Axis& rows, Body body) {
    for (long row = 0; row < rows.outputs;) {
        long first, last, next_first, next_last;
        rows.valid_taps(row, first, last);
        long end = row + 1;
        for (; end < rows.outputs; ++end) {
            rows.valid_taps(end, next_first, next_last);
            if (next_first != first || next_last != last) break;
        }
        const Range outputs{row, end};
        if (last - first == 3) body(std_integer<3>{}, first, outputs);
        if (last - first == 2) body(std_integer<2>{}, first, outputs);
        if (last - first == 1) body(std_integer<1>{}, first, outputs);
        if (last <= first) body(std_integer<0>{}, 0l, outputs);
        row = end;
    }
}

template <typename T, int Rows>
__attribute__((noinline)) void depthwise_rows(const ConvProblem& p, const DepthwiseRow<T>& columns, long first_tap, const Range& outputs,
                                              const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    constexpr int Width = kNativeWidth<T>, Columns = kDepthwiseTaps;
    using V = Vec<T, Width>;
    V factor[Rows * Columns + 1];
    unroll<Rows * Columns>([&](auto i) {
        const long r = first_tap + i / Columns, s = i % Columns;
        factor[i] = splat<V>(weight[(p.rows.weight_base + r * p.rows.weight_step) * p.weight_row + p.columns.weight_base + s * p.columns.weight_step]);
    });
    const long down = p.rows.tap_step * p.in_row, left = columns.shift[0], middle = columns.shift[1], right = columns.shift[2];
    const bool plain = epilogue.plain();
    const V bias = splat<V>(epilogue.bias ? epilogue.bias[0] : T(0)), floor = splat<V>(epilogue.floor());
    // In the same order everywhere: where in a vector a pixel lies must not matter.
    const auto add_taps = [&](auto read) __attribute__((always_inline)) {
        V sum = bias, more{};
        unroll<Rows>([&](auto r) {
            sum += factor[r * Columns] * read(r, std_integer<0>{});
            more += factor[r * Columns + 1] * read(r, std_integer<1>{});
            sum += factor[r * Columns + 2] * read(r, std_integer<2>{});
        });
        return sum + more;
    };
    const auto at_end = [&](const T* source, T* target, long j) {
        V sum = add_taps([&](auto r, auto s) { return columns.read(source + r * down, j, s); });
        const long count = columns.outputs(j);
        if (!plain) sum = epilogue.template with_memory<true>(target + j * Width, sum, count);
        store_part(target + j * Width, maximum(sum, floor), count);
    };
    for (long row = outputs.first; row < outputs.last; ++row) {
        const T* source = x + (p.rows.in_base + row + first_tap * p.rows.tap_step) * p.in_row;
        T* target = y + row * p.out_row;
        for (long j = 0; j < columns.inner_first; ++j) at_end(source, target, j);
        for (long at = columns.inner_first * Width; at < columns.inner_last * Width; at += Width) {
            V sum = add_taps([&](auto r, auto s) { return load<V>(source + r * down + at + (s == 0 ? left : (s == 1 ? middle : right))); });
            if (!plain) sum = epilogue.with_memory(target + at, sum);
            store(target + at, maximum(sum, floor));
        }
        for (long j = columns.inner_last; j < columns.count(); ++j) at_end(source, target, j);
    }
}

template <typename T>
void convolve_depthwise(const ConvProblem& p, const GroupStrides& g, const T* x, const T* weight, T* y, const Epilogue<T>& epilogue) {
    const DepthwiseRow<T> columns(p);
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long group = 0; group < g.groups; ++group)
        each_run_of_rows(p.rows, [&](auto rows, long first_tap, const Range& outputs) {
            depthwise_rows<T, decltype(rows)::value>(p, columns, first_tap, outputs, x + group * g.x, weight + group * g.weight,
                                                     y + group * g.y, g.epilogue_of(group, epilogue));
        });
}

template <typename T, int Rows>
__attribute__((noinline)) void depthwise_weight_rows(const ConvProblem& p, const DepthwiseRow<T>& columns, long first_tap,
                                                     const Range& outputs, const T* x, const T* dy, T* sums) {
    constexpr int Width = kNativeWidth<T>, Columns = kDepthwiseTaps;
    using V = Vec<T, Width>;
    V acc[Rows * Columns + 1];
    unroll<Rows * Columns>([&](auto i) { acc[i] = V{}; });
    const long down = p.rows.tap_step * p.in_row;
    for (long row = outputs.first; row < outputs.last; ++row) {
        const T* source = x + (p.rows.in_base + row + first_tap * p.rows.tap_step) * p.in_row;
        const T* gradient = dy + row * p.out_row;
        const auto at_end = [&](long j) {
            const V value = load_part<V>(gradient + j * Width, columns.outputs(j));
            unroll<Rows * Columns>([&](auto i) { acc[i] += value * columns.read(source + i / Columns * down, j, i % Columns); });
        };
        for (long j = 0; j < columns.inner_first; ++j) at_end(j);
        for (long at = columns.inner_first * Width; at < columns.inner_last * Width; at += Width) {
            const V value = load<V>(gradient + at);
            unroll<Rows * Columns>([&](auto i) { acc[i] += value * load<V>(source + i / Columns * down + columns.shift[i % Columns] + at); });
        }
        for (long j = columns.inner_last; j < columns.count(); ++j) at_end(j);
    }
    unroll<Rows * Columns>([&](auto i) { sums[first_tap * Columns + i] += horizontal_sum<T, kNativeWidth<T>>(acc[i]); });
}

// p is the forward problem.
template <typename T>
void depthwise_weight_gradient(const ConvProblem& p, long groups, const T* x, const T* dy, T* dweight) {
    const DepthwiseRow<T> columns(p);
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long group = 0; group < groups; ++group) {
        T* sums = dweight + group * kDepthwiseTaps * kDepthwiseTaps;
        for (int i = 0; i < kDepthwiseTaps * kDepthwiseTaps; ++i) sums[i] = T(0);
        each_run_of_rows(p.rows, [&](auto rows, long first_tap, const Range& outputs) {
            depthwise_weight_rows<T, decltype(rows)::value>(p, columns, first_tap, outputs, x + group * p.in_plane, dy + group * p.out_plane, sums);
        });
    }
}

}  // namespace ringlet::RINGLET_ISA
