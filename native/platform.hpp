// What the build decides: instruction set name, vector width, number of registers; and the number of threads.
#pragma once

#ifndef RINGLET_ISA
#define RINGLET_ISA generic
#endif

#if defined(__AVX512F__)
#define RINGLET_VECTOR_BYTES 64
#define RINGLET_REGISTERS 32
#elif defined(__AVX__)
#define RINGLET_VECTOR_BYTES 32
#define RINGLET_REGISTERS 16
#elif defined(__aarch64__)
// NEON. Vectors of 32 bytes, as pairs of registers, stay in memory with GCC: see docs/portability.md.
#define RINGLET_VECTOR_BYTES 16
#define RINGLET_REGISTERS 32
#else
#define RINGLET_VECTOR_BYTES 16
#define RINGLET_REGISTERS 16
#endif

#ifdef _OPENMP
#include <omp.h>
#endif

namespace ringlet {

// An integer as a type, for tiles whose size the compiler must know.
template <int Value>
struct std_integer {
    static constexpr int value = Value;
    constexpr operator int() const { return Value; }
};

int num_threads();
void set_num_threads(int count);

// Memory that kernels use inside one call; grows to the largest request and stays. One arena per thread and slot.
void* scratch(int slot, unsigned long bytes);
unsigned long scratch_bytes();

enum ScratchSlot { kScratchShared0, kScratchShared1, kScratchShared2, kScratchShared3, kScratchOwn0, kScratchOwn1, kScratchOwn2,
                   kScratchWide0, kScratchWide1, kScratchWide2, kScratchWide3, kScratchSlots };

template <typename T>
inline T* scratch_array(int slot, long count) {
    return static_cast<T*>(scratch(slot, static_cast<unsigned long>(count) * sizeof(T)));
}

#ifdef _OPENMP
inline int thread_index() { return omp_get_thread_num(); }
#else
inline int thread_index() { return 0; }
#endif

}  // namespace ringlet
