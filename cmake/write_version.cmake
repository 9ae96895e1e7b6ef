set(commit "unknown")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE described RESULT_VARIABLE failed
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "xstage/core/version.hpp"

namespace xs {
const char* version() { return "@VERSION@"; }
const char* commit() { return "@commit@"; }
const char* built_in() { return "@BUILT_IN@"; }
}  // namespace xs
]] @ONLY)
