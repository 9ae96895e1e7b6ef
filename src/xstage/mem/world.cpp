#include "xstage/mem/world.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "xstage/core/error.hpp"
#include "xstage/core/text_lines.hpp"

namespace xs {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) { return ceil_div(std::max<std::size_t>(bytes, 1), kPage) * kPage; }

// What a world is, at the head of its memory: a line for itself and one for every region.
std::string description(const Layout& layout, int num_ranks) {
  auto text = fmt::format("xstage world 1 of {} ranks\n", num_ranks);
  for (std::size_t i = 0; i < layout.num_regions(); ++i) {
    text += fmt::format("region {} of {} bytes\n", layout.name({i}), layout.bytes({i}));
  }
  return text;
}

// Behind it, a word per rank: whether it left.
std::size_t left_offset(const Layout& layout, int num_ranks) {
  return ceil_div(description(layout, num_ranks).size() + 1, Layout::kAlignment) * Layout::kAlignment;
}

std::size_t head_bytes(const Layout& layout, int num_ranks) {
  return whole_pages(left_offset(layout, num_ranks) + static_cast<std::size_t>(num_ranks) * sizeof(std::uint32_t));
}

std::size_t world_bytes(const Layout& layout, int num_ranks) {
  require(num_ranks >= 1, "ranks must be at least 1, found {}", num_ranks);
  const std::size_t rank_bytes = whole_pages(layout.total_bytes());
  const std::size_t head = head_bytes(layout, num_ranks);
  const std::size_t most = (~std::size_t{0} >> 1) - head;  // a mapping's size, and a file's, is signed
  if (rank_bytes > most / static_cast<std::size_t>(num_ranks)) {
    fail(ErrorKind::unavailable, "{} ranks need {} bytes of symmetric memory each; no machine has that", num_ranks,
         rank_bytes);
  }
  return head + rank_bytes * static_cast<std::size_t>(num_ranks);
}

Memory memory_of(const Layout& layout, int num_ranks, RanksAre ranks) {
  const auto bytes = world_bytes(layout, num_ranks);
  try {
    return ranks == RanksAre::threads ? Memory::of_process(bytes) : Memory::of_processes(bytes);
  } catch (const Error& error) {
    fail(error.kind(), "{} ranks with {} bytes of symmetric memory each: {}", num_ranks, layout.total_bytes(),
         error.what());
  }
}

}  // namespace

std::string to_string(RanksAre ranks) { return ranks == RanksAre::threads ? "threads" : "processes"; }

int Rank::num_ranks() const { return world_->num_ranks(); }

std::span<std::byte> Rank::mapped(int peer, RegionId region) const {
  const auto& layout = world_->layout_;
  const auto memory = world_->memory_.bytes();
  const auto parts = world_->stride_ * static_cast<std::size_t>(world_->num_ranks_ - peer);
  return memory.subspan(memory.size() - parts + layout.offset(region), layout.bytes(region));
}

void Rank::put(int peer, RegionId region, std::size_t offset, std::span<const std::byte> source) const {
  require(peer >= 0 && peer < num_ranks(), "put: rank {} of {} does not exist", peer, num_ranks());
  const auto target = mapped(peer, region);
  require(offset <= target.size() && source.size() <= target.size() - offset,
          "put: {} bytes at offset {} do not fit into region {} of {} bytes", source.size(), offset,
          world_->layout_.name(region), target.size());
  if (source.empty()) return;
  if (port_ != nullptr && peer != rank_) return port_->put(target.subspan(offset, source.size()), source);
  std::memcpy(target.data() + offset, source.data(), source.size());
}

std::optional<int> Rank::gone_peer() const {
  if (world_->ranks_are() == RanksAre::threads) return {};
  for (int peer = 0; peer < num_ranks(); ++peer) {
    // In this order: who ends has left before.
    if (peer != rank_ && !world_->memory_.is_taken(peer) && std::atomic_ref(world_->left(peer)) == 0) return peer;
  }
  return {};
}

World::World(Layout layout, int num_ranks, Memory memory)
    : layout_(std::move(layout)),
      num_ranks_(num_ranks),
      stride_(whole_pages(layout_.total_bytes())),
      left_offset_(left_offset(layout_, num_ranks)),
      memory_(std::move(memory)) {}

World::World(Layout layout, int num_ranks, RanksAre ranks, std::optional<HostPortOptions> port)
    : World(layout, num_ranks, memory_of(layout, num_ranks, ranks)) {
  port_ = port;
  const auto text = description(layout_, num_ranks_);
  std::memcpy(memory_.bytes().data(), text.data(), text.size());
}

std::uint32_t& World::left(int rank) const {
  return reinterpret_cast<std::uint32_t*>(memory_.bytes().data() + left_offset_)[rank];
}

bool World::become(int rank) const {
  if (!memory_.take_seat(rank)) return false;
  std::atomic_ref(left(rank)) = 0;
  return true;
}

void World::leave(int rank) const { std::atomic_ref(left(rank)) = 1; }

World World::join(const std::string& path, Layout layout, int num_ranks, int rank, Nanos timeout) {
  require(rank >= 0 && rank < num_ranks, "rank {} of {} does not exist", rank, num_ranks);
  auto memory = Memory::join(path);
  const auto mine = description(layout, num_ranks);
  const auto* head = reinterpret_cast<const char*>(memory.bytes().data());
  const std::string_view theirs(head, ::strnlen(head, memory.bytes().size()));
  if (const auto differing = differing_lines(mine, theirs); !differing.empty()) {
    const auto& [here, there] = differing.front();
    fail(ErrorKind::usage, "rank {} has {}, its world {} has {}; all ranks need the same shape, dtype and capacity",
         rank, here, path, there);
  }
  require(memory.bytes().size() == world_bytes(layout, num_ranks), "world {}: {} bytes expected, {} found", path,
          world_bytes(layout, num_ranks), memory.bytes().size());
  World world(std::move(layout), num_ranks, std::move(memory));
  require(world.become(rank), "rank {} of {} is there already", rank, path);

  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(timeout.value));
  std::vector<int> missing;
  while (true) {
    missing.clear();
    for (int peer = 0; peer < num_ranks; ++peer) {
      if (peer != rank && !world.memory_.is_taken(peer)) missing.push_back(peer);
    }
    if (missing.empty()) return world;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  fail(ErrorKind::timeout, "rank {} waited {:.3f} s for rank {} to join {}", rank, timeout.value * 1e-9,
       fmt::join(missing, ", "), path);
}

}  // namespace xs
