// Sums of several arrays along a binary tree: the bits depend on the tree alone. Contract: ringlet/kernels/reference/updates.py.
#pragma once

#include "elementwise.hpp"

namespace ringlet::RINGLET_ISA {

// A tree that is one of the common ones is one pass without intermediate results. Inputs are numbered as they are pushed.
enum TreeShape { kLeaf, kTwo, kThreeLeft, kThreeRight, kFourBalanced, kFourLeft, kOtherTree };

inline TreeShape shape_of(const int* tree, int length) {
    const auto adds_at = [&](unsigned pattern) {
        for (int i = 0; i < length; ++i)
            if ((tree[i] < 0) != bool(pattern >> i & 1u)) return false;
        return true;
    };
    if (length == 1) return kLeaf;
    if (length == 3) return kTwo;
    if (length == 5) return adds_at(0b10100) ? kThreeLeft : kThreeRight;
    if (length == 7 && adds_at(0b1100100)) return kFourBalanced;
    if (length == 7 && adds_at(0b1010100)) return kFourLeft;
    return kOtherTree;
}

// One block of any tree: intermediate sums lie on a stack of blocks, the last one goes to out.
template <typename T>
inline void add_tree_block(const T* const* inputs, const int* tree, int length, T* out, long first, long count, long block, T* memory) {
    const T** stack = static_cast<const T**>(scratch(kScratchOwn1, static_cast<unsigned long>(length) * sizeof(T*)));
    int depth = 0;
    for (int i = 0; i < length; ++i) {
        if (tree[i] >= 0) {
            stack[depth++] = inputs[tree[i]] + first;
            continue;
        }
        --depth;
        const T *a = stack[depth - 1], *b = stack[depth];
        T* target = i + 1 == length ? out + first : memory + (depth - 1) * block;
        constexpr int Width = kNativeWidth<T>;
        using V = Vec<T, Width>;
        long at = 0;
        for (; at + Width <= count; at += Width) store(target + at, load<V>(a + at) + load<V>(b + at));
        for (; at < count; ++at) target[at] = a[at] + b[at];
        stack[depth - 1] = target;
    }
}

template <typename T>
void add_tree(const T* const* inputs, const int* tree, int length, T* out, long count) {
    const T* leaf[4] = {};
    for (int i = 0, pushed = 0; i < length && pushed < 4; ++i)
        if (tree[i] >= 0) leaf[pushed++] = inputs[tree[i]];
    const T *a = leaf[0], *b = leaf[1], *c = leaf[2], *d = leaf[3];
    const auto each = [&](auto sum) {
        over_vectors<T>(count, [=](auto width, long at) {
            using V = Vec<T, decltype(width)::value>;
            store(out + at, sum([at](const T* source) { return load<V>(source + at); }));
        });
    };
    switch (shape_of(tree, length)) {
        case kLeaf:
            if (a != out) each([=](auto at) { return at(a); });
            return;
        case kTwo: return each([=](auto at) { return at(a) + at(b); });
        case kThreeLeft: return each([=](auto at) { return (at(a) + at(b)) + at(c); });
        case kThreeRight: return each([=](auto at) { return at(a) + (at(b) + at(c)); });
        case kFourBalanced: return each([=](auto at) { return (at(a) + at(b)) + (at(c) + at(d)); });
        case kFourLeft: return each([=](auto at) { return ((at(a) + at(b)) + at(c)) + at(d); });
        case kOtherTree: break;
    }
    constexpr long kBlock = 4096 / sizeof(T);
    over_elements(count, [&](long first, long last) {
        T* memory = scratch_array<T>(kScratchOwn0, length * kBlock);
        for (long at = first; at < last; at += kBlock)
            add_tree_block(inputs, tree, length, out, at, last - at < kBlock ? last - at : kBlock, kBlock, memory);
    });
}

}  // namespace ringlet::RINGLET_ISA
