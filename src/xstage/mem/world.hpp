#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "xstage/core/units.hpp"
#include "xstage/mem/host_port.hpp"
#include "xstage/mem/layout.hpp"
#include "xstage/mem/memory.hpp"

// Ranks and the memory they share.
//
// Every rank has one symmetric buffer with the same layout. A host operator reads and writes its own part and reaches
// a peer only through put() and signal/'s raise(), so that it does not see what carries the bytes. Ranks are threads
// of one process or processes of one machine.

namespace xs {

class World;

enum class RanksAre { threads, processes };
// "threads" or "processes".
std::string to_string(RanksAre ranks);

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
  // On return: source free, and remote visible to whoever acquires a raise that this thread makes afterwards. With a
  // port, bytes for peers pass it, and this waits while it is full.
  // Throws Error(usage) when the bytes do not fit.
  void put(int peer, RegionId region, std::size_t offset, std::span<const std::byte> source) const;

  // A peer whose process ended without leaving, the lowest; none while all are well. A system call per peer.
  std::optional<int> gone_peer() const;

  // For signal/ and RankSockets only: the peer's region as this rank sees it.
  std::span<std::byte> mapped(int peer, RegionId region) const;
  // For signal/ only: `publish` is called when all that this thread put is there; without a port at once.
  template <class Publish>
  void then(Publish&& publish) const {
    port_ != nullptr ? port_->then(std::forward<Publish>(publish)) : publish();
  }
  // For signal/ only: returns when all that any thread of this rank put is there, and all of then() was called.
  void settle() const {
    if (port_ != nullptr) port_->settle();
  }

 private:
  friend class World;
  Rank(const World& world, int rank, HostPort* port) : world_(&world), rank_(rank), port_(port) {}
  const World* world_;
  int rank_;
  HostPort* port_;
};

class World {
 public:
  // Zeroed memory for every rank. Throws Error(unavailable) that names the bytes when there is not enough. Ranks that
  // are processes are started by run_ranks(), or join() on their own.
  // With `port`, what a rank stores into peers passes a port of its own.
  World(Layout layout, int num_ranks, RanksAre ranks = RanksAre::threads, std::optional<HostPortOptions> port = {});

  // Rank `rank` of a world that another process of this user made, found by its path(). Returns when all ranks are
  // there. Throws Error(usage) when layouts or numbers of ranks differ (it names the region) or the rank is there
  // already, Error(timeout) that names the ranks which did not come.
  static World join(const std::string& path, Layout layout, int num_ranks, int rank, Nanos timeout);

  int num_ranks() const { return num_ranks_; }
  const Layout& layout() const { return layout_; }
  RanksAre ranks_are() const { return memory_.is_shared() ? RanksAre::processes : RanksAre::threads; }
  const std::optional<HostPortOptions>& port() const { return port_; }
  // `port` carries what this rank stores into peers; none: it is there at once.
  Rank rank(int rank, HostPort* port = nullptr) const { return {*this, rank, port}; }
  // Where other processes find it while this one lives; empty if ranks are threads.
  const std::string& path() const { return memory_.path(); }

  // This process is rank `rank` from now on until it ends. False: another one is.
  bool become(int rank) const;
  // It is done: who still waits for others need not worry when its process ends. A rank that fails does not leave.
  void leave(int rank) const;

 private:
  friend class Rank;
  World(Layout layout, int num_ranks, Memory memory);
  std::uint32_t& left(int rank) const;
  Layout layout_;
  int num_ranks_;
  std::size_t stride_;
  std::size_t left_offset_;
  std::optional<HostPortOptions> port_;
  Memory memory_;  // what it is, for those who join | who left | a part per rank
};

}  // namespace xs
