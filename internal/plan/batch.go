package plan

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Batch is a list of stages. The tasks of a stage run at the same time. When all of them have ended, and not too many
// have failed, the engine stores the tasks of the next stage. So a chain is a batch with one task in each stage.
type Batch struct {
	Stages  []Stage `json:"stages"`
	Allowed Allowed `json:"allow_failed,omitzero"` // the failed subtasks of a stage with which the batch goes on
	// Window is the number of open subtasks at which a split waits; 0 means DefaultWindow.
	Window int    `json:"window,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Stage is a part of a batch.
type Stage struct {
	// Tasks are stored when the stage begins.
	Tasks []Task `json:"tasks,omitempty"`
	// Split is a task that stores more subtasks of the stage while it runs.
	Split *Task `json:"split,omitempty"`
	// Open means that programs store more subtasks of the stage, until they seal the batch.
	Open bool `json:"open,omitempty"`
	// After means that the tasks of the stage are not subtasks: they reduce the outputs, or follow the batch.
	After bool `json:"after,omitempty"`
}

// Limits of batches.
const (
	DefaultWindow = 20_000
	MaxStages     = 100
	MaxChunk      = 1000 // subtasks that are stored together, and tasks with which a stage begins
	// PushLimit is how long an open batch waits for more subtasks before it stops.
	PushLimit = 24 * time.Hour
)

// Allowed is how many subtasks of a stage may fail: a number, or a share of all subtasks.
type Allowed struct {
	Count   int64
	Percent float64
}

// ParseAllowed parses a number such as 10, or a share such as 0.5%.
func ParseAllowed(text string) (a Allowed, err error) {
	if share, ok := strings.CutSuffix(text, "%"); ok {
		if a.Percent, err = strconv.ParseFloat(share, 64); err == nil && a.Percent >= 0 && a.Percent <= 100 {
			return a, nil
		}
	} else if a.Count, err = strconv.ParseInt(text, 10, 64); err == nil && a.Count >= 0 {
		return a, nil
	}
	return Allowed{}, fmt.Errorf("%w: the allowed failures %.100q must be a number such as 10, or a share such as 1%%", holdfast.ErrInvalid, text)
}

// String returns the form that ParseAllowed parses.
func (a Allowed) String() string {
	if a.Percent > 0 {
		return strconv.FormatFloat(a.Percent, 'f', -1, 64) + "%"
	}
	return strconv.FormatInt(a.Count, 10)
}

// MarshalText implements encoding.TextMarshaler.
func (a Allowed) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Allowed) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAllowed(string(text))
	return err
}

// of returns how many of total subtasks may fail.
func (a Allowed) of(total int64) int64 {
	return max(a.Count, int64(math.Floor(float64(total)*a.Percent/100)))
}

// Validate returns an ErrInvalid that describes the first problem of the batch, or nil. maxPayload is in bytes.
func (b *Batch) Validate(maxPayload int) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{holdfast.ErrInvalid}, args...)...)
	}
	switch {
	case len(b.Stages) == 0:
		return invalid("a batch needs a stage")
	case len(b.Stages) > MaxStages:
		return invalid("a batch with %d stages has more than %d", len(b.Stages), MaxStages)
	case b.Window < 0:
		return invalid("the window %d must be at least 1, or 0 for the default", b.Window)
	case len(b.Note) > maxNote:
		return invalid("the note has %d bytes, the limit is %d", len(b.Note), maxNote)
	}
	for i := range b.Stages {
		stage := &b.Stages[i]
		tasks := stage.Tasks
		if stage.Split != nil {
			tasks = append(slices.Clone(tasks), *stage.Split)
		}
		switch {
		case len(stage.Tasks) > MaxChunk:
			return invalid("stage %d begins with %d tasks, the limit is %d", i+1, len(stage.Tasks), MaxChunk)
		case len(tasks) == 0 && !stage.Open:
			return invalid("stage %d has no task", i+1)
		case stage.Open && (i > 0 || stage.Split != nil):
			return invalid("programs can store subtasks only in the first stage, and only without a split")
		}
		for _, task := range tasks {
			if err := task.New().Validate(maxPayload); err != nil {
				return fmt.Errorf("stage %d: %w", i+1, err)
			}
		}
	}
	return nil
}

func (b *Batch) window() int64 {
	if b.Window > 0 {
		return int64(b.Window)
	}
	return DefaultWindow
}

// unnamed begins the names of batches without a name of their own, because the names of open plans are unique.
const unnamed = "~"

// BatchName returns the name of a batch, or "" if it has none of its own.
func BatchName(p store.Plan) string {
	if strings.HasPrefix(p.Name, unnamed) {
		return ""
	}
	return p.Name
}

// Plan returns a new plan for the batch. The name may be empty. now is the time of the store.
func (b Batch) Plan(name string, now time.Time) store.Plan {
	if name == "" {
		name = unnamed + rand.Text()
	}
	progress := BatchProgress{PushedAt: now.UTC(), Sealed: b.sealed(0)}
	return store.Plan{Kind: store.BatchKind, Name: name, State: store.PlanRunning, NextAt: now, Spec: encode(b), Progress: encode(progress)}
}

// sealed reports whether a stage that begins gets no more tasks.
func (b *Batch) sealed(stage int) bool {
	return stage >= len(b.Stages) || b.Stages[stage].Split == nil && !b.Stages[stage].Open
}

// BatchProgress is how far a batch is.
type BatchProgress struct {
	Stage  int  `json:"stage"`            // the index of the stage that runs
	Begun  bool `json:"begun,omitempty"`  // its tasks are stored
	Sealed bool `json:"sealed,omitempty"` // it gets no more tasks
	Chunks int  `json:"chunks,omitempty"` // its items so far
	// Pages is the number of pages of subtasks that a split or programs have stored in the stage. Cursor belongs to the
	// last page of a split. PushedAt is the time of the last page.
	Pages    int       `json:"pages,omitempty"`
	Cursor   string    `json:"cursor,omitempty"`
	PushedAt time.Time `json:"pushed_at,omitzero"`
	// SplitFailed means that the split has ended, and is not done.
	SplitFailed bool   `json:"split_failed,omitempty"`
	Cancelling  bool   `json:"cancelling,omitempty"`
	Accepted    int64  `json:"accepted,omitempty"` // the failures of the stage that a person has accepted
	Stopped     string `json:"stopped,omitempty"`  // why the batch is stopped
	Now         Counts `json:"now"`                // the tasks of the stage, without its split
	Subtasks    Counts `json:"subtasks"`           // the subtasks of all stages
	// Rate is how many tasks have ended a second, lately. RateAt is when it was computed, and RateEnded how many had
	// ended then.
	Rate      float64   `json:"rate,omitempty"`
	RateAt    time.Time `json:"rate_at,omitzero"`
	RateEnded int64     `json:"rate_ended,omitempty"`
}

// Counts are numbers of tasks.
type Counts struct {
	Total     int64 `json:"total"` // stored tasks; duplicates are not among them
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"` // also archived ones
	Gone      int64 `json:"gone"`      // deleted by a person
	Duplicate int64 `json:"duplicate"` // not stored, because their unique keys were taken
}

// Ended returns how many tasks wait for nothing but a person.
func (c Counts) Ended() int64 { return c.Done + c.Failed() }

// Failed returns how many tasks have ended, and are not done.
func (c Counts) Failed() int64 { return c.Dead + c.Cancelled + c.Gone }

// Open returns how many tasks have not ended.
func (c Counts) Open() int64 { return c.Total - c.Ended() }

// add adds the difference between two counts of some tasks.
func (c *Counts) add(before, after Counts) {
	c.Total += after.Total - before.Total
	c.Done += after.Done - before.Done
	c.Dead += after.Dead - before.Dead
	c.Cancelled += after.Cancelled - before.Cancelled
	c.Gone += after.Gone - before.Gone
	c.Duplicate += after.Duplicate - before.Duplicate
}

// ReadBatch returns the batch of a plan and its progress.
func ReadBatch(p store.Plan) (b Batch, progress BatchProgress, err error) {
	if err := decode(p.Spec, &b); err != nil {
		return b, progress, err
	}
	return b, progress, decode(p.Progress, &progress)
}

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

// batchPrefix begins the unique keys of the tasks with which stages begin: batch/ID/STAGE/NUMBER.
const batchPrefix = "batch/"

// StageOrigin returns the batch, the stage and the number of a task with which a stage begins, from its unique key. ok is
// false if the key has another form. A program can store a task with such a key, too.
func StageOrigin(unique string) (batch store.ID, stage, n int, ok bool) {
	var id int64
	count, err := fmt.Sscanf(unique, batchPrefix+"%d/%d/%d", &id, &stage, &n)
	return store.ID(id), stage, n, err == nil && count == 3
}

// stageTasks returns the tasks with which a stage begins. The split is the last one.
func (b *Batch) stageTasks(id store.ID, stage int) (tasks []holdfast.NewTask) {
	s := &b.Stages[stage]
	for _, task := range s.Tasks {
		tasks = append(tasks, task.New())
	}
	if s.Split != nil {
		tasks = append(tasks, s.Split.New())
	}
	for i := range tasks {
		tasks[i].Unique = fmt.Sprintf("%s%d/%d/%d", batchPrefix, int64(id), stage, i)
	}
	return tasks
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
	more    time.Time              // when the first of the other items is to be checked; zero if there is none
}

const (
	// A step checks at most itemBatch items, tallyGroup at a time, the earliest first. Tasks end in about the order in
	// which they were stored. So after enoughOpen items with open tasks, the step leaves the others to the next one.
	itemBatch  = 20
	tallyGroup = 2
	enoughOpen = 2
	// stepPause is the time between two steps of a batch whose tasks end all the time.
	stepPause = 50 * time.Millisecond
	// stepTries is how often an engine tries to make a step while a split or a program stores subtasks.
	stepTries = 10
	// chainEvery is the time between two checks of a stage with at most chainSize tasks.
	chainEvery = 50 * time.Millisecond
	chainSize  = 10
	firstCheck = 100 * time.Millisecond
	lastCheck  = 10 * time.Second
	waitCheck  = 30 * time.Second // the longest time between two checks of tasks that wait for their next attempts
)

// stepBatch makes a step of a batch. It returns when the next step is due, and the number of stored tasks.
//
// Splits and programs store subtasks at the same time, and each of their steps makes this one fail. So the engine tries
// again with the same counts, which stay true: tasks only end, and no other engine has checked an item that is still
// due.
func (e *Engine) stepBatch(ctx context.Context, p store.Plan, now time.Time) (next time.Time, stored int, err error) {
	return e.checkBatch(ctx, p, now, false)
}

// checkBatch is stepBatch. If early is set, it also checks items that are not due.
func (e *Engine) checkBatch(ctx context.Context, p store.Plan, now time.Time, early bool) (next time.Time, stored int, err error) {
	known := make(map[string]store.Tally)
	for try := 0; ; try++ {
		b, progress, err := ReadBatch(p)
		if err != nil {
			return time.Time{}, 0, err
		}
		read, err := e.readItems(ctx, p, early || progress.Cancelling, known)
		if err != nil {
			return time.Time{}, 0, err
		}
		d := b.step(p, progress, read, now)
		if !d.changed {
			return d.next, 0, nil
		}
		step := store.PlanStep{From: p, Insert: d.insert, Members: true}
		to, err := e.store.StepPlan(ctx, step, d.plan)
		switch {
		case err == nil:
			return to.NextAt, len(d.insert), nil
		case !isConflict(err) || try == stepTries:
			return time.Time{}, 0, err
		}
		if p, err = PlanByID(ctx, e.store, p.ID); err != nil || p.State.Ended() || p.NextAt.After(now) && !early {
			return time.Time{}, 0, err
		}
	}
}

// readItems reads the items to check, and counts the states of their tasks. It adds the counts to known, and does not
// count again what is known. If early is set, it also reads items that are not due: while a person cancels a batch, its
// tasks end before that.
func (e *Engine) readItems(ctx context.Context, p store.Plan, early bool, known map[string]store.Tally) (batchRead, error) {
	read := batchRead{tallies: known}
	now, err := e.store.Now(ctx)
	if err != nil {
		return read, err
	}
	later := func(item store.PlanItem) bool { return item.NextAt.After(now) && !early }
	for _, state := range []store.PlanItemState{store.ItemDead, store.ItemOpen} {
		items, err := e.store.PlanItems(ctx, p.ID, store.PlanItemFilter{State: state, Due: true, Within: waitCheck, Limit: itemBatch + 1})
		if err != nil {
			return read, err
		}
		for open := 0; len(items) > 0; {
			if later(items[0]) || open >= enoughOpen || len(read.items) >= itemBatch {
				if read.more.IsZero() || items[0].NextAt.Before(read.more) {
					read.more = items[0].NextAt
				}
				break
			}
			n := 1
			for n < min(tallyGroup, len(items)) && !later(items[n]) {
				n++
			}
			found, err := e.tally(ctx, p.ID, items[:n], known)
			if err != nil {
				return read, err
			}
			read.items, items, open = append(read.items, items[:n]...), items[n:], open+found
		}
	}
	return read, nil
}

// tally counts the states of the tasks of items that are not in known, and adds them. It returns how many of the items
// have open tasks.
func (e *Engine) tally(ctx context.Context, id store.ID, items []store.PlanItem, known map[string]store.Tally) (open int, err error) {
	var names []string
	var chunks [][]store.IDRange
	for _, item := range items {
		if _, counted := known[item.Item]; counted {
			continue
		}
		var c chunk
		if err := decode(item.Data, &c); err != nil {
			return 0, err
		}
		names, chunks = append(names, item.Item), append(chunks, c.Runs)
	}
	if len(chunks) > 0 {
		tallies, err := e.store.PlanTally(ctx, id, chunks)
		if err != nil {
			return 0, err
		}
		for i, name := range names {
			known[name] = tallies[i]
		}
	}
	for _, item := range items {
		if by := known[item.Item].By; by[holdfast.Ready]+by[holdfast.Running] > 0 {
			open++
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
	now      time.Time
	from     store.Plan
}

// step decides what to do now.
func (b Batch) step(p store.Plan, progress BatchProgress, read batchRead, now time.Time) batchStep {
	d := batchStep{batch: b, progress: progress, state: p.State, now: now, from: p, next: now.Add(waitCheck)}
	if !read.more.IsZero() {
		d.at(latest(read.more, now.Add(stepPause)))
	}
	for _, item := range read.items {
		d.check(item, read.tallies[item.Item])
	}
	d.rate()
	d.decide()
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
			d.progress.SplitFailed = c.Counts.Failed() == 1
		}
	case stage == d.progress.Stage:
		d.progress.Now.add(before, c.Counts)
		fallthrough
	default:
		if !d.batch.Stages[stage].After {
			d.progress.Subtasks.add(before, c.Counts)
		}
	}
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
	d.items, d.changed = append(d.items, item), true
}

// wait returns how long to wait before the next check of open tasks.
func (d *batchStep) wait(c chunk, tally store.Tally) time.Duration {
	if d.progress.Cancelling {
		return firstCheck
	}
	if next := tally.NextRunAt.Sub(d.now); tally.By[holdfast.Running] == 0 && next > firstCheck { // all wait for an attempt
		return min(next+firstCheck, waitCheck)
	}
	if d.progress.Now.Total <= chainSize || c.Split { // few tasks, on which the next stage waits
		return min(chainEvery<<min(c.Checks, 8), time.Second)
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
		if p.Rate += smoothing * (newest - p.Rate); p.Rate < lowestRate {
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

// problem returns why the batch cannot go on without a person, or "".
func (d *batchStep) problem() string {
	p := &d.progress
	stage, failed := &d.batch.Stages[p.Stage], p.Now.Failed()
	allowed := max(d.batch.Allowed.of(p.Now.Total), p.Accepted)
	if stage.After {
		allowed = p.Accepted
	}
	switch {
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
	p.Sealed, p.Chunks, p.Pages, p.Cursor, p.Accepted, p.Now = d.batch.sealed(p.Stage), 0, 0, "", 0, Counts{}
	p.Rate, p.RateAt, p.RateEnded = 0, time.Time{}, 0
	d.begin(p.Stage)
}

// begin stores the tasks of a stage.
func (d *batchStep) begin(stage int) {
	d.progress.Begun, d.changed = true, true
	d.insert = d.batch.stageTasks(d.from.ID, stage)
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

// PlanByID returns a plan, which may have ended. It returns an ErrNotFound if there is none.
func PlanByID(ctx context.Context, s planLister, id store.ID) (store.Plan, error) {
	found, err := s.ListPlans(ctx, store.PlanFilter{IDs: []store.ID{id}, Ended: true, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: there is no plan %d", holdfast.ErrNotFound, int64(id))
	}
	if err != nil {
		return store.Plan{}, err
	}
	return found[0], nil
}

// planLister is the part of store.Plans that PlanByID uses.
type planLister interface {
	ListPlans(ctx context.Context, f store.PlanFilter) ([]store.Plan, error)
}

// Check makes a step of a batch at once, as a janitor would do later, and returns its plan. So a batch that people have
// just repaired need not wait for its next check.
func Check(ctx context.Context, s Store, p store.Plan) (store.Plan, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return p, err
	}
	if _, _, err := New(s).checkBatch(ctx, p, now, true); err != nil && !isConflict(err) {
		return p, err
	}
	return PlanByID(ctx, s, p.ID)
}

// Begin stores the tasks of the first stage of a new batch, as a janitor would do later, and returns its plan.
func Begin(ctx context.Context, s Store, p store.Plan) (store.Plan, error) {
	if _, _, err := New(s).stepBatch(ctx, p, p.NextAt); err != nil && !isConflict(err) {
		return p, err
	}
	return PlanByID(ctx, s, p.ID)
}
