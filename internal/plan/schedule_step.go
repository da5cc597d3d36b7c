package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// maxMoments is the number of moments that one step uses, and maxTasks the number of tasks that it stores.
	maxMoments = 10_000
	maxTasks   = 100
	// openEvery is the time between two checks whether an open task has ended that a due moment waits for.
	openEvery = time.Second
)

// stepSchedule makes a step of a schedule. It returns when the next step is due, and the number of stored tasks.
func (e *Engine) stepSchedule(ctx context.Context, p store.Plan, now time.Time) (next time.Time, stored int, err error) {
	s, progress, err := ReadSchedule(p)
	if err != nil {
		return time.Time{}, 0, err
	}
	states, err := RunStates(ctx, e.store, progress.Open)
	if err != nil {
		return time.Time{}, 0, err
	}
	d, err := s.step(p, progress, states, now)
	if err != nil {
		return time.Time{}, 0, err
	}
	if d.waits && len(d.fire) == 0 && p.Failures == 0 && string(encode(d.progress)) == string(p.Progress) {
		w := watch{plan: p, first: openEvery, slowest: openEvery}
		if next := d.progress.Next; !next.IsZero() && next.Add(s.delay(p.Name, next)).After(now) {
			w.step = next.Add(s.delay(p.Name, next))
		}
		if e.watchTasks(w, taskIDs(d.progress.Open), states, now) {
			return d.next, 0, nil
		}
	}
	step := store.PlanStep{From: p, Insert: d.tasks(p.Name, s)}
	if d.pause != "" {
		step.By, step.Action = &store.Actor{Name: "janitor", Surface: store.Janitor, Reason: d.pause}, store.ActionPause
	}
	to, err := e.store.StepPlan(ctx, step, WithoutItems(func(inserted store.Inserted) store.Plan { return d.plan(p, inserted) }))
	if err != nil {
		return time.Time{}, 0, err
	}
	return to.NextAt, len(step.Insert), nil
}

// RunStates returns the states of the tasks of runs. Deleted tasks are missing.
func RunStates(ctx context.Context, s interface {
	TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
}, runs []ScheduleRun) (map[holdfast.TaskID]holdfast.State, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	tasks, err := s.TasksByID(ctx, taskIDs(runs))
	if err != nil {
		return nil, err
	}
	states := make(map[holdfast.TaskID]holdfast.State, len(tasks))
	for _, task := range tasks {
		states[task.ID] = task.State
	}
	return states, nil
}

func taskIDs(runs []ScheduleRun) []holdfast.TaskID {
	ids := make([]holdfast.TaskID, len(runs))
	for i, r := range runs {
		ids[i] = r.Task
	}
	return ids
}

// scheduleStep is what a step of a schedule does.
type scheduleStep struct {
	spec     Schedule
	progress ScheduleProgress
	fire     []time.Time // the moments whose tasks the step stores
	next     time.Time   // when the next step is due
	waits    bool        // a due time waits for an open task
	state    store.PlanState
	pause    string // why the schedule pauses itself, or ""
}

// step decides what to do now. states has the states of the open tasks.
func (s Schedule) step(p store.Plan, progress ScheduleProgress, states map[holdfast.TaskID]holdfast.State, now time.Time) (scheduleStep, error) {
	if err := cmp.Or(s.checkTimes(), holdfast.CheckTime("the next moment", progress.Next)); err != nil {
		return scheduleStep{}, fmt.Errorf("%w; edit or delete the schedule", err)
	}
	clock, err := s.clock()
	if err != nil {
		return scheduleStep{}, err
	}
	d := scheduleStep{spec: s, progress: progress, state: store.PlanRunning}
	d.settle(states)
	if s.PauseAfter > 0 && d.progress.Deaths >= s.PauseAfter {
		d.pause = fmt.Sprintf("the last %d tasks are dead", d.progress.Deaths)
		d.state, d.progress.PausedBy, d.progress.Deaths = store.PlanPaused, d.pause, 0
		return d, nil
	}
	free := s.Overlap.limit() - len(d.progress.Open)
	if w := d.progress.Waiting; !w.IsZero() && free > 0 {
		d.fire, d.progress.Waiting = append(d.fire, w), time.Time{}
		free--
	}
	var more bool
	if s.BackfillOf != "" {
		more = d.inOrder(clock, p.Name, now, free)
	} else {
		more = d.due(clock, p.Name, now, free)
	}
	d.schedule(p.Name, now, more)
	return d, nil
}

// settle removes the open tasks that have ended. A dead task waits for a person, so it counts as ended.
func (d *scheduleStep) settle(states map[holdfast.TaskID]holdfast.State) {
	var open []ScheduleRun
	for _, run := range d.progress.Open {
		switch state, stored := states[run.Task]; {
		case stored && (state == holdfast.Ready || state == holdfast.Running):
			open = append(open, run)
		case stored && state == holdfast.Dead:
			d.progress.Deaths++
		case !stored || state == holdfast.Done:
			d.progress.Deaths = 0
		}
	}
	d.progress.Open = open
}

// due uses the moments that are due, by the rules for missed moments and for overlaps. It reports whether more moments
// are due than one step uses.
func (d *scheduleStep) due(c clock, name string, now time.Time, free int) (more bool) {
	s, p := d.spec, &d.progress
	if d.leaveOut(c, name, now.Add(-max(onTime, time.Duration(s.CatchUp)))) {
		return true
	}
	var moments []time.Time
	for !p.Next.IsZero() && !p.Next.Add(s.delay(name, p.Next)).After(now) {
		if len(moments) == maxMoments || s.Missed == MissedAll && len(moments) == maxTasks {
			more = true
			break
		}
		moments = append(moments, p.Next)
		p.Next = c.after(p.Next)
	}
	if s.Missed != MissedAll && len(moments) > 0 {
		last := moments[len(moments)-1]
		late := now.Sub(last.Add(s.delay(name, last))) > onTime
		kept := moments[len(moments)-1:]
		if more || s.Missed == MissedSkip && late {
			kept = nil
		}
		p.Missed += int64(len(moments) - len(kept))
		moments = kept
	}
	for _, m := range moments {
		switch {
		case free > 0:
			d.fire = append(d.fire, m)
			free--
		case s.Overlap == OverlapQueue && p.Waiting.IsZero():
			p.Waiting = m
		default:
			p.Skipped++
		}
	}
	return more
}

// leaveOut leaves out the moments that were due before a time. If there are more than maxMoments, the count is a lower
// bound. It reports whether there are more such moments than one step leaves out.
func (d *scheduleStep) leaveOut(c clock, name string, before time.Time) (more bool) {
	p := &d.progress
	for n := 0; !p.Next.IsZero() && p.Next.Add(d.spec.delay(name, p.Next)).Before(before); n++ {
		if n == 2*maxMoments {
			return true
		}
		p.Missed++
		from := p.Next
		if sure := before.Add(-time.Duration(d.spec.Jitter) - time.Microsecond); n == maxMoments && sure.After(from) {
			from = sure
		}
		p.Next = c.after(from)
	}
	return false
}

// inOrder uses the due moments of a backfill, as many as Overlap allows. It reports whether Overlap allows more of them
// than one step stores.
func (d *scheduleStep) inOrder(c clock, name string, now time.Time, free int) (more bool) {
	p := &d.progress
	for !p.Next.IsZero() && !p.Next.After(now) {
		switch {
		case len(d.fire) == maxTasks:
			return true
		case free <= 0:
			return false
		}
		d.fire = append(d.fire, p.Next)
		p.Next = c.after(p.Next)
		free--
	}
	return false
}

// schedule sets when the next step is due. The schedule ends if no step can store a task any more.
func (d *scheduleStep) schedule(name string, now time.Time, more bool) {
	p := &d.progress
	next := p.Next
	if !next.IsZero() {
		next = next.Add(d.spec.delay(name, next))
	}
	switch waits := !p.Waiting.IsZero() || d.spec.BackfillOf != "" && !p.Next.IsZero() && !p.Next.After(now); {
	case more:
		d.next = now
	case waits:
		d.waits, d.next = true, now.Add(openEvery)
		if !next.IsZero() && next.After(now) && next.Before(d.next) {
			d.next = next
		}
	case next.IsZero():
		d.state = store.PlanDone
	default:
		d.next = next
	}
}

// uniqueTime is the form of a due moment in a unique key.
const uniqueTime = "2006-01-02T15:04:05.999999Z07:00"

// tasks returns the tasks of the moments. Their unique keys name the schedule and the moment, so that a handler can read
// both. If a person deletes a schedule and creates it again, the keys keep its moments from running twice.
func (d *scheduleStep) tasks(name string, s Schedule) []holdfast.NewTask {
	var tasks []holdfast.NewTask
	for _, m := range d.fire {
		tasks = append(tasks, s.task(name, m))
	}
	return tasks
}

func (s *Schedule) task(name string, moment time.Time) holdfast.NewTask {
	task := s.Task.New()
	task.Unique = schedulePrefix + name + "/" + moment.UTC().Format(uniqueTime)
	switch {
	case s.Again:
		task.Unique = schedulePrefix + s.BackfillOf + "/" + moment.UTC().Format(uniqueTime) + "/" + s.AgainAt.UTC().Format(uniqueTime)
	case s.BackfillOf != "":
		task.Unique = schedulePrefix + s.BackfillOf + "/" + moment.UTC().Format(uniqueTime)
	}
	return task
}

// plan returns the plan after the step.
func (d *scheduleStep) plan(from store.Plan, inserted store.Inserted) store.Plan {
	p := d.progress
	p.Open, p.Recent = slices.Clone(p.Open), slices.Clone(p.Recent)
	for i, m := range d.fire {
		run := ScheduleRun{At: m, Task: inserted.Tasks[i].ID}
		if inserted.Tasks[i].Duplicate { // the moment has run
			continue
		}
		p.Runs++
		p.Open = append(p.Open, run)
		p.Recent = append([]ScheduleRun{run}, p.Recent...)
	}
	p.Recent = p.Recent[:min(len(p.Recent), maxRecent)]
	to := from
	to.State, to.NextAt, to.Progress = d.state, d.next, encode(p)
	if d.state != store.PlanRunning {
		to.NextAt = time.Time{}
	}
	return to
}
