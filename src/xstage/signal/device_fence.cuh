#pragma once

namespace xs {

// Called by: a thread that has written. Guarantees on return: what it wrote before (and what it had observed) is remote
// visible to every thread that observes something it writes later, and on this hardware it has left the sender: the
// fence waits for the acknowledgement of every store. Pairs with an acquire at system scope. Writes of the asynchronous
// proxy count only after their wait_group and a proxy fence (tile/store.cuh). Cost: 1.0 to 1.6 us for what is
// outstanding alone, more behind a full port.
__device__ inline void fence_system() { __threadfence_system(); }

}  // namespace xs
