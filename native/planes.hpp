// Vectors over the elements of a plane, (pixel, sample) in one line: whole vectors, and one partial vector at the end.
//
// Where lanes differ (padding, values per sample), a pattern repeats every `lanes` elements. In memory it goes on for a vector's width
// after its first period, so the vector at element `at` of a plane finds its part of the pattern at `at % lanes`, its phase.
#pragma once

#include "kernels.hpp"
#include "vector.hpp"

namespace ringlet::RINGLET_ISA {

// The integer that is as wide as T, to compare and to choose by.
template <typename T>
struct IntegerOf;
template <>
struct IntegerOf<float> {
    using type = int32_t;
};
template <>
struct IntegerOf<double> {
    using type = int64_t;
};

// Ones, then zeros: a vector from `count` elements before the zeros has ones in its first `count` lanes.
template <typename T>
struct Steps {
    T values[2 * kNativeWidth<T>] = {};
    constexpr Steps() {
        for (int i = 0; i < kNativeWidth<T>; ++i) values[i] = T(1);
    }
};
template <typename T>
inline constexpr Steps<T> kSteps;

// How a vector of a plane meets memory.
template <typename T>
struct Whole {
    using V = Vec<T, kNativeWidth<T>>;
    static constexpr bool is_whole = true;

    V read(const T* source) const { return load<V>(source); }
    void write(T* target, V value) const { store(target, value); }
    V inside(V value) const { return value; }
};

// The last one of a plane that is no multiple of the width: `inside` makes zeros of what lies beyond.
template <typename T>
struct Part {
    using V = Vec<T, kNativeWidth<T>>;
    static constexpr bool is_whole = false;
    long count;

    V read(const T* source) const { return load_part<V>(source, count); }
    void write(T* target, V value) const { store_part(target, value, count); }
    V inside(V value) const { return load<V>(kSteps<T>.values + kNativeWidth<T> - count) > V{} ? value : V{}; }
};

// Where a vector begins in a pattern that repeats every `lanes` elements.
template <typename T>
struct Phase {
    long at, step, lanes;

    Phase(long first, long lanes) : at(first % lanes), step(kNativeWidth<T> % lanes), lanes(lanes) {}
    void advance() {
        at += step;
        if (at >= lanes) at -= lanes;
    }
};

// A pattern's memory, of pattern_size elements, from its first period.
template <typename T>
constexpr long pattern_size(long lanes) {
    return lanes + kNativeWidth<T>;
}
template <typename T, typename Value>
inline void fill_pattern(T* pattern, long lanes, Value value) {
    for (long lane = 0; lane < lanes; ++lane) pattern[lane] = value(lane);
    for (long i = lanes; i < pattern_size<T>(lanes); ++i) pattern[i] = pattern[i - lanes];
}

// Calls body(whole or part, at, phase) on the vectors of [first, last). The body is a copy that nothing points to: its constants stay in
// registers, where stores cannot change them.
template <typename T, typename Body>
inline __attribute__((always_inline)) void in_sections(long lanes, long first, long last, Body body) {
    constexpr int Width = kNativeWidth<T>;
    Phase<T> phase(first, lanes);
    long at = first;
    for (; at + Width <= last; at += Width, phase.advance()) body(Whole<T>{}, at, phase.at);
    if (at < last) body(Part<T>{last - at}, at, phase.at);
}

// The sum of what body(whole or part, at, phase) gives over [first, last), in parts so that additions need not wait for each other.
template <typename T, typename Sum, int Parts = 4, typename Body>
inline __attribute__((always_inline)) Sum sum_sections(long lanes, long first, long last, Body body) {
    constexpr int Width = kNativeWidth<T>;
    Sum sums[Parts] = {};
    Phase<T> phase(first, lanes);
    long at = first;
    for (; at + Parts * Width <= last; at += Parts * Width)
        unroll<Parts>([&](auto k) {
            sums[k] += body(Whole<T>{}, at + k * Width, phase.at);
            phase.advance();
        });
    for (; at + Width <= last; at += Width, phase.advance()) sums[0] += body(Whole<T>{}, at, phase.at);
    if (at < last) sums[0] += body(Part<T>{last - at}, at, phase.at);
    for (int k = 1; k < Parts; ++k) sums[0] += sums[k];
    return sums[0];
}

// Which elements belong to samples: real(section, value, phase) is zero in the others, and beyond the plane.
template <typename T>
struct EveryLane {
    template <typename Section, typename V>
    V operator()(const Section& section, V value, long) const {
        return section.inside(value);
    }
};

template <typename T>
struct FirstLanes {
    const T* pattern;

    template <typename Section, typename V>
    V operator()(const Section& section, V value, long phase) const {
        return section.read(pattern + phase) > V{} ? value : V{};
    }
};

// Calls body(real) with one of the two.
template <typename T, typename Body>
inline void with_real_lanes(const Extent& e, Body body) {
    if (e.n == e.lanes) return body(EveryLane<T>{});
    T* pattern = scratch_array<T>(kScratchShared3, pattern_size<T>(e.lanes));
    fill_pattern(pattern, e.lanes, [&](long lane) { return lane < e.n ? T(1) : T(0); });
    body(FirstLanes<T>{pattern});
}

// How many of a plane's first `count` elements belong to samples.
inline long real_elements(const Extent& e, long count) {
    const long rest = count % e.lanes;
    return count / e.lanes * e.n + (rest < e.n ? rest : e.n);
}

}  // namespace ringlet::RINGLET_ISA
