// Stack switching: registers that the calling convention preserves across a call are saved on the old stack and
// restored from the new one.

#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#if defined(__x86_64__)

asm(R"(
.text
.hidden kjit_sim_switch
.globl kjit_sim_switch
.type kjit_sim_switch, @function
kjit_sim_switch:
  .cfi_startproc
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
.size kjit_sim_switch, .-kjit_sim_switch
)");

namespace kjit_sim {

void* new_context(char* stack, void (*entry)()) {
  // Six registers, the entry, and a return address of 0, which ends a backtrace. At the entry the stack is aligned as
  // after a call.
  auto** top = reinterpret_cast<void**>(stack + kStackBytes - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  return top;
}

}  // namespace kjit_sim

#elif defined(__aarch64__)

asm(R"(
.text
.hidden kjit_sim_switch
.globl kjit_sim_switch
.type kjit_sim_switch, %function
kjit_sim_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kjit_sim_switch, .-kjit_sim_switch
)");

namespace kjit_sim {

void* new_context(char* stack, void (*entry)()) {
  auto** frame = reinterpret_cast<void**>(stack + kStackBytes - 64 - 160);
  for (int i = 0; i < 20; ++i) frame[i] = nullptr;
  frame[11] = reinterpret_cast<void*>(entry);  // x30
  return frame;
}

}  // namespace kjit_sim

#else
#error "the simulator switches stacks on x86-64 and aarch64 only"
#endif

namespace kjit_sim {

std::size_t guard_bytes() {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return page;
}

namespace {

char*& next_of(char* stack) {
  return *reinterpret_cast<char**>(stack + kStackBytes - sizeof(char*));
}

}  // namespace

char* Stacks::take() {
  if (unused_ == nullptr) {
    if (mapped_ == kGroups) return nullptr;
    const int count = size_of(mapped_);
    const std::size_t guard = guard_bytes(), step = kStackBytes + guard;
    void* const memory = mmap(nullptr, step * static_cast<std::size_t>(count), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    groups_[mapped_++] = static_cast<char*>(memory);
    for (int i = count - 1; i >= 0; --i) {
      char* const below = static_cast<char*>(memory) + step * static_cast<std::size_t>(i);
      // If the system is out of mappings, a stack without its guard page still works.
      static_cast<void>(mprotect(below, guard, PROT_NONE));
      give_back(below + guard);
    }
  }
  char* const stack = unused_;
  unused_ = next_of(stack);
  return stack;
}

void Stacks::give_back(char* stack) {
  next_of(stack) = unused_;
  unused_ = stack;
}

void Stacks::shrink() {
  if (mapped_ <= 1) return;
  unmap(1);
  unused_ = nullptr;
  give_back(groups_[0] + guard_bytes());
}

void Stacks::unmap(int from) {
  while (mapped_ > from) {
    --mapped_;
    munmap(groups_[mapped_], (kStackBytes + guard_bytes()) * static_cast<std::size_t>(size_of(mapped_)));
  }
}

Stacks::~Stacks() {
  unmap(0);
}

}  // namespace kjit_sim
