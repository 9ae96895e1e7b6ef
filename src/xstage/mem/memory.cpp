#include "xstage/mem/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/mem/host_facts.hpp"

namespace xs {
namespace {

constexpr const char* kMoreSharedMemory =
    "free some, or give the machine more: `mount -o remount,size=…G /dev/shm`, in a container `--shm-size=…g` or "
    "`--ipc=host`";

std::string unguessable_name() {
  std::array<std::uint64_t, 2> random{};
  check(::getrandom(random.data(), sizeof random, 0) == sizeof random, "no random bytes: {}", std::strerror(errno));
  return fmt::format("/xstage-{:016x}{:016x}", random[0], random[1]);
}

struct flock seat_lock(int seat) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = seat;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Memory::Memory(std::size_t size, int file, std::string path) : size_(size), file_(file), path_(std::move(path)) {
  const int sharing = file_ < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, sharing, file_, 0);
  if (memory == MAP_FAILED) {
    const int reason = errno;
    if (file_ >= 0) ::close(file_);
    fail(ErrorKind::unavailable, "{} bytes of memory are needed, and this machine gave none: {}", size_,
         std::strerror(reason));
  }
  begin_ = static_cast<std::byte*>(memory);
}

Memory::Memory(Memory&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)),
      size_(other.size_),
      file_(std::exchange(other.file_, -1)),
      path_(std::move(other.path_)) {}

Memory::~Memory() {
  if (begin_ != nullptr) ::munmap(begin_, size_);
  if (file_ >= 0) ::close(file_);
}

Memory Memory::of_process(std::size_t bytes) { return {bytes, -1, {}}; }

Memory Memory::of_processes(std::size_t bytes) {
  const auto shm = shared_space();
  const auto too_much = [&] {
    fail(ErrorKind::unavailable, "{} bytes of shared memory are needed, /dev/shm has {} left; {}", bytes,
         shm.free_bytes, kMoreSharedMemory);
  };
  if (shm.bytes != 0 && bytes > shm.free_bytes) too_much();

  const auto name = unguessable_name();
  const int file = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) fail(ErrorKind::unavailable, "no file in /dev/shm: {}", std::strerror(errno));
  ::shm_unlink(name.c_str());
  if (::posix_fallocate(file, 0, static_cast<off_t>(bytes)) != 0) {
    ::close(file);
    too_much();
  }
  return {bytes, file, fmt::format("/proc/{}/fd/{}", ::getpid(), file)};
}

Memory Memory::join(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  require(file >= 0, "shared memory {}: {}; its creator must run, as the same user", path, std::strerror(errno));
  struct stat found {};
  const bool told = ::fstat(file, &found) == 0;
  if (!told || !S_ISREG(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 0777) != 0600 ||
      found.st_size == 0) {
    ::close(file);
    fail(ErrorKind::usage, "shared memory {}: a file of user {} with mode 600 expected, user {} with mode {:o} found",
         path, ::geteuid(), found.st_uid, found.st_mode & 0777);
  }
  return {static_cast<std::size_t>(found.st_size), file, path};
}

bool Memory::take_seat(int seat) const {
  auto lock = seat_lock(seat);
  return ::fcntl(file_, F_SETLK, &lock) == 0;
}

bool Memory::is_taken(int seat) const {
  auto lock = seat_lock(seat);
  return ::fcntl(file_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace xs
