package queuetest

import (
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
)

// RunBatch runs a batch until it has ended, or until it waits for a person because it is stopped or paused. It returns
// the batch. It runs the tasks that are due, also those of no batch, and stores the tasks of the next stages as a
// janitor does. If no task is due, it moves the clock as Advance does. Read the outputs with queue.ResultsOf and
// queue.OutputOf. If a test retries the dead tasks of a stopped batch, another call of RunBatch continues the batch.
//
// RunBatch fails the test if there is no batch with the id, if the batch needs subtasks that the test has not added, if
// its subtasks wait behind dead tasks of their keys, or if it still runs after 10,000 attempts.
func (q *Queue) RunBatch(id holdfast.BatchID) queue.BatchStatus {
	q.t.Helper()
	for attempts, idle := 0, 0; ; idle++ {
		status := q.stepBatch(id)
		switch status.State {
		case queue.BatchRunning, queue.BatchStopped:
		default:
			return status
		}
		ran := q.RunDue()
		if attempts += len(ran); attempts > maxAttempts {
			q.t.Fatalf("queuetest: batch %s still runs after %d attempts:%s", id, attempts, q.describeReady())
		}
		_, startable := q.nextDue()
		if startable {
			idle = 0
		}
		switch {
		case len(ran) > 0:
		case status.State == queue.BatchStopped && !(startable && q.hasReady(id)):
			q.fireUntil(q.Now().Add(deadCheck))
			if status = q.stepBatch(id); status.State == queue.BatchStopped {
				return status
			}
		case idle > maxIdle && q.hasReady(id):
			q.t.Fatalf("queuetest: batch %s waits for tasks that cannot start:%s", id, q.describeReady())
		default:
			q.fireUntil(q.nextOfBatch(id))
		}
	}
}

// maxIdle is how often RunBatch moves the clock while ready tasks exist and none of them can start. Meanwhile the batch
// may stop.
const maxIdle = 100

// deadCheck is longer than the time between two checks of dead tasks by a stopped batch.
const deadCheck = 30 * time.Second

// stepBatch makes the steps of a batch that are due, and returns the batch.
func (q *Queue) stepBatch(id holdfast.BatchID) queue.BatchStatus {
	q.t.Helper()
	for {
		status, err := q.Batch(q.ctx(), id)
		if err != nil {
			q.t.Fatalf("queuetest: %v", err)
		}
		before := q.batch(id)
		if before.State.Ended() || before.NextAt.After(q.Now()) {
			return status
		}
		if _, _, err := plan.New(&onePlan{q.store, before}).Advance(q.ctx()); err != nil {
			q.t.Fatalf("queuetest: %v", err)
		}
		if q.batch(id).Version == before.Version {
			return status
		}
	}
}

// batch returns the stored form of a batch.
func (q *Queue) batch(id holdfast.BatchID) store.Plan {
	q.t.Helper()
	p, err := plan.PlanByID(q.ctx(), q.store, store.ID(id))
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	return p
}

// hasReady reports whether a task of a batch is ready.
func (q *Queue) hasReady(id holdfast.BatchID) bool {
	q.t.Helper()
	page, err := q.store.List(q.ctx(), store.Filter{Batch: id, States: []holdfast.State{holdfast.Ready}, Limit: 1})
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	return len(page.Tasks) > 0
}

// nextOfBatch returns the time of the next step of a batch or of the next attempt of a task, whichever is earlier.
func (q *Queue) nextOfBatch(id holdfast.BatchID) time.Time {
	q.t.Helper()
	p := q.batch(id)
	b, progress, err := plan.ReadBatch(p)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	if b.Stages[progress.Stage].Open && !progress.Sealed && !q.hasReady(id) {
		q.t.Fatalf("queuetest: batch %s needs subtasks; add them, or seal the batch", id)
	}
	at := p.NextAt
	if !at.After(q.Now()) {
		at = q.Now().Add(plan.Every) // its last step has changed nothing
	}
	if task, ok := q.nextDue(); ok && task.NextRunAt.Before(at) {
		at = task.NextRunAt
	}
	return at
}
