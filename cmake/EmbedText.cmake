# cmake -DINPUTS=a.txt,b.md -DHEADER=x/y.h -DFUNCTION=name -DOUTPUT=text.cc -P EmbedText.cmake: files one after the
# other as a C++ function that gives their text.
string(REPLACE "," ";" paths "${INPUTS}")
set(bytes "")
foreach(path ${paths})
  file(READ ${path} one HEX)
  string(APPEND bytes "${one}")
endforeach()
string(REGEX REPLACE "(..)" "0x\\1," bytes ${bytes})
file(WRITE ${OUTPUT} "// Made by cmake/EmbedText.cmake.
#include \"${HEADER}\"

namespace headrace {
namespace {

constexpr unsigned char kEmbeddedText[] = {${bytes}};

}  // namespace

std::string_view ${FUNCTION}() {
  return {reinterpret_cast<const char*>(kEmbeddedText), sizeof kEmbeddedText};
}

}  // namespace headrace
")
