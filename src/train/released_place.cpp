#include "train/released_place.hpp"

#include "comm/group_key_value_store.hpp"
#include "coordination/rank_session.hpp"

namespace lockstep::train {

MainProcessFirst released_place(int rank) {
  const MainProcessFirstPlace place{.name = "a place that was passed", .rank = rank};
  const Store store = Store::in_memory();
  coordination::RankSession(comm::key_value_store(store), place.name + "/", GroupInfo::whole(0, 1))
      .release(kReleased);
  return {store, place};
}

}  // namespace lockstep::train
