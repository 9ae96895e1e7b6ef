#pragma once

#include <cuda/ptx>

#include <cstdint>

// Barriers in shared memory between roles of a block.

namespace xs {

// The phase of a barrier that is used again and again: of use 0, 1, 2, …
__device__ constexpr std::uint32_t phase_of(int use) { return static_cast<std::uint32_t>(use) & 1u; }

class Mbarrier {
 public:
  // Called by one thread, before publish_barriers().
  __device__ void init(int arrivals) { cuda::ptx::mbarrier_init(&word_, static_cast<std::uint32_t>(arrivals)); }

  // Publishes what the caller wrote, and what others wrote before a barrier that it passed, to who sees the phase over;
  // release, scope of the block.
  __device__ void arrive() { (void)cuda::ptx::mbarrier_arrive(&word_); }
  // As so many arrivals at once.
  __device__ void arrive(int arrivals) {
    (void)cuda::ptx::mbarrier_arrive(&word_, static_cast<std::uint32_t>(arrivals));
  }

  // Arrives, and lets the phase last until so many bytes have been loaded besides.
  __device__ void arrive_and_expect(int bytes) {
    namespace ptx = cuda::ptx;
    (void)ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &word_,
                                         static_cast<std::uint32_t>(bytes));
  }

  // Returns when a phase is over, for a wait that others are sure to end; acquire, scope of the block. All in one
  // piece, since a loop that the compiler sees makes it hold back asynchronous products around it.
  __device__ void wait(std::uint32_t phase) {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
        "@!over bra again;\n"
        "}\n" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(&word_))),
        "r"(phase)
        : "memory");
  }

  // Looks once whether a phase is over. That alone orders nothing: wait() follows before what it guards is read.
  __device__ bool is_over(std::uint32_t phase) { return cuda::ptx::mbarrier_test_wait_parity(&word_, phase); }

  // For loads: what counts its bytes.
  __device__ std::uint64_t* word() { return &word_; }

 private:
  std::uint64_t word_;
};

// Called by the thread that called init(), before a barrier of the block. The asynchronous proxy sees the barriers too.
__device__ inline void publish_barriers() {
  cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  cuda::ptx::fence_proxy_async();
}

}  // namespace xs
