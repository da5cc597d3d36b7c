package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// CommitPlan is how a handler ends with CompleteTx, instead of leaving the success to its worker.
type CommitPlan struct {
	Late  time.Duration // the handler waits before the call, even if its context ends
	After time.Duration // the handler waits after the call, so that its worker may be fenced meanwhile
	Fails bool          // the handler returns an error although the call has succeeded
}

// effectTasks is about how many tasks of a plan have effects.
const effectTasks = 16

// addEffects gives some tasks next tasks, checkpoints, or a handler that calls CompleteTx. Plans with silent queues stay
// as they are, because their checks assume that a producer publishes every ticket.
func (p *Plan) addEffects(r *rand.Rand) {
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Silence }) {
		return
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if r.IntN(len(p.Tasks)) >= max(effectTasks, len(p.Tasks)/8) || t.Poison || t.Target != "" {
			continue
		}
		if r.IntN(3) > 0 {
			for n := range 1 + r.IntN(3) {
				t.Children = append(t.Children, p.newChild(r, t, n))
			}
		}
		if r.IntN(2) == 0 {
			t.Saves = 1 + r.IntN(3)
			if r.IntN(4) == 0 && t.Hangs == 0 && p.faulty() { // some checkpoints come after the end of the lease
				t.Stubborn, t.Takes = true, between(r, 0, 3*lease)
			}
		}
		if r.IntN(2) == 0 {
			t.Commits = newCommit(r)
			if t.Hangs > 0 { // the attempt would end by its timeout
				t.Commits.Late = 0
			}
		}
	}
}

// newChild draws the n-th next task of a task.
func (p *Plan) newChild(r *rand.Rand, parent *TaskPlan, n int) TaskPlan {
	child := TaskPlan{Name: fmt.Sprintf("%s.%d", parent.Name, n), Parent: parent.Name, Queue: queues[r.IntN(len(queues))], Takes: between(r, 0, 100*time.Millisecond)}
	if delay := between(r, 0, 3*time.Second); r.IntN(3) == 0 && !p.leapsFar() { // see noDelays
		child.Delay = delay
	}
	switch r.IntN(6) {
	case 0:
		child.Unique = "only " + child.Name
	case 1: // several tasks store the same next task
		child.Unique, child.Shared = fmt.Sprint("shared ", r.IntN(2)), true
	}
	if r.IntN(4) == 0 {
		child.Priority = holdfast.Priorities()[r.IntN(len(holdfast.Priorities()))]
	}
	if key := keys[r.IntN(len(keys))]; r.IntN(5) == 0 && p.ordered() {
		child.Key, child.Ordered = key, true
	}
	return child
}

func newCommit(r *rand.Rand) *CommitPlan {
	c := new(CommitPlan)
	if r.IntN(4) == 0 {
		c.Late = between(r, 0, 3*lease)
	}
	if r.IntN(2) == 0 {
		c.After = between(r, 0, 2*lease)
	}
	c.Fails = r.IntN(3) == 0
	return c
}

// hasEffects reports whether the handler of the task stores anything besides its result.
func (t *TaskPlan) hasEffects() bool { return len(t.Children) > 0 || t.Saves > 0 || t.Commits != nil }

// hasEffects reports whether a task of the plan has effects.
func (p *Plan) hasEffects() bool {
	return slices.ContainsFunc(p.Tasks, func(t TaskPlan) bool { return t.hasEffects() })
}

// checkpoint is the value that an attempt stores as its n-th checkpoint, and, with n 0, as its output.
type checkpoint struct {
	Attempt int
	Worker  holdfast.WorkerID
	N       int
}

func (c checkpoint) encode() json.RawMessage {
	value, _ := json.Marshal(c) // numbers always marshal
	return value
}

// handlerEffects are the effects of one execution. A nil value has none.
type handlerEffects struct {
	process *process
	ctx     context.Context // for calls of the attempt
	attempt *effect.Attempt
	task    holdfast.Task
	plan    *TaskPlan
	saves   int
}

// beginEffects begins the effects of an execution. It reads the checkpoint and sets the output and the next tasks. A
// handler that ignores the end of its context also ignores it in the calls. ended is closed when the handler returns
// early. A task that must end within its timeout stores nothing during its attempt, unless the attempt hangs: then the
// attempt fails no matter how long the calls take.
func (p *process) beginEffects(ctx context.Context, task holdfast.Task, plan *TaskPlan, obeys, hangs bool) *handlerEffects {
	if !plan.hasEffects() {
		return nil
	}
	attempt, err := effect.From(ctx)
	p.must(err)
	h := &handlerEffects{process: p, ctx: ctx, attempt: attempt, task: task, plan: plan, saves: plan.Saves}
	if !obeys {
		h.ctx = context.WithoutCancel(ctx)
	}
	if plan.Hangs > 0 && !hangs {
		h.saves = 0
	}
	if plan.Saves > 0 && plan.Hangs == 0 {
		h.call(func() func(*effects, int) {
			value, err := attempt.Value(h.ctx, store.CheckpointData)
			return func(e *effects, era int) { e.read(&task, era, value, err) }
		})
	}
	p.must(attempt.Output(checkpoint{task.Attempt, task.Worker, 0}.encode()))
	for i := range plan.Children {
		child := &plan.Children[i]
		p.must(attempt.Next(holdfast.NewTask{
			Type: "work", Queue: child.Queue, Priority: child.Priority, Key: child.Key, Ordered: child.Ordered, Unique: child.Unique, Delay: child.Delay, Payload: payloadOf(child),
		}))
	}
	return h
}

// call makes a call of the attempt, and reports its result to the checker together with the era in which it began.
func (h *handlerEffects) call(f func() (report func(*effects, int))) {
	w := h.process.world
	w.mu.Lock()
	era := w.state.fellBack
	w.mu.Unlock()
	report := f()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !h.process.dead && !w.ended {
		report(w.check.effects, era)
	}
}

// save stores the checkpoints of an execution, spread over its duration. It returns early when ended is closed.
func (h *handlerEffects) save(takes time.Duration, ended <-chan struct{}) {
	if h == nil {
		return
	}
	began := time.Now()
	for n := 1; n <= h.saves; n++ {
		if !wait(takes*time.Duration(n)/time.Duration(h.saves+1)-time.Since(began), ended) {
			return
		}
		h.call(func() func(*effects, int) {
			err := h.attempt.Save(h.ctx, store.CheckpointData, checkpoint{h.task.Attempt, h.task.Worker, n}.encode())
			return func(e *effects, era int) { e.saved(&h.task, n, era, err) }
		})
	}
}

// commit ends a successful execution with CompleteTx, if the plan says so, and returns the error of the handler.
func (h *handlerEffects) commit(ended <-chan struct{}) error {
	if h == nil || h.plan.Commits == nil {
		return nil
	}
	plan := h.plan.Commits
	if !wait(plan.Late, h.process.gone) {
		return context.Canceled
	}
	var err error
	h.call(func() func(*effects, int) { return func(e *effects, era int) { e.committing(&h.task, era) } })
	h.call(func() func(*effects, int) {
		err = h.attempt.CompleteTx(context.WithoutCancel(h.ctx), memory.Committed{})
		return func(e *effects, era int) { e.committed(&h.task, era, err) }
	})
	switch {
	case err != nil:
		return err
	case !wait(plan.After, ended):
		return context.Canceled
	case plan.Fails:
		return errPlanned
	}
	return nil
}

// wait waits, and returns false if ended is closed first.
func wait(d time.Duration, ended <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ended:
		return false
	}
}
