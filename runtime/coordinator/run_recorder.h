#pragma once
// RunRecorder: writes what a run leaves behind, while it runs:
//
//   events.jsonl   what happened and why, one object a line
//   metrics.csv    step, loss, gradient norm, learning rate, tokens/s, attempts
//   digests.csv    step, digest of all committed state after it: equal runs have equal files
//   ledger.csv     step, epoch that committed it, the samples that it consumed, their sum of marks
//   summary.json   at the end: steps, loss, val_loss, tokens_per_s, params_digest, memory
//
// Each step stands once in every file, however often it was run. A coordinator that was restarted
// continues the files of the one before (RecorderOptions::continues).
//
// Without a folder it keeps the numbers and writes nothing. Errors of writing are kept and told by
// finish(): a full disk does not stop the training. Threads: the component's.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/event_log.h"
#include "base/file_system.h"
#include "runtime/coordinator/job_observer.h"

namespace perdure::runtime::coordinator {

struct RecorderOptions {
  std::string folder;  // "" for none
  uint64_t steps = 0;
  uint64_t tokens_per_step = 0;
  uint32_t ranks = 1;      // of the target layout
  bool continues = false;  // the folder belongs to an earlier life of this run
};

struct RunNumbers {
  uint64_t steps = 0;
  double loss = 0.0;
  double val_loss = -1.0;  // below 0: never evaluated
  double tokens_per_s = 0.0;
  uint64_t params_digest = 0;
  uint64_t state_digest = 0;
  uint64_t step_attempts_again = 0;  // attempts beyond the first, all steps together
  uint64_t steps_skipped = 0;
  uint64_t planned_bytes_max = 0;  // of the worker with the largest plan
  uint64_t peak_bytes_max = 0;
  double peak_to_plan_max = 0.0;     // worst worker
  uint64_t faults_after_warmup = 0;  // all workers together
  uint64_t snapshots_taken = 0;      // all workers together
  uint64_t snapshots_skipped = 0;
  double snapshot_share_max = 0.0;  // of the time of the newest epoch; worst worker
  uint64_t snapshot_bytes_max = 0;
  uint64_t steps_repeated = 0;  // reports of steps that had been reported before
  uint64_t epochs = 0;          // that became active
};

class RunRecorder : public JobObserver {
 public:
  // kFailedPrecondition when the folder cannot be made or written.
  static base::Result<std::unique_ptr<RunRecorder>> open(const RecorderOptions& options,
                                                         base::FileSystem& files,
                                                         base::Clock& clock);

  void on_event(const base::Event& event) override;
  void on_prepared(base::Rank rank, const protocol::Prepared& prepared) override;
  void on_active(const recovery::EpochPlan& plan) override;
  StepNews on_step(const protocol::StepReport& report) override;
  void on_evaluation(const protocol::EvaluationReport& report) override;
  // A job ends once: what a rank says again, also in a later epoch, is the same.
  void on_finished(base::Rank rank, const protocol::Finished& finished) override;
  base::Step steps_known() const override { return base::Step(numbers_.steps); }

  // Writes the summary. `outcome` is how the job ended. The first error of all writing.
  base::Status finish(const base::Status& outcome);
  const RunNumbers& numbers() const { return numbers_; }
  // Seconds a step took, averaged over the last few.
  double seconds_per_step() const;

 private:
  RunRecorder(const RecorderOptions& options, base::FileSystem& files, base::Clock& clock);
  base::Status open_files();
  base::Status continue_files();
  base::Status continue_events();
  void write_step(const protocol::StepReport& report, double tokens_per_s);
  StepNews judge(const protocol::StepReport& report);
  void write_event(const base::Event& event);
  void write_line(base::File* file, const std::string& line);
  void keep(base::Status status);

  const RecorderOptions options_;
  base::FileSystem& files_;
  base::Clock& clock_;
  std::unique_ptr<base::EventLog> events_;
  std::unique_ptr<base::File> metrics_;
  std::unique_ptr<base::File> digests_;
  std::unique_ptr<base::File> ledger_;
  std::map<base::Rank, uint64_t> planned_bytes_;
  std::set<base::Rank> finished_;
  std::map<base::Step, uint64_t> digests_before_;  // of the newest steps
  base::Step evaluated_;                           // newest evaluation
  RunNumbers numbers_;
  uint64_t resumed_ = 0;  // steps of earlier lives
  base::Nanos started_{0};
  base::Nanos after_first_step_{0};
  base::Nanos last_step_{0};
  double smoothed_step_s_ = 0.0;
  base::Status first_error_;
};

std::string digest_text(uint64_t digest);  // 16 hex digits

}  // namespace perdure::runtime::coordinator
