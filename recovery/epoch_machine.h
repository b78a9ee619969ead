#pragma once
// EpochMachine: decides how a job changes its shape (DESIGN section 6). Pure: events and `now` in,
// actions out; the same events give the same actions.
//
//                      ┌──────────── a member is lost, an engine stopped, a hold was agreed on
//                      ─────────┐ ▼ │
//  gathering ─► collecting ─► resolving ─► decide ─► preparing ─► loading ─► gate ─► active ─►
//  holding ─┘ rejoining ─►    ▲   ▲                     │           │            │        │
//                  │   └──── waiting ◄───────┘           └────────────┴────────┴── a higher epoch
//                  └ lost during collection: counted out, the epoch stays
//
// Where live state is not enough, all are asked once more, for what else they could bring back:
// decide ─► collecting ─► decide ─► restoring ─► decide ─► preparing ...
//
// An epoch number is used for one decision at most: the decision is recorded before any member
// hears of it, and a change after it takes a higher number. Members that are not in the plan stand
// by. All phases but active have a deadline; who misses it is ended.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
#include "parallel/replanner.h"
#include "recovery/epoch_plan.h"
#include "recovery/machine_types.h"
#include "recovery/restore_choice.h"

namespace perdure::recovery {

struct MachineOptions {
  parallel::ModelSpec model;
  uint32_t pipelines = 1;  // the job's target layout
  uint32_t stages = 1;
  uint32_t micro_batches = 1;
  uint32_t grain = 1;
  std::vector<double> layer_cost;
  bool grow = true;             // take workers in that come later
  uint32_t recoveries_max = 3;  // without a committed step between them
  base::Nanos join_timeout = std::chrono::seconds(60);
  // When there are enough workers for the layout, others of the `workers_expected` (spare ones
  // included) have so long to come, too: who is a spare is then not a matter of who starts first.
  uint32_t workers_expected = 0;
  base::Nanos gather_grace = std::chrono::seconds(2);
  base::Nanos rejoin_timeout = std::chrono::seconds(4);
  base::Nanos phase_timeout = std::chrono::seconds(30);  // an engine leaves its step within this
  base::Nanos load_timeout = std::chrono::seconds(120);
  // When the last holders of some state have ended: their processes are being started again, and
  // may find it in the memory of their nodes.
  base::Nanos wait_for_state = std::chrono::seconds(10);
  base::Nanos wait_for_return = std::chrono::seconds(12);   // when they may be out of reach only
  base::Nanos grow_delay = std::chrono::milliseconds(200);  // others may come, too
  base::Nanos hold_timeout = std::chrono::seconds(60);
  struct Resume {
    std::optional<base::Step> step;  // none: the newest that is whole
  };
  std::optional<Resume> resume;  // a new job goes on from what an earlier run has left
};

// What a restarted coordinator reads in its journal.
struct MachineMemory {
  std::optional<EpochPlan> decided;  // the newest decision
  bool active = false;               // it was put into action
  base::Step committed;              // at least this step was committed once
};

class EpochMachine {
 public:
  explicit EpochMachine(MachineOptions options);

  // Before the first event. Without memory the machine gathers workers for a new job.
  void begin(base::Nanos now, const std::optional<MachineMemory>& memory);

  std::vector<MachineAction> step(const MachineEvent& event, base::Nanos now);

  Phase phase() const { return phase_; }
  base::Epoch epoch() const { return epoch_; }
  base::Step committed() const { return committed_; }
  const std::optional<EpochPlan>& plan() const { return plan_; }  // of epoch(), once decided
  bool is_member(base::WorkerId worker, base::Incarnation incarnation) const {
    return rank_of(worker, incarnation).has_value();
  }
  // As recovery::rank_of in plan(), without a search.
  std::optional<base::Rank> rank_of(base::WorkerId worker, base::Incarnation incarnation) const;
  // This process was stopped for a while: what came in meanwhile is still unread, so deadlines
  // move.
  void give_back(base::Nanos time);
  // When a Tick is due; kNoDeadline when none.
  base::Nanos next_deadline() const;
  uint64_t stale_events() const { return stale_events_; }
  uint64_t recoveries() const { return recoveries_; }

 private:
  struct Member {
    PlanMember id;
    base::Epoch heard;  // the newest epoch that it knows
    MemberDoes does = MemberDoes::kNothing;
    std::optional<StateReport> state;  // told in this epoch
    std::vector<std::byte> address;
    std::optional<LoadedReport> loaded;
    bool finished = false;
    uint32_t failed_to_prepare = 0;  // since its process began
  };

  void on(const MemberUp& event);
  void on(const MemberDown& event);
  void on(const StateTold& event);
  void on(const VoteTold& event);
  void on(const Prepared& event);
  void on(const Loaded& event);
  void on(const Stopped& event);
  void on(const StepSeen& event);
  void on(const MemberFinished& event);
  void on(const StopAsked& event);
  void on(const Tick& event);

  // epoch_machine.cc
  Member* find(const Speaker& from);
  Member* find_current(const Speaker& from);
  void gather();
  void begin_change(const std::string& why);
  void drop(base::WorkerId worker);
  void set_plan(EpochPlan plan);
  void end_job(base::Status status);
  void expire_phase();
  void consider_growth();
  bool would_gain() const;
  void check_rejoined();
  std::string missing_workers() const;

  // epoch_decision.cc
  void on_collected();
  void resolve_and_decide();
  void decide(const Resolution& resolution, const std::vector<ToldState>& told);
  base::Result<std::vector<parallel::ReplanOption>> options_for(const Resolution& resolution) const;
  parallel::ReplanInput replan_input() const;
  void adopt(const parallel::ReplanOption& option, const Resolution& resolution);
  void on_prepared();
  void on_loaded();
  void activate();

  // epoch_restore.cc
  void on_state_missing(base::Status why);
  std::optional<RestoreChoice> best_restore() const;
  base::Step newest_known() const;
  bool wants_resume() const;
  bool restore_what_there_is();
  void restore(const RestoreChoice& choice, const std::string& why);

  std::vector<PlanMember> all_members() const;
  std::vector<ToldState> told_states() const;
  void send(std::vector<PlanMember> to, decltype(Send::order) order);
  void enter(std::string_view name);
  void explain(base::Event event);
  double since(base::Nanos then) const { return base::to_ms(now_ - then); }

  const MachineOptions options_;
  std::map<base::WorkerId, Member> members_;  // whose process is up
  Phase phase_ = Phase::kGathering;
  base::Epoch epoch_;
  std::optional<EpochPlan> plan_;
  std::vector<std::pair<base::WorkerId, base::Rank>> seats_;  // of plan_, ascending
  std::optional<EpochPlan> last_active_;
  std::set<base::WorkerId> waiting_;     // whose answer this phase needs
  size_t unfinished_ = 0;                // members of plan_ that have not finished
  std::optional<base::WorkerId> asked_;  // for the vote that others lack
  VoteId given_;                         // that vote, once they were given it
  std::optional<HeldDigests> before_;    // the state that the plan must keep
  base::Step committed_;                 // newest known
  uint32_t fruitless_ = 0;               // recoveries since the last committed step
  bool some_may_return_ = false;  // lost since the last active epoch, but not known to have ended
  uint32_t attempts_ = 0;         // changes begun since the last active epoch
  bool planned_ = false;          // this change was not forced by a failure
  bool with_offers_ = false;      // in this change live state has not been enough
  uint32_t restores_ = 0;         // in this change
  bool has_history_ = false;      // an earlier life of the coordinator saw steps
  base::Epoch gone_back_in_;      // steps of epochs before this one are not there any more
  bool is_enough_ = false;        // gathering: the layout has its workers
  std::string change_why_;
  base::Nanos phase_end_ = base::kNoDeadline;
  base::Nanos grow_at_ = base::kNoDeadline;
  base::Nanos changed_at_{0}, collected_at_{0}, prepared_at_{0};
  uint64_t stale_events_ = 0;
  uint64_t recoveries_ = 0;

  base::Nanos now_{0};                  // of the event being handled
  std::vector<MachineAction> actions_;  // of the event being handled
};

}  // namespace perdure::recovery
