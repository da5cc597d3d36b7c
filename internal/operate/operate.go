// Package operate makes the steps of operations, which change many tasks over a long time. Janitors call Advance
// repeatedly. Any number of processes may do so: each step is one transaction, and the store accepts it from one
// process only. So every task is changed at most once and the counts are exact, even if processes crash.
//
// A retry can have a ramp. After each part of the tasks, the operation waits for the results of their first attempts.
// If too many of them failed, the operation stops.
package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/store"
)

// Store is the part of a store that operations use.
type Store interface {
	store.Operations
	Now(ctx context.Context) (time.Time, error)
	Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error)
	List(ctx context.Context, f store.Filter) (store.Page, error)
	TypeSchemas(ctx context.Context, taskType string) ([]store.TypeSchema, error)
}

const (
	// batch is the maximum number of tasks in a step. It keeps transactions short.
	batch = 500
	// editBatch replaces batch for edits, which read each task with its payload. A step of an edit also ends after
	// editBytes of payloads, because the audit log stores each payload before and after the edit.
	editBatch = 50
	editBytes = 1 << 20
	// editWork is the work of patches, in bytes, after which a step of an edit ends; see change.PatchWork. It bounds
	// the time of a step, except for that of its last patch.
	editWork = 16 << 20
	// judgeBatch is the maximum number of first attempts that a step counts.
	judgeBatch = 1000
	// enoughFirst is how many first attempts must have ended before an operation may stop within a ramp step.
	enoughFirst = 20
	// judgeEvery is the time between two reads of first attempts. A read covers all tasks whose first attempt is not
	// counted.
	judgeEvery = time.Second
)

// Defaults of operations that people start.
const (
	DefaultRate        = 1000 // retries per second
	DefaultStopAbove   = 0.5
	DefaultStepTimeout = 10 * time.Minute
	// RampFrom is the smallest number of tasks for which a retry has a ramp.
	RampFrom = 2
	// fullRamp is the smallest number of tasks for which no step of the default ramp is empty.
	fullRamp = 100
)

// DefaultRamp returns the ends of the ramp steps for the given number of tasks, in percent: 1, 5, 25 and 100. It omits
// steps that would be empty.
func DefaultRamp(total int64) []int {
	var ramp []int
	last := int64(0)
	for _, percent := range []int{1, 5, 25} {
		if end := rampEnd(total, percent); end > last && end < total {
			ramp, last = append(ramp, percent), end
		}
	}
	return append(ramp, 100)
}

// rampEnd returns the number of tasks at which a ramp step ends.
func rampEnd(total int64, percent int) int64 { return max(1, (total*int64(percent)+99)/100) }

// Engine makes the steps of operations; see New. Its methods must not be called concurrently.
type Engine struct {
	// Check has the check functions of types that have one; see producer.Options. Set it before the first step.
	Check map[string]func(payload []byte) error

	store      Store
	maxPayload int
	looked     map[store.ID]time.Time // until when the engine leaves an operation to another process
	yielded    map[store.ID]time.Time // until when the engine makes no step, because another process makes them; by operation
}

// New returns an Engine. maxPayload is the maximum size of an edited payload in bytes; 0 means
// holdfast.DefaultMaxPayload.
func New(s Store, maxPayload int) *Engine {
	if maxPayload <= 0 {
		maxPayload = holdfast.DefaultMaxPayload
	}
	return &Engine{store: s, maxPayload: maxPayload, looked: make(map[store.ID]time.Time), yielded: make(map[store.ID]time.Time)}
}

// yield is how long an engine makes no step of an operation after another process has made one.
const yield = 2 * time.Second

// Advance makes at most one step of each running operation that has one of the actions. Without actions it takes all
// running operations. It returns how long the caller may wait before the next call, and whether there is such an
// operation. An error of one operation does not delay the others.
func (e *Engine) Advance(ctx context.Context, actions ...store.Action) (wait time.Duration, running bool, err error) {
	operations, err := e.store.ListOperations(ctx, store.OperationFilter{States: []store.OperationState{store.OperationRunning}, Limit: 100})
	operations = slices.DeleteFunc(operations, func(o store.Operation) bool { return len(actions) > 0 && !slices.Contains(actions, o.Action) })
	if err != nil || len(operations) == 0 {
		clear(e.looked)
		clear(e.yielded)
		return 0, false, err
	}
	wait = judgeEvery
	var problems []error
	for _, o := range operations {
		pause, err := e.Step(ctx, o)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		wait = min(wait, pause)
	}
	return wait, true, errors.Join(problems...)
}

// Step makes at most one step of a running operation. It returns how long the caller may wait before the next call.
func (e *Engine) Step(ctx context.Context, o store.Operation) (time.Duration, error) {
	now, err := e.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	if left := e.yielded[o.ID].Sub(now); o.Foreign || left > 0 && left <= yield {
		return judgeEvery, nil
	}
	wait, err := e.step(ctx, o, now)
	if errors.Is(err, holdfast.ErrConflict) { // another process or a person has changed the operation
		e.yielded[o.ID] = now.Add(yield)
		return judgeEvery, nil
	}
	if err != nil {
		return 0, fmt.Errorf("operation %s: %w", o.ID, err)
	}
	return wait, nil
}

// step makes the next step of an operation if one is possible now. It returns how long to wait before the step after
// it.
func (e *Engine) step(ctx context.Context, o store.Operation, now time.Time) (time.Duration, error) {
	step := store.OperationStep{From: o, To: o}
	wait, judged := time.Duration(0), true
	if o.Action == store.ActionRetry {
		var err error
		if judged, err = e.judge(ctx, &step, now); err != nil {
			return 0, err
		}
	}
	to := &step.To
	if to.WaitingAt.After(now) { // the clock was set back
		to.WaitingAt = now
	}
	switch {
	case tooMany(to, false) && !to.Scanned:
		stop(&step)
	case to.WaitingAt.IsZero():
		var err error
		if wait, err = e.work(ctx, &step, now); err != nil {
			return 0, err
		}
	case !judged: // next may decide only with the newest results
		return judgeEvery, nil
	case to.Judged >= to.Changed, !now.Before(to.WaitingAt.Add(o.StepTimeout)):
		next(&step)
	default:
		wait = judgeEvery
	}
	if unchanged(&step) {
		return wait, nil
	}
	_, err := e.store.StepOperation(ctx, step)
	return wait, err
}

func unchanged(step *store.OperationStep) bool {
	a, b := &step.From, &step.To
	return len(step.Changes) == 0 && len(step.Judged) == 0 && a.State == b.State && a.Step == b.Step && a.Cursor == b.Cursor &&
		a.Scanned == b.Scanned && a.WaitingAt.Equal(b.WaitingAt) && a.Visited() == b.Visited()
}

// judge counts the first attempts that have ended. It reports whether the counts are current.
func (e *Engine) judge(ctx context.Context, step *store.OperationStep, now time.Time) (bool, error) {
	to := &step.To
	if to.Judged >= to.Changed {
		return true, nil
	}
	if last, ok := e.looked[to.ID]; ok && now.Before(last.Add(judgeEvery)) && !now.Before(last) {
		return false, nil
	}
	first, err := e.store.FirstAttempts(ctx, to.ID, judgeBatch)
	if err != nil {
		return false, err
	}
	if len(first) < judgeBatch {
		e.looked[to.ID] = now
	}
	for _, attempt := range first {
		step.Judged = append(step.Judged, attempt.Task)
		to.Judged++
		ofStep := int64(1)
		if to.Accepted > 0 && attempt.Task >= to.Accepted {
			ofStep = 0
		}
		switch attempt.Result {
		case store.FirstSucceeded:
			to.Succeeded++
			to.StepSucceeded += ofStep
		case store.FirstFailed:
			to.Failed++
			to.StepFailed += ofStep
		}
	}
	return true, nil
}

// tooMany reports whether too many first attempts of the ramp step failed. Before the step has ended, it needs at least
// enoughFirst results.
func tooMany(o *store.Operation, ended bool) bool {
	all := o.StepSucceeded + o.StepFailed
	return all > 0 && (ended || all >= enoughFirst) && float64(o.StepFailed) > o.StopAbove*float64(all)
}

func stop(step *store.OperationStep) {
	to := &step.To
	to.State = store.OperationStopped
	to.Note = fmt.Sprintf("%d of %d first attempts of the step failed; the limit is %.0f %%", to.StepFailed, to.StepFailed+to.StepSucceeded, 100*to.StopAbove)
	step.By = &store.Actor{Name: "holdfast", Surface: store.Janitor, Reason: to.Note}
}

// next ends a ramp step. The operation then stops, continues with the next ramp step, or is done.
func next(step *store.OperationStep) {
	to := &step.To
	switch {
	case tooMany(to, true) && !to.Scanned:
		stop(step)
	case to.Scanned:
		finish(step)
	default:
		to.Step++
		to.StepSucceeded, to.StepFailed, to.WaitingAt = 0, 0, time.Time{}
	}
}

func finish(step *store.OperationStep) {
	to := &step.To
	to.State = store.OperationDone
	if to.Action == store.ActionRetry && to.Failed > 0 {
		to.Note = fmt.Sprintf("%d of %d first attempts failed again", to.Failed, to.Failed+to.Succeeded)
	}
	step.By = &store.Actor{Name: "holdfast", Surface: store.Janitor}
}

// stepEnd returns how many tasks the operation has visited when the present ramp step ends.
func stepEnd(o *store.Operation) int64 {
	end := int64(math.MaxInt64)
	if o.Step < len(o.Ramp)-1 {
		end = rampEnd(o.Total, o.Ramp[o.Step])
	}
	if o.Limit > 0 {
		end = min(end, o.Limit)
	}
	return end
}

// work adds the changes of the next tasks to a step. It returns how long to wait before the next step.
func (e *Engine) work(ctx context.Context, step *store.OperationStep, now time.Time) (time.Duration, error) {
	to := &step.To
	left := stepEnd(to) - to.Visited()
	n, wait := allowance(to, now)
	n = int(min(int64(n), left))
	if left > 0 && n == 0 {
		return wait, nil
	}
	if left > 0 {
		f := to.Filter
		f.Before, f.Limit = to.Cursor, n
		if f.Until.IsZero() || to.CreatedAt.Before(f.Until) {
			f.Until = to.CreatedAt
		}
		page, err := e.store.List(ctx, f)
		if err != nil {
			return 0, err
		}
		n, err := e.changes(ctx, step, page.Tasks)
		if err != nil {
			return 0, err
		}
		use(to, now, n)
		if n < len(page.Tasks) {
			to.Cursor = page.Tasks[n-1].ID
		} else if to.Cursor = page.Next; page.Next == 0 {
			to.Scanned = true
		}
		left -= int64(n)
	}
	if to.Limit > 0 && to.Visited()+int64(len(step.Changes)) >= to.Limit {
		to.Scanned = true
	}
	switch {
	case !to.Scanned && left > 0:
		return wait, nil
	case to.Action == store.ActionRetry:
		to.WaitingAt = now
		return judgeEvery / 4, nil
	case to.Scanned:
		finish(step)
	}
	return wait, nil
}

// allowance returns how many tasks the rate of an operation allows now, and how long to wait for more.
func allowance(o *store.Operation, now time.Time) (int, time.Duration) {
	most := batch
	if o.Action == store.ActionEdit {
		most = editBatch
	}
	if o.Rate <= 0 {
		return most, 0
	}
	n := int(now.Sub(usedUntil(o, now)).Seconds() * float64(o.Rate))
	// Steps of a tenth of a second need few transactions, and people see an even rate.
	return min(n, most), max(time.Second/10, time.Second/time.Duration(o.Rate))
}

// use takes n tasks from the allowance.
func use(o *store.Operation, now time.Time, n int) {
	if o.Rate <= 0 {
		o.AdvancedAt = now
		return
	}
	o.AdvancedAt = usedUntil(o, now).Add(time.Duration(float64(n) / float64(o.Rate) * float64(time.Second)))
}

// usedUntil returns the time up to which the rate is used up, which is at most one second ago. AdvancedAt lies in the
// future if the clock was set back; then usedUntil returns one second ago.
func usedUntil(o *store.Operation, now time.Time) time.Time {
	if oldest := now.Add(-time.Second); o.AdvancedAt.Before(oldest) || o.AdvancedAt.After(now) {
		return oldest
	}
	return o.AdvancedAt
}

// changes adds the changes of the tasks to a step, up to the limits of payload bytes and of patch work. It returns the
// number of tasks that it processed, which is at least 1.
func (e *Engine) changes(ctx context.Context, step *store.OperationStep, tasks []holdfast.Task) (int, error) {
	to := &step.To
	rules := make(map[string]change.Rules) // for edits, by type
	size, work := 0, 0
	for i, task := range tasks {
		requested, cost, err := e.changeOf(ctx, to, task, rules)
		work += cost
		switch {
		case err == nil:
			step.Changes = append(step.Changes, requested)
			size += len(requested.Task.Payload)
		case errors.Is(err, holdfast.ErrConflict), errors.Is(err, holdfast.ErrNotFound):
			to.Skipped++
		case errors.Is(err, holdfast.ErrInvalid):
			to.Refused++
			if to.Note == "" {
				to.Note = err.Error()
			}
		default:
			return 0, err
		}
		if size >= editBytes || work >= editWork {
			return i + 1, nil
		}
	}
	return len(tasks), nil
}

// Try computes the changes that an operation would make to the given tasks, without making them. It returns how many
// tasks the operation would refuse, and the reason for the first refusal.
func (e *Engine) Try(ctx context.Context, o store.Operation, tasks []holdfast.Task) (refused int64, note string, err error) {
	step := store.OperationStep{From: o, To: o}
	for len(tasks) > 0 {
		n, err := e.changes(ctx, &step, tasks)
		if err != nil {
			return 0, "", err
		}
		tasks = tasks[n:]
	}
	return step.To.Refused - o.Refused, step.To.Note, nil
}

// changeOf returns the change of one task and the work of its patch. It caches the rules of the type in known.
func (e *Engine) changeOf(ctx context.Context, o *store.Operation, task holdfast.Task, known map[string]change.Rules) (c store.Change, work int, err error) {
	if o.Action != store.ActionEdit {
		c, err = change.Of(o.Action, task)
		return c, 0, err
	}
	whole, err := e.store.Task(ctx, task.ID) // lists have no payloads
	if err != nil {
		return store.Change{}, 0, err
	}
	work = change.PatchWork(o.Patch, len(whole.Payload))
	to, err := change.Patch(ctx, whole, o.Patch, e.maxPayload)
	if err != nil {
		return store.Change{}, work, err
	}
	rules, ok := known[whole.Type]
	if !ok {
		rules = change.Rules{MaxPayload: e.maxPayload, Check: e.Check, Validation: change.Validation(o.SkipValidation)}
		if rules.Schemas, err = e.store.TypeSchemas(ctx, whole.Type); err != nil {
			return store.Change{}, work, err
		}
		known[whole.Type] = rules
	}
	c, err = change.Edit(whole, to, rules)
	return c, work, err
}

// Request is what a person wants an operation to do.
type Request struct {
	Action         store.Action
	Query          string // as the person wrote it
	Filter         store.Filter
	Patch          []byte // for an edit
	SkipValidation bool   // for an edit: do not validate payloads
	Limit          int64  // 0 means all
	Rate           int    // tasks per second; 0 means the default of the action; negative means no limit
	// For a retry only.
	Ramp        []int         // nil means the default
	StopAbove   *float64      // nil means DefaultStopAbove
	StepTimeout time.Duration // 0 means DefaultStepTimeout
}

// Check returns an ErrInvalid that describes the first problem of the request, or nil.
func (r *Request) Check() error {
	allowed := change.Allowed(r.Action)
	switch {
	case r.Action == store.ActionUndo || !slices.Contains(store.Actions(), r.Action):
		return fmt.Errorf("%w: %q is not an action of operations; use retry, archive, restore, cancel, purge or edit", holdfast.ErrInvalid, r.Action)
	case r.Action == store.ActionEdit && len(r.Patch) == 0:
		return fmt.Errorf("%w: an edit needs a JSON Patch", holdfast.ErrInvalid)
	case r.Action != store.ActionEdit && len(r.Patch) > 0:
		return fmt.Errorf("%w: only an edit takes a JSON Patch", holdfast.ErrInvalid)
	case r.Action != store.ActionEdit && r.SkipValidation:
		return fmt.Errorf("%w: only an edit can skip the validation of payloads", holdfast.ErrInvalid)
	case len(r.Filter.States) == 0:
		return fmt.Errorf("%w: the filter of an operation must name the states of the tasks, such as state:dead", holdfast.ErrInvalid)
	case r.Limit < 0:
		return fmt.Errorf("%w: limit %d is negative", holdfast.ErrInvalid, r.Limit)
	case r.Action != store.ActionRetry && (r.Ramp != nil || r.StopAbove != nil || r.StepTimeout != 0):
		return fmt.Errorf("%w: only a retry takes a ramp, a share of failures at which to stop, and a timeout of a step", holdfast.ErrInvalid)
	case r.StopAbove != nil && !(*r.StopAbove >= 0 && *r.StopAbove <= 1):
		return fmt.Errorf("%w: the share of failures at which to stop is %g, but must be between 0 and 1", holdfast.ErrInvalid, *r.StopAbove)
	}
	if err := holdfast.CheckDuration("the timeout of a step", r.StepTimeout); err != nil {
		return err
	}
	for _, state := range r.Filter.States {
		if !slices.Contains(allowed, state) {
			return fmt.Errorf("%w: cannot %s tasks that are %s", holdfast.ErrInvalid, r.Action, state)
		}
	}
	for i, percent := range r.Ramp {
		if percent < 1 || percent > 100 || i > 0 && percent <= r.Ramp[i-1] {
			return fmt.Errorf("%w: a ramp has ascending percentages up to 100, such as 1, 5, 25, 100", holdfast.ErrInvalid)
		}
	}
	if len(r.Ramp) > 0 && r.Ramp[len(r.Ramp)-1] != 100 {
		return fmt.Errorf("%w: the last step of a ramp is 100 percent", holdfast.ErrInvalid)
	}
	if r.Action == store.ActionEdit {
		return change.CheckPatch(r.Patch)
	}
	return nil
}

// Operation returns the planned operation for a checked request. It changes total tasks, or more if atLeast is true.
func (r *Request) Operation(total int64, atLeast bool) store.Operation {
	if r.Limit > 0 {
		total = min(total, r.Limit)
	}
	o := store.Operation{
		Action: r.Action, Query: r.Query, Filter: r.Filter, Patch: r.Patch, SkipValidation: r.SkipValidation, State: store.OperationPlanned,
		Limit: r.Limit, Total: total, Rate: max(0, r.Rate), StopAbove: 1,
	}
	if r.Action != store.ActionRetry {
		return o
	}
	if r.Rate == 0 {
		o.Rate = DefaultRate
	}
	o.StopAbove, o.StepTimeout, o.Ramp = DefaultStopAbove, cmp.Or(r.StepTimeout, DefaultStepTimeout), r.Ramp
	if r.StopAbove != nil {
		o.StopAbove = *r.StopAbove
	}
	switch {
	case o.Ramp != nil:
	case atLeast:
		o.Ramp = DefaultRamp(max(total, fullRamp))
	case total >= RampFrom:
		o.Ramp = DefaultRamp(total)
	}
	return o
}

// Control returns the step by which a person moves an operation to a state: running (start or continue), paused or
// cancelled. It returns an ErrConflict if the present state does not allow the move.
func Control(o store.Operation, to store.OperationState, by store.Actor) (store.OperationStep, error) {
	from := map[store.OperationState][]store.OperationState{
		store.OperationRunning:   {store.OperationPlanned, store.OperationPaused, store.OperationStopped},
		store.OperationPaused:    {store.OperationRunning},
		store.OperationCancelled: {store.OperationPlanned, store.OperationRunning, store.OperationPaused, store.OperationStopped},
	}
	verb := map[store.OperationState]string{store.OperationRunning: "resume", store.OperationPaused: "pause", store.OperationCancelled: "cancel"}[to]
	if !slices.Contains(from[to], o.State) {
		return store.OperationStep{}, fmt.Errorf("%w: cannot %s operation %s: it is %s", holdfast.ErrConflict, verb, o.ID, o.State)
	}
	step := store.OperationStep{From: o, To: o, By: &by}
	step.To.State = to
	if o.State == store.OperationStopped && to == store.OperationRunning { // a person accepts the failures so far
		step.To.Note, step.To.StepSucceeded, step.To.StepFailed = "", 0, 0
		step.To.Accepted = o.Cursor
	}
	return step, nil
}

// SetState moves an operation to a state as Control does, and returns the changed operation. It returns an ErrNotFound
// if there is no such operation, and an ErrConflict if its state does not allow the move.
func SetState(ctx context.Context, s store.Operations, by store.Actor, id store.ID, to store.OperationState) (store.Operation, error) {
	for {
		o, err := s.Operation(ctx, id)
		if err != nil {
			return o, err
		}
		step, err := Control(o, to, by)
		if err != nil {
			return o, err
		}
		stepped, err := s.StepOperation(ctx, step)
		if !errors.Is(err, holdfast.ErrConflict) { // after a conflict, the loop reads the operation again
			return stepped, err
		}
	}
}
