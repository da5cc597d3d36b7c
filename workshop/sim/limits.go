package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// LimitPlan is one limit by the person. The person changes it, and then unsets it, unless Unset is 0.
type LimitPlan struct {
	Name    string
	At      time.Duration // time since the start of the simulation
	Limit   store.Limit
	Changes []LimitChange
	Unset   time.Duration // time since the last change
}

// LimitChange is a change of a limit by the person.
type LimitChange struct {
	After       time.Duration // time since the answer to the previous change
	Rate        store.Rate
	Concurrency int
}

// String describes the limit for people.
func (l LimitPlan) String() string {
	text := fmt.Sprintf("%s: rate %v, concurrency %d", l.Limit.Scope, l.Limit.Rate, l.Limit.Concurrency)
	for _, c := range l.Changes {
		text += fmt.Sprintf(", after %v rate %v, concurrency %d", c.After, c.Rate, c.Concurrency)
	}
	if l.Unset > 0 {
		text += fmt.Sprintf(", unset after %v", l.Unset)
	}
	return text
}

// limit adds a person who sets one to six limits, and tasks that have a key. In half of the plans, processes are killed
// around the changes. In some plans, the store's clock leaps back. A limit that stays is loose, so that every task
// ends.
func (p *Plan) limit(r *rand.Rand) {
	by := p.lastProducer()
	p.addPerson()
	for i := range 6 + r.IntN(15) {
		p.Tasks = append(p.Tasks, TaskPlan{
			Name: fmt.Sprint("u", i), At: between(r, 0, loadTime), By: by, Queue: queues[r.IntN(len(queues))], Takes: between(r, 0, 600*time.Millisecond),
			Key: append(keys, "")[r.IntN(len(keys)+1)], Brief: r.IntN(6) == 0,
		})
	}
	for i := range 1 + r.IntN(4) {
		l := LimitPlan{Name: fmt.Sprint("m", i), At: between(r, 0, loadTime), Limit: store.Limit{Scope: newScope(r)}}
		if r.IntN(2) == 0 {
			l.Unset = between(r, 10*time.Millisecond, longestFault)
		}
		for range r.IntN(3) {
			l.Changes = append(l.Changes, newLimitChange(r, l.Unset > 0))
		}
		first := newLimitChange(r, l.Unset > 0)
		l.Limit.Rate, l.Limit.Concurrency = first.Rate, first.Concurrency
		p.Limits = append(p.Limits, l)
	}
	if r.IntN(3) == 0 {
		p.overlap(r)
	}
	if !p.faulty() {
		return
	}
	if r.IntN(6) == 0 {
		p.setBack(r)
	}
	if r.IntN(2) == 0 {
		return
	}
	for i, l := range p.Limits {
		kill := newFault(r, i, len(p.Roles))
		kill.Name, kill.Kind, kill.At = fmt.Sprint("w", i), Kill, l.At+between(r, 0, longestFault)
		p.Faults = append(p.Faults, kill)
	}
}

// takePermits makes tasks lose their permits while claims of them are in progress. It adds a tight limit, short pauses
// of keys that end by their time, and claims that take longer than the pauses. When a pause begins, each worker loses
// its connections to the broker. So a worker gets a ticket again while its claim is in progress, and blocks the task at
// the pause. In half of the pauses, the broker then accepts no messages, so that the released task stays due.
func (p *Plan) takePermits(r *rand.Rand) {
	if !p.faulty() {
		return
	}
	by := p.lastProducer()
	p.addPerson()
	p.LockWait = between(r, 500*time.Millisecond, 2*time.Second)
	for i := range 12 + r.IntN(9) {
		p.Tasks = append(p.Tasks, TaskPlan{
			Name: fmt.Sprint("i", i), At: between(r, 0, loadTime), By: by, Queue: "b", Takes: between(r, 0, 300*time.Millisecond), Key: append(keys, "")[r.IntN(len(keys)+1)],
		})
	}
	p.Limits = append(p.Limits, LimitPlan{
		Name: "n0", At: between(r, 0, 100*time.Millisecond), Unset: loadTime + faultTime,
		Limit: store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: "b"}}, Concurrency: 1 + r.IntN(3)},
	})
	for i, at := 0, between(r, 0, time.Second); at < loadTime+faultTime/2; i, at = i+1, at+between(r, 300*time.Millisecond, time.Second) {
		pause := PausePlan{Name: fmt.Sprint("l", i, "p"), At: at, Subject: store.Subject{Key: keys[r.IntN(len(keys))]}, For: between(r, 100*time.Millisecond, 500*time.Millisecond)}
		p.Pauses = append(p.Pauses, pause)
		for target, role := range p.Roles {
			if role == Serve || role == Worker {
				p.Faults = append(p.Faults, Fault{Name: fmt.Sprint("l", i, "c", target), Kind: CloseBroker, At: at + between(r, 0, 100*time.Millisecond), Target: target})
			}
		}
		if r.IntN(2) == 0 {
			ends := at + pause.For
			p.Faults = append(p.Faults, Fault{Name: fmt.Sprint("l", i, "b"), Kind: Block, At: ends - between(r, 0, 50*time.Millisecond), For: between(r, 200*time.Millisecond, time.Second)})
		}
	}
}

// overlap adds two tight limits that stay busy for a while, and tasks of either or both.
func (p *Plan) overlap(r *rand.Rand) {
	by := p.lastProducer()
	for i, scope := range []store.Scope{{Subject: store.Subject{Key: "x"}}, {Subject: store.Subject{Queue: "b"}}} {
		p.Limits = append(p.Limits, LimitPlan{
			Name: fmt.Sprint("m1", i), At: between(r, 0, 300*time.Millisecond), Limit: store.Limit{Scope: scope, Concurrency: 1 + r.IntN(2)}, Unset: between(r, 12*time.Second, 20*time.Second),
		})
	}
	for i := range 60 {
		task := TaskPlan{
			Name: fmt.Sprint("x", i), At: between(r, 300*time.Millisecond, 2*loadTime), By: by, Queue: queues[i%2], Takes: between(r, 100*time.Millisecond, 900*time.Millisecond),
		}
		if task.Queue == "a" {
			task.Key = "x"
		}
		if i < 3 {
			task.Queue, task.Key, task.At = "b", "x", between(r, 300*time.Millisecond, loadTime)
		}
		p.Tasks = append(p.Tasks, task)
	}
}

// newScope draws the scope of a limit.
func newScope(r *rand.Rand) (s store.Scope) {
	types, key := []string{"work", "work", "brief", "poison"}, keys[r.IntN(len(keys))]
	switch r.IntN(6) {
	case 0, 1:
		s.Type = types[r.IntN(len(types))]
	case 2:
		s.Key = key
	case 3:
		s.Per = store.PerKey
	case 4:
		s.Type, s.Key = "work", key
	default:
		s.Queue = queues[r.IntN(len(queues))]
	}
	return s
}

// newLimitChange draws a rate, a concurrency, or both. Tight ones are for limits that the person soon unsets.
func newLimitChange(r *rand.Rand, tight bool) LimitChange {
	c := LimitChange{After: between(r, 10*time.Millisecond, 3*time.Second)}
	kind := r.IntN(3)
	if kind != 0 {
		c.Rate = store.Rate{Count: 4 + r.IntN(20), Per: time.Second}
	}
	if kind != 1 {
		c.Concurrency = 3 + r.IntN(3)
	}
	if tight && kind != 0 {
		c.Rate.Count = 1 + r.IntN(8)
	}
	if tight && kind != 1 {
		c.Concurrency = 1 + r.IntN(3)
	}
	return c
}

// limits reports whether the plan limits the task.
func (p *Plan) limits(task *holdfast.Task) bool {
	return slices.ContainsFunc(p.Limits, func(l LimitPlan) bool {
		_, concerned := l.Limit.Bucket(task)
		return concerned
	})
}

// setLimits plays the person. The person sets the limits that no earlier start of this process has begun to set. The
// person also unsets limits that an earlier start has left, and limits that are set again because the store lost
// commits.
func (p *process) setLimits() {
	playAll(p, p.world.plan.Limits, func(l LimitPlan) string { return l.Name }, p.keepLimited, p.unsetForgotten)
}

// keepLimited sets one limit, changes it, and unsets it.
func (p *process) keepLimited(l LimitPlan) {
	w := p.world
	if !p.sleep(l.At-time.Since(w.began)) || !p.undertake(l.Name) {
		return
	}
	defer p.finish()
	w.mu.Lock()
	if p.limiting == nil {
		p.limiting = make(map[store.Scope]int)
	}
	p.limiting[l.Limit.Scope]++
	w.mu.Unlock()
	limit := l.Limit
	ok := p.insist(func() error { return p.setLimit(limit) })
	for _, change := range l.Changes {
		if !ok || !p.sleep(change.After) {
			return
		}
		limit.Rate, limit.Concurrency = change.Rate, change.Concurrency
		ok = p.insist(func() error { return p.setLimit(limit) })
	}
	if !ok || l.Unset == 0 || !p.sleep(l.Unset) {
		return
	}
	p.insist(func() error { return p.unsetLimit(limit.Scope) })
	w.mu.Lock()
	p.limiting[l.Limit.Scope]--
	w.mu.Unlock()
}

// setLimit sets a limit, and reports the answer to the checker.
func (p *process) setLimit(l store.Limit) error {
	set, err := p.store.SetLimit(p.ctx, person, l.Change())
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if err == nil && !p.dead {
		p.world.check.limits.answered(set.After)
	}
	return err
}

func (p *process) unsetLimit(s store.Scope) error {
	p.world.mu.Lock()
	p.world.check.limits.unsetting(s)
	p.world.mu.Unlock()
	_, err := p.store.UnsetLimit(p.ctx, person, s)
	return err
}

// unsetForgotten unsets the limits that the person does not want.
func (p *process) unsetForgotten() {
	limits, err := p.store.Limits(p.ctx)
	if err != nil {
		return // the person tries again
	}
	for i := range limits {
		p.world.mu.Lock()
		wanted := p.limiting[limits[i].Scope] > 0
		p.world.mu.Unlock()
		if !wanted {
			p.insist(func() error { return p.unsetLimit(limits[i].Scope) })
		}
	}
}
