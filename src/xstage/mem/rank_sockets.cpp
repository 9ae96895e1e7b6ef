#include "xstage/mem/rank_sockets.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Key = std::uint64_t;  // of a rank that listens; 0: it does not
using Parcel = RankSockets::Parcel;

// What travels. The head is 0, or the ErrorKind of which the bytes are the text; with it no packet is empty, which
// would read like the end.
struct Packet {
  std::uint8_t head;
  Parcel parcel;
};

class Deadline {
 public:
  explicit Deadline(Nanos timeout)
      : timeout_(timeout), end_(Clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(timeout.value))) {}

  // Waits for `what`, which began before, until the socket is ready, broken or at most for `slice`.
  void wait(const OpenFile& socket, short events, const std::string& what,
            milliseconds slice = milliseconds(100)) const {
    const auto left = std::chrono::ceil<milliseconds>(end_ - Clock::now());
    if (left <= milliseconds(0)) fail(ErrorKind::timeout, "{} after {:.3f} s", what, timeout_.value * 1e-9);
    pollfd one{socket.get(), events, 0};
    ::poll(&one, 1, static_cast<int>(std::min(left, slice).count()));
  }

 private:
  Nanos timeout_;
  Clock::time_point end_;
};

OpenFile new_socket() {
  OpenFile socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) fail(ErrorKind::unavailable, "no Unix socket: {}", std::strerror(errno));
  return socket;
}

// A name without a file. The kernel forgets it with the socket.
struct Address {
  explicit Address(Key key) {
    name.sun_family = AF_UNIX;
    const auto text = fmt::format("xstage-{:016x}", key);
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  sockaddr_un name{};
  socklen_t size;
};

// Whose process connected, or listens, at the other end.
uid_t user_behind(const OpenFile& socket) {
  ucred who{};
  socklen_t size = sizeof who;
  check(::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0, "who is at a socket's other end: {}",
        std::strerror(errno));
  return who.uid;
}

// A message's room for one open file.
struct FileRoom {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

void give(const OpenFile& socket, Packet& packet, const Deadline& deadline, const std::string& what) {
  auto& [head, parcel] = packet;
  std::array parts{iovec{&head, sizeof head}, iovec{parcel.bytes.data(), parcel.bytes.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  FileRoom room;
  if (parcel.file.is_open()) {
    message.msg_control = room.bytes.data();
    message.msg_controllen = room.bytes.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int file = parcel.file.get();
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  while (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EPIPE || errno == ECONNRESET) return;  // gone, as take() will say
    if (errno != EAGAIN && errno != EINTR) fail(ErrorKind::unavailable, "{}: {}", what, std::strerror(errno));
    deadline.wait(socket, POLLOUT, what);
  }
}

// None: the other end is closed.
std::optional<Packet> take(const OpenFile& socket, const Deadline& deadline, const std::string& what) {
  Packet packet{0, {std::vector<std::byte>(RankSockets::kMostBytes), OpenFile()}};
  auto& [head, parcel] = packet;
  std::array parts{iovec{&head, sizeof head}, iovec{parcel.bytes.data(), parcel.bytes.size()}};
  FileRoom room;
  msghdr message{};
  ssize_t size = -1;
  while (size < 0) {
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = room.bytes.data();
    message.msg_controllen = room.bytes.size();
    size = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (size >= 0 || errno == ECONNRESET) continue;  // the next call after a reset tells what came before it
    if (errno != EAGAIN && errno != EINTR) fail(ErrorKind::unavailable, "{}: {}", what, std::strerror(errno));
    deadline.wait(socket, POLLIN, what);
  }
  if (const auto* rights = CMSG_FIRSTHDR(&message); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(rights), sizeof file);
    parcel.file = OpenFile(file);
  }
  if (size == 0) return {};
  if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    fail(ErrorKind::unavailable, "{}: a packet did not fit; this process may have too many files open (`ulimit -n`)",
         what);
  }
  parcel.bytes.resize(static_cast<std::size_t>(size) - sizeof head);
  return packet;
}

std::atomic_ref<Key> key_of(Rank rank, int peer, RegionId region) {
  return std::atomic_ref(*reinterpret_cast<Key*>(rank.mapped(peer, region).data()));
}

// Where higher ranks connect, while it is there.
class Listener {
 public:
  Listener(Rank rank, RegionId region) : socket_(new_socket()), key_(key_of(rank, rank.rank(), region)) {
    Key key = 0;
    check(::getrandom(&key, sizeof key, 0) == sizeof key, "no random bytes: {}", std::strerror(errno));
    key |= 1;
    const Address address(key);
    if (::bind(socket_.get(), address.get(), address.size) != 0 || ::listen(socket_.get(), rank.num_ranks()) != 0) {
      fail(ErrorKind::unavailable, "no Unix socket to listen at: {}", std::strerror(errno));
    }
    key_ = key;
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { key_ = 0; }

  const OpenFile& socket() const { return socket_; }

 private:
  OpenFile socket_;
  std::atomic_ref<Key> key_;
};

// Waits a moment for ranks that are not connected yet.
void wait_for_ranks(Rank rank, const OpenFile& socket, short events, const Deadline& deadline,
                    const std::string& what) {
  if (const auto gone = rank.gone_peer()) {
    fail(ErrorKind::timeout, "{}: the process of rank {} ended before all had met", what, *gone);
  }
  deadline.wait(socket, events, what, milliseconds(1));
}

OpenFile connect_to(int peer, Rank rank, RegionId region, uid_t user, const OpenFile& own, const Deadline& deadline) {
  const auto what = fmt::format("rank {} waits for rank {} to meet it", rank.rank(), peer);
  while (true) {
    if (const Key key = key_of(rank, peer, region); key != 0) {
      OpenFile socket = new_socket();
      const Address address(key);
      if (::connect(socket.get(), address.get(), address.size) == 0) {
        const uid_t found = user_behind(socket);
        require(found == user,
                "rank {} expects processes of user {}, rank {} is one of user {}; start all ranks as one "
                "user",
                rank.rank(), user, peer, found);
        const int who = rank.rank();
        const auto bytes = std::as_bytes(std::span(&who, 1));
        Packet hello{0, {{bytes.begin(), bytes.end()}, OpenFile()}};
        give(socket, hello, deadline, what);
        return socket;
      }
      // Refused: the key is of a listener that is gone. Again: many connect at once.
      if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
        fail(ErrorKind::unavailable, "{}: {}", what, std::strerror(errno));
      }
    }
    wait_for_ranks(rank, own, 0, deadline, what);
  }
}

// Which rank it is that connected and says so.
int rank_behind(const OpenFile& socket, const Deadline& deadline, const std::string& what) {
  int rank = -1;
  const auto hello = take(socket, deadline, what);
  if (hello && hello->parcel.bytes.size() == sizeof rank) std::memcpy(&rank, hello->parcel.bytes.data(), sizeof rank);
  return rank;
}

// Fills the places of the higher ranks.
void accept_all(const Listener& listener, Rank rank, uid_t user, const Deadline& deadline,
                std::vector<OpenFile>& sockets) {
  std::string refused;
  while (true) {
    std::vector<int> missing;
    for (int peer = rank.rank() + 1; peer < rank.num_ranks(); ++peer) {
      if (!sockets[static_cast<std::size_t>(peer)].is_open()) missing.push_back(peer);
    }
    if (missing.empty()) return;
    const auto what =
        fmt::format("rank {} waits for rank {} to meet it{}", rank.rank(), fmt::join(missing, ", "), refused);
    OpenFile socket(::accept4(listener.socket().get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        fail(ErrorKind::unavailable, "{}: {}", what, std::strerror(errno));
      }
      wait_for_ranks(rank, listener.socket(), POLLIN, deadline, what);
    } else if (const uid_t found = user_behind(socket); found != user) {
      // Anybody may knock: no reason to give up on the ranks.
      refused = fmt::format(" (a process of user {} was refused, user {} expected; start all ranks as one user)", found,
                            user);
    } else {
      const int peer = rank_behind(socket, deadline, what);
      if (std::ranges::count(missing, peer) != 0) sockets[static_cast<std::size_t>(peer)] = std::move(socket);
    }
  }
}

}  // namespace

RegionId RankSockets::reserve(Layout& layout) { return layout.add("socket", sizeof(Key)); }

RankSockets::RankSockets(Rank rank, RegionId region, RankSocketsOptions options)
    : rank_(rank), options_(options), sockets_(static_cast<std::size_t>(rank.num_ranks())) {
  {
    const Deadline deadline(options_.timeout);
    const Listener listener(rank_, region);
    for (int peer = 0; peer < rank_.rank(); ++peer) {
      sockets_[static_cast<std::size_t>(peer)] =
          connect_to(peer, rank_, region, options_.user, listener.socket(), deadline);
    }
    accept_all(listener, rank_, options_.user, deadline, sockets_);
  }
  meet();  // nobody's next key is read for this one
}

std::vector<Parcel> RankSockets::exchange(const std::function<Parcel()>& give_own) {
  if (!broken_.empty()) fail(ErrorKind::timeout, "{}", broken_);
  Packet own{0, {}};
  const auto tell = [&](ErrorKind kind, std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text.substr(0, kMostBytes)));
    own = {static_cast<std::uint8_t>(kind), {{bytes.begin(), bytes.end()}, OpenFile()}};
  };
  try {
    own.parcel = give_own();
    check(own.parcel.bytes.size() <= kMostBytes, "a parcel of {} bytes, {} at most", own.parcel.bytes.size(),
          kMostBytes);
  } catch (const Error& error) {
    tell(error.kind(), error.what());
  } catch (const std::exception& error) {
    tell(ErrorKind::internal, error.what());
  }

  std::vector<Packet> packets(sockets_.size());
  try {
    const Deadline deadline(options_.timeout);
    const auto what = [&](int peer) { return fmt::format("rank {} waits for rank {}", rank(), peer); };
    for (int peer = 0; peer < num_ranks(); ++peer) {
      if (peer != rank()) give(sockets_[static_cast<std::size_t>(peer)], own, deadline, what(peer));
    }
    for (int peer = 0; peer < num_ranks(); ++peer) {
      if (peer == rank()) continue;
      auto packet = take(sockets_[static_cast<std::size_t>(peer)], deadline, what(peer));
      if (!packet) fail(ErrorKind::timeout, "{}, which is gone: its process ended or gave up", what(peer));
      packets[static_cast<std::size_t>(peer)] = std::move(*packet);
    }
  } catch (const Error& error) {
    broken_ = error.what();
    throw;
  }
  packets[static_cast<std::size_t>(rank())] = std::move(own);

  std::vector<Parcel> parcels;
  for (auto& [head, parcel] : packets) {
    if (head != 0) {
      const auto* text = reinterpret_cast<const char*>(parcel.bytes.data());
      fail(static_cast<ErrorKind>(head), "rank {}: {}", parcels.size(), std::string_view(text, parcel.bytes.size()));
    }
    parcels.push_back(std::move(parcel));
  }
  return parcels;
}

void RankSockets::meet() {
  exchange([] { return Parcel(); });
}

}  // namespace xs
