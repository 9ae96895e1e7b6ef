#include <gtest/gtest.h>

#include "xstage/cli/program.hpp"

namespace xs::cli {
namespace {

using ProtocolsCommand = Program;

TEST_F(ProtocolsCommand, TableSaysWhatWasExpectedAndFound) {
  const auto out = expect_done({"check", "--protocols"});
  const auto header = out.substr(0, out.find('\n'));
  for (const char* word : {"protocol", "mutant", "states", "expected", "found"}) {
    EXPECT_NE(header.find(word), std::string::npos) << header;
  }
  for (const char* word : {"no fault", "flag zeroed locally after a peer raised it", "deadlock of bank[1]"}) {
    EXPECT_NE(out.find(word), std::string::npos) << out;
  }
  EXPECT_NE(out.find("=> 10 protocols hold in every outcome; their 34 mutants are killed."), std::string::npos) << out;
  EXPECT_EQ(expect_done({"check", "--protocols"}), out);
}

TEST_F(ProtocolsCommand, JsonTellsTheStoryOfEveryMutant) {
  const auto json = expect_json({"check", "--protocols"});
  EXPECT_EQ(json.at("kind"), "protocol_check");
  EXPECT_EQ(json.at("valid"), true);
  std::size_t num_protocols = 0;
  for (const auto& result : json.at("results")) {
    SCOPED_TRACE(result.dump());
    EXPECT_EQ(result.at("passed"), true);
    EXPECT_GT(result.at("states").get<int>(), 0);
    if (result.at("mutant").is_null()) {
      ++num_protocols;
      EXPECT_TRUE(result.at("fault").is_null());
      continue;
    }
    EXPECT_EQ(result.at("fault").at("kind"), result.at("expected").at("kind"));
    EXPECT_EQ(result.at("fault").at("place"), result.at("expected").at("place"));
    EXPECT_FALSE(result.at("fault").at("text").get<std::string>().empty());
    EXPECT_FALSE(result.at("fault").at("steps").empty());
  }
  EXPECT_EQ(num_protocols, 10u);
}

}  // namespace
}  // namespace xs::cli
