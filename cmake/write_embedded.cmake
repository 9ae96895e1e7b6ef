set(body "#include \"xstage/core/embedded.hpp\"\n\nnamespace xs {\nstd::span<const EmbeddedFile> embedded_files() {\n"
         "  static const EmbeddedFile files[] = {\n")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} content)
  string(APPEND body "    {\"${name}\", R\"xs~(${content})xs~\"},\n")
endforeach()
string(APPEND body "  };\n  return files;\n}\n}  // namespace xs\n")
file(WRITE ${OUT} "${body}")
