#pragma once

#include <span>
#include <string_view>

namespace xs {

struct EmbeddedFile {
  std::string_view name;  // without folder: "h200.json"
  std::string_view text;
};

// Profiles and shape tables that travel inside the program (cmake/XsEmbed.cmake).
std::span<const EmbeddedFile> embedded_files();

}  // namespace xs
