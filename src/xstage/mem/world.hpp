#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "xstage/mem/layout.hpp"

// Ranks and the memory they share.
//
// Every rank has one symmetric buffer with the same layout. A host operator reads and writes its own part and reaches
// a peer only through put() and signal/'s raise(), so that it does not see what carries the bytes. Here ranks are
// threads of one process.

namespace xs {

class World;

// One rank's view of its world. Cheap to copy; the world must outlive it.
class Rank {
 public:
  int rank() const { return rank_; }
  int num_ranks() const;

  std::span<std::byte> local(RegionId region) const { return mapped(rank_, region); }
  // The region as an array of T. Values of T in another rank's region are reached by put() alone.
  template <class T>
  std::span<T> local_as(RegionId region) const {
    const auto bytes = local(region);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // Copies `source` into the peer's region at `offset` bytes; the peer may be the own rank.
  // On return: source free, and remote visible to whoever acquires a raise that this thread makes afterwards.
  // Throws Error(usage) when the bytes do not fit.
  void put(int peer, RegionId region, std::size_t offset, std::span<const std::byte> source) const;

  // For signal/ only: the peer's region as this rank sees it.
  std::span<std::byte> mapped(int peer, RegionId region) const;

 private:
  friend class World;
  Rank(const World& world, int rank) : world_(&world), rank_(rank) {}
  const World* world_;
  int rank_;
};

class World {
 public:
  // Zeroed memory for every rank. Throws Error(unavailable) that names the bytes when there is not enough.
  World(Layout layout, int num_ranks);

  int num_ranks() const { return num_ranks_; }
  const Layout& layout() const { return layout_; }
  Rank rank(int rank) const { return {*this, rank}; }

 private:
  friend class Rank;
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };
  Layout layout_;
  int num_ranks_;
  std::size_t stride_;
  std::unique_ptr<std::byte, Unmap> memory_;
};

// Runs `body` once per rank, each on a thread of its own, and returns when all have ended. Rethrows the error of the
// rank that failed first; a timeout only when no rank failed otherwise.
void run_ranks(const World& world, const std::function<void(Rank)>& body);

}  // namespace xs
