// Package permit decides which of the tasks that limits block get permits. It is the one place with the arithmetic of
// rates. The stores read the state of the buckets and the blocked tasks in a transaction, call Decide, and write what it
// returns.
package permit

import (
	"time"

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
// after the rate was changed.
func (b *Bucket) correct(now time.Time) {
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
// become free.
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
	return now
}

// IdleAt returns the time from which a bucket that blocks no task allows as much as a new one. Until then its state must
// be kept: otherwise each look would give it the credit of an idle time again.
func (b *Bucket) IdleAt() time.Time { return b.Allowed.Add(idleCredit) }

// Candidate is a blocked task.
type Candidate struct {
	At    Ref   // where it is blocked
	Needs []Ref // the limits that concern it and of which it has no permit
	// Closed is another closed gate that concerns the task, such as a pause, or 0. The task then gets no permit, so that
	// it does not use up what other tasks can use.
	Closed store.ID
}

// Outcome is what happens to a candidate.
type Outcome struct {
	Admitted bool // the task gets the permits that it needs
	To       Ref  // otherwise where it is blocked from now on
}

// Decide returns the outcome for each candidate, and counts the permits in the buckets. The candidates must be in the
// order in which they get permits. buckets has each bucket that they need. At most limit candidates are admitted; those
// behind them stay where they are.
func Decide(now time.Time, buckets map[Ref]*Bucket, candidates []Candidate, limit int) []Outcome {
	for _, b := range buckets {
		b.correct(now)
	}
	outcomes := make([]Outcome, len(candidates))
	for i, c := range candidates {
		if limit == 0 {
			outcomes[i].To = c.At
			continue
		}
		if to, blocked := c.blockedBy(now, buckets); blocked {
			outcomes[i].To = to
			continue
		}
		outcomes[i].Admitted = true
		limit--
		for _, ref := range c.Needs {
			buckets[ref].take(now)
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
		if buckets[ref].Free(now, 1) == 0 && (!blocked || ref == c.At) {
			by, blocked = ref, true
		}
	}
	return by, blocked
}
