// Package permit decides which blocked tasks get permits from limits and breakers. All rate arithmetic is in this
// package. A store reads the buckets and the blocked tasks in a transaction, calls Decide, and writes the outcomes and
// the changed buckets.
package permit

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Ref names a bucket of a limit. The bucket name is empty for all other gates.
type Ref struct {
	Gate   store.ID
	Bucket string
}

// Bucket is the state of a bucket. All times are from the clock of the store.
type Bucket struct {
	Rate        store.Rate
	Concurrency int
	InUse       int // number of permits that tasks have
	// NotBefore is the time before which a breaker gives no permit. It is zero for limits.
	NotBefore time.Time
	// Allowed is the time from which the rate allows the next start, by the generic cell rate algorithm (ITU-T I.371).
	// The zero value allows a start at any time.
	Allowed time.Time
	// Behind reports whether tasks have waited for the rate since the last decision. If they have, the bucket makes up
	// for starts that were missed because this decision is late.
	Behind bool
	// Reserved is the task for which the bucket keeps a permit, or the zero value.
	Reserved Reservation
}

// Reservation keeps one permit of a bucket, or the next start of its rate, for a blocked task. The task needs permits
// of several limits, and left this bucket because another limit had no free permit. Without a reservation, younger
// tasks could always take one of the permits, and the task would never start.
type Reservation struct {
	Task  holdfast.TaskID
	Since time.Time // when the task was blocked
	From  time.Time // when the task first left the bucket
}

// reserveAfter is how long a reservation has no effect. Most tasks get their permits in this time, and no permit stays
// idle. A task that needs three limits therefore loses permits to younger tasks for at most 4.5 s.
const reserveAfter = 1500 * time.Millisecond

// ReservedLook is the maximum time between two decisions about a bucket with a reservation. The reservation may have
// ended in between, for instance because a person has cancelled the task.
const ReservedLook = 100 * time.Millisecond

// precedes reports whether the task of the reservation takes precedence over the candidate.
func (r Reservation) precedes(c *Candidate) bool {
	return r.Task != 0 && cmp.Or(r.Since.Compare(c.Since), cmp.Compare(r.Task, c.Task)) < 0
}

// keeps reports whether the bucket keeps a permit for its reservation now.
func (b *Bucket) keeps(now time.Time) bool {
	return b.Reserved.Task != 0 && now.Sub(b.Reserved.From) >= reserveAfter
}

// allows reports whether the candidate can get a permit of the bucket.
func (b *Bucket) allows(now time.Time, c *Candidate) bool {
	least := 1
	if b.keeps(now) && b.Reserved.precedes(c) {
		least = 2
	}
	return b.Free(now, least) == least
}

// A bucket may make up for the starts of this much time: after it was idle, or after a late decision.
const (
	idleCredit = 100 * time.Millisecond
	lateCredit = time.Second
)

// Free returns how many more tasks may start now. The result is at most limit.
func (b *Bucket) Free(now time.Time, limit int) int {
	if b.NotBefore.After(now) {
		return 0
	}
	if b.Concurrency > 0 {
		limit = min(limit, b.Concurrency-b.InUse)
	}
	if b.Rate.Count > 0 {
		if first := b.first(now); first.After(now) {
			limit = 0
		} else {
			limit = min(limit, 1+int(now.Sub(first)/b.Rate.Interval()))
		}
	}
	return max(limit, 0)
}

// first returns the time from which the rate counts the next start. It is in the past if starts were missed.
func (b *Bucket) first(now time.Time) time.Time {
	credit := idleCredit
	if b.Behind {
		credit = lateCredit
	}
	if earliest := now.Add(-credit); b.Allowed.Before(earliest) {
		return earliest
	}
	return b.Allowed
}

// setBack is how far Allowed may lie beyond the next interval before the function correct changes it. The clocks of
// decisions in several processes can differ by a smaller time. Correcting that difference would exceed the rate.
const setBack = 2 * time.Second

// correct limits Allowed to one interval from now if it lies too far ahead, because the clock was set back or the rate
// was changed. It also ensures that a reservation does not begin in the future.
func (b *Bucket) correct(now time.Time) {
	if b.Reserved.From.After(now) {
		b.Reserved.From = now
	}
	if b.Rate.Count == 0 {
		return
	}
	if latest := now.Add(b.Rate.Interval()); b.Allowed.After(latest.Add(setBack)) {
		b.Allowed = latest
	}
}

// take gives one permit.
func (b *Bucket) take(now time.Time) {
	b.InUse++
	if b.Rate.Count > 0 {
		b.Allowed = b.first(now).Add(b.Rate.Interval())
	}
}

// Next returns the earliest time at which a task may start. It returns the zero time if a permit must become free
// first. If the only free permit is kept, it returns the time of the next decision.
func (b *Bucket) Next(now time.Time) time.Time {
	switch {
	case b.NotBefore.After(now):
		return b.NotBefore
	case b.Concurrency > 0 && b.InUse >= b.Concurrency:
		return time.Time{}
	case b.Rate.Count > 0:
		if first := b.first(now); first.After(now) {
			return first
		}
	}
	if b.keeps(now) && b.Free(now, 2) < 2 {
		return now.Add(ReservedLook)
	}
	return now
}

// IdleAt returns when a bucket that blocks no task becomes equal to a new one. The store keeps the bucket until then.
// Otherwise each decision would grant the idle credit again.
func (b *Bucket) IdleAt() time.Time { return b.Allowed.Add(idleCredit) }

// Candidate is a blocked task.
type Candidate struct {
	Task  holdfast.TaskID
	Since time.Time // when it was blocked
	Tried bool      // an attempt of it has begun before
	At    Ref       // the gate that blocks it
	Needs []Ref     // the limits from which it still needs a permit
	// Closed is a closed gate of another kind, such as a pause, or 0. Decide gives the task no permit while it is set,
	// because other tasks can use the permit.
	Closed store.ID
	// Rooms are the numbers of tasks that may still get permits: of the queue of the task, and of its topic. Candidates
	// share them. Without Rooms, only the buckets limit the candidate.
	Rooms []*int
}

// Outcome is what happens to a candidate.
type Outcome struct {
	Admitted bool // the task gets all permits that it needs
	NoRoom   bool // the gates would admit the task, but its queue or its topic has no room
	To       Ref  // the gate that blocks a task that is not admitted
}

// Decide returns the outcome for each candidate, and updates permits and reservations in the buckets. The candidates
// must be sorted by Since and Task; earlier ones get permits first, except from breakers; see probes. buckets must have
// each bucket that a candidate needs. Decide admits at most limit candidates, and reduces their Rooms. The gates of the
// candidates after these do not change.
func Decide(now time.Time, buckets map[Ref]*Bucket, candidates []Candidate, limit int) []Outcome {
	for _, b := range buckets {
		b.correct(now)
	}
	outcomes := make([]Outcome, len(candidates))
	for _, i := range order(now, buckets, candidates) {
		c := &candidates[i]
		if limit == 0 {
			outcomes[i].To = c.At
			continue
		}
		if to, blocked := c.blockedBy(now, buckets); blocked {
			outcomes[i].To = to
			c.reserve(now, buckets, to)
			continue
		}
		if slices.ContainsFunc(c.Rooms, func(room *int) bool { return *room <= 0 }) {
			outcomes[i] = Outcome{NoRoom: true, To: c.At}
			continue
		}
		outcomes[i].Admitted = true
		limit--
		for _, room := range c.Rooms {
			*room--
		}
		for _, ref := range c.Needs {
			b := buckets[ref]
			b.take(now)
			if b.Reserved.Task == c.Task {
				b.Reserved = Reservation{}
			}
		}
	}
	return outcomes
}

// order returns the indices of the candidates in the order in which they get permits. The candidates that need a permit
// of one breaker swap places among themselves.
func order(now time.Time, buckets map[Ref]*Bucket, candidates []Candidate) []int {
	order, places := make([]int, len(candidates)), make(map[Ref][]int)
	for i := range candidates {
		order[i] = i
		if at := slices.IndexFunc(candidates[i].Needs, func(ref Ref) bool { return !buckets[ref].NotBefore.IsZero() }); at >= 0 {
			places[candidates[i].Needs[at]] = append(places[candidates[i].Needs[at]], i)
		}
	}
	for _, of := range places {
		for place, i := range probes(now, candidates, of) {
			order[of[place]] = i
		}
	}
	return order
}

// probes returns the indices of candidates of one breaker in the order in which they become probes. A target may work
// although it fails for many tasks, so the first probes differ in age. The newest untried task comes first, then the
// oldest one. The third probe is, by chance, a tried task or the untried task in the middle: a tried task may succeed
// now, and the middle may have good tasks if both ends have bad ones. The next three probes follow the same rule. When
// there is no untried task left, the tried ones follow in the order in which they were blocked: a probe that has failed
// is blocked again later.
func probes(now time.Time, candidates []Candidate, of []int) (order []int) {
	var untried, tried []int
	for _, i := range of {
		if candidates[i].Tried {
			tried = append(tried, i)
		} else {
			untried = append(untried, i)
		}
	}
	slices.SortFunc(untried, func(a, b int) int { return cmp.Compare(candidates[a].Task, candidates[b].Task) })
	take := func(from *[]int, at int) {
		order = append(order, (*from)[at])
		*from = slices.Delete(*from, at, at+1)
	}
	for turn := 0; len(untried) > 0; turn++ {
		switch {
		case turn%3 == 0:
			take(&untried, len(untried)-1)
		case turn%3 == 1:
			take(&untried, 0)
		case len(tried) > 0 && (now.UnixMicro()+int64(turn/3))%2 == 0:
			take(&tried, 0)
		default:
			take(&untried, len(untried)/2)
		}
	}
	return append(order, tried...)
}

// blockedBy returns the gate that blocks the candidate. If several do, it prefers the gate that blocks the candidate
// now.
func (c *Candidate) blockedBy(now time.Time, buckets map[Ref]*Bucket) (by Ref, blocked bool) {
	if c.Closed != 0 {
		return Ref{Gate: c.Closed}, true
	}
	for _, ref := range c.Needs {
		if !buckets[ref].allows(now, c) && (!blocked || ref == c.At) {
			by, blocked = ref, true
		}
	}
	return by, blocked
}

// reserve reserves a permit of the bucket that the candidate leaves. A bucket has one reservation, and that of an older
// task takes precedence. reserve does nothing while the candidate waits for the next probe of a breaker. A breaker has
// no reservations, because its next probe may reset it.
func (c *Candidate) reserve(now time.Time, buckets map[Ref]*Bucket, to Ref) {
	waits := func(ref Ref) bool { return buckets[ref].NotBefore.After(now) }
	if c.Closed != 0 || to == c.At || !slices.Contains(c.Needs, c.At) || slices.ContainsFunc(c.Needs, waits) {
		return
	}
	b := buckets[c.At]
	if b.NotBefore.IsZero() && b.Reserved.Task != c.Task && !b.Reserved.precedes(c) {
		b.Reserved = Reservation{Task: c.Task, Since: c.Since, From: now}
	}
}
