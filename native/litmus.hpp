// Litmus tests of the channel's three shapes (channel.hpp, "Order of memory"): two threads on two processors run a few accesses
// at the same time, millions of times, and what must not happen is counted.
#pragma once

namespace ringlet {

enum LitmusShape {
    kMessage,  // one writes data, then its number; the other has read the number and then reads old data
    kReuse,    // one reads data, then writes its number; the other has read the number, and yet its next data were read
    kSleep,    // each writes a word and then reads that of the other; neither sees the other's
};

enum LitmusOrder {
    kAsChannel,  // the accesses as the channel makes them
    kRelaxed,    // without any order: what the processor makes of it
    kStreamed,   // as kRelaxed, data written past the caches; x86 alone
};

// Violations in so many rounds; the threads run on the first two processors that this process may use, if there are two.
long count_violations(LitmusShape, LitmusOrder, long rounds);
bool has_streamed_order();

}  // namespace ringlet
