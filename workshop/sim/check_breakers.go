package sim

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// breakers checks the breakers. It reads the rows of the store and their changes, not the reports of the workers.
type breakers struct {
	check *checker
	// known has the breakers of the store.
	known map[store.ID]*knownBreaker
	// permits has, for each claim of a running task, the breakers of its permits.
	permits map[claimed][]store.ID
	// admitted has the tasks that have got permits in the present step, by breaker, and chosen whether the breaker itself
	// blocked one of them.
	admitted map[store.ID][]holdfast.TaskID
	chosen   map[store.ID]bool

	tripped, probed int // breakers that tripped, and tasks that got their permits
}

// knownBreaker is a breaker as the checker last saw it.
type knownBreaker struct {
	store.Gate
	seen    time.Time // when the checker first saw it, in simulated time
	highest int       // the highest number of probes that it allowed at the same time
}

func newBreakers(c *checker) *breakers {
	return &breakers{check: c, known: make(map[store.ID]*knownBreaker), permits: make(map[claimed][]store.ID), admitted: make(map[store.ID][]holdfast.TaskID), chosen: make(map[store.ID]bool)}
}

// fellBack forgets the breakers, because the store has lost commits.
func (b *breakers) fellBack() {
	clear(b.known)
	clear(b.permits)
}

// note finds the breakers that have tripped, changed and opened.
func (b *breakers) note() {
	stored := b.check.world.store.Breakers()
	for _, gate := range stored {
		seen := b.known[gate.ID]
		if seen == nil {
			b.tripped++
			seen = &knownBreaker{seen: time.Now()}
			b.known[gate.ID] = seen
		}
		seen.Gate, seen.highest = gate, max(seen.highest, gate.Breaker.Probes)
	}
	for id := range b.known {
		if !slices.ContainsFunc(stored, func(gate store.Gate) bool { return gate.ID == id }) {
			delete(b.known, id)
		}
	}
}

// concerning returns the breakers that concern a task.
func (b *breakers) concerning(t *memory.Task) (concerning []*knownBreaker) {
	if t.Type != holdfast.TypeHTTP {
		return nil
	}
	for _, known := range b.known {
		if known.Selects(&t.Task) {
			concerning = append(concerning, known)
		}
	}
	return concerning
}

// observe checks a change of a task.
func (b *breakers) observe(change memory.Change) {
	before, after := change.Before, change.After
	if before == nil || after == nil || after.Type != holdfast.TypeHTTP {
		return
	}
	b.note()
	if before.State == holdfast.Running && after.State != holdfast.Running {
		delete(b.permits, claimOf(&before.Task))
	}
	switch change.Op {
	case "Claim":
		for _, known := range b.concerning(after) {
			switch {
			case b.holds(after, known):
				b.permits[claimOf(&after.Task)] = append(b.permits[claimOf(&after.Task)], known.ID)
			case time.Since(known.seen) > b.check.world.plan.lockWait(): // otherwise the claim may have been in progress when the breaker tripped
				b.check.fail("task %s was claimed at attempt %d without a permit of the breaker of the %s", after.ID, after.Attempt, known.Subject)
			}
		}
	case "ReleaseBlocked":
		if (b.known[before.Gate] != nil || b.check.limits.known[before.Gate] != nil) && before.Blocked() && !after.Blocked() {
			b.checkProbe(after)
			for _, known := range b.concerning(after) { // also if a limit blocked the task
				b.admitted[known.ID] = append(b.admitted[known.ID], after.ID)
				b.chosen[known.ID] = b.chosen[known.ID] || before.Gate == known.ID
			}
		}
	}
}

// holds reports whether a task has a permit of a breaker at its attempt.
func (b *breakers) holds(t *memory.Task, of *knownBreaker) bool {
	return slices.Contains(b.check.limits.held(t), permit.Ref{Gate: of.ID})
}

// checkProbe checks that a task with new permits has one of each breaker of its target, and that the breaker allows a
// probe.
func (b *breakers) checkProbe(t *memory.Task) {
	now := b.check.world.clock.now()
	for _, known := range b.concerning(t) {
		b.probed++
		if !b.holds(t, known) {
			b.check.fail("task %s got permits, but none of the breaker of the %s", t.ID, known.Subject)
		}
		if known.Breaker.ProbeAt.After(now) {
			b.check.fail("task %s got a permit of the breaker of the %s at %v, before the next probe may start at %v", t.ID, known.Subject, now, known.Breaker.ProbeAt)
		}
	}
}

// afterStep checks that no more probes run than the breakers have allowed, and that the right tasks became probes.
func (b *breakers) afterStep() {
	if len(b.check.world.plan.Targets) == 0 {
		return
	}
	b.note()
	for id, tasks := range b.admitted {
		if b.chosen[id] { // otherwise only a limit had its turn, and let its own tasks start
			b.checkNewest(id, tasks)
		}
	}
	clear(b.admitted)
	clear(b.chosen)
	running := make(map[store.ID]int)
	for _, ids := range b.permits {
		for _, id := range ids {
			running[id]++
		}
	}
	for id, n := range running {
		if known := b.known[id]; known != nil && n > known.highest {
			b.check.fail("%d probes of the %s run, and its breaker never allowed more than %d", n, known.Subject, known.highest)
		}
	}
}

// checkNewest checks that the newest task that has not been tried is among the tasks of a breaker that became probes,
// unless a pause or a limit concerns it, its queue may have no room, or another gate blocks a newer one that may precede
// it.
func (b *breakers) checkNewest(id store.ID, admitted []holdfast.TaskID) {
	known, tasks := b.known[id], b.check.world.store.Tasks()
	if known == nil {
		return
	}
	var newest *memory.Task
	for i := range tasks {
		t := &tasks[i]
		if t.Attempt == 1 && known.Selects(&t.Task) && (t.Blocked() || slices.Contains(admitted, t.ID)) && (newest == nil || t.ID > newest.ID) {
			newest = t
		}
	}
	if newest == nil || newest.Gate != id || b.check.limits.stops(newest) || len(b.check.limits.concerning(newest)) > 0 || !b.check.rooms.letStart(newest) {
		return
	}
	b.check.fail("the tasks %v became probes of the %s, and not the task %s, which is the newest one that has not been tried", admitted, known.Subject, newest.ID)
}

// letStart reports whether no breaker keeps a blocked task from starting.
func (b *breakers) letStart(t *memory.Task, used map[permit.Ref]int) bool {
	now := b.check.world.clock.now()
	return !slices.ContainsFunc(b.concerning(t), func(known *knownBreaker) bool {
		return known.Breaker.ProbeAt.After(now) || used[permit.Ref{Gate: known.ID}] >= known.Breaker.Probes
	})
}

// checkExplained checks that an explanation names the breaker for which a ready task waits.
func (b *breakers) checkExplained(task *memory.Task, found explain.Explanation) {
	if task.State != holdfast.Ready || task.Type != holdfast.TypeHTTP {
		return
	}
	b.note()
	waits := slices.ContainsFunc(b.concerning(task), func(known *knownBreaker) bool { return !b.holds(task, known) })
	if waits != has(found, explain.Broken) {
		b.check.fail("that task %s waits for a breaker is %v, and its explanation says %+v", task.ID, waits, found.Causes)
	}
}
