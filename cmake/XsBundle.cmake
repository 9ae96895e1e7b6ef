# `cmake --install build/cuda --prefix DIR` makes a folder that runs on a machine with a driver of the GPU, glibc 2.36 or
# newer and nothing else: the programs in DIR/bin, the shared libraries that they need in DIR/lib.
get_property(programs GLOBAL PROPERTY XS_DEVICE_PROGRAMS)
list(APPEND programs xstage)
foreach(program ${programs})
  target_link_options(${program} PRIVATE -static-libstdc++ -static-libgcc
    # oneDNN brings a libstdc++ of its own; without this it would call half of ours.
    -Wl,--exclude-libs,libstdc++.a
    # RPATH, not RUNPATH, which would not hold for the libraries that a library needs.
    -Wl,--disable-new-dtags)
endforeach()
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")

install(TARGETS ${programs} RUNTIME_DEPENDENCY_SET bundle RUNTIME DESTINATION bin)
# Left out: glibc, which must fit the machine.
install(RUNTIME_DEPENDENCY_SET bundle PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util|resolv)\\.so"
        LIBRARY DESTINATION lib)
