#include "places.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kjit_sim {

namespace {

using Header = ElfW(Ehdr);
using Section = ElfW(Shdr);
using Symbol = ElfW(Sym);

/// The symbol table of a module's file; empty if it has none.
struct Symbols {
  const Symbol* begin = nullptr;
  const Symbol* end = nullptr;
  const char* names = "";
};

Symbols read_symbols(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  struct stat status;
  void* memory = MAP_FAILED;
  if (fstat(file, &status) == 0) {
    memory = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) return {};  // otherwise it stays mapped, for the names
  const char* const bytes = static_cast<const char*>(memory);
  const auto& header = *reinterpret_cast<const Header*>(bytes);
  const auto* const sections = reinterpret_cast<const Section*>(bytes + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* const begin = reinterpret_cast<const Symbol*>(bytes + sections[i].sh_offset);
    return {begin, begin + sections[i].sh_size / sizeof(Symbol), bytes + sections[sections[i].sh_link].sh_offset};
  }
  return {};
}

/// The demangled name of a symbol.
void demangle(const char* symbol, char* text, std::size_t size) {
  int status = 0;
  char* const name = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::snprintf(text, size, "%s", status == 0 ? name : symbol);
  std::free(name);
}

/// Reduces `void (anonymous namespace)::f<int>(T*)` to the name, without parameters and namespaces.
void shorten_function(char* text) {
  char* begin = text;
  int depth = 0;
  for (char* at = text; *at != '\0'; ++at) {
    if (std::strncmp(at, "(anonymous namespace)", 21) == 0) {
      at += 20;
      continue;
    }
    if (*at == '<') ++depth;
    if (*at == '>') --depth;
    if (depth > 0) continue;
    if (*at == '(') {
      *at = '\0';
      break;
    }
    if (*at == ' ') begin = at + 1;
    if (at[0] == ':' && at[1] == ':') begin = at + 2;
  }
  std::memmove(text, begin, std::strlen(begin) + 1);
}

Symbols symbols;

Module read_module() {
  Module module;
  std::size_t tls_size = 0;
  with_loaded_module([&](const dl_phdr_info& info) {
    for_each_segment(info, PT_LOAD, [&](Range memory, const auto&) {
      if (module.segments < 8) module.data[module.segments++] = memory;
    });
    for_each_segment(info, PT_TLS, [&](Range memory, const auto&) { tls_size = memory.size; });
    module.base = info.dlpi_addr;
    module.path = strdup(info.dlpi_name != nullptr && *info.dlpi_name != '\0' ? info.dlpi_name : "/proc/self/exe");
  });
  symbols = read_symbols(module.path);
  module.own = static_cast<unsigned char*>(std::calloc(tls_size + 1, 1));
  module.own_size = tls_size;
  std::size_t count = 0;
  for (const Symbol* symbol = symbols.begin; symbol != symbols.end; ++symbol) {
    count += ELF64_ST_TYPE(symbol->st_info) == STT_TLS ? 1 : 0;
  }
  module.shared = static_cast<SharedVariable*>(std::calloc(count + 1, sizeof(SharedVariable)));
  for (const Symbol* symbol = symbols.begin; symbol != symbols.end; ++symbol) {
    if (ELF64_ST_TYPE(symbol->st_info) != STT_TLS || symbol->st_shndx == SHN_UNDEF) continue;
    const char* const mangled = symbols.names + symbol->st_name;
    if (std::strncmp(mangled, "_ZN8kjit_sim12_", 15) == 0) continue;  // the simulator's own
    static constexpr const char* kBuiltins[] = {"threadIdx", "blockIdx", "blockDim", "gridDim"};
    bool is_own = std::strncmp(mangled, "_ZN8kjit_sim", 12) == 0 || std::strncmp(mangled, "_ZGV", 4) == 0;
    for (const char* builtin : kBuiltins) is_own |= std::strcmp(mangled, builtin) == 0;
    if (is_own) {
      for (std::size_t i = 0; i < symbol->st_size && symbol->st_value + i < tls_size; ++i) {
        module.own[symbol->st_value + i] = 1;
      }
      continue;
    }
    SharedVariable& variable = module.shared[module.shared_count++];
    variable.begin = symbol->st_value;
    variable.size = symbol->st_size;
    char name[600];
    demangle(mangled, name, sizeof(name));
    const char* last = name;
    for (const char* at = name; (at = std::strstr(at, "::")) != nullptr; at += 2) last = at + 2;
    std::snprintf(variable.name, sizeof(variable.name), "%s", last);
  }
  return module;
}

bool is_in_module(const void* address) {
  const Module& module = this_module();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < module.segments; ++i) {
    if (at - reinterpret_cast<std::uintptr_t>(module.data[i].begin) < module.data[i].size) return true;
  }
  return false;
}

enum class Line { kNone, kOfHeader, kOwn };

/// Runs addr2line; `kNone` if it is missing or finds nothing.
Line source_line(std::uintptr_t offset, char* text, std::size_t size) {
  char command[1400];
  std::size_t at =
      static_cast<std::size_t>(std::snprintf(command, sizeof(command), "exec 2>/dev/null addr2line -f -C -i -e '"));
  for (const char* c = this_module().path; *c != '\0' && at + 64 < sizeof(command); ++c) {
    if (*c == '\'') {
      at += static_cast<std::size_t>(std::snprintf(command + at, 8, "'\\''"));
    } else {
      command[at++] = *c;
    }
  }
  std::snprintf(command + at, sizeof(command) - at, "' 0x%zx", static_cast<std::size_t>(offset));
  FILE* const pipe = popen(command, "re");
  if (pipe == nullptr) return Line::kNone;
  bool found = false, is_own = false;
  char line[1200];
  // Lines alternate between function names and locations; the innermost frame is first.
  for (bool is_place = false; std::fgets(line, sizeof(line), pipe) != nullptr;) {
    const bool ends = std::strchr(line, '\n') != nullptr;
    if (!ends) continue;
    line[std::strcspn(line, is_place ? " \n" : "\n")] = '\0';
    // Compiler-generated code has no line.
    const bool has_line = line[0] != '?' && std::strstr(line, ":?") == nullptr;
    if (is_place && !is_own && has_line) {
      const bool is_header = std::strstr(line, "/include/kjit/") != nullptr ||
                             std::strstr(line, "/include/kjit_sim/") != nullptr ||
                             std::strstr(line, "/csrc/sim/") != nullptr || std::strncmp(line, "/usr/", 5) == 0;
      if (!found || !is_header) {
        const std::size_t length = std::strlen(line);
        const char* const slash = std::strrchr(line, '/');
        std::snprintf(text, size, "%s", length < 160 || slash == nullptr ? line : slash + 1);
        found = true;
      }
      is_own = !is_header;
    }
    is_place = !is_place;
  }
  pclose(pipe);
  return !found ? Line::kNone : is_own ? Line::kOwn : Line::kOfHeader;
}

}  // namespace

const Module& this_module() {
  static const Module module = read_module();
  return module;
}

const SharedVariable* Module::shared_at(std::size_t offset) const {
  for (std::size_t i = 0; i < shared_count; ++i) {
    if (offset >= shared[i].begin && offset - shared[i].begin < shared[i].size) return &shared[i];
  }
  return nullptr;
}

bool Module::is_own(std::size_t offset) const {
  return offset < own_size && own[offset] != 0;
}

bool place_of(const void* address, char* text, std::size_t size) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - this_module().base;
  // Minus one: the address is a return address.
  const Line line = source_line(offset - 1, text, size);
  if (line != Line::kNone) return line == Line::kOwn;
  const char* const slash = std::strrchr(this_module().path, '/');
  std::snprintf(text, size, "%s+0x%zx (no source line: that needs addr2line, of binutils)",
                slash != nullptr ? slash + 1 : this_module().path, static_cast<std::size_t>(offset));
  return false;
}

const void* own_caller() {
  struct Walk {
    const void* first = nullptr;
    const void* own = nullptr;
  } walk;
  _Unwind_Backtrace(
      [](_Unwind_Context* context, void* data) {
        auto& walk = *static_cast<Walk*>(data);
        const auto* const address = reinterpret_cast<const void*>(_Unwind_GetIP(context));
        char text[300];
        if (walk.first == nullptr) walk.first = address;
        if (!is_in_module(address) || !place_of(address, text, sizeof(text))) return _URC_NO_REASON;
        walk.own = address;
        return _URC_END_OF_STACK;
      },
      &walk);
  return walk.own != nullptr ? walk.own : walk.first;
}

void fail_at(const char* what, const void* place) {
  worker->is_inside = true;
  char kernel[200], line[260];
  name_of_kernel(worker->launch->kernel, kernel, sizeof(kernel));
  place_of(place, line, sizeof(line));
  fail("kernel %s %s, at %s", kernel, what, line);
}

void name_of_kernel(const void* address, char* text, std::size_t size) {
  this_module();
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - this_module().base;
  std::snprintf(text, size, "at %p", address);
  for (const Symbol* symbol = symbols.begin; symbol != symbols.end; ++symbol) {
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_value != offset) continue;
    char name[900];
    demangle(symbols.names + symbol->st_name, name, sizeof(name));
    shorten_function(name);
    std::snprintf(text, size, "%s", name);
    return;
  }
}

}  // namespace kjit_sim
