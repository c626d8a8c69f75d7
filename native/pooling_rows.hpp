// Pooling where a pixel is not some whole vectors: vectors run over the flat row of pixels and samples. Input rows are lines
// (lines.hpp), so a window's element is a shift; what flows back is collected in lines, too, and joined to rows.
#pragma once

#include "kernels.hpp"
#include "lines.hpp"
#include "pooling_windows.hpp"

namespace ringlet::RINGLET_ISA {

template <typename T>
class RowPooling {
    static constexpr int Width = kNativeWidth<T>;
    using V = Vec<T, Width>;
    using I = Vec<typename IndexOf<T>::type, Width>;
    using Short = Vec<uint16_t, Width>;

  public:
    explicit RowPooling(const PoolShape& shape)
        : s_(shape), lines_(forward_axis(s_.width, s_.out_width, s_.kernel_w, s_.stride_w, s_.padding_w, 1), s_.lanes),
          phases_(s_.stride_w, s_.lanes), row_(s_.out_width * s_.lanes),
          has_blanks_(s_.padding_w > 0 || (s_.out_width - 1) * s_.stride_w + s_.kernel_w > s_.width) {}

    // Elements of memory that each of the passes over a plane needs.
    long memory_size() const { return s_.kernel_h * lines_.size() + lines_.spare_size() + (s_.stride_w * lines_.phase_size() + Width) + 2 * row_ + 4 * Width; }

    void max_forward(const T* x, T* y, uint16_t* argmax, bool relu, T* memory) const {
        constexpr T lowest = -std::numeric_limits<T>::infinity();
        Ring ring(*this, x, memory, lowest);
        for (long p = 0; p < s_.out_height; ++p) {
            const Range taps = taps_of(p);
            ring.hold(p, taps);
            each_vector([&](auto part, long at, long count) {
                V best{};
                I index{};
                bool first = true;
                for (long r = taps.first; r < taps.last; ++r)
                    for (long s = 0; s < s_.kernel_w; ++s) {
                        const V value = read<decltype(part)::value>(ring.line(p, r) + lines_.tap(s) + at, count);
                        const I here = splat_index<I>(r * s_.kernel_w + s);
                        const auto larger = value > best;
                        index = first ? here : (larger ? here : index);
                        best = first ? value : (larger ? value : best);
                        first = false;
                    }
                if (has_blanks_ && horizontal_sum<T, Width>(best > splat<V>(lowest) ? V{} : splat<V>(T(1))) > T(0))
                    find_lowest(x, p, taps, at, count, best, index);
                finish_maximum(part, best, index, y + p * row_ + at, argmax + p * row_ + at, relu, count);
            });
        }
    }

    // Returns the sum of what flows back.
    double max_backward(const T* dy, const uint16_t* argmax, T* dx, bool add, T* memory) const {
        collect(dx, add, memory, [&](long p, long r, long s, T* line) {
            const I here = splat_index<I>(r * s_.kernel_w + s);
            each_vector([&](auto part, long at, long count) {
                constexpr bool Part = decltype(part)::value;
                const I index = __builtin_convertvector(read_index<Part>(argmax + p * row_ + at, count), I);
                const V value = index == here ? read<Part>(dy + p * row_ + at, count) : V{};
                write<Part>(line + at, read<Part>(line + at, count) + value, count);
            });
        });
        double total = 0;
        for (long p = 0; p < s_.out_height; ++p) {
            V sum{};
            each_vector([&](auto part, long at, long count) {
                constexpr bool Part = decltype(part)::value;
                const I index = __builtin_convertvector(read_index<Part>(argmax + p * row_ + at, count), I);
                sum += index == splat_index<I>(kNoElement) ? V{} : read<Part>(dy + p * row_ + at, count);
            });
            total += horizontal_sum<T, Width>(sum);
        }
        return total;
    }

    void average_forward(const T* x, T* y, T* memory) const {
        Ring ring(*this, x, memory, T(0));
        T* shares = shares_in(memory);
        for (long p = 0; p < s_.out_height; ++p) {
            const Range taps = taps_of(p);
            ring.hold(p, taps);
            if (p == 0 || taps.last - taps.first != size(taps_of(p - 1))) list_shares(size(taps), shares);
            each_vector([&](auto part, long at, long count) {
                constexpr bool Part = decltype(part)::value;
                V sum{};
                for (long r = taps.first; r < taps.last; ++r)
                    for (long s = 0; s < s_.kernel_w; ++s) sum += read<Part>(ring.line(p, r) + lines_.tap(s) + at, count);
                write<Part>(y + p * row_ + at, sum * load<V>(shares + at), count);
            });
        }
    }

    void average_backward(const T* dy, T* dx, bool add, T* memory) const {
        T* shares = shares_in(memory);
        long listed = 0;
        collect(dx, add, memory, [&](long p, long, long, T* line) {
            if (listed != size(taps_of(p))) list_shares(listed = size(taps_of(p)), shares);
            each_vector([&](auto part, long at, long count) {
                constexpr bool Part = decltype(part)::value;
                write<Part>(line + at, read<Part>(line + at, count) + read<Part>(dy + p * row_ + at, count) * load<V>(shares + at), count);
            });
        });
    }

  private:
    static long size(const Range& range) { return range.last - range.first; }

    // Rows of the window that lie in the image.
    Range taps_of(long p) const {
        const long top = p * s_.stride_h - s_.padding_h;
        return Range{-top, s_.height - top}.cut(Range{0, s_.kernel_h});
    }

    // Calls body(is_part, at, count) for the vectors of a row of outputs.
    template <typename Body>
    inline __attribute__((always_inline)) void each_vector(Body body) const {
        long at = 0;
        for (; at + Width <= row_; at += Width) body(std_integer<0>{}, at, long(Width));
        if (at < row_) body(std_integer<1>{}, at, row_ - at);
    }
    template <bool Part>
    static inline __attribute__((always_inline)) V read(const T* source, long count) {
        if constexpr (Part)
            return load_part<V>(source, count);
        else
            return load<V>(source);
    }
    template <bool Part>
    static inline __attribute__((always_inline)) void write(T* target, V value, long count) {
        if constexpr (Part)
            store_part(target, value, count);
        else
            store(target, value);
    }
    template <bool Part>
    static inline __attribute__((always_inline)) Short read_index(const uint16_t* source, long count) {
        if constexpr (Part)
            return load_part<Short>(source, count);
        else
            return load<Short>(source);
    }
    template <typename Part>
    static inline __attribute__((always_inline)) void finish_maximum(Part, V value, I index, T* y, uint16_t* argmax, bool relu, long count) {
        if constexpr (Part::value) {
            T values[Width];
            uint16_t indices[Width];
            store_maximum<T, Width>(value, index, values, indices, relu);
            for (long i = 0; i < count; ++i) y[i] = values[i], argmax[i] = indices[i];
        } else {
            store_maximum<T, Width>(value, index, y, argmax, relu);
        }
    }

    // Where nothing is above the blanks around the image, a window's first element inside of it counts.
    void find_lowest(const T* x, long p, const Range& taps, long at, long count, V& best, I& index) const {
        for (long i = 0; i < count; ++i) {
            if (best[i] > -std::numeric_limits<T>::infinity()) continue;
            const long q = (at + i) / s_.lanes, left = q * s_.stride_w - s_.padding_w, s = left < 0 ? -left : 0;
            const long row = p * s_.stride_h - s_.padding_h + taps.first;
            best[i] = x[(row * s_.width + left + s) * s_.lanes + (at + i) % s_.lanes];
            index[i] = static_cast<typename IndexOf<T>::type>(taps.first * s_.kernel_w + s);
        }
    }

    // The lines of the input rows that a window reads; the next window reads some of them again.
    class Ring {
      public:
        Ring(const RowPooling& pooling, const T* x, T* memory, T blank) : o_(pooling), x_(x), memory_(memory), blank_(blank) {}

        void hold(long p, const Range& taps) {
            if (!o_.lines_.copied()) return;
            const PoolShape& s = o_.s_;
            for (long r = taps.first; r < taps.last; ++r) {
                const long row = p * s.stride_h - s.padding_h + r;
                if (row < made_) continue;
                o_.lines_.fill(x_ + row * s.width * s.lanes, memory_ + row % s.kernel_h * o_.lines_.size(), memory_ + s.kernel_h * o_.lines_.size(), blank_);
                made_ = row + 1;
            }
        }
        const T* line(long p, long r) const {
            const PoolShape& s = o_.s_;
            const long row = p * s.stride_h - s.padding_h + r;
            return o_.lines_.copied() ? memory_ + row % s.kernel_h * o_.lines_.size() : x_ + row * s.width * s.lanes;
        }

      private:
        const RowPooling& o_;
        const T* x_;
        T* memory_;
        T blank_;
        long made_ = 0;
    };

    // For each row of the image: add(p, r, s, line) adds what row r of window row p gives to its elements at tap s.
    template <typename Add>
    void collect(T* dx, bool accumulate, T* memory, Add add) const {
        const long line = s_.stride_w * lines_.phase_stride(), elements = s_.width * s_.lanes;
        T* joined = memory + line;
        for (long row = 0; row < s_.height; ++row) {
            clear_elements(memory, line);
            for (long r = 0; r < s_.kernel_h; ++r) {
                const long top = row - r + s_.padding_h;
                if (top < 0 || top % s_.stride_h != 0 || top / s_.stride_h >= s_.out_height) continue;
                for (long s = 0; s < s_.kernel_w; ++s) {
                    const auto place = lines_.place(s);
                    add(top / s_.stride_h, r, s, memory + place.phase * lines_.phase_stride() + place.element);
                }
            }
            const T* from = memory;
            if (s_.stride_w > 1) phases_.join(memory, lines_.phase_stride(), lines_.phase_size() / s_.lanes, joined), from = joined;
            // The line begins with the padding, and may end before the row does.
            const long first = s_.padding_w * s_.lanes, known = s_.stride_w * lines_.phase_size() - first;
            T* target = dx + row * elements;
            const long count = known < elements ? known : elements;
            if (accumulate) {
                for (long i = 0; i < count; ++i) target[i] += from[first + i];
            } else {
                copy_elements(from + first, target, count);
                clear_elements(target + count, elements - count);
            }
        }
    }

    // One over the number of elements of a window that lie in the image, for every element of a row of outputs.
    void list_shares(long rows, T* shares) const {
        for (long q = 0; q < s_.out_width; ++q) {
            const long left = q * s_.stride_w - s_.padding_w;
            const T share = T(1) / T(rows * size(Range{-left, s_.width - left}.cut(Range{0, s_.kernel_w})));
            for (long lane = 0; lane < s_.lanes; ++lane) shares[q * s_.lanes + lane] = share;
        }
    }
    T* shares_in(T* memory) const { return memory + memory_size() - row_ - Width; }

    const PoolShape s_;
    Lines<T> lines_;
    Phases<T> phases_;
    long row_;
    bool has_blanks_;
};

}  // namespace ringlet::RINGLET_ISA
