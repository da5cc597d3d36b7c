package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// order adds ordered tasks of two keys, and makes some tasks of other parts of the plan ordered. It also adds a person
// who retries, archives or deletes the dead tasks that keep other tasks from starting.
func (p *Plan) order(r *rand.Rand) {
	p.AfterDeath = []holdfast.AfterDeath{holdfast.AfterDeathBlock, holdfast.AfterDeathSkip, holdfast.AfterDeathDead}[r.IntN(3)]
	var producers []int
	for i, role := range p.Roles {
		if role == Produce {
			producers = append(producers, i)
		}
	}
	calm := !p.faulty() // no faults, or silent queues only: the tasks stay short
	p.addPerson()
	for i := range p.Tasks {
		if t := &p.Tasks[i]; t.Key != "" && r.IntN(3) == 0 {
			t.Ordered = true
		}
	}
	for i := range 8 + r.IntN(13) {
		task := newTask(r, i)
		task.Name, task.By, task.Key, task.Ordered = fmt.Sprint("s", i), producers[r.IntN(len(producers))], keys[r.IntN(len(keys))], r.IntN(8) > 0
		if task.Takes = min(task.Takes, time.Second); r.IntN(6) == 0 {
			task.Always, task.Defers, task.Poison = true, 0, false
		}
		if r.IntN(3) == 0 {
			task.At = between(r, loadTime, loadTime+faultTime)
		}
		if calm {
			task.Takes, task.Poison = min(task.Takes, 300*time.Millisecond), false
		}
		p.Tasks = append(p.Tasks, task)
	}
}

// ordered reports whether the plan has ordered tasks.
func (p *Plan) ordered() bool { return p.AfterDeath != "" }

// The odds that a key is locked when its active task ends, and that it is still locked at the next check.
const (
	lockedOneIn = 4
	staysLocked = 2
)

// holdKeys makes transactions of other programs hold keys for some time.
func (w *world) holdKeys() {
	if !w.plan.ordered() {
		return
	}
	rng := rand.New(rand.NewPCG(w.plan.Seed, 0x428a2f98d728ae22))
	locked := make(map[string]bool)
	w.store.HoldKeys(func(key string) bool {
		if locked[key] {
			locked[key] = rng.IntN(staysLocked) > 0
		} else {
			locked[key] = rng.IntN(lockedOneIn) == 0
		}
		return locked[key]
	})
}

// unblockKeys plays the person. The person searches for keys whose active task is dead. If other tasks wait or die
// because of that, the person retries the dead task. If it dies again, the person archives or deletes it.
func (p *process) unblockKeys() {
	plan := &p.world.plan
	if !plan.ordered() {
		return
	}
	if plan.leapsFar() && !p.sleep(faultTime+longestFault-time.Since(p.world.began)) {
		return // see noDelays
	}
	for p.sleep(lookAgain) {
		found, err := p.store.OrderedKeys(p.ctx, true, 100)
		if err != nil {
			continue // the person tries again
		}
		for _, key := range found {
			if plan.AfterDeath == holdfast.AfterDeathBlock && key.Waiting > 0 || plan.AfterDeath == holdfast.AfterDeathDead && key.Doomed {
				p.mustNotFail(p.unblock(key.Active))
			}
		}
	}
}

// unblock retries, archives or deletes a dead task.
func (p *process) unblock(id holdfast.TaskID) error {
	task, err := p.store.Task(p.ctx, id)
	if err != nil {
		return err
	}
	w := p.world
	w.mu.Lock()
	again := w.check.order.asked[id]
	w.check.order.asked[id] = true
	w.mu.Unlock()
	change := store.Change{Action: store.ActionPurge, Task: task}
	event := holdfast.EventRequeue
	if again {
		event = holdfast.EventArchive
	}
	if !again || id%2 == 0 {
		move, err := holdfast.Settle(task, holdfast.Requested(event), time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			return err
		}
		change.Move, change.Action = &move, map[holdfast.Event]store.Action{holdfast.EventRequeue: store.ActionRetry, holdfast.EventArchive: store.ActionArchive}[event]
	}
	_, err = p.store.Change(p.ctx, person, []store.Change{change})
	return err
}

// mustNotFail reports an error of the person that no fault and no other change of the task can cause.
func (p *process) mustNotFail(err error) {
	if !unavailable(err) && !errors.Is(err, holdfast.ErrConflict) && !errors.Is(err, holdfast.ErrNotFound) && p.ctx.Err() == nil {
		p.must(err)
	}
}

// leapsFar reports whether the clock of the store leaps by more than a few seconds.
func (p *Plan) leapsFar() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == StoreLeap && f.For > longestFault })
}
