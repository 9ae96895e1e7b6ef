#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "xstage/core/units.hpp"
#include "xstage/mem/layout.hpp"
#include "xstage/mem/world.hpp"

namespace xs {

// Closed when it goes.
class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int file) : file_(file) {}
  OpenFile(OpenFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }

  bool is_open() const { return file_ >= 0; }
  int get() const { return file_; }

 private:
  int file_ = -1;
};

struct RankSocketsOptions {
  Nanos timeout{30e9};       // of one exchange
  uid_t user = ::geteuid();  // whose processes the ranks must be; tests name another one
};

// A Unix socket between every two ranks of a world, for what shared memory cannot carry: open files, and the news that
// a peer's process has ended. For set-up: an exchange costs system calls for every peer.
//
// Ranks find each other through the world's memory. The sockets have no name in the file system; ranks in different
// network namespaces do not reach each other. Before a rank says or hears a word, the kernel tells it which user is at
// the other end: another one gets nothing, and nothing is taken from it.
class RankSockets {
 public:
  struct Parcel {
    std::vector<std::byte> bytes;
    OpenFile file;  // none, if it is not open
  };
  static constexpr std::size_t kMostBytes = 4096;  // of a parcel

  static RegionId reserve(Layout& layout);

  // Collective: returns when this rank is connected with all others. Throws Error(timeout) that names the ranks which
  // did not come, or one that is gone; Error(usage) when a rank is another user's.
  RankSockets(Rank rank, RegionId region, RankSocketsOptions options = {});

  int rank() const { return rank_.rank(); }
  int num_ranks() const { return rank_.num_ranks(); }

  // Collective: every rank gives a copy of one parcel to all others. Returns theirs by rank, the own one at its place,
  // when all have given, so it is a barrier, too. Where `give` throws, every rank throws that error, the lowest rank's
  // if there are several, and the next exchange may be tried.
  // Throws Error(timeout) when a rank does not come or is gone; from then on every call throws that.
  // One thread per rank.
  std::vector<Parcel> exchange(const std::function<Parcel()>& give);
  void meet();

 private:
  Rank rank_;
  RankSocketsOptions options_;
  std::vector<OpenFile> sockets_;  // by rank
  std::string broken_;             // why, once an exchange came to nothing
};

}  // namespace xs
