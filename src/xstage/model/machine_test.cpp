#include "xstage/model/machine.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "xstage/core/csv.hpp"
#include "xstage/core/json.hpp"
#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

FittedPort port_of(const std::string& path, const std::string& dst, double scale) {
  FittedPort port;
  port.params.path = path;
  port.params.dst = dst;
  port.params.burst_overhead = {50 * scale};
  port.params.free_issue = {20 / scale};
  port.params.drain = {300 * scale};
  port.params.capacity = {1e6 * scale};
  port.params.worker_capacity = {1e5 / scale};
  port.params.visible_latency = {1400 / scale};
  port.params.disorder = 2.5;
  port.params.group_fairness = 0.9;
  port.params.spread = 1.0 / 3;
  port.num_patterns = 52;
  port.mean_abs_rel_error = 0.0125;
  port.saturated = true;
  port.parameters = {{"drain_bytes_per_ns", 300, 290.5, 311, true}, {"spread", 0.3, 0.1, 0.9, false}};
  return port;
}

Machine example_machine() {
  Machine machine;
  machine.name = "test";
  machine.chip = "Test Chip";
  machine.driver = "1.2";
  machine.date = "2026-01-02";
  machine.source = "made up, 1/3";
  machine.num_sms = 132;
  machine.sm_clock = {1.0 / 3};
  machine.memory = {4800.1};
  machine.memory_source = "datasheet";
  machine.compute = {{"bf16", {2900}, "a"}, {"fp8", {4783.3}, "b"}};
  machine.ports = {port_of("st16", "nvlink", 1.1), port_of("st16", "host", 1), port_of("bulk8192", "host", 1)};
  machine.ports.back().params.engine = {10};
  machine.ports.back().params.engine_capacity = {32768};
  machine.ports.back().saturated = false;
  machine.ports.back().held_out_error = 0.025;
  return machine;
}

class Profile : public testing::Test {
 protected:
  Machine load(const Json& json) {
    write_document(folder_ / "m.json", json);
    return load_machine((folder_ / "m.json").string());
  }
  TempFolder folder_;
};

TEST_F(Profile, ComesBackExactlyAsItWasWritten) {
  const auto json = to_json(example_machine());
  const auto read = load(json);
  EXPECT_EQ(to_json(read), json);
  EXPECT_EQ(read.sm_clock, GigaHertz{1.0 / 3});
  EXPECT_EQ(read.ports.at(0).params.drain, BytesPerNano{300 * 1.1});
  EXPECT_FALSE(read.ports.at(2).saturated);
  EXPECT_FALSE(read.ports.at(0).held_out_error.has_value());
  EXPECT_EQ(read.ports.at(2).held_out_error, 0.025);
}

TEST_F(Profile, EveryEmbeddedOneLoadsAndComesBack) {
  const auto names = embedded_machines();
  ASSERT_FALSE(names.empty());
  for (const auto& name : names) {
    const auto machine = load_machine(name);
    EXPECT_EQ(machine.name, name);
    EXPECT_EQ(to_json(load(to_json(machine))), to_json(machine));
  }
  EXPECT_EQ(load_machine("h200").chip, "NVIDIA H200");
}

TEST_F(Profile, UnknownNameListsTheKnownOnes) {
  expect_usage_error([] { load_machine("h2oo"); }, {"h2oo", "neither a file nor a known profile", "h200"});
  expect_usage_error([&] { load_machine((folder_ / "").string()); }, {"found a folder"});
  folder_.write("cut.json", to_json(example_machine()).dump().substr(0, 200));
  expect_usage_error([&] { load_machine((folder_ / "cut.json").string()); }, {"cut.json", "not valid JSON"});
}

// All fields, as paths: "/num_sms", "/compute/1/source", "/ports/0/drain_bytes_per_ns".
std::vector<std::string> fields_of(const Json& json) {
  const Json flat = json.flatten();
  std::vector<std::string> paths;
  for (const auto& [path, value] : flat.items()) paths.push_back(path);
  return paths;
}

TEST_F(Profile, FieldThatIsMissingOrOfAnotherTypeIsNamed) {
  const auto good = to_json(example_machine());
  int tried = 0;
  for (const auto& path : fields_of(good)) {
    SCOPED_TRACE(path);
    const Json::json_pointer pointer(path);
    const auto name = "\"" + pointer.back() + "\"";
    if (path == "/xstage") continue;  // who wrote it; nobody reads it
    auto bad = good;
    bad.at(pointer.parent_pointer()).erase(pointer.back());
    // A port without an own stage has no capacity of one, and not every fit has held something out.
    if (pointer.back() != "engine_capacity_bytes" && pointer.back() != "held_out_error") {
      expect_usage_error([&] { load(bad); }, {"m.json", name, "missing"});
    }
    for (const Json& value :
         {Json(nullptr), Json::array(), Json{{"a", 1}}, good.at(pointer).is_string() ? Json(1) : Json("1")}) {
      bad = good;
      bad.at(pointer) = value;
      expect_usage_error([&] { load(bad); }, {"m.json", name});
      ++tried;
    }
  }
  EXPECT_GT(tried, 4 * 40);
}

TEST_F(Profile, ListsMustBeLists) {
  for (const char* key : {"ports", "compute"}) {
    for (const Json& value : {Json(nullptr), Json(1), Json::object(), Json("x")}) {
      auto bad = to_json(example_machine());
      bad[key] = value;
      expect_usage_error([&] { load(bad); }, {"m.json", "\"" + std::string(key) + "\"", "array"});
    }
    auto bad = to_json(example_machine());
    bad[key].push_back(7);
    expect_usage_error([&] { load(bad); }, {"m.json", key, "object", "number"});
  }
}

TEST_F(Profile, NumberOutOfItsRangeIsNamedWithItsPort) {
  const auto refuses = [this](const std::string& path, const Json& value) {
    SCOPED_TRACE(path);
    auto bad = to_json(example_machine());
    const Json::json_pointer pointer(path);
    bad.at(pointer) = value;
    expect_usage_error([&] { load(bad); }, {"m.json", pointer.back(), value.dump()});
    if (path.starts_with("/ports/1")) expect_usage_error([&] { load(bad); }, {"ports[1]"});
  };
  for (const char* positive : {"/sm_clock_ghz", "/memory_bytes_per_ns", "/compute/0/flops_per_cycle_per_sm",
                               "/ports/1/free_issue_bytes_per_cycle", "/ports/1/drain_bytes_per_ns",
                               "/ports/1/capacity_bytes", "/ports/1/worker_capacity_bytes", "/num_sms"}) {
    refuses(positive, 0);
    refuses(positive, -1);
  }
  for (const char* not_negative :
       {"/ports/1/burst_overhead_cycles", "/ports/1/visible_latency_ns", "/ports/1/patterns",
        "/ports/1/mean_abs_rel_error", "/ports/1/disorder", "/ports/1/spread", "/ports/1/group_fairness"}) {
    refuses(not_negative, -1);
  }
  for (const char* whole : {"/num_sms", "/ports/1/patterns"}) {
    refuses(whole, 8.5);
    refuses(whole, 1LL << 40);
  }
}

TEST_F(Profile, GroupsOfSmsAreAsManyAsSms) {
  auto json = to_json(example_machine());
  json["sm_groups"] = std::vector<int>(131, 0);
  expect_usage_error([&] { load(json); }, {"m.json", "sm_groups", "132", "131"});
  json["sm_groups"] = std::vector<int>(132, 3);
  EXPECT_EQ(load(json).port("st16", "host").groups, std::vector<int>(132, 3));
}

TEST(Machine, PortIsTheFitOfItsPathAndDestination) {
  const auto machine = example_machine();
  EXPECT_EQ(machine.port("st16", "nvlink").drain, BytesPerNano{300 * 1.1});
  EXPECT_EQ(machine.port("st16", "host").drain, BytesPerNano{300});
  EXPECT_EQ(machine.port("bulk8192", "host").engine_capacity, Bytes{32768});
}

TEST(Machine, BulkCopiesOfAnotherSizeCostAsMuchPerCopy) {
  auto machine = example_machine();
  const auto half = machine.port("bulk4096", "host"), known = machine.port("bulk8192", "host");
  EXPECT_EQ(half.path, "bulk4096");
  EXPECT_EQ(half.free_issue.value, known.free_issue.value / 2);
  EXPECT_EQ(half.engine_capacity.value, known.engine_capacity.value / 2);
  EXPECT_EQ(half.engine, known.engine);
  EXPECT_EQ(half.drain, known.drain);
  // The nearest size that was measured is scaled.
  machine.ports.push_back(port_of("bulk2048", "host", 2));
  EXPECT_EQ(machine.port("bulk3000", "host").drain, BytesPerNano{600});
  EXPECT_EQ(machine.port("bulk6000", "host").drain, BytesPerNano{300});
  expect_usage_error([&] { machine.port("bulk", "host"); }, {"bulk to host", "it has"});
  expect_usage_error([&] { machine.port("bulk4096", "nvlink"); }, {"bulk4096 to nvlink", "it has"});
}

// A probe that recorded on which SM each CTA ran: the groups of the profile are those of the growing grid, and while
// the port is full the more SMs a group has, the longer each of them waits.
TEST(Machine, GroupsOfAnH200AreThoseThatItsGridsGet) {
  const auto csv = Csv::read(XSTAGE_SOURCE_DIR "/data/h200_placement.csv");
  const auto groups = load_machine("h200").sm_groups;
  struct Place {
    int group;
    double issue;
  };
  std::map<std::pair<std::string, int>, std::vector<Place>> grids;
  for (std::size_t row = 0; row < csv.num_rows(); ++row) {
    grids[{std::string(csv.text(row, csv.column("path"))), static_cast<int>(csv.integer(row, csv.column("ctas"), 1))}]
        .push_back(
            {static_cast<int>(csv.integer(row, csv.column("gpc"), 0)), csv.number(row, csv.column("issue_mean"), 0)});
  }
  EXPECT_EQ(grids.size(), 22u);
  const auto sizes_of = [](const auto& places, auto&& group) {
    std::map<int, int> sizes;
    for (const auto& place : places) ++sizes[group(place)];
    return sizes;
  };
  for (const auto& [key, places] : grids) {
    SCOPED_TRACE(fmt::format("{}, {} CTAs", key.first, key.second));
    ASSERT_EQ(places.size(), static_cast<std::size_t>(key.second));
    auto sizes = sizes_of(places, [](const Place& place) { return place.group; });
    const auto expected =
        sizes_of(std::vector(groups.begin(), groups.begin() + key.second), [](int group) { return group; });
    EXPECT_EQ(sizes.at(0), expected.at(0));
    for (const auto& [group, size] : expected) EXPECT_NEAR(sizes[group], size, 1) << "group " << group;
    if (key.second < 12 || key.second > 33) continue;
    double most = 0, others = 0;
    for (const auto& place : places) (place.group == 0 ? most : others) += place.issue;
    const int first = sizes.at(0);
    EXPECT_GT(most / first, 1.3 * others / (key.second - first));
  }
}

TEST(Machine, DatasheetEstimatesSaySo) {
  for (const auto* name : {"a100", "b200", "h100", "h20"}) EXPECT_TRUE(load_machine(name).is_estimate()) << name;
  EXPECT_FALSE(load_machine("h200").is_estimate());
}

TEST(Machine, UnknownPortOrDtypeListsWhatThereIs) {
  const auto machine = example_machine();
  expect_usage_error([&] { machine.port("st4", "host"); },
                     {"test", "st4 to host", "st16 to nvlink, st16 to host, bulk8192 to host", "xstage fit"});
  expect_usage_error([&] { machine.rate("fp4"); }, {"test", "fp4", "bf16, fp8", "\"compute\""});
  EXPECT_EQ(machine.rate("fp8"), FlopsPerCycle{4783.3});
  expect_usage_error([] { Machine{}.rate("bf16"); }, {"bf16", "none"});
}

}  // namespace
}  // namespace xs
