// Three fibers take turns, with values in registers and exceptions caught on their stacks.

#include "fiber.h"

#include <cstdio>
#include <stdexcept>

namespace {

constexpr int kFibers = 3;
constexpr int kTurns = 5;

void* scheduler;
void* fibers[kFibers];
double results[kFibers];
int turns[kFibers * kTurns];
int turn_count = 0;
int current = 0;

void next_turn() {
  kjit_sim_switch(&fibers[current], scheduler);
}

void body() {
  const int fiber = current;
  double sum = fiber;
  for (int turn = 0; turn < kTurns; ++turn) {
    sum += turn * 0.25;
    turns[turn_count++] = fiber;
    try {
      if (turn == 2) throw std::runtime_error("caught on this stack");
    } catch (const std::runtime_error&) {
      sum += 100;
    }
    next_turn();
  }
  results[fiber] = sum;
  for (;;) next_turn();
}

}  // namespace

int main() {
  kjit_sim::Stacks stacks;
  for (void*& fiber : fibers) fiber = kjit_sim::new_context(stacks.take(), body);
  for (int turn = 0; turn <= kTurns; ++turn) {
    for (current = 0; current < kFibers; ++current) kjit_sim_switch(&scheduler, fibers[current]);
  }
  for (const int fiber : turns) std::printf("%d", fiber);
  for (const double result : results) std::printf(" %g", result);
  std::puts("");
}
