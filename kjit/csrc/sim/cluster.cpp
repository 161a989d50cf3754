// Clusters: the barrier of all their threads, and addresses in each other's shared memory.

#include <kjit_sim/cluster.h>

#include "scheduler.h"

namespace kjit_sim {

namespace {

/// Holds a cluster's mutex.
class Lock {
 public:
  explicit Lock(Cluster& cluster) : cluster_(cluster) { pthread_mutex_lock(&cluster_.mutex); }
  ~Lock() { pthread_mutex_unlock(&cluster_.mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Cluster& cluster_;
};

std::uint64_t phases_of(const Cluster& cluster) {
  return __atomic_load_n(&cluster.phases, __ATOMIC_ACQUIRE);
}

/// A thread has arrived in this phase, or has exited. With the mutex held.
void count_thread(Cluster& cluster) {
  if (--cluster.missing > 0) return;
  cluster.missing = cluster.live;
  cluster.asleep = 0;
  __atomic_store_n(&cluster.phases, cluster.phases + 1, __ATOMIC_RELEASE);
  pthread_cond_broadcast(&cluster.moved);
}

/// The word that represents the cluster's barrier for a checker.
const void* word_of(const Worker& w) {
  return &w.has_cluster_barrier;
}

}  // namespace

void begin_cluster(Cluster& cluster, std::uint32_t threads_in_block) {
  cluster.phases = 0;
  cluster.missing = cluster.live = cluster.blocks * threads_in_block;
  cluster.running = cluster.blocks;
  cluster.asleep = 0;
}

void leave_cluster(Worker& w, Thread& thread) {
  Cluster& cluster = *w.cluster;
  const Lock lock(cluster);
  --cluster.live;
  if (thread.cluster_phase <= cluster.phases) count_thread(cluster);
}

bool pass_cluster_barrier(Worker& w) {
  if (w.cluster_waiters == 0) return false;
  const std::uint64_t ended = phases_of(*w.cluster);
  bool any = false;
  for (std::uint32_t i = 0; i < w.threads_in_block; ++i) {
    Thread& thread = w.threads[i];
    if (thread.state != State::kCluster || thread.cluster_phase > ended) continue;
    make_ready(w, thread);
    --w.cluster_waiters;
    any = true;
  }
  if (any) w.idle_yields = 0;
  return any;
}

bool await_cluster_barrier(Worker& w) {
  if (pass_cluster_barrier(w)) return true;
  Cluster& cluster = *w.cluster;
  {
    const Lock lock(cluster);
    std::uint64_t phase = 0;
    for (std::uint32_t i = 0; i < w.threads_in_block; ++i) {
      if (w.threads[i].state == State::kCluster) phase = w.threads[i].cluster_phase;
    }
    const auto is_over = [&] { return cluster.phases >= phase; };
    if (!is_over()) ++cluster.asleep;
    while (!is_over() && cluster.asleep < cluster.running && !__atomic_load_n(&w.launch->failed, __ATOMIC_ACQUIRE)) {
      pthread_cond_wait(&cluster.moved, &cluster.mutex);
    }
    if (!is_over()) pthread_cond_broadcast(&cluster.moved);  // no other block will continue either
  }
  return pass_cluster_barrier(w);
}

void end_in_cluster(Worker& w) {
  const Lock lock(*w.cluster);
  --w.cluster->running;
  pthread_cond_broadcast(&w.cluster->moved);
}

void cluster_arrive(bool releases) {
  Worker& w = *worker;
  const Inside inside(w);
  Thread& self = *w.current;
  if (self.cluster_phase != 0) fail("a thread arrives twice at the cluster's barrier, and has not waited in between");
  if (releases) cluster_release();
  if (!w.has_cluster_barrier) {  // the first arrival in a cluster of one block
    begin_cluster(*w.cluster, w.live);
    w.has_cluster_barrier = true;
  }
  const Lock lock(*w.cluster);
  self.cluster_phase = w.cluster->phases + 1;
  count_thread(*w.cluster);
}

__attribute__((noinline)) void cluster_wait() {
  Worker& w = *worker;
  const Inside inside(w);
  Thread& self = *w.current;
  if (self.cluster_phase == 0) fail("a thread waits for its cluster, and has not arrived at the barrier");
  if (phases_of(*w.cluster) < self.cluster_phase) {
    self.where = __builtin_return_address(0);
    self.state = State::kCluster;
    ++w.cluster_waiters;
    suspend(w, self);
  }
  self.cluster_phase = 0;
  acquired(word_of(w));
}

void cluster_release() {
  released(word_of(*worker));
}

std::uint32_t cluster_rank() {
  return worker->rank;
}

dim3 cluster_dim() {
  return worker->cluster->dim;
}

void* in_block(std::uint32_t rank, const void* address) {
  const Worker& w = *worker;
  const Cluster& cluster = *w.cluster;
  if (rank >= cluster.blocks) fail("block %u of a cluster of %u is requested", rank, cluster.blocks);
  if (!is_shared(address)) fail("%p, which is mapped to another block, is not in shared memory", address);
  if (rank == w.rank) return const_cast<void*>(address);
  const Worker& there = *cluster.workers[rank];
  const char* const at = static_cast<const char*>(address);
  const auto in_dynamic = static_cast<std::size_t>(at - static_cast<const char*>(w.dynamic_shared));
  if (in_dynamic < kMaxDynamicShared) return static_cast<char*>(there.dynamic_shared) + in_dynamic;
  return const_cast<char*>(there.variables.begin) + (at - w.variables.begin);
}

std::uint32_t rank_of_shared(const void* address) {
  const Worker& w = *worker;
  if (is_shared(address)) return w.rank;
  const Worker* const owner = owner_of(*w.cluster, address);
  if (owner == nullptr) fail("%p is in the shared memory of no block of the cluster", address);
  return owner->rank;
}

}  // namespace kjit_sim
