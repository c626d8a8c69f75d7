// Threads and scratch memory, shared by all instruction sets.
#include "platform.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ringlet {

namespace {

std::atomic<int> thread_count{0};
std::atomic<unsigned long> scratch_total{0};

constexpr unsigned long kPage = 4096, kHugePage = 2ul << 20;

struct Arena {
    void* memory = nullptr;
    unsigned long size = 0;

    void* at_least(unsigned long bytes) {
        if (bytes > size) {
            std::free(memory);
            scratch_total -= size;
            const unsigned long page = bytes >= kHugePage ? kHugePage : kPage;
            size = (bytes + page - 1) / page * page;
            memory = std::aligned_alloc(page, size);
            if (memory == nullptr) {
                size = 0;
                throw std::bad_alloc();
            }
            scratch_total += size;
#if defined(__linux__)
            if (page == kHugePage) madvise(memory, size, MADV_HUGEPAGE);  // transformed filters touch many pages at once
#endif
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
