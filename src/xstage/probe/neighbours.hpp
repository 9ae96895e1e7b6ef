#pragma once

#include <functional>
#include <string>
#include <vector>

#include "xstage/core/units.hpp"
#include "xstage/probe/repeats.hpp"

// What the loads of other SMs lose while some store into another memory, and what pacing gives back.

namespace xs {

struct NeighbourPattern {
  int storers;
  int loaders;
  bool from_cache;      // loads that the GPU's shared cache serves; else from its memory
  BytesPerNano pace{};  // of all storers together; 0: they store without a pause
};

struct NeighbourRates {  // of all storers, of all loaders
  BytesPerNano store;
  BytesPerNano load;
};

struct NeighbourTarget {
  std::string chip, path, dst;
  int num_sms;
  std::function<NeighbourRates(const NeighbourPattern&)> run;  // once
};

struct NeighbourOptions {
  std::vector<int> storers = {1, 2, 4, 8};
  std::vector<double> paces = {0.95, 0.9, 0.85, 0.8};  // parts of the drain
  int repeats = 7;                                     // of each pattern
};

struct NeighbourCost {
  NeighbourPattern pattern;
  double pace = 0;         // part of the drain; 0: none
  Repeats store = {};      // bytes per ns
  Repeats load = {};       // bytes per ns
  double store_share = 0;  // of the drain
  double load_share = 0;   // of what these loaders get while nobody stores
};

struct NeighbourTable {
  BytesPerNano drain;  // the most that any number of storers reached
  std::vector<NeighbourCost> costs;

  struct Kept {
    double loads;   // the least share of any row
    double stores;  // the least share of the drain, of storers that reach it (95 % of it) without a pause
  };
  Kept kept_at(double pace) const;  // 0: without a pause
  // The highest pace at which the loads keep at least so much; 0 if there is none.
  double best_pace(double least_loads) const;
};

// An eighth of the SMs, and all but the most that store, load: from the cache, from memory, and nobody stores; then
// some do, without a pause and at each pace. Patterns take turns.
NeighbourTable probe_neighbours(const NeighbourTarget& target, const NeighbourOptions& options,
                                const std::function<void(double)>& progress = {});

}  // namespace xs
