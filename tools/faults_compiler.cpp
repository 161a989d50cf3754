// Stands in for a C++ compiler in tools/faults.py, where thousands of builds are wanted and not their machine code.
//
// It "compiles" the one kind of source that faults.py writes: it reads the numbers in the source and in the header
// beside it, lists both in the depfile, and "links" by copying a library made by a real compiler (KJIT_FAULTS_TEMPLATE)
// with the number put in. Everything around it is real: ninja, depfiles, staging, publication, loading.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::cerr << path << ": error: No such file or directory\n";
    std::exit(1);
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    std::cerr << "error: writing to " << path << ": No space left on device\n";
    std::exit(1);
  }
}

long number(const std::string& text, const std::string& before) {
  const auto at = text.find(before);
  return at == std::string::npos ? 0 : std::strtol(text.c_str() + at + before.size(), nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  std::string source, output, depfile;
  long macros = 0;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--version") {
      std::cout << "g++ (a stand-in) 12.2.0\nNot of the Free Software Foundation, Inc.\n";
      return 0;
    }
    if (arg.rfind("-print-file-name=", 0) == 0) {
      std::cout << arg.substr(17) << '\n';
      return 0;
    }
    if (arg == "-c") source = args[++i];
    if (arg == "-o") output = args[++i];
    if (arg == "-MF") depfile = args[++i];
    macros += number(arg, "-DVARIANT=") * 1000000000 + number(arg, "-DCOMPILER=") * 1000000;
  }
  if (!source.empty()) {
    const std::string text = read(source);
    const auto at = text.find("#include \"answer");
    if (at == std::string::npos) {  // kjit's own code that all modules share
      write(output, "");
      write(depfile, output + ": " + source + "\n");
      return 0;
    }
    const auto begin = at + 10;
    const std::string name = text.substr(begin, text.find('"', begin) - begin);
    const std::string header = source.substr(0, source.rfind('/') + 1) + name;
    const long answer = number(read(header), "#define ANSWER ") * 1000 + number(text, "#define MORE ");
    write(depfile, output + ": " + source + " \\\n " + header + "\n");
    write(output, "number=" + std::to_string(answer + macros));
    return 0;
  }
  long answer = 0;
  for (const std::string& arg : args) {
    if (arg.size() > 2 && arg.compare(arg.size() - 2, 2, ".o") == 0) answer += number(read(arg), "number=");
  }
  std::string library = read(std::getenv("KJIT_FAULTS_TEMPLATE"));
  const std::string marker = "the number is ";
  char digits[21];
  std::snprintf(digits, sizeof digits, "%020ld", answer);
  library.replace(library.find(marker) + marker.size(), 20, digits);
  write(output, library);
}
