package janitor

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// A recovery repairs all faults, although one check finds only some of them. It counts only the tasks that it has
// changed, not the faults that it cannot repair.
func TestARecoveryRepairsMoreFaultsThanACheckFinds(t *testing.T) {
	t.Parallel()
	const faults, limit = 25, 10
	w := newWorld(t)
	worker := w.registerWorker()
	w.claim(worker, w.ticketed(faults)...)
	w.sql("update holdfast.workers set state = 'dead', ended_at = now() - interval '2 minutes' where id = $1", int64(worker))
	w.insert(1, time.Hour)
	w.sql("insert into holdfast.outbox (queue, task_ids, created_at, publish_after) select queue, task_ids, created_at, publish_after from holdfast.outbox")
	j := w.janitor(nil)
	options := VerifyOptions{Confirm: time.Millisecond, MaxFindings: limit}
	report, err := Verify(t.Context(), w.store, options)
	if err != nil || len(report.Findings) != limit+1 || !report.Full {
		t.Fatalf("%d findings, full: %t, %v", len(report.Findings), report.Full, err)
	}
	if repaired, err := j.repairFaults(t.Context(), options); err != nil || repaired != faults {
		t.Errorf("%d tasks were repaired, want %d: %v", repaired, faults, err)
	}
	if n := w.number("select count(*) from holdfast.tasks where state = $1", string(holdfast.Running)); n != 0 {
		t.Errorf("%d tasks still run under a dead worker", n)
	}
	if repaired, err := j.repairFaults(t.Context(), options); err != nil || repaired != 0 {
		t.Errorf("the second recovery has repaired %d tasks: %v", repaired, err)
	}
}
