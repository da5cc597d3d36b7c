package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

const (
	// missedStarts limits the time for which a bucket makes up for missed starts. It is more than package permit
	// allows.
	missedStarts = time.Second
	// someStarts is how many starts beyond its rate a bucket may allow in any period.
	someStarts = 2
	// soonDue is how long before its due time a task may use its permit.
	soonDue = 10 * time.Second
	// If an older task of several limits leaves a bucket, younger tasks may get its last permit. longestPassing limits
	// how long.
	longestPassing = 5 * time.Second
	// longestClaim is the longest time that a claim waits for a lock. If the clock is set back meanwhile, its task may be
	// due later, so its permit is free.
	longestClaim = 10 * time.Second
)

// limits checks the limits. It reads the rows of the store and their changes.
type limits struct {
	check *checker
	known map[store.ID]*knownLimit
	// unset has the scopes that a person has unset at any time.
	unset map[store.Scope]bool
	// permits has, for each claim of a running task, its permits.
	permits map[claimed][]permit.Ref
	// given has the times of the permits, by the clock of the store. A change of the rate or a leap of the clock
	// empties it.
	given map[permit.Ref][]time.Time
	// last has the time of the last permit, in simulated time.
	last map[permit.Ref]time.Time
	// open has, for each blocked task that could get permits, since when the checker has seen it so.
	open map[holdfast.TaskID]time.Time
	// leavers has for each bucket the oldest blocked task that left it because of another limit. A bucket keeps a permit
	// only for this task.
	leavers map[permit.Ref]*leaver
	leap    time.Duration // leap of the store's clock when given was last empty
	leapt   time.Time     // when it last changed, in simulated time

	set, admitted, kept int // limits that were set, tasks that got permits, and tasks for which a limit kept a permit
}

// leaver is a task that has left a bucket although the bucket had a permit for it.
type leaver struct {
	task  holdfast.TaskID
	since time.Time // time of the block, by the clock of the store
	left  time.Time // when the task left, in simulated time; zero if no permit may have been kept for it since
}

// knownLimit is a limit as the checker last saw it.
type knownLimit struct {
	store.Limit
	answered bool // the call that first set it has returned
	highest  int  // the highest concurrency; 0 if it was unlimited at any time
}

func newLimits(c *checker) *limits {
	return &limits{
		check: c, known: make(map[store.ID]*knownLimit), unset: make(map[store.Scope]bool), permits: make(map[claimed][]permit.Ref),
		given: make(map[permit.Ref][]time.Time), last: make(map[permit.Ref]time.Time), open: make(map[holdfast.TaskID]time.Time),
		leavers: make(map[permit.Ref]*leaver),
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
	clear(l.leavers)
	l.note()
}

// observe checks a change of a task.
func (l *limits) observe(change memory.Change) {
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
			l.resetLeavers(limit.ID)
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
		l.resetLeavers(id)
	}
	if leap := l.check.world.clock.leap; leap != l.leap {
		clear(l.given)
		l.resetLeavers(0)
		l.leap, l.leapt = leap, time.Now()
	}
}

// concerning returns the buckets of the limits that concern a task.
func (l *limits) concerning(t *memory.Task) (refs []permit.Ref) {
	for id, limit := range l.known {
		if name, concerned := limit.Bucket(&t.Task); concerned {
			refs = append(refs, permit.Ref{Gate: id, Bucket: name})
		}
	}
	return refs
}

// held returns the buckets of which a task has permits at its attempt.
func (l *limits) held(t *memory.Task) (refs []permit.Ref) {
	for _, p := range l.check.world.store.Permits() {
		if p.Task == t.ID && p.Attempt == t.Attempt {
			refs = append(refs, p.Ref)
		}
	}
	return refs
}

// checkClaim checks that a claimed task has a permit of each limit that concerns it and whose call has returned.
func (l *limits) checkClaim(t *memory.Task) {
	held := l.held(t)
	for _, ref := range l.concerning(t) {
		if limit := l.known[ref.Gate]; limit.answered && !slices.Contains(held, ref) && time.Since(l.leapt) > longestClaim {
			l.check.fail("task %s was claimed at attempt %d without a permit of the %s, which a person has set", t.ID, t.Attempt, limit.Scope)
		}
	}
	l.permits[claimOf(&t.Task)] = held
}

// checkRelease checks a task that was blocked at a limit and has left it. The task must have the permits of all limits
// that concern it, or be blocked elsewhere without a permit.
func (l *limits) checkRelease(before, after *memory.Task) {
	held := l.held(after)
	if after.Blocked() {
		if len(held) > 0 {
			l.check.fail("task %s is blocked at gate %s and has the permits %v", after.ID, after.Gate, held)
		}
		l.noteLeaver(before)
		return
	}
	l.admitted++
	l.check.rooms.admitted(after)
	for _, ref := range held {
		l.checkPassing(before, ref)
	}
	for _, ref := range l.concerning(after) {
		if !slices.Contains(held, ref) {
			l.check.fail("task %s was released from the %s without a permit of the %s", after.ID, l.known[before.Gate].Scope, l.known[ref.Gate].Scope)
		}
	}
	for _, ref := range held {
		l.checkRate(ref)
	}
}

// noteLeaver notes that a task has left a bucket. An older task that has left it before takes precedence.
func (l *limits) noteLeaver(t *memory.Task) {
	ref := permit.Ref{Gate: t.Gate, Bucket: t.Bucket}
	if l.stops(t) || !slices.Contains(l.concerning(t), ref) {
		return
	}
	was, found := l.leavers[ref]
	known := found && was.task == t.ID && was.since.Equal(t.BlockedAt)
	if known && !was.left.IsZero() || found && l.isBlocked(was) && was.precedes(t) {
		return
	}
	l.leavers[ref] = &leaver{task: t.ID, since: t.BlockedAt, left: time.Now()}
}

// precedes reports whether the task that has left a bucket is older than another one.
func (v *leaver) precedes(t *memory.Task) bool {
	return cmp.Or(v.since.Compare(t.BlockedAt), cmp.Compare(v.task, t.ID)) < 0
}

// isBlocked reports whether a limit still blocks a task that has left a bucket. The store releases the tasks of a limit
// that a person has unset one page after the other.
func (l *limits) isBlocked(v *leaver) bool {
	t := l.check.world.store.Task(v.task)
	return t != nil && t.Blocked() && t.BlockedAt.Equal(v.since) && l.known[t.Gate] != nil
}

// stops reports whether a pause or an open breaker concerns the task. Then no permit is kept for it.
func (l *limits) stops(t *memory.Task) bool {
	w := l.check.world
	return slices.ContainsFunc(w.store.Pauses(), func(gate store.Gate) bool { return gate.Selects(&t.Task) }) ||
		slices.ContainsFunc(l.check.breakers.concerning(t), func(b *knownBreaker) bool { return b.Breaker.ProbeAt.After(w.clock.now()) })
}

// resetLeavers notes a change of a limit, or of all limits if gate is 0. After it, no permit may be kept until the oldest
// task leaves the bucket again.
func (l *limits) resetLeavers(gate store.ID) {
	for ref, v := range l.leavers {
		if gate == 0 || ref.Gate == gate {
			v.left = time.Time{}
		}
	}
}

// checkPassing checks the last permit of a bucket that an older task of several limits left some time ago. A younger
// task must not get this permit.
func (l *limits) checkPassing(t *memory.Task, ref permit.Ref) {
	v, found := l.leavers[ref]
	limit := l.known[ref.Gate]
	if !found || limit == nil {
		return
	}
	if v.task == t.ID {
		if time.Since(v.left) > time.Second && !v.left.IsZero() {
			l.kept++
		}
		delete(l.leavers, ref)
		return
	}
	if !v.precedes(t) || limit.Concurrency == 0 || limit.Rate.Count > 0 || v.left.IsZero() || time.Since(v.left) <= longestPassing || !l.isBlocked(v) {
		return
	}
	if _, used := l.inUse(); used[ref] >= limit.Concurrency {
		l.check.fail("task %s got the last permit of the %s, bucket %q, although the older task %s left that %s ago because of another limit",
			t.ID, limit.Scope, ref.Bucket, v.task, time.Since(v.left))
	}
}

// noteStopped notes the tasks that a pause or a breaker stops. No permit is kept for them until they leave a bucket
// again.
func (l *limits) noteStopped() {
	for ref, v := range l.leavers {
		switch t := l.check.world.store.Task(v.task); {
		case !l.isBlocked(v):
			delete(l.leavers, ref)
		case l.stops(t):
			v.left = time.Time{}
		}
	}
}

// checkRate records a permit, and checks that no period up to now has had more permits than the rate allows.
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

// afterStep checks the numbers of running tasks, and finds tasks that stay blocked although they could get permits.
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
	l.noteStopped()
}

// inUse returns two numbers for each bucket: the running tasks that were claimed with its permit, and the tasks with a
// permit that run or may soon start.
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

// checkOpen checks that no task stays blocked at a limit or a breaker while all limits and breakers would let it start.
func (l *limits) checkOpen(used map[permit.Ref]int) {
	w := l.check.world
	tasks := w.store.Tasks()
	for i := range tasks {
		t := &tasks[i]
		givesPermits := l.known[t.Gate] != nil || l.check.breakers.known[t.Gate] != nil
		if !t.Blocked() || !givesPermits || !l.letsStart(t, used) || !l.check.rooms.letStart(t) {
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
func (l *limits) letsStart(t *memory.Task, used map[permit.Ref]int) bool {
	paused := slices.ContainsFunc(l.check.world.store.Pauses(), func(gate store.Gate) bool { return gate.Selects(&t.Task) })
	if paused || !l.check.breakers.letStart(t, used) {
		return false
	}
	return !slices.ContainsFunc(l.concerning(t), func(ref permit.Ref) bool {
		limit := l.known[ref.Gate]
		full := limit.Concurrency > 0 && used[ref] >= limit.Concurrency ||
			limit.Rate.Count > 0 && time.Since(l.last[ref]) <= limit.Rate.Interval()
		lastPermit := limit.Rate.Count > 0 || limit.Concurrency > 0 && used[ref]+1 >= limit.Concurrency
		return full || lastPermit && l.mayKeep(ref, t) // mayKeep reads all tasks
	})
}

// mayKeep reports whether the bucket may keep a permit for an older task that needs permits of several gates.
func (l *limits) mayKeep(ref permit.Ref, t *memory.Task) bool {
	tasks, limit := l.check.world.store.Tasks(), l.known[ref.Gate]
	for i := range tasks {
		other := &tasks[i]
		older := cmp.Or(other.BlockedAt.Compare(t.BlockedAt), cmp.Compare(other.ID, t.ID)) < 0
		if !older || !other.Blocked() {
			continue
		}
		bucket, concerned := limit.Bucket(&other.Task)
		if concerned && bucket == ref.Bucket && !l.stops(other) && len(l.concerning(other))+len(l.check.breakers.concerning(other)) > 1 {
			return true
		}
	}
	return false
}
