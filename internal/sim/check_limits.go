package sim

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
)

const (
	// missedStarts is for how long a bucket makes up for starts that it has missed. It is more than package permit allows.
	missedStarts = time.Second
	// someStarts is how many starts more than its rate a bucket may allow in any time.
	someStarts = 2
	// soonDue is how long before a task is due its permit is in use.
	soonDue = 10 * time.Second
)

// limits checks the limits. It looks at the rows of the store and their changes.
type limits struct {
	check *checker
	known map[store.ID]*knownLimit
	// unset are the scopes that a person has unset at any time.
	unset map[store.Scope]bool
	// permits are the permits with which a running task was claimed.
	permits map[claimed][]permit.Ref
	// given is when permits were given, by the clock of the store, since the last change of the rate or leap of the clock.
	given map[permit.Ref][]time.Time
	// last is when the last permit was given, in simulated time.
	last map[permit.Ref]time.Time
	// open has the blocked tasks that could get permits, and since when that is so.
	open map[holdfast.TaskID]time.Time
	leap time.Duration // of the store's clock, when given was last empty

	set, admitted int // limits that were set, and tasks that got permits
}

// knownLimit is a limit as the checker has seen it last.
type knownLimit struct {
	store.Limit
	answered bool // the call that set it first has returned
	highest  int  // the highest concurrency; 0 if it was unlimited at any time
}

func newLimits(c *checker) *limits {
	return &limits{
		check: c, known: make(map[store.ID]*knownLimit), unset: make(map[store.Scope]bool), permits: make(map[claimed][]permit.Ref),
		given: make(map[permit.Ref][]time.Time), last: make(map[permit.Ref]time.Time), open: make(map[holdfast.TaskID]time.Time),
	}
}

// answered notes that a call of SetLimit has returned.
func (l *limits) answered(set store.Limit) {
	if now := l.known[set.ID]; now != nil && now.Scope == set.Scope {
		now.answered = true
	}
}

// unsetting notes that a person is about to unset a limit.
func (l *limits) unsetting(s store.Scope) { l.unset[s] = true }

// fellBack forgets the limits, because the store has lost commits.
func (l *limits) fellBack() {
	stored := l.check.world.store.Limits()
	for id, seen := range l.known {
		seen.answered = false
		if !slices.ContainsFunc(stored, func(limit store.Limit) bool { return limit.ID == id && limit.Scope == seen.Scope }) {
			delete(l.known, id)
		}
	}
	clear(l.permits)
	clear(l.given)
	clear(l.open)
	l.note()
}

// observe checks a change of a task.
func (l *limits) observe(change simstore.Change) {
	before, after := change.Before, change.After
	if before == nil || after == nil || len(l.check.world.plan.Limits) == 0 {
		return
	}
	l.note()
	if before.State == holdfast.Running && after.State != holdfast.Running {
		delete(l.permits, claimOf(&before.Task))
	}
	switch change.Op {
	case "Claim":
		l.checkClaim(after)
	case "ReleaseBlocked":
		if limit := l.known[before.Gate]; limit != nil && before.Blocked() {
			l.checkRelease(before, after)
		}
	}
}

// note finds the limits that were set, changed and unset.
func (l *limits) note() {
	stored := l.check.world.store.Limits()
	for i := range stored {
		limit := &stored[i]
		seen := l.known[limit.ID]
		switch {
		case seen == nil:
			l.set++
			l.known[limit.ID] = &knownLimit{Limit: *limit, highest: limit.Concurrency}
		case seen.Rate != limit.Rate || seen.Concurrency != limit.Concurrency:
			if seen.highest > 0 && limit.Concurrency > 0 {
				seen.highest = max(seen.highest, limit.Concurrency)
			} else {
				seen.highest = 0
			}
			seen.Limit = *limit
			for ref := range l.given {
				if ref.Gate == limit.ID {
					delete(l.given, ref)
				}
			}
		}
	}
	for id, seen := range l.known {
		if slices.ContainsFunc(stored, func(limit store.Limit) bool { return limit.ID == id }) {
			continue
		}
		if !l.unset[seen.Scope] {
			l.check.fail("there is no %s any more, although no person has unset it", seen.Scope)
		}
		delete(l.known, id)
	}
	if leap := l.check.world.clock.leap; leap != l.leap {
		clear(l.given)
		l.leap = leap
	}
}

// concerning returns the buckets of the limits that concern a task.
func (l *limits) concerning(t *simstore.Task) (refs []permit.Ref) {
	for id, limit := range l.known {
		if name, concerned := limit.Bucket(&t.Task); concerned {
			refs = append(refs, permit.Ref{Gate: id, Bucket: name})
		}
	}
	return refs
}

// held returns the buckets of which a task has permits at its attempt.
func (l *limits) held(t *simstore.Task) (refs []permit.Ref) {
	for _, p := range l.check.world.store.Permits() {
		if p.Task == t.ID && p.Attempt == t.Attempt {
			refs = append(refs, p.Ref)
		}
	}
	return refs
}

// checkClaim checks that a claimed task has a permit of each limit that concerns it and whose call has returned.
func (l *limits) checkClaim(t *simstore.Task) {
	held := l.held(t)
	for _, ref := range l.concerning(t) {
		if limit := l.known[ref.Gate]; limit.answered && !slices.Contains(held, ref) {
			l.check.fail("task %s was claimed at attempt %d without a permit of the %s, which a person has set", t.ID, t.Attempt, limit.Scope)
		}
	}
	l.permits[claimOf(&t.Task)] = held
}

// checkRelease checks a task that was blocked at a limit and has left it. It has the permits of all limits that concern
// it, or it is blocked elsewhere and has none.
func (l *limits) checkRelease(before, after *simstore.Task) {
	held := l.held(after)
	if after.Blocked() {
		if len(held) > 0 {
			l.check.fail("task %s is blocked at gate %s and has the permits %v", after.ID, after.Gate, held)
		}
		return
	}
	l.admitted++
	for _, ref := range l.concerning(after) {
		if !slices.Contains(held, ref) {
			l.check.fail("task %s was released from the %s without a permit of the %s", after.ID, l.known[before.Gate].Scope, l.known[ref.Gate].Scope)
		}
	}
	for _, ref := range held {
		l.checkRate(ref)
	}
}

// checkRate notes that a permit is given, and checks that no time since then has had too many for the rate.
func (l *limits) checkRate(ref permit.Ref) {
	limit, now := l.known[ref.Gate], l.check.world.clock.now()
	l.last[ref] = time.Now()
	if limit == nil || limit.Rate.Count == 0 {
		return
	}
	l.given[ref] = append(l.given[ref], now)
	given := l.given[ref]
	for i, from := range given {
		n, allowed := len(given)-i, float64(limit.Rate.Count)*(now.Sub(from)+missedStarts).Seconds()/limit.Rate.Per.Seconds()+someStarts
		if float64(n) > allowed {
			l.check.fail("the %s allows %v, and its bucket %q gave %d permits in %s", limit.Scope, limit.Rate, ref.Bucket, n, now.Sub(from))
			return
		}
	}
}

// afterStep checks the numbers of running tasks, and looks for tasks that stay blocked although they could get permits.
func (l *limits) afterStep() {
	if len(l.check.world.plan.Limits)+len(l.check.world.plan.Targets) == 0 {
		return
	}
	l.note()
	running, used := l.inUse()
	for ref, n := range running {
		if limit := l.known[ref.Gate]; limit != nil && limit.highest > 0 && n > limit.highest {
			l.check.fail("%d tasks run in the bucket %q of the %s, whose concurrency was never above %d", n, ref.Bucket, limit.Scope, limit.highest)
		}
	}
	l.checkOpen(used)
}

// inUse returns for each bucket the number of running tasks that were claimed with its permit, and the number of tasks
// with a permit that run or may soon start.
func (l *limits) inUse() (running, used map[permit.Ref]int) {
	w := l.check.world
	running, used = make(map[permit.Ref]int), make(map[permit.Ref]int)
	for _, refs := range l.permits {
		for _, ref := range refs {
			running[ref]++
		}
	}
	soon := w.clock.now().Add(soonDue)
	for _, p := range w.store.Permits() {
		t := w.store.Task(p.Task)
		waits := t != nil && t.State == holdfast.Ready && (t.Ticketed() || t.DueAt.Before(soon))
		if t != nil && t.Attempt == p.Attempt && (waits || t.State == holdfast.Running) {
			used[p.Ref]++
		}
	}
	return running, used
}

// checkOpen checks that no task stays blocked at a limit or a breaker while all of them would let it start.
func (l *limits) checkOpen(used map[permit.Ref]int) {
	w := l.check.world
	tasks := w.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		givesPermits := l.known[t.Gate] != nil || l.check.breakers.known[t.Gate] != nil
		if !t.Blocked() || !givesPermits || !l.letsStart(t, used) {
			delete(l.open, t.ID)
			continue
		}
		if l.open[t.ID].IsZero() {
			l.open[t.ID] = time.Now()
		}
		if time.Since(l.open[t.ID]) > openLimit && time.Since(l.check.gates.quiet) > openLimit {
			l.check.fail("task %s has been blocked for %s at gate %s, which has free permits", t.ID, time.Since(l.open[t.ID]), t.Gate)
		}
	}
}

// letsStart reports whether no pause, no limit and no breaker keeps a blocked task from starting.
func (l *limits) letsStart(t *simstore.Task, used map[permit.Ref]int) bool {
	paused := slices.ContainsFunc(l.check.world.store.Pauses(), func(gate store.Gate) bool { return gate.Selects(&t.Task) })
	if paused || !l.check.breakers.letStart(t, used) {
		return false
	}
	return !slices.ContainsFunc(l.concerning(t), func(ref permit.Ref) bool {
		limit := l.known[ref.Gate]
		full := limit.Concurrency > 0 && used[ref] >= limit.Concurrency
		return full || limit.Rate.Count > 0 && time.Since(l.last[ref]) <= limit.Rate.Interval()
	})
}
