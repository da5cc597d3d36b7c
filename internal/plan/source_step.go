package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// deadEvery is the time between two looks at a dead slice, which a person may have retried.
	deadEvery = 10 * time.Second
	// fullEvery is the time between two looks at the open slices of a source that is behind.
	fullEvery = 100 * time.Millisecond
	// sliceTime is the form of the begin of a slice in the name of its item and in its unique key. All have one length,
	// so that their order as texts is that of the times.
	sliceTime = "2006-01-02T15:04:05.000000Z"
	// maxDead is the number of dead slices that one step looks at.
	maxDead = 100
)

// sliceItem is the data of an item: a slice without its overlap, and its task.
type sliceItem struct {
	To   time.Time       `json:"to"`
	Task holdfast.TaskID `json:"task"`
}

// SliceOf returns the begin and the end of the slice of an item, without the overlap, and its task.
func SliceOf(i store.PlanItem) (from, to time.Time, task holdfast.TaskID, err error) {
	var data sliceItem
	if err := decode(i.Data, &data); err != nil {
		return from, to, 0, err
	}
	from, err = time.Parse(sliceTime, i.Item)
	return from, data.To, data.Task, err
}

// sliceStep is what a step of a source does.
type sliceStep struct {
	plan     store.Plan
	source   Source
	progress SourceProgress
	put      []store.PlanItem
	drop     []string
	slices   []span // to store
	moved    bool   // an item has changed its state
	all      bool   // the step has read all dead slices
	// tasksOf has the tasks of the items that the step has read, and states their states.
	tasksOf []holdfast.TaskID
	states  map[holdfast.TaskID]holdfast.State
	poll    time.Duration // the time between two checks of these tasks; 0 if there are none
	later   time.Time     // when a step is due even if no task has changed
}

// span is a slice without its overlap.
type span struct{ from, to time.Time }

// stepSource makes a step of a source. It returns when the next one is due.
func (e *Engine) stepSource(ctx context.Context, p store.Plan, now time.Time) (next time.Time, stored int, err error) {
	own, progress, err := ReadSource(p)
	if err != nil {
		return time.Time{}, 0, err
	}
	defaults, err := e.defaults(ctx)
	if err != nil {
		return time.Time{}, 0, err
	}
	d := sliceStep{plan: p, source: own.Effective(defaults), progress: progress, all: true}
	// The default may have lost a setting that this source needs, and an older version may have stored any time.
	if err := cmp.Or(d.source.Validate(false), holdfast.CheckTime("the next slice", progress.Next)); err != nil {
		return time.Time{}, 0, err
	}
	open, err := e.store.PlanItems(ctx, p.ID, store.PlanItemFilter{State: store.ItemOpen, Limit: 2 * MaxInFlight})
	if err != nil {
		return time.Time{}, 0, err
	}
	var dead []store.PlanItem
	if progress.Dead > 0 {
		filter := store.PlanItemFilter{State: store.ItemDead, Due: true, Limit: maxDead}
		if d.all = progress.Dead <= maxDead; d.all {
			filter.Within = deadEvery
		}
		if dead, err = e.store.PlanItems(ctx, p.ID, filter); err != nil {
			return time.Time{}, 0, err
		}
		d.all = len(dead) == progress.Dead
	}
	still, err := e.settleSlices(ctx, &d, open, dead, now)
	if err != nil {
		return time.Time{}, 0, err
	}
	d.store(now)
	if err := e.doneThrough(ctx, &d, still); err != nil {
		return time.Time{}, 0, err
	}
	to := d.finish(now)
	if !d.moved && len(d.slices) == 0 && p.Failures == 0 && string(to.Progress) == string(p.Progress) && d.poll > 0 {
		w := watch{plan: p, first: d.poll, slowest: max(d.poll, openEvery), step: d.later, defaults: hash(defaults)}
		if e.watchTasks(w, d.tasksOf, d.states, now) || d.poll <= fullEvery {
			return to.NextAt, 0, nil
		}
	}
	step := store.PlanStep{From: p, Insert: d.tasks(), Drop: d.drop}
	after, err := e.store.StepPlan(ctx, step, func(inserted store.Inserted) (store.Plan, []store.PlanItem) {
		return to, append(d.put[:len(d.put):len(d.put)], d.items(inserted)...)
	})
	if err != nil {
		return time.Time{}, 0, err
	}
	return after.NextAt, len(d.slices), nil
}

// defaults returns the settings of DefaultSource. It reads them once in each call of Advance.
func (e *Engine) defaults(ctx context.Context) (Source, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.source != nil {
		return *e.source, nil
	}
	var s Source
	p, err := e.store.PlanByName(ctx, store.SourceKind, DefaultSource)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
	case err != nil:
		return s, err
	default:
		if s, _, err = ReadSource(p); err != nil {
			return s, err
		}
	}
	e.source = &s
	return s, nil
}

// settleSlices moves the items whose tasks have changed. It returns the begin of each item that is open afterwards.
func (e *Engine) settleSlices(ctx context.Context, d *sliceStep, open, dead []store.PlanItem, now time.Time) (still []string, err error) {
	states, tasks, err := e.sliceStates(ctx, append(open[:len(open):len(open)], dead...))
	if err != nil {
		return nil, err
	}
	d.tasksOf, d.states = tasks, states
	for i, item := range open {
		switch state, stored := states[tasks[i]]; {
		case stored && (state == holdfast.Ready || state == holdfast.Running):
			still = append(still, item.Item)
		case stored && state == holdfast.Dead:
			d.put = append(d.put, store.PlanItem{Item: item.Item, State: store.ItemDead, NextAt: now.Add(deadEvery), Data: item.Data})
			d.progress.Open--
			d.progress.Dead++
			d.moved = true
		default:
			d.end(item.Item)
			d.progress.Open--
		}
	}
	for i, item := range dead {
		switch state, stored := states[tasks[len(open)+i]]; {
		case stored && state == holdfast.Dead:
			if !d.all { // the next step selects other slices by this time
				d.put = append(d.put, store.PlanItem{Item: item.Item, State: store.ItemDead, NextAt: now.Add(deadEvery), Data: item.Data})
				d.moved = true
			}
		case stored && (state == holdfast.Ready || state == holdfast.Running): // a person has retried it
			d.put = append(d.put, store.PlanItem{Item: item.Item, State: store.ItemOpen, Data: item.Data})
			still = append(still, item.Item)
			d.progress.Dead--
			d.progress.Open++
			d.moved = true
		default:
			d.end(item.Item)
			d.progress.Dead--
		}
	}
	return still, nil
}

// end drops the item of a slice that has ended.
func (d *sliceStep) end(item string) {
	d.drop = append(d.drop, item)
	d.progress.Done++
	d.moved = true
}

// sliceStates returns the states of the tasks of items, and the task of each item. Deleted tasks have no state.
func (e *Engine) sliceStates(ctx context.Context, items []store.PlanItem) (map[holdfast.TaskID]holdfast.State, []holdfast.TaskID, error) {
	runs, ids := make([]ScheduleRun, len(items)), make([]holdfast.TaskID, len(items))
	for i, item := range items {
		_, _, task, err := SliceOf(item)
		if err != nil {
			return nil, nil, err
		}
		runs[i].Task, ids[i] = task, task
	}
	states, err := RunStates(ctx, e.store, runs)
	return states, ids, err
}

// store selects the slices to store: those that have ended, with the lag, as many as the source allows.
func (d *sliceStep) store(now time.Time) {
	p := &d.progress
	if rate := *d.source.Rate; rate.Count == 0 || p.RateAt.Sub(now) > rate.Interval() { // no rate, or the clock was set back, or the rate was raised
		p.RateAt = earliest(p.RateAt, now)
	}
	for p.Open+len(d.slices) < *d.source.InFlight && len(d.slices) < maxTasks {
		s, ok := d.next()
		if !ok || d.due(s).After(now) || p.RateAt.After(now) {
			return
		}
		if rate := *d.source.Rate; rate.Count > 0 {
			if p.RateAt.Before(now) {
				p.RateAt = now
			}
			p.RateAt = p.RateAt.Add(rate.Interval())
		}
		d.slices = append(d.slices, s)
		p.Next = s.to
	}
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// next returns the next slice. ok is false if a backfill has no more.
func (d *sliceStep) next() (s span, ok bool) {
	s = span{d.progress.Next, d.progress.Next.Add(time.Duration(*d.source.Every))}
	if d.source.BackfillOf != "" {
		if !s.from.Before(d.source.To) {
			return s, false
		}
		if s.to.After(d.source.To) {
			s.to = d.source.To
		}
	}
	return s, true
}

// due returns when a slice may be pulled.
func (d *sliceStep) due(s span) time.Time { return s.to.Add(time.Duration(*d.source.Lag)) }

// doneThrough sets the time up to which every slice has ended. still has the items that were open before the step and
// still are.
func (e *Engine) doneThrough(ctx context.Context, d *sliceStep, still []string) error {
	p := &d.progress
	through := p.Next
	if len(d.slices) > 0 {
		through = d.slices[0].from
	}
	oldest := append([]string{}, still...)
	gone := make(map[string]bool, len(d.drop)+len(d.put))
	for _, item := range d.drop {
		gone[item] = true
	}
	for _, item := range d.put {
		if item.State == store.ItemDead {
			oldest = append(oldest, item.Item)
		} else {
			gone[item.Item] = true
		}
	}
	if p.Dead > 0 { // the first dead slice that stays dead
		dead, err := e.store.PlanItems(ctx, d.plan.ID, store.PlanItemFilter{State: store.ItemDead, Limit: len(gone) + 1})
		if err != nil {
			return err
		}
		for _, item := range dead {
			if !gone[item.Item] {
				oldest = append(oldest, item.Item)
				break
			}
		}
	}
	for _, item := range oldest {
		at, err := time.Parse(sliceTime, item)
		if err != nil {
			return err
		}
		if at.Before(through) {
			through = at
		}
	}
	p.DoneThrough = through
	return nil
}

// finish returns the plan after the step.
func (d *sliceStep) finish(now time.Time) store.Plan {
	p := &d.progress
	p.Open += len(d.slices)
	to := d.plan
	to.Progress = encode(p)
	s, more := d.next()
	if !more && p.Open == 0 && p.Dead == 0 {
		to.State, to.NextAt = store.PlanDone, time.Time{}
		return to
	}
	next := now.Add(deadEvery)
	if p.Dead == 0 {
		next = now.Add(time.Hour)
	}
	earlier := func(at time.Time) {
		if at.Before(next) {
			next = at
		}
	}
	switch {
	case p.Open > 0:
		d.poll = openEvery
	case p.Dead > 0 && d.all:
		d.poll = deadEvery
	}
	if more {
		at := d.due(s)
		if p.RateAt.After(at) {
			at = p.RateAt
		}
		switch full := p.Open >= *d.source.InFlight; {
		case at.After(now):
			d.later = at
			earlier(at)
		case full:
			d.poll = fullEvery
		case len(d.slices) == maxTasks: // the step has stored as many as it may
			earlier(now)
		}
	}
	if d.poll > 0 {
		earlier(now.Add(d.poll))
	}
	to.NextAt = next
	return to
}

// NextSlice returns when a source with these effective settings may store its next slice. ok is false if the source
// waits for the end of an open slice, and if a backfill has no more slices.
func (s Source) NextSlice(p SourceProgress) (at time.Time, ok bool) {
	d := sliceStep{source: s, progress: p}
	slice, more := d.next()
	if !more || p.Open >= *s.InFlight {
		return time.Time{}, false
	}
	if at = d.due(slice); p.RateAt.After(at) {
		at = p.RateAt
	}
	return at, true
}

// tasks returns the tasks of the slices. Their key is the source, and their unique keys name the source and the slice.
func (d *sliceStep) tasks() []holdfast.NewTask {
	var tasks []holdfast.NewTask
	s := &d.source
	key := d.plan.Name
	if s.BackfillOf != "" {
		key = s.BackfillOf
	}
	for _, span := range d.slices {
		unique := slicePrefix + d.plan.Name + "/" + SliceName(span.from) + "/" + SliceName(span.to)
		if s.BackfillOf != "" { // the same backfill pulls the slices again
			unique += "/" + SliceName(d.plan.CreatedAt)
		}
		slice := Slice{Source: key, From: span.from.Add(-time.Duration(*s.Overlap)).UTC(), To: span.to.UTC()}
		tasks = append(tasks, holdfast.NewTask{
			Type: s.Type, Queue: s.Queue, Payload: encode(slicePayload{slice, s.SliceSettings}), MaxAttempts: *s.Attempts, Key: key,
			Unique: unique,
		})
	}
	return tasks
}

// slicePrefix begins the unique keys of the tasks of slices: slice/SOURCE/BEGIN/END. A slice with another end is another
// slice, even if an earlier source with the name had one with the same begin. The key of a backfill ends with the time at
// which the backfill was created.
const slicePrefix = "slice/"

// items returns the items of the stored slices.
func (d *sliceStep) items(inserted store.Inserted) []store.PlanItem {
	var items []store.PlanItem
	for i, span := range d.slices {
		data := json.RawMessage(encode(sliceItem{To: span.to.UTC(), Task: inserted.Tasks[i].ID}))
		items = append(items, store.PlanItem{Item: span.from.UTC().Format(sliceTime), State: store.ItemOpen, Data: data})
	}
	return items
}
