#include "xstage/core/fuzz_support.hpp"
#include "xstage/core/json.hpp"

namespace xs {

std::vector<std::string> fuzz_seeds() {
  auto document = new_document("fuzz");
  document["numbers"] = {0, -1, 0.1, 5e-324, 18446744073709551615u};
  document["text"] = "quote \" backslash \\ newline \n \u00fc";
  document["nested"] = {{"flag", true}, {"nothing", nullptr}, {"rows", {{1, 2}, {3, 4}}}};
  return {to_text(document)};
}

void fuzz_one(std::string_view input) {
  const auto document = if_accepted([&] { return parse_document(input, "fuzz", "fuzz.json"); });
  if (!document) return;
  check(parse_document(to_text(*document), "fuzz", "again.json") == *document, "another value when read again");
  for (const auto& item : document->items()) {
    const auto& key = item.key();
    if_accepted([&] { return field<int>(*document, key, "fuzz.json"); });
    if_accepted([&] { return field<bool>(*document, key, "fuzz.json"); });
    if_accepted([&] { return field<std::string>(*document, key, "fuzz.json"); });
    if_accepted([&] { return field<std::vector<double>>(*document, key, "fuzz.json"); });
    if_accepted([&] { return field<std::vector<std::vector<std::int32_t>>>(*document, key, "fuzz.json"); });
  }
}

}  // namespace xs
