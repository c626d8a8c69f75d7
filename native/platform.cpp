// Threads and scratch memory, shared by all instruction sets.
#include "platform.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace ringlet {

namespace {

std::atomic<int> thread_count{0};
std::atomic<unsigned long> scratch_total{0};

struct Arena {
    void* memory = nullptr;
    unsigned long size = 0;

    void* at_least(unsigned long bytes) {
        if (bytes > size) {
            std::free(memory);
            scratch_total -= size;
            size = (bytes + 4095) / 4096 * 4096;
            memory = std::aligned_alloc(64, size);
            if (memory == nullptr) {
                size = 0;
                throw std::bad_alloc();
            }
            scratch_total += size;
        }
        return memory;
    }
    ~Arena() { std::free(memory); }
};

thread_local Arena arenas[kScratchSlots];

}  // namespace

int num_threads() {
    const int count = thread_count.load(std::memory_order_relaxed);
    if (count > 0) return count;
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

void set_num_threads(int count) { thread_count.store(count, std::memory_order_relaxed); }

void* scratch(int slot, unsigned long bytes) { return arenas[slot].at_least(bytes); }

unsigned long scratch_bytes() { return scratch_total.load(); }

}  // namespace ringlet
