#include "xstage/mem/world.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "xstage/core/error.hpp"
#include "xstage/core/units.hpp"

namespace xs {

int Rank::num_ranks() const { return world_->num_ranks(); }

std::span<std::byte> Rank::mapped(int peer, RegionId region) const {
  const auto& layout = world_->layout_;
  std::byte* base = world_->memory_.get() + static_cast<std::size_t>(peer) * world_->stride_;
  return {base + layout.offset(region), layout.bytes(region)};
}

void Rank::put(int peer, RegionId region, std::size_t offset, std::span<const std::byte> source) const {
  require(peer >= 0 && peer < num_ranks(), "put: rank {} of {} does not exist", peer, num_ranks());
  const auto target = mapped(peer, region);
  require(offset <= target.size() && source.size() <= target.size() - offset,
          "put: {} bytes at offset {} do not fit into region {} of {} bytes", source.size(), offset,
          world_->layout_.name(region), target.size());
  if (!source.empty()) std::memcpy(target.data() + offset, source.data(), source.size());
}

void World::Unmap::operator()(std::byte* memory) const { ::munmap(memory, bytes); }

World::World(Layout layout, int num_ranks) : layout_(std::move(layout)), num_ranks_(num_ranks) {
  require(num_ranks >= 1, "ranks must be at least 1, found {}", num_ranks);
  constexpr std::size_t kPage = 4096;
  stride_ = ceil_div(std::max<std::size_t>(layout_.total_bytes(), 1), kPage) * kPage;
  const std::size_t bytes = stride_ * static_cast<std::size_t>(num_ranks);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    fail(ErrorKind::unavailable,
         "{} ranks need {} bytes of symmetric memory each, {} in all, and this machine gave none", num_ranks, stride_,
         bytes);
  }
  memory_ = {static_cast<std::byte*>(memory), Unmap{bytes}};
}

void run_ranks(const World& world, const std::function<void(Rank)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  bool echo = false;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world.num_ranks(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(world.rank(rank));
      } catch (const Error& error) {
        // A rank that gave up waiting only echoes what another one met.
        const std::lock_guard lock(mutex);
        const bool cause = error.kind() != ErrorKind::timeout;
        if (!first || (cause && echo)) first = std::current_exception(), echo = !cause;
      } catch (...) {
        const std::lock_guard lock(mutex);
        first = std::current_exception(), echo = false;
      }
    });
  }
  threads.clear();
  if (first) std::rethrow_exception(first);
}

}  // namespace xs
