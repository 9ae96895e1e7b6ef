#include "xstage/mem/gpu_world.hpp"

#include <algorithm>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

std::size_t table_bytes(std::size_t num_ranks) {
  require(num_ranks >= 1, "ranks must be at least 1, found {}", num_ranks);
  return num_ranks * sizeof(std::byte*);
}

}  // namespace

GpuWorld::GpuWorld(Layout layout, int num_ranks, int device, GpuPlace receive)
    : layout_(std::move(layout)),
      device_(device),
      first_rank_(0),
      table_(device, GpuPlace::own, table_bytes(static_cast<std::size_t>(std::max(num_ranks, 0)))) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    parts_.push_back(own_.emplace_back(device, receive, std::max<std::size_t>(layout_.total_bytes(), 1)).data());
  }
  fill_table();
}

GpuWorld::GpuWorld(Layout layout, std::vector<std::byte*> parts, int rank, int device)
    : layout_(std::move(layout)),
      device_(device),
      first_rank_(rank),
      parts_(std::move(parts)),
      table_(device, GpuPlace::own, table_bytes(parts_.size())) {
  require(rank >= 0 && rank < num_ranks(), "rank {} of {} does not exist", rank, num_ranks());
  fill_table();
}

void GpuWorld::fill_table() { table_.write(0, std::as_bytes(std::span(parts_))); }

DeviceRank GpuWorld::rank(int rank) const {
  return {rank, num_ranks(), reinterpret_cast<std::byte* const*>(table_.data())};
}

std::byte* GpuWorld::at(int rank, RegionId region) const { return place(rank, region, 0, 0); }

std::byte* GpuWorld::place(int rank, RegionId region, std::size_t offset, std::size_t bytes) const {
  require(rank >= 0 && rank < num_ranks(), "rank {} of {} does not exist", rank, num_ranks());
  require(offset <= layout_.bytes(region) && bytes <= layout_.bytes(region) - offset,
          "{} bytes at offset {} do not fit into region {} of {} bytes", bytes, offset, layout_.name(region),
          layout_.bytes(region));
  return parts_[static_cast<std::size_t>(rank)] + layout_.offset(region) + offset;
}

void GpuWorld::read(int rank, RegionId region, std::size_t offset, std::span<std::byte> target) const {
  copy(target.data(), place(rank, region, offset, target.size()), target.size());
}

void GpuWorld::write(int rank, RegionId region, std::size_t offset, std::span<const std::byte> source) const {
  copy(place(rank, region, offset, source.size()), source.data(), source.size());
}

}  // namespace xs
