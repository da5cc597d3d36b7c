package janitor

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/logs"
)

const (
	fenceEvery = 200 * time.Millisecond
	// resweepAfter is the time between the two sweeps after a worker was fenced. A claim that the worker sent before
	// the fence may be committed after the first sweep. The second sweep finds its tasks.
	resweepAfter = 3 * time.Second
	sweepEvery   = time.Minute
	sweepBatch   = 500
)

// guard decides whether the janitor may fence. After an outage of the store, every lease looks expired. Before it
// fences, the janitor must give every live worker time to renew. So the store must have answered this process without a
// gap for the time need. A jump of the store's clock is treated as a gap.
type guard struct {
	need  time.Duration
	since time.Time // time of the first answer after the newest gap; zero if there is none
	last  time.Time // time of the newest answer
	clock time.Time // the store's clock in the newest answer
}

// maxGap is the maximum time between two answers without a gap.
const maxGap = 5 * fenceEvery

// answered records an answer of the store at the time now, with the time of the store's clock. It reports whether the
// store has answered without a gap for long enough.
func (g *guard) answered(now, clock time.Time) bool {
	passed := now.Sub(g.last)
	leap := clock.Sub(g.clock) - passed
	if g.since.IsZero() || passed > maxGap || leap.Abs() > min(maxGap, g.need/5) {
		g.since = now
	}
	g.last, g.clock = now, clock
	return now.Sub(g.since) >= g.need
}

// failed records that the store did not answer.
func (g *guard) failed() { g.since = time.Time{} }

// fenceLoop fences workers whose lease has expired, until ctx is done. sweepFenced takes their tasks back in another
// goroutine: a long sweep here would look like a gap in the store's answers.
func (j *Janitor) fenceLoop(ctx context.Context) {
	g := &guard{need: j.quietPeriod()}
	for {
		if err := contain.Call(func() error { return j.fence(ctx, g) }); err == nil {
			j.succeeded(ctx, fenceDuty)
		} else if ctx.Err() == nil {
			g.failed()
			j.failed(ctx, fenceDuty, err, fenceEvery)
		}
		if backoff.Sleep(ctx, j.beat(fenceEvery)) != nil {
			return
		}
	}
}

// fence fences the workers whose lease has expired, if the guard allows it.
func (j *Janitor) fence(ctx context.Context, g *guard) error {
	ctx, cancel := context.WithTimeout(ctx, maxGap)
	defer cancel()
	asked, err := j.o.Store.Now(ctx)
	if err != nil {
		return err
	}
	long := g.answered(time.Now(), asked)
	j.watcher.Disturbed(g.since) // the gap may also have ended the presence of live workers
	if !long {
		return nil
	}
	fenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, g.need)
	for _, worker := range fenced {
		j.workerFenced(worker, "worker fenced: lease expired")
	}
	return err
}

// workerFenced records that a worker was fenced, and starts a sweep for its tasks.
func (j *Janitor) workerFenced(worker holdfast.WorkerID, why string) {
	j.observe(holdfast.ObservedFenced, 1)
	j.o.Log.WithField("worker", worker).Warn(why)
	select {
	case j.fenced <- struct{}{}:
	default: // the pending sweep covers this worker, too
	}
}

// sweepFenced takes the tasks of fenced workers back until ctx is done. It sweeps at once after workers were fenced,
// and again after resweepAfter. One sweep covers any number of workers.
func (j *Janitor) sweepFenced(ctx context.Context) {
	pause := backoff.New(firstPause, longPause)
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.fenced:
		}
		for sweeps := 0; sweeps < 2; {
			err := contain.Call(func() error { return j.sweep(ctx) })
			wait := resweepAfter
			if err == nil {
				sweeps++
				pause.Reset()
				j.succeeded(ctx, "sweep")
			} else if ctx.Err() == nil {
				wait = pause.Next()
				j.failed(ctx, "sweep", err, wait)
			}
			if !j.sleepUnlessFenced(ctx, wait, &sweeps) {
				return
			}
		}
	}
}

// sleepUnlessFenced waits for d. If another worker is fenced in that time, it returns early and sets sweeps to 0. It
// returns false if ctx is done.
func (j *Janitor) sleepUnlessFenced(ctx context.Context, d time.Duration, sweeps *int) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-j.fenced:
		*sweeps = 0
		return true
	case <-ctx.Done():
		return false
	}
}

// sweepAll takes back all tasks that still run under ended workers. Only one janitor a minute does this, because the
// store may have to read the whole table.
func (j *Janitor) sweepAll(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "sweep", sweepEvery)
	if err != nil || !myTurn {
		return err
	}
	return j.sweep(ctx)
}

// sweep takes back the tasks that the store finds under ended workers, in batches.
func (j *Janitor) sweep(ctx context.Context) error {
	for {
		tasks, err := j.o.Store.Abandoned(ctx, 0, sweepBatch)
		if err != nil {
			return err
		}
		if _, err := j.takeBack(ctx, tasks); err != nil {
			return err
		}
		if len(tasks) < sweepBatch {
			return nil
		}
	}
}

// takeBack settles tasks of ended workers as crashed and applies the transitions. It returns how many the store
// accepted.
func (j *Janitor) takeBack(ctx context.Context, tasks []holdfast.Task) (taken int, err error) {
	if len(tasks) == 0 {
		return 0, nil
	}
	now, err := j.o.Store.Now(ctx)
	if err != nil {
		return 0, err
	}
	moves, settled := make([]holdfast.Transition, 0, len(tasks)), make([]holdfast.Task, 0, len(tasks))
	for _, task := range tasks {
		policy := j.o.Settings.For(task.Type).Policy
		move, err := holdfast.Settle(task, holdfast.Crashed(task.Worker), now, policy)
		if err != nil {
			if !errors.Is(err, holdfast.ErrConflict) {
				return 0, err
			}
			continue // the task is no longer running
		}
		moves, settled = append(moves, move), append(settled, task)
	}
	accepted, err := j.applyCrashes(ctx, moves, crashesTimeout)
	type recovery struct {
		queue string
		event holdfast.Event
	}
	recovered := make(map[recovery]int)
	for i, ok := range accepted {
		if !ok {
			continue
		}
		taken++
		recovered[recovery{settled[i].Queue, moves[i].Event}]++
		if moves[i].To == holdfast.Dead {
			logs.Dead(j.o.Log, settled[i], moves[i])
		}
	}
	for r, n := range recovered {
		j.o.Observer.Observe(holdfast.Observation{Kind: holdfast.ObservedRecovered, Queue: r.queue, Event: r.event, Count: n})
	}
	if taken > 0 {
		j.o.Log.WithField("tasks", taken).Info("took back tasks of ended workers")
		j.Nudge(0)
	}
	return taken, err
}

const (
	crashesTimeout     = 3 * time.Second // of a group of crashes
	crashesPartTimeout = time.Second     // of a part of a group that took too long
)

// applyCrashes applies the transitions and reports which ones the store accepted. A handler that hangs in the
// transaction of its success locks the row of its task; see store.Work.ApplyTx. So if the group takes too long although
// the store answers, applyCrashes applies each half. At the end it has applied all transitions but those of locked rows,
// and returns an error.
func (j *Janitor) applyCrashes(ctx context.Context, moves []holdfast.Transition, timeout time.Duration) ([]bool, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	accepted, err := j.o.Store.Apply(limited, moves)
	late := limited.Err() != nil
	cancel()
	switch {
	case err == nil:
		return accepted, nil
	case !late || ctx.Err() != nil || len(moves) == 1:
		return make([]bool, len(moves)), err
	}
	if _, err := j.o.Store.Now(ctx); err != nil { // the store is the cause, and not a row
		return make([]bool, len(moves)), err
	}
	half := len(moves) / 2
	first, firstErr := j.applyCrashes(ctx, moves[:half], crashesPartTimeout)
	second, secondErr := j.applyCrashes(ctx, moves[half:], crashesPartTimeout)
	return append(first, second...), errors.Join(firstErr, secondErr)
}
