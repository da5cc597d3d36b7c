package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// chunk is the data of an item: tasks that were stored together, and how many of them had ended at the last check.
type chunk struct {
	Runs   []store.IDRange `json:"runs"`
	Split  bool            `json:"split,omitempty"`
	Counts Counts          `json:"counts"`
	Checks int             `json:"checks,omitempty"` // in a row in which no more tasks had ended
}

func chunkName(stage, n int) string { return fmt.Sprintf("%03d/%08d", stage, n) }

// stageOf returns the stage of an item.
func stageOf(item string) int {
	stage, _ := strconv.Atoi(item[:strings.IndexByte(item+"/", '/')])
	return stage
}

// chunkOf returns the item of tasks that were stored together.
func chunkOf(name string, inserted []store.InsertedTask, split bool, at time.Time) store.PlanItem {
	c := chunk{Runs: store.StoredIDs(inserted), Split: split}
	for _, task := range inserted {
		if task.Duplicate {
			c.Counts.Duplicate++
		} else {
			c.Counts.Total++
		}
	}
	return store.PlanItem{Item: name, State: store.ItemOpen, NextAt: at, Data: encode(c)}
}

// batchRead is what an engine reads of a batch before a step.
type batchRead struct {
	items   []store.PlanItem       // items to check, open and dead ones
	tallies map[string]store.Tally // by item
	more    time.Time              // when to check the first item that is not in items; zero if there is none
}

const (
	// A step checks at most itemBatch items, or maxItems if these have few tasks, the earliest first. It counts about
	// tallyTasks tasks at a time. Tasks end in about the order in which they were stored. So when the items that were
	// found open have enoughOpen tasks together, the step checks no more items, and the next step continues.
	itemBatch  = 20
	maxItems   = 2000
	tallyTasks = 2 * MaxChunk
	enoughOpen = 2 * MaxChunk
	// stepPause is the time between two steps of a batch whose tasks end one after another.
	stepPause = 50 * time.Millisecond
	// stepTries is how often an engine tries to make a step while others change the batch.
	stepTries = 10
	// chainEvery is the time between two checks of a stage with at most chainSize tasks. It grows to slowestChain.
	chainEvery   = 50 * time.Millisecond
	slowestChain = time.Second
	chainSize    = 10
	firstCheck   = 100 * time.Millisecond
	lastCheck    = 10 * time.Second
	waitCheck    = 30 * time.Second // the longest time between two checks of tasks that wait for their next attempts
)

// stepBatch makes a step of a batch. It returns when the next step is due, and the number of stored tasks.
func (e *Engine) stepBatch(ctx context.Context, p store.Plan, now time.Time) (next time.Time, stored int, err error) {
	return e.checkBatch(ctx, p, now, false)
}

// checkBatch is stepBatch. If early is set, it also checks items that are not due.
//
// Splits and programs may store a page at any time, and each page changes the version of the plan. So a step that only
// counts does not require the version that it has read: its transaction decides the step again, with the same counts of
// tasks. If another engine has counted meanwhile, checkBatch begins again.
func (e *Engine) checkBatch(ctx context.Context, p store.Plan, now time.Time, early bool) (next time.Time, stored int, err error) {
	for try := 0; ; try++ {
		b, progress, err := ReadBatch(p)
		if err != nil {
			return time.Time{}, 0, err
		}
		read, err := e.readItems(ctx, p, early || progress.Cancelling)
		if err != nil {
			return time.Time{}, 0, err
		}
		d := b.step(p, progress, read, now)
		if !d.changed && p.Failures == 0 && (len(d.items) == 0 || e.watchBatch(&d, read)) {
			return d.next, 0, nil
		}
		step := store.PlanStep{From: p, Insert: d.insert, Members: true}
		if len(d.insert) == 0 {
			step.Accept = func(newest store.Plan, _ time.Time) error { return d.decideAgain(newest, read) }
		}
		to, err := e.store.StepPlan(ctx, step, func(inserted store.Inserted) (store.Plan, []store.PlanItem) { return d.plan(inserted) })
		switch {
		case err == nil:
			return to.NextAt, len(d.insert), nil
		case !errors.Is(err, holdfast.ErrConflict) || try == stepTries:
			return time.Time{}, 0, err
		}
		if p, err = PlanByID(ctx, e.store, p.ID); err != nil || p.State.Ended() || p.NextAt.After(now) && !early {
			return time.Time{}, 0, err
		}
	}
}

// decideAgain decides the step for the newest version of the plan. It returns an ErrConflict if another engine has made a
// step since the items were read, or if the step now stores tasks.
func (d *batchStep) decideAgain(newest store.Plan, read batchRead) error {
	if newest.Version == d.from.Version {
		return nil
	}
	b, progress, err := ReadBatch(newest)
	if err != nil {
		return err
	}
	again := b.step(newest, progress, read, d.now)
	// A step that stores tasks, or ends the batch, is made only for the version that was read.
	if newest.State.Ended() || progress.Steps+1 != d.progress.Steps || len(again.insert) > 0 || again.state.Ended() || !again.changed {
		return errMoved
	}
	again.at(d.now.Add(stepPause)) // for the pages that were stored meanwhile
	*d = again
	return nil
}

// errMoved means that the plan has changed since it was read.
var errMoved = fmt.Errorf("%w: the batch has changed since it was read", holdfast.ErrConflict)

// readItems reads the items to check, and counts the states of their tasks. If early is set, it also reads items that
// are not due, because the tasks of a batch that a person cancels end sooner than expected.
func (e *Engine) readItems(ctx context.Context, p store.Plan, early bool) (batchRead, error) {
	read := batchRead{tallies: make(map[string]store.Tally)}
	now, err := e.store.Now(ctx)
	if err != nil {
		return read, err
	}
	later := func(item store.PlanItem) bool { return item.NextAt.After(now) && !early }
	for _, state := range []store.PlanItemState{store.ItemDead, store.ItemOpen} {
		items, err := e.checkable(ctx, p.ID, state)
		if err != nil {
			return read, err
		}
		// Tasks end in about the order in which they were stored. So the step begins with the oldest items that are
		// due. Otherwise it could count tasks that have not started, and leave out tasks that have ended.
		due := len(items)
		if i := slices.IndexFunc(items, later); i >= 0 {
			due = i
		}
		slices.SortFunc(items[:due], func(a, b store.PlanItem) int { return cmp.Compare(a.Item, b.Item) })
		limit := maxItems
		if len(items) == itemBatch+1 {
			limit = itemBatch
		}
		for open := int64(0); len(items) > 0; {
			if later(items[0]) || open >= enoughOpen || len(read.items) >= limit {
				if read.more.IsZero() || items[0].NextAt.Before(read.more) {
					read.more = items[0].NextAt
				}
				break
			}
			n, tasks := 1, sizeOf(items[0])
			for n < min(len(items), limit-len(read.items)) && !later(items[n]) && tasks < tallyTasks {
				tasks += sizeOf(items[n])
				n++
			}
			found, err := e.tally(ctx, p.ID, items[:n], read.tallies)
			if err != nil {
				return read, err
			}
			read.items, items, open = append(read.items, items[:n]...), items[n:], open+found
		}
	}
	return read, nil
}

// checkable returns the items of a state that are due soon, the earliest first: more than itemBatch only if they have few
// tasks, because a program has added them one by one.
func (e *Engine) checkable(ctx context.Context, id store.ID, state store.PlanItemState) ([]store.PlanItem, error) {
	filter := store.PlanItemFilter{State: state, Due: true, Within: waitCheck, Limit: itemBatch + 1}
	items, err := e.store.PlanItems(ctx, id, filter)
	if err != nil || len(items) < filter.Limit {
		return items, err
	}
	var tasks int64
	for _, item := range items {
		tasks += sizeOf(item)
	}
	if tasks >= tallyTasks {
		return items, nil
	}
	filter.Limit = maxItems + 1
	return e.store.PlanItems(ctx, id, filter)
}

// sizeOf returns the number of tasks of an item.
func sizeOf(item store.PlanItem) (tasks int64) {
	var c chunk
	if decode(item.Data, &c) == nil { // tally returns the error
		for _, ids := range c.Runs {
			tasks += ids.Size()
		}
	}
	return tasks
}

// tally counts the states of the tasks of items, and adds the counts to tallies. It returns how many tasks the items with
// open tasks have.
func (e *Engine) tally(ctx context.Context, id store.ID, items []store.PlanItem, tallies map[string]store.Tally) (open int64, err error) {
	chunks := make([]store.PlanChunk, len(items))
	for i, item := range items {
		var c chunk
		if err := decode(item.Data, &c); err != nil {
			return 0, err
		}
		chunks[i] = store.PlanChunk{Plan: id, Tasks: c.Runs}
	}
	found, err := e.store.PlanTally(ctx, chunks)
	if err != nil {
		return 0, err
	}
	for i, item := range items {
		tallies[item.Item] = found[i]
		if by := found[i].By; by[holdfast.Ready]+by[holdfast.Running] > 0 {
			open += sizeOf(items[i])
		}
	}
	return open, nil
}

// batchStep is what a step of a batch does.
type batchStep struct {
	batch    Batch
	progress BatchProgress
	state    store.PlanState
	items    []store.PlanItem
	insert   []holdfast.NewTask // the tasks with which the next stage begins
	next     time.Time
	changed  bool
	moved    bool // the counts of an item have changed
	all      bool // the step checks all items that have open tasks
	now      time.Time
	from     store.Plan
}

// step decides what to do now.
func (b Batch) step(p store.Plan, progress BatchProgress, read batchRead, now time.Time) batchStep {
	d := batchStep{batch: b, progress: progress, state: p.State, now: now, from: p, next: now.Add(waitCheck), all: read.more.IsZero()}
	if !read.more.IsZero() {
		d.at(latest(read.more, now.Add(stepPause)))
	}
	for _, item := range read.items {
		d.check(item, read.tallies[item.Item])
	}
	// A step that only reads what it has stored before stores nothing, unless the rate falls or items are left.
	d.changed = d.moved || len(d.items) > 0 && (!d.all || progress.Rate > 0)
	d.rate()
	d.decide()
	d.progress.Steps++
	return d
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (d *batchStep) at(t time.Time) {
	if !t.IsZero() && t.Before(d.next) {
		d.next = t
	}
}

// check counts the tasks of an item, and decides when to check it again.
func (d *batchStep) check(item store.PlanItem, tally store.Tally) {
	var c chunk
	if decode(item.Data, &c) != nil {
		return // readItems has read it
	}
	before := c.Counts
	c.Counts.Done, c.Counts.Dead = tally.By[holdfast.Done], tally.By[holdfast.Dead]
	c.Counts.Cancelled, c.Counts.Gone = tally.By[holdfast.Cancelled]+tally.By[holdfast.Archived], tally.Missing
	if c.Checks++; c.Counts.Ended() > before.Ended() {
		c.Checks = 0
	}
	switch stage := stageOf(item.Item); {
	case c.Split:
		if stage == d.progress.Stage {
			d.progress.Sealed = c.Counts.Done == 1
			d.progress.SplitFailed, d.progress.SplitGone = c.Counts.Failed() == 1, c.Counts.Gone == 1
		}
	case stage == d.progress.Stage:
		d.progress.Now.add(before, c.Counts)
		fallthrough
	default:
		if !d.batch.Stages[stage].After {
			d.progress.Subtasks.add(before, c.Counts)
		}
	}
	was := item.State
	item.State, item.NextAt = store.ItemOpen, time.Time{}
	switch {
	case c.Counts.Open() > 0:
		item.NextAt = d.now.Add(d.wait(c, tally))
	case c.Counts.Dead+c.Counts.Cancelled > 0: // a person may retry them
		item.State, item.NextAt = store.ItemDead, d.now.Add(deadEvery)
	default:
		item.State = store.ItemClosed
	}
	item.Data = encode(c)
	d.at(item.NextAt)
	d.items, d.moved = append(d.items, item), d.moved || c.Counts != before || item.State != was
}

// watchBatch watches a batch that only waits, and reports whether that is possible.
func (e *Engine) watchBatch(d *batchStep, read batchRead) bool {
	w := watch{plan: d.from, first: d.next.Sub(d.now), slowest: lastCheck}
	for _, item := range read.items {
		var c chunk
		if decode(item.Data, &c) != nil {
			return false
		}
		w.chunks = append(w.chunks, store.PlanChunk{Plan: d.from.ID, Tasks: c.Runs})
		w.counts = append(w.counts, countOf(read.tallies[item.Item]))
		if item.State == store.ItemOpen && (d.progress.Cancelling || c.Split || d.progress.Now.Total <= chainSize) {
			w.slowest = slowestChain
		}
	}
	w.first = min(w.first, w.slowest)
	if stage := &d.batch.Stages[d.progress.Stage]; stage.Open && !d.progress.Sealed && d.state == store.PlanRunning {
		w.step = d.progress.PushedAt.Add(PushLimit)
	}
	return e.watchPlan(w, d.now)
}

// wait returns how long to wait before the next check of open tasks.
func (d *batchStep) wait(c chunk, tally store.Tally) time.Duration {
	if d.progress.Cancelling {
		return firstCheck
	}
	if next := tally.NextRunAt.Sub(d.now); tally.By[holdfast.Running] == 0 && next > firstCheck { // all wait for an attempt
		return min(next+firstCheck, waitCheck)
	}
	if d.progress.Now.Total <= chainSize || c.Split { // the next stage waits for few tasks, so a late check would delay it
		return min(chainEvery<<min(c.Checks, 8), slowestChain)
	}
	return min(firstCheck<<min(c.Checks, 6), lastCheck)
}

// rate computes the rate at which tasks end, at most once a second.
func (d *batchStep) rate() {
	const (
		smoothing  = 0.3  // the weight of the newest measurement
		lowestRate = 1e-6 // a task in eleven days
	)
	p := &d.progress
	passed := d.now.Sub(p.RateAt)
	if !d.changed || passed >= 0 && passed < time.Second {
		return
	}
	if ended := p.Now.Ended(); !p.RateAt.IsZero() && passed > 0 && ended >= p.RateEnded {
		newest := float64(ended-p.RateEnded) / passed.Seconds()
		if p.Rate == 0 {
			p.Rate = newest
		}
		// If no task of a small stage has ended, the rate becomes 0: an estimate does not justify a step each second.
		if p.Rate += smoothing * (newest - p.Rate); p.Rate < lowestRate || newest == 0 && p.Now.Total <= chainSize {
			p.Rate = 0
		}
	}
	p.RateAt, p.RateEnded = d.now.UTC(), p.Now.Ended()
}

// decide decides whether the batch begins a stage, stops, goes on or ends.
func (d *batchStep) decide() {
	p := &d.progress
	if !p.Begun && !p.Cancelling {
		if d.state != store.PlanPaused {
			d.begin(p.Stage)
		}
		return
	}
	why := d.problem()
	switch {
	case p.Cancelling:
		if p.Now.Open() == 0 && !d.splitOpen() {
			d.end(store.PlanCancelled)
		}
	case why != "" && d.state == store.PlanRunning:
		d.state, p.Stopped, d.changed = store.PlanStopped, why, true
	case why != "":
		if d.state == store.PlanStopped && p.Stopped != why {
			p.Stopped, d.changed = why, true
		}
	default:
		if d.state == store.PlanStopped { // people have repaired the dead tasks
			d.state, p.Stopped, d.changed = store.PlanRunning, "", true
		}
		if d.state == store.PlanRunning && p.Sealed && p.Now.Open() == 0 {
			d.finishStage()
		}
	}
}

// splitOpen reports whether the split of the stage has not ended.
func (d *batchStep) splitOpen() bool {
	p := &d.progress
	return p.Begun && d.batch.Stages[p.Stage].Split != nil && !p.Sealed && !p.SplitFailed
}

const splitGone = "the task of the split was deleted, so subtasks are missing; cancel the batch, and start another one"

// problem returns why the batch cannot go on without a person, or "".
func (d *batchStep) problem() string {
	p := &d.progress
	stage, failed := &d.batch.Stages[p.Stage], p.Now.Failed()
	allowed := max(d.batch.Allowed.of(p.Now.Total), p.Accepted)
	if stage.After {
		allowed = p.Accepted
	}
	switch {
	case p.Taken > 0:
		return fmt.Sprintf("other tasks have the unique keys of %d tasks of stage %d, so they were not stored; resume the batch without them, or cancel it", p.Taken, p.Stage+1)
	case p.SplitGone:
		return splitGone
	case p.SplitFailed:
		return "the split has failed; retry its task"
	// The number of subtasks grows until the stage is sealed, and the allowed share with it.
	case failed > allowed && (p.Sealed || d.batch.Allowed.Percent == 0 || p.Now.Total >= MaxChunk):
		return fmt.Sprintf("%d of %d tasks have failed, and %d may fail; retry them, or resume the batch without them", failed, p.Now.Total, allowed)
	case stage.Open && !p.Sealed && d.now.Sub(p.PushedAt) >= PushLimit:
		return fmt.Sprintf("no subtask was added for %s; add subtasks, or seal the batch", PushLimit)
	}
	return ""
}

// finishStage begins the next stage, or ends the batch.
func (d *batchStep) finishStage() {
	p := &d.progress
	if p.Stage+1 == len(d.batch.Stages) {
		d.end(store.PlanDone)
		return
	}
	p.Stage++
	p.Sealed, p.Chunks, p.Pages, p.Cursor, p.Accepted, p.Taken, p.Now = d.batch.fixed(p.Stage), 0, 0, "", 0, 0, Counts{}
	p.Rate, p.RateAt, p.RateEnded = 0, time.Time{}, 0
	d.begin(p.Stage)
}

// begin stores the tasks of a stage.
func (d *batchStep) begin(stage int) {
	d.progress.Begun, d.changed = true, true
	d.insert = d.batch.stageTasks(&d.from, stage)
	if len(d.insert) > 0 {
		d.at(d.now.Add(chainEvery))
	}
}

func (d *batchStep) end(state store.PlanState) {
	d.state, d.changed, d.next = state, true, time.Time{}
	d.progress.Stopped = ""
}

// plan returns the plan after the step, and its items.
func (d *batchStep) plan(inserted store.Inserted) (store.Plan, []store.PlanItem) {
	to, p, items := d.from, d.progress, slices.Clone(d.items)
	if n := len(inserted.Tasks); n > 0 {
		p.Taken = n - storedTasks(inserted.Tasks)
		stage := &d.batch.Stages[p.Stage]
		at := d.now.Add(chainEvery)
		if tasks := inserted.Tasks[:len(stage.Tasks)]; len(tasks) > 0 {
			items = append(items, p.newChunk(stage, tasks, false, at))
		}
		if stage.Split != nil {
			items = append(items, p.newChunk(stage, inserted.Tasks[n-1:], true, at))
		}
	}
	to.State, to.NextAt, to.Progress = d.state, d.next, encode(p)
	return to, items
}

// storedTasks returns how many of the tasks were stored.
func storedTasks(inserted []store.InsertedTask) (n int) {
	for _, task := range inserted {
		if !task.Duplicate {
			n++
		}
	}
	return n
}

// newChunk counts tasks that were stored together, and returns their item.
func (p *BatchProgress) newChunk(stage *Stage, inserted []store.InsertedTask, split bool, at time.Time) store.PlanItem {
	item := chunkOf(chunkName(p.Stage, p.Chunks), inserted, split, at)
	p.Chunks++
	if split {
		return item
	}
	var added Counts
	for _, task := range inserted {
		if task.Duplicate {
			added.Duplicate++
		} else {
			added.Total++
		}
	}
	p.Now.add(Counts{}, added)
	if !stage.After {
		p.Subtasks.add(Counts{}, added)
	}
	return item
}
