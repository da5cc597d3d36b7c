package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
)

// OperationPlan is one operation that the person starts, and how the person then changes its state.
type OperationPlan struct {
	Name    string
	At      time.Duration // when the person plans it, from the start of the simulation
	Request operate.Request
	Planned time.Duration // how long it stays planned; 0 means that it runs at once
	Moves   []OperationMove
}

// OperationMove is a change of the state of an operation by the person.
type OperationMove struct {
	After time.Duration // time since the previous move
	To    store.OperationState
}

// String describes the operation for people.
func (o OperationPlan) String() string {
	var b strings.Builder
	r := &o.Request
	fmt.Fprintf(&b, "%s of %v, limit %d, rate %d, ramp %v, stop above %.2f, timeout %v", r.Action, r.Filter.States, r.Limit, r.Rate, r.Ramp, r.Operation(0, false).StopAbove, r.StepTimeout)
	if o.Planned > 0 {
		fmt.Fprintf(&b, ", planned for %v", o.Planned)
	}
	for _, m := range o.Moves {
		fmt.Fprintf(&b, ", %s after %v", m.To, m.After)
	}
	return b.String()
}

// operate adds a person who starts one to four operations, and tasks that die soon or wait for long. It also kills
// processes that make the steps of the operations.
func (p *Plan) operate(r *rand.Rand) {
	by := p.lastProducer()
	p.Roles = append(p.Roles, Person)
	for i := range 4 + r.IntN(9) {
		task := TaskPlan{Name: fmt.Sprint("d", i), At: between(r, 0, loadTime/2), By: by, Queue: queues[r.IntN(len(queues))], Takes: between(r, 0, 20*time.Millisecond), Always: true}
		if r.IntN(4) == 0 {
			task.Always, task.Delay = false, between(r, 0, longestFault)
		}
		p.Tasks = append(p.Tasks, task)
	}
	at := time.Duration(0)
	for i := range 1 + r.IntN(4) {
		if i > 0 && r.IntN(3) == 0 { // two operations change the same tasks at the same time
			at += between(r, 0, 50*time.Millisecond)
		} else {
			at += between(r, 500*time.Millisecond, 3*time.Second)
		}
		o := OperationPlan{Name: fmt.Sprint("o", i), At: at, Request: newRequest(r), Moves: newMoves(r)}
		if r.IntN(4) == 0 {
			o.Planned = between(r, time.Millisecond, time.Second)
		}
		p.Operations = append(p.Operations, o)
	}
	if r.IntN(2) == 0 || !p.faulty() { // a plan without faults, or with silent queues only, gets no kills
		return
	}
	for i, o := range p.Operations {
		kill := newFault(r, i, len(p.Roles)) // the process may also be the person's
		kill.Name, kill.Kind, kill.At = fmt.Sprint("j", i), Kill, o.At+between(r, 0, time.Second)
		p.Faults = append(p.Faults, kill)
	}
}

// lastProducer returns the index of the last producer in Roles.
func (p *Plan) lastProducer() int {
	by := len(p.Roles) - 1
	for by > 0 && p.Roles[by] != Produce {
		by--
	}
	return by
}

// newRequest draws the request of an operation. Half of the operations are retries.
func newRequest(r *rand.Rand) operate.Request {
	var q operate.Request
	switch r.IntN(10) {
	case 0, 1:
		q.Action, q.Filter.States = store.ActionArchive, []holdfast.State{holdfast.Dead}
	case 2:
		q.Action, q.Filter.States = store.ActionRestore, []holdfast.State{holdfast.Archived}
	case 3:
		q.Action, q.Filter.States = store.ActionCancel, []holdfast.State{holdfast.Ready}
	case 4:
		q.Action, q.Filter.States = store.ActionPurge, []holdfast.State{[]holdfast.State{holdfast.Done, holdfast.Dead, holdfast.Cancelled, holdfast.Archived}[r.IntN(4)]}
	default:
		q.Action, q.Filter.States = store.ActionRetry, []holdfast.State{holdfast.Dead, holdfast.Cancelled}[:1+r.IntN(2)]
		q.StopAbove, q.StepTimeout = new(0.3+0.7*r.Float64()), between(r, time.Second, 20*time.Second)
		if r.IntN(2) == 0 {
			q.Ramp = []int{1 + r.IntN(20), 30 + r.IntN(40), 100}
		}
	}
	if q.Rate = -1; r.IntN(4) > 0 {
		q.Rate = 3 + r.IntN(30)
	}
	if r.IntN(4) == 0 {
		q.Limit = int64(1 + r.IntN(6))
	}
	return q
}

// newMoves draws how the person changes the state of an operation: not at all, or pause, resume and cancel.
func newMoves(r *rand.Rand) (moves []OperationMove) {
	to := func(state store.OperationState) {
		moves = append(moves, OperationMove{between(r, 0, 1500*time.Millisecond), state})
	}
	for range r.IntN(3) {
		to(store.OperationPaused)
		to(store.OperationRunning)
	}
	if r.IntN(3) == 0 {
		to(store.OperationCancelled)
	}
	return moves
}

// operate plays the person. The person starts the operations that no earlier start of this process has begun to start.
func (p *process) operate() {
	w := p.world
	done := make(chan struct{})
	n := 0
	w.mu.Lock()
	for _, o := range w.plan.Operations {
		if w.todo[o.Name] {
			n++
			go func() { p.follow(o); done <- struct{}{} }()
		}
	}
	w.mu.Unlock()
	for range n {
		<-done
	}
	<-p.ctx.Done()
}

// follow plans and starts one operation and makes its moves.
func (p *process) follow(o OperationPlan) {
	if !p.sleep(o.At-time.Since(p.world.began)) || !p.undertake(o.Name) {
		return
	}
	defer p.finish()
	var created store.Operation
	ok := p.insist(func() (err error) {
		created, err = p.createOperation(o)
		return err
	})
	moves := o.Moves
	if o.Planned > 0 {
		moves = append([]OperationMove{{o.Planned, store.OperationRunning}}, moves...)
	}
	for _, move := range moves {
		if !ok || !p.sleep(move.After) {
			return
		}
		ok = p.insist(func() error { return p.setState(created.ID, move.To) })
	}
}

// undertake records that the person starts a request of the plan: an operation, a pause or a limit. It returns false if
// the process has ended. In both cases the caller must call finish.
func (p *process) undertake(name string) bool {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return false
	}
	delete(w.todo, name)
	w.following++
	return true
}

// finish notes that the person has finished an operation, a pause or a limit.
func (p *process) finish() {
	p.world.mu.Lock()
	p.world.following--
	p.world.mu.Unlock()
}

// person is the name of the person in the audit log.
var person = store.Actor{Name: "anna", Surface: store.CommandLine}

// createOperation counts the tasks and stores the operation.
func (p *process) createOperation(plan OperationPlan) (store.Operation, error) {
	request := plan.Request
	if err := request.Check(); err != nil {
		return store.Operation{}, err
	}
	counts, err := p.store.Count(p.ctx, request.Filter)
	if err != nil {
		return store.Operation{}, err
	}
	total := int64(0)
	for _, n := range counts.By {
		total += n
	}
	o := request.Operation(total, false)
	if plan.Planned == 0 {
		o.State = store.OperationRunning
	}
	return p.store.CreateOperation(p.ctx, person, o)
}

// setState changes the state of an operation, and reports the answer to the checker.
func (p *process) setState(id store.ID, to store.OperationState) error {
	w := p.world
	w.mu.Lock()
	era := w.state.fellBack
	w.check.operations.requested(id)
	w.mu.Unlock()
	_, err := operate.SetState(p.ctx, p.store, person, id, to)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && !p.dead && era == w.state.fellBack {
		w.check.operations.answered(id, to)
	}
	return err
}

// insist repeats a request of the person until the store answers, and returns false if the process ends first. A
// refusal is an answer, too: the operation may have ended or may be lost.
func (p *process) insist(request func() error) bool {
	for {
		err := request()
		if p.ctx.Err() != nil {
			return false
		}
		if unavailable(err) {
			if !p.sleep(200 * time.Millisecond) {
				return false
			}
			continue
		}
		if !errors.Is(err, holdfast.ErrConflict) && !errors.Is(err, holdfast.ErrNotFound) {
			p.must(err)
		}
		return true
	}
}

// sleep waits, and returns false if the process ends first.
func (p *process) sleep(wait time.Duration) bool { return backoff.Sleep(p.ctx, wait) == nil }
