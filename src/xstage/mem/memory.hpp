#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace xs {

// Zeroed pages, of one process or of several.
//
// Pages that processes share are a file in /dev/shm of mode 0600 whose name nobody can guess and which is unlinked as
// soon as it is open: whatever ends the processes, SIGKILL included, nothing stays behind. Other processes of the same
// user open it through its creator, by path().
//
// A process may take a seat in it, which it loses only by ending (a record lock: the kernel gives it back, and no
// process number is ever mistaken for a later one's).
class Memory {
 public:
  // Throws Error(unavailable) that names the bytes when there are not as many.
  static Memory of_process(std::size_t bytes);
  // All pages are there on return: a full /dev/shm is an error here, not a SIGBUS later.
  static Memory of_processes(std::size_t bytes);
  // Throws Error(usage) when there is none, or it is not this user's alone.
  static Memory join(const std::string& path);

  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  std::span<std::byte> bytes() const { return {begin_, size_}; }
  bool is_shared() const { return file_ >= 0; }
  const std::string& path() const { return path_; }

  bool take_seat(int seat) const;  // false: another process has it
  bool is_taken(int seat) const;   // by another process

 private:
  Memory(std::size_t size, int file, std::string path);
  std::byte* begin_;
  std::size_t size_;
  int file_;  // -1: of one process
  std::string path_;
};

}  // namespace xs
