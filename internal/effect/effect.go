// Package effect gives the handler of an attempt what it can store besides its result.
//
// There are two kinds. The output and the next tasks are stored in the transaction of the success, so they exist if and
// only if the store accepts the success. Checkpoints, the values of steps and the progress are stored at once, while the
// attempt runs. The store refuses them as soon as the attempt does not run any more, so no late attempt overwrites the
// value of a later one.
//
// CompleteTx stores the success itself, together with the output and the next tasks, in a transaction of the handler.
package effect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Store is the part of a store that attempts use.
type Store interface {
	store.Effects
	ApplyTx(ctx context.Context, tx store.Tx, move holdfast.Transition) (bool, error)
}

// Host runs the attempt.
type Host interface {
	Task() *holdfast.Task
	Store() Store
	MaxPayload() int // the maximum size of a value, in bytes
	Leased() bool    // the lease of the worker is valid by the clock of this process
	// Complete validates a task and sets the defaults of its type.
	Complete(task holdfast.NewTask) (holdfast.NewTask, error)
	// Success returns the transition of a success.
	Success() (holdfast.Transition, error)
}

// Limits of the values of a task.
const (
	MaxSteps = 1000    // values of a task
	MaxBytes = 4 << 20 // of the values of a task together, because an attempt reads all of them
	MaxNote  = 1000    // bytes of the note of a progress
)

// Context is the context of an attempt. Most attempts have no effects, so it makes their Attempt at the first call of
// From. The zero value belongs to an attempt that has not begun.
type Context struct {
	context.Context // of the handler
	host            Host
	attempt         atomic.Pointer[Attempt]
}

// Begin begins the attempt, and returns c as the context for the handler. From finds the attempt in that context.
func (c *Context) Begin(ctx context.Context, host Host) context.Context {
	c.Context, c.host = ctx, host
	return c
}

type attemptKey struct{}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	if key != (attemptKey{}) {
		return c.Context.Value(key)
	}
	if a := c.attempt.Load(); a != nil {
		return a
	}
	c.attempt.CompareAndSwap(nil, &Attempt{host: c.host})
	return c.attempt.Load()
}

// End ends the attempt. It writes the last progress, and returns the effects of a success, or nil.
func (c *Context) End() *holdfast.Effects {
	if c.attempt.CompareAndSwap(nil, endedAttempt) {
		return nil
	}
	return c.attempt.Load().end(c.Context)
}

// Locks reports whether the transaction of a CompleteTx may lock the row of the task.
func (c *Context) Locks() bool {
	a := c.attempt.Load()
	return a != nil && a.locks()
}

// Completed reports whether CompleteTx has stored the success in a transaction, which may not have committed.
func (c *Context) Completed() bool {
	a := c.attempt.Load()
	return a != nil && a.Completed()
}

// endedAttempt replaces the attempt of each context whose attempt has ended without effects.
var endedAttempt = &Attempt{ended: true}

// From returns the attempt whose handler got ctx, or a context that was made from it. It returns an ErrInvalid if there
// is none, and an ErrConflict if the attempt has ended.
func From(ctx context.Context) (*Attempt, error) {
	a, ok := ctx.Value(attemptKey{}).(*Attempt)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: ctx does not belong to an attempt; pass the context that the handler got", holdfast.ErrInvalid)
	case a == endedAttempt:
		return nil, errEnded
	}
	return a, nil
}

// Attempt has the effects of one attempt. It is safe for concurrent use.
type Attempt struct {
	host Host

	mu         sync.Mutex // a holder never waits for the store, because the worker calls Locks and Completed
	effects    *holdfast.Effects
	values     map[string]json.RawMessage // by name; nil until they are read
	steps      map[string]chan struct{}   // by name; a call that runs the step has put a value into the channel, which has room for one
	completing bool                       // CompleteTx is in progress
	completed  bool                       // CompleteTx was accepted
	ended      bool
	progress   *progress
}

// Task returns the task of the attempt.
func (a *Attempt) Task() *holdfast.Task { return a.host.Task() }

// Store returns the store of the task.
func (a *Attempt) Store() Store { return a.host.Store() }

var (
	errEnded     = fmt.Errorf("%w: the attempt has ended", holdfast.ErrConflict)
	errCompleted = fmt.Errorf("%w: CompleteTx has stored the success of the attempt; store everything else before it", holdfast.ErrConflict)
)

// open returns an error if the attempt can store nothing more. The caller holds a.mu.
func (a *Attempt) open() error {
	switch {
	case a.ended:
		return errEnded
	case a.completed, a.completing:
		return errCompleted
	}
	return nil
}

// Output sets the output of the task. A later call replaces it.
func (a *Attempt) Output(value json.RawMessage) error {
	if err := a.check("output", value); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.open(); err != nil {
		return err
	}
	a.set().Output = value
	return nil
}

// Next adds a task to store with the success.
func (a *Attempt) Next(task holdfast.NewTask) error {
	complete, err := a.host.Complete(task)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.open(); err != nil {
		return err
	}
	return a.set().AddNext(complete)
}

// set returns the effects, which may still be empty. The caller holds a.mu.
func (a *Attempt) set() *holdfast.Effects {
	if a.effects == nil {
		a.effects = new(holdfast.Effects)
	}
	return a.effects
}

// check returns an ErrInvalid if no store accepts a value.
func (a *Attempt) check(what string, value json.RawMessage) error {
	switch {
	case len(value) > a.host.MaxPayload():
		return fmt.Errorf("%w: the %s has %d bytes, the limit is %d; keep large data elsewhere and store a reference",
			holdfast.ErrInvalid, what, len(value), a.host.MaxPayload())
	case !json.Valid(value) || !utf8.Valid(value):
		return fmt.Errorf("%w: the %s is not valid JSON", holdfast.ErrInvalid, what)
	case holdfast.JSONDepth(value) > holdfast.MaxPayloadDepth:
		return fmt.Errorf("%w: the %s has more than %d levels of arrays and objects", holdfast.ErrInvalid, what, holdfast.MaxPayloadDepth)
	}
	return nil
}

// Value returns the value with a name that this attempt or an earlier one has stored, or nil. The first call of an
// attempt reads all values of the task.
func (a *Attempt) Value(ctx context.Context, name string) (json.RawMessage, error) {
	values, err := a.read(ctx)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return values[name], nil
}

// read returns the values of the task. Even the first attempt may have some: if the store has lost commits, a worker can
// run that attempt again.
func (a *Attempt) read(ctx context.Context) (map[string]json.RawMessage, error) {
	a.mu.Lock()
	values, err := a.values, a.open()
	a.mu.Unlock()
	if values != nil || err != nil {
		return values, err
	}
	stored, err := a.host.Store().TaskData(ctx, []holdfast.TaskID{a.host.Task().ID})
	if err != nil {
		return nil, err
	}
	values = make(map[string]json.RawMessage, len(stored))
	for _, d := range stored {
		values[d.Name] = d.Value
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.values == nil { // otherwise another goroutine has read them, and may have stored more
		a.values = values
	}
	return a.values, nil
}

// BeginStep waits until no other call has the step with the name of a value. It returns the value if this attempt or an
// earlier one has stored it. Otherwise the caller may run the step, because the attempt still runs and the task has
// room for the value. If the task has no room, the error is permanent. If BeginStep returns no error, the caller calls
// end when it has saved the value.
func (a *Attempt) BeginStep(ctx context.Context, name string) (stored json.RawMessage, end func(), err error) {
	if end, err = a.lockStep(ctx, name); err != nil {
		return nil, nil, err
	}
	switch stored, err = a.Value(ctx, name); {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && stored == nil:
		err = a.mayRun(ctx, name)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return stored, end, nil
}

// lockStep waits until no other call has the step, or ctx is done.
func (a *Attempt) lockStep(ctx context.Context, name string) (unlock func(), err error) {
	a.mu.Lock()
	step := a.steps[name]
	if step == nil {
		if a.steps == nil {
			a.steps = make(map[string]chan struct{})
		}
		step = make(chan struct{}, 1)
		a.steps[name] = step
	}
	a.mu.Unlock()
	select {
	case step <- struct{}{}:
		return func() { <-step }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mayRun returns an error if it is known that the value of a step could not be stored after the step.
func (a *Attempt) mayRun(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !a.host.Leased() { // the process may have been suspended, and has not noticed yet
		return fmt.Errorf("%w: the lease of the worker has expired", holdfast.ErrLeaseLost)
	}
	values, err := a.read(ctx)
	if err != nil {
		return err
	}
	if err := a.fits(values, name, json.RawMessage("0")); err != nil { // no value is smaller
		return holdfast.Permanent(err)
	}
	return nil
}

// Save stores a value under a name. It returns an ErrLeaseLost if the attempt does not run any more.
func (a *Attempt) Save(ctx context.Context, name string, value json.RawMessage) error {
	if err := a.check("value", value); err != nil {
		return err
	}
	values, err := a.read(ctx)
	if err != nil {
		return err
	}
	if err := a.fits(values, name, value); err != nil {
		return err
	}
	if err := a.save(ctx, name, value); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	values[name] = value
	return nil
}

// fits returns an ErrInvalid if a task cannot have another value.
func (a *Attempt) fits(values map[string]json.RawMessage, name string, value json.RawMessage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	bytes := len(value)
	for other, v := range values {
		if other != name {
			bytes += len(v)
		}
	}
	_, known := values[name]
	switch {
	case !known && len(values) >= MaxSteps:
		return fmt.Errorf("%w: a task can have at most %d values", holdfast.ErrInvalid, MaxSteps)
	case bytes > MaxBytes:
		return fmt.Errorf("%w: the values of a task can have at most %d bytes together; keep large data elsewhere and store a reference",
			holdfast.ErrInvalid, MaxBytes)
	}
	return nil
}

func (a *Attempt) save(ctx context.Context, name string, value json.RawMessage) error {
	a.mu.Lock()
	err := a.open()
	a.mu.Unlock()
	if err != nil {
		return err
	}
	task := a.host.Task()
	by := store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker}
	err = a.host.Store().SaveData(ctx, by, []store.Datum{{Name: name, Value: value}})
	if errors.Is(err, store.ErrFenced) {
		return fmt.Errorf("%w: %w", holdfast.ErrLeaseLost, err)
	}
	return err
}

// CompleteTx stores the success of the attempt in tx, with the output and the next tasks. They take effect if and only
// if tx commits. It returns an ErrLeaseLost if the attempt does not run any more. After CompleteTx, no other method can
// store anything, because it would wait for tx.
func (a *Attempt) CompleteTx(ctx context.Context, tx store.Tx) error {
	a.flush(ctx)
	move, err := a.host.Success()
	if err != nil {
		return err
	}
	a.mu.Lock()
	if err := a.open(); err != nil {
		a.mu.Unlock()
		return err
	}
	a.completing = true
	move.Effects = a.effects
	a.mu.Unlock()
	accepted, err := a.host.Store().ApplyTx(ctx, tx, move)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.completing, a.completed = false, err == nil && accepted
	if err != nil {
		return err
	}
	if !accepted {
		return fmt.Errorf("%w: the attempt does not run any more", holdfast.ErrLeaseLost)
	}
	return nil
}

func (a *Attempt) locks() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.completing || a.completed
}

// Completed is Context.Completed.
func (a *Attempt) Completed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.completed
}

// end ends the attempt and returns the effects of a success.
func (a *Attempt) end(ctx context.Context) *holdfast.Effects {
	a.flush(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.completed {
		return nil
	}
	return a.effects
}

// ProgressEvery is the minimum time between two writes of the progress.
const ProgressEvery = time.Second

// progress is the newest progress of an attempt. The first one is written at once, and later ones at most once in
// ProgressEvery.
type progress struct {
	pending *store.Progress
	written time.Time   // when the last write began
	timer   *time.Timer // writes pending; nil if none is set
	writes  sync.WaitGroup
}

// Progress records how far the attempt is. A failed write is dropped, because the next one replaces it.
func (a *Attempt) Progress(ctx context.Context, p store.Progress) {
	p.Percent = min(max(p.Percent, 0), 100)
	if len(p.Note) > MaxNote {
		p.Note = strings.ToValidUTF8(p.Note[:MaxNote], "")
	}
	a.mu.Lock()
	if a.open() != nil {
		a.mu.Unlock()
		return
	}
	if a.progress == nil {
		a.progress = new(progress)
	}
	g := a.progress
	g.pending = &p
	wait := ProgressEvery - time.Since(g.written)
	switch {
	case g.timer != nil: // the timer writes the new progress
		a.mu.Unlock()
	case wait <= 0:
		g.written = time.Now()
		a.mu.Unlock()
		a.write(ctx)
	default:
		g.writes.Add(1)
		g.timer = time.AfterFunc(wait, func() {
			defer g.writes.Done()
			a.mu.Lock()
			g.timer, g.written = nil, time.Now()
			a.mu.Unlock()
			a.write(ctx)
		})
		a.mu.Unlock()
	}
}

// write writes the pending progress.
func (a *Attempt) write(ctx context.Context) {
	a.mu.Lock()
	pending := a.progress.pending
	a.progress.pending = nil
	a.mu.Unlock()
	if pending == nil {
		return
	}
	value, err := json.Marshal(pending)
	if err != nil {
		return // impossible: a number and a text
	}
	_ = a.save(ctx, store.ProgressData, value)
}

// flushTimeout limits the last write of the progress of an attempt.
const flushTimeout = 2 * time.Second

// flush writes the pending progress, even if ctx has ended, and waits for a write that has begun.
func (a *Attempt) flush(ctx context.Context) {
	a.mu.Lock()
	g := a.progress
	if g == nil {
		a.mu.Unlock()
		return
	}
	if g.timer != nil && g.timer.Stop() {
		g.timer = nil
		g.writes.Done()
	}
	a.mu.Unlock()
	g.writes.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	a.write(ctx)
}
