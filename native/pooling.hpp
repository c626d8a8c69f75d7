// Pooling: vectors over samples, windows cut at the border, where a pixel is some whole vectors; otherwise pooling_rows.hpp serves.
#pragma once

#include "kernels.hpp"
#include "pooling_rows.hpp"
#include "pooling_windows.hpp"

namespace ringlet::RINGLET_ISA {

// Calls body(output offset, window) for every output pixel of one plane; offsets in pixels.
struct Window {
    long row_first, row_last, column_first, column_last;  // inside the input
    long row_origin, column_origin;                       // of the uncut window
    long count() const { return (row_last - row_first) * (column_last - column_first); }
};

template <typename Body>
inline void for_each_window(const PoolShape& s, Body body) {
    for (long p = 0; p < s.out_height; ++p)
        for (long q = 0; q < s.out_width; ++q) {
            Window w;
            w.row_origin = p * s.stride_h - s.padding_h;
            w.column_origin = q * s.stride_w - s.padding_w;
            w.row_first = w.row_origin < 0 ? 0 : w.row_origin;
            w.column_first = w.column_origin < 0 ? 0 : w.column_origin;
            w.row_last = w.row_origin + s.kernel_h < s.height ? w.row_origin + s.kernel_h : s.height;
            w.column_last = w.column_origin + s.kernel_w < s.width ? w.column_origin + s.kernel_w : s.width;
            body(p * s.out_width + q, w);
        }
}

// The commonest case: 2x2 windows side by side.
inline bool windows_are_pairs(const PoolShape& s) {
    return s.kernel_h == 2 && s.kernel_w == 2 && s.stride_h == 2 && s.stride_w == 2 && s.padding_h == 0 && s.padding_w == 0 &&
           2 * s.out_height <= s.height && 2 * s.out_width <= s.width;
}

template <typename T, int Width>
void max_pool_pairs(const PoolShape& s, const T* x, T* y, uint16_t* argmax, bool relu) {
    using V = Vec<T, Width>;
    using I = Vec<typename IndexOf<T>::type, Width>;
    const long row = s.width * s.lanes;
    for (long p = 0; p < s.out_height; ++p)
        for (long q = 0; q < s.out_width; ++q) {
            const T* corner = x + 2 * p * row + 2 * q * s.lanes;
            const long at = (p * s.out_width + q) * s.lanes;
            for (long lane = 0; lane < s.lanes; lane += Width) {
                const V a = load<V>(corner + lane), b = load<V>(corner + s.lanes + lane);
                const V c = load<V>(corner + row + lane), d = load<V>(corner + row + s.lanes + lane);
                const auto right = b > a, right_below = d > c;
                const V top = right ? b : a, bottom = right_below ? d : c;
                const auto below = bottom > top;
                const I top_index = right ? splat_index<I>(1) : I{}, bottom_index = right_below ? splat_index<I>(3) : splat_index<I>(2);
                store_maximum<T, Width>(below ? bottom : top, below ? bottom_index : top_index, y + at + lane, argmax + at + lane, relu);
            }
        }
}

// Both give the sum of what flows back.
template <typename T, int Width>
double max_pool_pairs_backward(const PoolShape& s, const T* dy, const uint16_t* argmax, T* dx, bool add) {
    using V = Vec<T, Width>;
    using I = Vec<typename IndexOf<T>::type, Width>;
    const long row = s.width * s.lanes;
    double total = 0;
    for (long p = 0; p < s.out_height; ++p) {
        V sum{};
        for (long q = 0; q < s.out_width; ++q) {
            T* corner = dx + 2 * p * row + 2 * q * s.lanes;
            const long at = (p * s.out_width + q) * s.lanes;
            for (long lane = 0; lane < s.lanes; lane += Width) {
                const V gradient = load<V>(dy + at + lane);
                const I index = __builtin_convertvector(load<Vec<uint16_t, Width>>(argmax + at + lane), I);
                sum += index == splat_index<I>(kNoElement) ? V{} : gradient;
                unroll<4>([&](auto k) {
                    T* target = corner + k / 2 * row + k % 2 * s.lanes + lane;
                    const V value = index == splat_index<I>(k) ? gradient : V{};
                    store(target, add ? value + load<V>(target) : value);
                });
            }
        }
        total += horizontal_sum<T, Width>(sum);
    }
    return total;
}

template <typename T, int Width>
void max_pool_plane(const PoolShape& s, const T* x, T* y, uint16_t* argmax, bool relu) {
    if (windows_are_pairs(s)) return max_pool_pairs<T, Width>(s, x, y, argmax, relu);
    using V = Vec<T, Width>;
    using I = Vec<typename IndexOf<T>::type, Width>;
    for_each_window(s, [&](long at, const Window& w) {
        for (long lane = 0; lane < s.lanes; lane += Width) {
            V best = load<V>(x + (w.row_first * s.width + w.column_first) * s.lanes + lane);
            I index = splat_index<I>((w.row_first - w.row_origin) * s.kernel_w + w.column_first - w.column_origin);
            for (long row = w.row_first; row < w.row_last; ++row)
                for (long column = w.column_first; column < w.column_last; ++column) {
                    const V value = load<V>(x + (row * s.width + column) * s.lanes + lane);
                    const auto larger = value > best;
                    best = larger ? value : best;
                    index = larger ? splat_index<I>((row - w.row_origin) * s.kernel_w + column - w.column_origin) : index;
                }
            store_maximum<T, Width>(best, index, y + at * s.lanes + lane, argmax + at * s.lanes + lane, relu);
        }
    });
}

template <typename T>
inline bool pixels_are_vectors(const PoolShape& s) {
    return s.lanes % kNativeWidth<T> == 0;
}

// Calls plane(rows, c, memory) for all channels with pooling by rows.
template <typename T, typename Plane>
void pool_rows(const PoolShape& s, Plane plane) {
    const RowPooling<T> rows(s);
#pragma omp parallel num_threads(num_threads())
    {
        T* memory = scratch_array<T>(kScratchOwn0, rows.memory_size());
#pragma omp for schedule(static)
        for (long c = 0; c < s.channels; ++c) plane(rows, c, memory);
    }
}

template <typename T>
void max_pool2d_forward(const PoolShape& s, const T* x, T* y, uint16_t* argmax, bool relu) {
    const long in_plane = s.height * s.width * s.lanes, out_plane = s.out_height * s.out_width * s.lanes;
    if (!pixels_are_vectors<T>(s))
        return pool_rows<T>(s, [=](const auto& rows, long c, T* memory) {
            rows.max_forward(x + c * in_plane, y + c * out_plane, argmax + c * out_plane, relu, memory);
        });
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long c = 0; c < s.channels; ++c)
        max_pool_plane<T, kNativeWidth<T>>(s, x + c * in_plane, y + c * out_plane, argmax + c * out_plane, relu);
}

// Windows that tile the input exactly: every input element belongs to one window, so it is written once.
inline bool windows_tile_input(const PoolShape& s) {
    return s.kernel_h == s.stride_h && s.kernel_w == s.stride_w && s.padding_h == 0 && s.padding_w == 0 &&
           s.out_height * s.kernel_h == s.height && s.out_width * s.kernel_w == s.width;
}

template <typename T, int Width>
double max_pool_plane_backward(const PoolShape& s, const T* dy, const uint16_t* argmax, T* dx, bool add) {
    if (windows_are_pairs(s)) return max_pool_pairs_backward<T, Width>(s, dy, argmax, dx, add);
    using V = Vec<T, Width>;
    using I = Vec<typename IndexOf<T>::type, Width>;
    double total = 0;
    for_each_window(s, [&](long at, const Window& w) {
        V sum{};
        for (long lane = 0; lane < s.lanes; lane += Width) {
            const V gradient = load<V>(dy + at * s.lanes + lane);
            const I index = __builtin_convertvector(load<Vec<uint16_t, Width>>(argmax + at * s.lanes + lane), I);
            sum += index == splat_index<I>(kNoElement) ? V{} : gradient;
            for (long row = w.row_first; row < w.row_last; ++row)
                for (long column = w.column_first; column < w.column_last; ++column) {
                    const I here = splat_index<I>((row - w.row_origin) * s.kernel_w + column - w.column_origin);
                    T* target = dx + (row * s.width + column) * s.lanes + lane;
                    V value = index == here ? gradient : V{};
                    if (add) value += load<V>(target);
                    store(target, value);
                }
        }
        total += horizontal_sum<T, Width>(sum);
    });
    return total;
}

template <typename T, typename Plane>
void pool_backward(const PoolShape& s, T* dx, bool accumulate, Plane plane) {
    const long in_plane = s.height * s.width * s.lanes;
    const bool add = accumulate || !windows_tile_input(s);
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long c = 0; c < s.channels; ++c) {
        if (add && !accumulate) memset(dx + c * in_plane, 0, sizeof(T) * in_plane);
        plane(c, dx + c * in_plane, add);
    }
}

template <typename T>
void max_pool2d_backward(const PoolShape& s, const T* dy, const uint16_t* argmax, T* dx, T* sums, bool accumulate) {
    const long in_plane = s.height * s.width * s.lanes, out_plane = s.out_height * s.out_width * s.lanes;
    const auto keep = [=](long c, double sum) {
        if (sums) sums[c] = T(sum);
    };
    if (!pixels_are_vectors<T>(s))
        return pool_rows<T>(s, [=](const auto& rows, long c, T* memory) {
            keep(c, rows.max_backward(dy + c * out_plane, argmax + c * out_plane, dx + c * in_plane, accumulate, memory));
        });
    pool_backward(s, dx, accumulate, [&](long c, T* target, bool add) {
        keep(c, max_pool_plane_backward<T, kNativeWidth<T>>(s, dy + c * out_plane, argmax + c * out_plane, target, add));
    });
}

template <typename T, int Width>
void avg_pool_plane(const PoolShape& s, const T* x, T* y) {
    using V = Vec<T, Width>;
    for_each_window(s, [&](long at, const Window& w) {
        const T share = T(1) / T(w.count());
        for (long lane = 0; lane < s.lanes; lane += Width) {
            V sum{};
            for (long row = w.row_first; row < w.row_last; ++row)
                for (long column = w.column_first; column < w.column_last; ++column)
                    sum += load<V>(x + (row * s.width + column) * s.lanes + lane);
            store(y + at * s.lanes + lane, sum * share);
        }
    });
}

template <typename T>
void avg_pool2d_forward(const PoolShape& s, const T* x, T* y) {
    const long in_plane = s.height * s.width * s.lanes, out_plane = s.out_height * s.out_width * s.lanes;
    if (!pixels_are_vectors<T>(s))
        return pool_rows<T>(s, [=](const auto& rows, long c, T* memory) { rows.average_forward(x + c * in_plane, y + c * out_plane, memory); });
#pragma omp parallel for schedule(static) num_threads(num_threads())
    for (long c = 0; c < s.channels; ++c) avg_pool_plane<T, kNativeWidth<T>>(s, x + c * in_plane, y + c * out_plane);
}

template <typename T, int Width>
void avg_pool_plane_backward(const PoolShape& s, const T* dy, T* dx, bool add) {
    using V = Vec<T, Width>;
    for_each_window(s, [&](long at, const Window& w) {
        const T share = T(1) / T(w.count());
        for (long lane = 0; lane < s.lanes; lane += Width) {
            const V gradient = load<V>(dy + at * s.lanes + lane) * share;
            for (long row = w.row_first; row < w.row_last; ++row)
                for (long column = w.column_first; column < w.column_last; ++column) {
                    T* target = dx + (row * s.width + column) * s.lanes + lane;
                    store(target, add ? gradient + load<V>(target) : gradient);
                }
        }
    });
}

template <typename T>
void avg_pool2d_backward(const PoolShape& s, const T* dy, T* dx, bool accumulate) {
    const long in_plane = s.height * s.width * s.lanes, out_plane = s.out_height * s.out_width * s.lanes;
    if (!pixels_are_vectors<T>(s))
        return pool_rows<T>(s, [=](const auto& rows, long c, T* memory) {
            rows.average_backward(dy + c * out_plane, dx + c * in_plane, accumulate, memory);
        });
    pool_backward(s, dx, accumulate,
                  [&](long c, T* target, bool add) { avg_pool_plane_backward<T, kNativeWidth<T>>(s, dy + c * out_plane, target, add); });
}

}  // namespace ringlet::RINGLET_ISA
