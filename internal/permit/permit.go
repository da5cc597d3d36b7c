// Package permit decides which of the tasks that limits block get permits. It is the one place with the arithmetic of
// rates. The stores read the state of the buckets and the blocked tasks in a transaction, call Decide, and write what it
// returns.
package permit

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Ref names a bucket of a limit. For other gates, the name of the bucket is empty.
type Ref struct {
	Gate   store.ID
	Bucket string
}

// Bucket is the state of a bucket. The times are by the clock of the store.
type Bucket struct {
	Rate        store.Rate
	Concurrency int
	InUse       int // number of permits
	// NotBefore is the time before which a breaker gives no permit. It is zero for limits.
	NotBefore time.Time
	// Allowed is the time from which the rate allows the next start, as the generic cell rate algorithm (ITU-T I.371)
	// computes it. The zero value allows it at any time.
	Allowed time.Time
	// Behind says that the rate has made tasks wait since the last decision. Then starts that a late decision has missed
	// are made up for.
	Behind bool
	// Reserved is the task for which the bucket keeps a permit, or the zero value.
	Reserved Reservation
}

// Reservation is a claim of a blocked task to one permit of a bucket, or to the next start of a rate. The task needs
// permits of several limits, and left the bucket because another limit had none. Without a reservation, younger tasks
// could take a permit of one limit whenever one of the other is free, so that the task never starts.
type Reservation struct {
	Task  holdfast.TaskID
	Since time.Time // since when the task is blocked
	From  time.Time // when the task first left the bucket
}

// reserveAfter is how long after Reservation.From younger tasks still get all permits. In most cases, the task gets its
// permits meanwhile, and no permit is kept idle. A task of three limits thus waits for at most 4.5 s of permits that younger
// tasks take of limits that it has left.
const reserveAfter = 1500 * time.Millisecond

// ReservedLook is the longest time from one look to the next at a bucket with a reservation. The reservation may have
// ended, for instance because a person has cancelled the task.
const ReservedLook = 100 * time.Millisecond

// precedes reports whether the task of the reservation gets permits before the candidate.
func (r Reservation) precedes(c *Candidate) bool {
	return r.Task != 0 && cmp.Or(r.Since.Compare(c.Since), cmp.Compare(r.Task, c.Task)) < 0
}

// keeps reports whether the bucket keeps a permit.
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

// How many starts a bucket may make up for, as a time: after an idle time, and after a late decision.
const (
	idleCredit = 100 * time.Millisecond
	lateCredit = time.Second
)

// Free returns how many more tasks the bucket allows to start, at most limit.
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

// first returns the time that the next start counts as.
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

// setBack is how much later than one interval the next start may be without a correction. Decisions of several processes
// can differ by less, and a needless correction would exceed the rate.
const setBack = 2 * time.Second

// correct makes the next start wait for about one interval at most. It waits longer only after a clock was set back, or
// after the rate was changed. A reservation does not begin later than now.
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

// take counts one more permit.
func (b *Bucket) take(now time.Time) {
	b.InUse++
	if b.Rate.Count > 0 {
		b.Allowed = b.first(now).Add(b.Rate.Interval())
	}
}

// Next returns the time from which the bucket allows the next start. It is zero if the bucket waits for a permit to
// become free. If the only free permit is kept, it is the time of the next look.
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

// IdleAt returns the time from which a bucket that blocks no task allows as much as a new one. Until then its state must
// be kept: otherwise each look would give it the credit of an idle time again.
func (b *Bucket) IdleAt() time.Time { return b.Allowed.Add(idleCredit) }

// Candidate is a blocked task.
type Candidate struct {
	Task  holdfast.TaskID
	Since time.Time // since when it is blocked
	At    Ref       // where it is blocked
	Needs []Ref     // the limits that concern it and of which it has no permit
	// Closed is another closed gate that concerns the task, such as a pause, or 0. The task then gets no permit, so that
	// it does not use up what other tasks can use.
	Closed store.ID
}

// Outcome is what happens to a candidate.
type Outcome struct {
	Admitted bool // the task gets the permits that it needs
	To       Ref  // otherwise where it is blocked from now on
}

// Decide returns the outcome for each candidate, and counts the permits and changes the reservations in the buckets. The
// candidates must be in the order of Since and Task, in which they get permits. buckets has each bucket that they need. At
// most limit candidates are admitted; those behind them stay where they are.
func Decide(now time.Time, buckets map[Ref]*Bucket, candidates []Candidate, limit int) []Outcome {
	for _, b := range buckets {
		b.correct(now)
	}
	outcomes := make([]Outcome, len(candidates))
	for i := range candidates {
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
		outcomes[i].Admitted = true
		limit--
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

// blockedBy returns the gate that blocks the candidate. It prefers the one where the candidate is blocked already.
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

// reserve reserves a permit of the limit that the candidate leaves, although the limit has a permit for it. The bucket
// can have a reservation for one task, and an older task takes precedence. Nothing is reserved while the candidate waits
// for the next probe of a breaker. A breaker itself keeps no probe: the next one may close it.
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
