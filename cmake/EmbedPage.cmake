# cmake -DFOLDER=... -DOUTPUT=page_files.cc -P EmbedPage.cmake: the files of the web page, compressed, as a
# C++ source (server/page_files.h). The same files give the same bytes.
set(ENV{SOURCE_DATE_EPOCH} 0)  # else gzip's frame has the time of the build
file(GLOB paths ${FOLDER}/*)
list(SORT paths)
set(arrays "")
set(rows "")
set(count 0)
foreach(path ${paths})
  get_filename_component(name ${path} NAME)
  file(SIZE ${path} plain_bytes)
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 20 tag)
  file(ARCHIVE_CREATE OUTPUT ${OUTPUT}.gz PATHS ${path} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
  file(READ ${OUTPUT}.gz bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes ${bytes})
  string(APPEND arrays "constexpr unsigned char kPageBytes${count}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${name}\", R\"(\"${tag}\")\", ${plain_bytes}, page_text(kPageBytes${count})},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(REMOVE ${OUTPUT}.gz)
file(WRITE ${OUTPUT} "// Made by cmake/EmbedPage.cmake.
#include \"server/page_files.h\"

namespace headrace {
namespace {

template <size_t kSize>
std::string_view page_text(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

${arrays}
}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile files[] = {
${rows}  };
  return files;
}

}  // namespace headrace
")
