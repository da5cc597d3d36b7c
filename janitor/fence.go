package janitor

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/logs"
)

const (
	fenceEvery = 200 * time.Millisecond
	// A claim that was on its way when its run was fenced may be committed after
	// the first sweep; these later ones find it.
	sweepAgain = 3 * time.Second
	sweepEvery = time.Minute
	sweepBatch = 500
)

// guard says whether this janitor may fence: after an outage of the store every
// lease looks expired, so nobody may be fenced before every live worker has had
// the time to renew. It is the store's reachability that counts, as this process saw it. The same holds after
// the store's clock has leapt.
type guard struct {
	need  time.Duration
	since time.Time // of the first answer in an unbroken row; zero if there is none
	last  time.Time
	clock time.Time // the store's at that moment
}

// maxGap is the longest time between two answers that counts as unbroken.
const maxGap = 5 * fenceEvery

// answered notes an answer of the store, which says how late it is there, and returns whether the row is long
// enough.
func (g *guard) answered(now, clock time.Time) bool {
	passed := now.Sub(g.last)
	leap := clock.Sub(g.clock) - passed
	if g.since.IsZero() || passed > maxGap || leap.Abs() > min(maxGap, g.need/5) {
		g.since = now
	}
	g.last, g.clock = now, clock
	return now.Sub(g.since) >= g.need
}

func (g *guard) failed() { g.since = time.Time{} }

// fenceLoop fences runs whose lease is over. Their tasks are taken back beside it,
// for a long sweep must not look like a gap in the store's answers.
func (j *Janitor) fenceLoop(ctx context.Context) {
	g := &guard{need: j.need()}
	for {
		if err := j.fence(ctx, g); err != nil && ctx.Err() == nil {
			g.failed()
			j.o.Log.WithError(err).WithField("duty", "fence").Warn("a duty failed, trying again")
		}
		if backoff.Sleep(ctx, j.beat(fenceEvery)) != nil {
			return
		}
	}
}

// fence does one look.
func (j *Janitor) fence(ctx context.Context, g *guard) error {
	ctx, cancel := context.WithTimeout(ctx, maxGap)
	defer cancel()
	asked, err := j.o.Store.Now(ctx)
	if err != nil {
		return err
	}
	long := g.answered(time.Now(), asked)
	j.watcher.Disturbed(g.since) // by whatever broke the row before
	if !long {
		return nil
	}
	fenced, err := j.o.Store.Fence(ctx, asked, j.o.FenceGrace, g.need)
	for _, run := range fenced {
		j.declaredDead(run, "a run's lease is over: it is fenced, its tasks go back")
	}
	return err
}

// declaredDead says that a run was fenced and has its tasks taken back at once.
func (j *Janitor) declaredDead(run holdfast.RunID, why string) {
	j.see(holdfast.ObservedFenced, 1)
	j.o.Log.WithField("run", run).Warn(why)
	select {
	case j.fenced <- struct{}{}:
	default: // a sweep that has not begun covers these too
	}
}

// sweepFenced takes the tasks of fenced runs back at once, however many they are in
// one look at the store, and once more a moment later.
func (j *Janitor) sweepFenced(ctx context.Context) {
	pause := backoff.New(firstPause, longPause)
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.fenced:
		}
		for looks := 0; looks < 2; {
			err := j.sweep(ctx)
			wait := sweepAgain
			if err == nil {
				looks++
				pause.Reset()
			} else if ctx.Err() == nil {
				j.o.Log.WithError(err).Warn("the tasks of gone runs could not be taken back, trying again")
				wait = pause.Next()
			}
			if !j.sleepUnlessFenced(ctx, wait, &looks) {
				return
			}
		}
	}
}

// sleepUnlessFenced is sleep, cut short when more runs are fenced; then the looks begin anew.
func (j *Janitor) sleepUnlessFenced(ctx context.Context, d time.Duration, looks *int) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-j.fenced:
		*looks = 0
		return true
	case <-ctx.Done():
		return false
	}
}

// sweepAll finds tasks that are still running under any run that is over. One janitor a minute is
// enough, for it may have to read the whole table.
func (j *Janitor) sweepAll(ctx context.Context) error {
	mine, err := j.o.Store.Turn(ctx, "sweep", sweepEvery)
	if err != nil || !mine {
		return err
	}
	return j.sweep(ctx)
}

// sweep returns the tasks of all runs that are over.
func (j *Janitor) sweep(ctx context.Context) error {
	for {
		tasks, err := j.o.Store.Abandoned(ctx, 0, sweepBatch)
		if err != nil {
			return err
		}
		if err := j.takeBack(ctx, tasks); err != nil {
			return err
		}
		if len(tasks) < sweepBatch {
			return nil
		}
	}
}

// takeBack judges tasks whose runs are over and writes the verdicts.
func (j *Janitor) takeBack(ctx context.Context, tasks []holdfast.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	now, err := j.o.Store.Now(ctx)
	if err != nil {
		return err
	}
	moves, judged := make([]holdfast.Transition, 0, len(tasks)), make([]holdfast.Task, 0, len(tasks))
	for _, task := range tasks {
		policy := j.o.Settings.For(task.Type).Policy
		move, err := holdfast.Settle(task, holdfast.Crashed(task.Run), now, policy)
		if err != nil {
			if !errors.Is(err, holdfast.ErrConflict) {
				return err
			}
			continue // it is not running any more
		}
		moves, judged = append(moves, move), append(judged, task)
	}
	accepted, err := j.o.Store.Apply(ctx, moves)
	if err != nil {
		return err
	}
	n := 0
	for i, ok := range accepted {
		if !ok {
			continue
		}
		n++
		if moves[i].To == holdfast.Dead {
			logs.Dead(j.o.Log, judged[i], moves[i])
		}
	}
	j.see(holdfast.ObservedRecovered, n)
	if n > 0 {
		j.o.Log.WithField("tasks", n).Info("tasks of a gone worker were taken back")
		j.Nudge(0)
	}
	return nil
}
