package explain

import (
	"fmt"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// rateCredit is the maximum time by which a limit may start tasks earlier than its rate allows, to make up for starts
// that it has missed.
const rateCredit = time.Second

// isBlocked reports whether the limit or breaker blocks the task. Otherwise no worker has taken the task's ticket yet,
// or another limit blocks the task.
func isBlocked(l store.TaskLimit) bool {
	return l.Ahead < l.Blocked || l.Blocked >= store.MaxCountedBlocked
}

// whyLimited describes a limit from which the task needs a permit.
func (f *Facts) whyLimited(l store.TaskLimit) string {
	text := l.Scope.String()
	if l.Bucket != "" {
		text += fmt.Sprintf(", %s %s", l.Per, l.Bucket)
	}
	if l.Rate.Count > 0 {
		text += fmt.Sprintf(" (%s)", l.Rate)
	}
	if !f.isDue() || f.waitsForSlot() {
		return "then it needs a permit of " + text
	}
	text += ": "
	if l.Concurrency > 0 {
		text += fmt.Sprintf("%d of %s in use, ", l.InUse, count(l.Concurrency, "permit"))
	}
	if f.lacksRoom(l) {
		text += "the queue gives permits as its executors become free, "
	}
	return text + place(l) + wait(l) + f.kept(l)
}

// lacksRoom reports whether the limit has a free permit for the task, but at least as many permits are in use as the
// queue of the task has executors. A queue has room for few more.
func (f *Facts) lacksRoom(l store.TaskLimit) bool {
	executors := 0
	for _, w := range f.Workers {
		if !w.Draining && takes(w, f.Task.Queue) {
			executors += w.Concurrency
		}
	}
	return isBlocked(l) && l.Concurrency > 0 && l.Reserved == 0 && l.InUse+l.Ahead < l.Concurrency && l.InUse >= executors
}

// kept describes the reservation of the limit.
func (f *Facts) kept(l store.TaskLimit) string {
	switch l.Reserved {
	case 0:
		return ""
	case f.Task.ID:
		return "; a permit is kept for it, because it waits for another limit too"
	}
	return fmt.Sprintf("; a permit is kept for task %s, which waits for another limit too", l.Reserved)
}

// whyBroken describes a breaker from which the task needs a permit.
func (f *Facts) whyBroken(l store.TaskLimit) string {
	state := l.Breaker.State(f.Now)
	text := fmt.Sprintf("the breaker of the target %s tripped %s ago and is %s", l.Target, rounded(f.Now.Sub(l.SetAt)), state)
	if l.Reason != "" {
		text += fmt.Sprintf("; the last fault: %s", l.Reason)
	}
	if state == store.BreakerOpen {
		text += fmt.Sprintf("; the next probes start in %s", rounded(l.Breaker.ProbeAt.Sub(f.Now)))
	} else {
		text += fmt.Sprintf("; %d of %s in progress", l.InUse, count(l.Breaker.Probes, "probe"))
	}
	if f.isDue() && !f.waitsForSlot() {
		more := ""
		if l.Blocked >= store.MaxCountedBlocked {
			more = " or more"
		}
		waits := "wait"
		if l.Blocked == 1 {
			waits = "waits"
		}
		text += fmt.Sprintf(", %s%s %s", count(l.Blocked, "task"), more, waits) // a breaker has no order to show: probes differ in age
	}
	return text + "; when the target works, the tasks start by themselves"
}

// place describes how many tasks get a permit before the task.
func place(l store.TaskLimit) string {
	more, are := "", "are"
	if l.Blocked >= store.MaxCountedBlocked {
		more = " or more"
	}
	if l.Ahead == 1 {
		are = "is"
	}
	switch {
	case l.Ahead == 0:
		return "no task is ahead"
	case l.Ahead == l.Blocked:
		return fmt.Sprintf("%s%s %s ahead", count(l.Ahead, "task"), more, are)
	}
	return fmt.Sprintf("%d of %s%s %s ahead", l.Ahead, count(l.Blocked, "task"), more, are)
}

// wait describes how long the tasks ahead delay the task, by the rate of the limit.
func wait(l store.TaskLimit) string {
	if l.Rate.Count == 0 {
		return ""
	}
	least, most := time.Duration(l.Ahead)*l.Rate.Interval(), time.Duration(l.Ahead+1)*l.Rate.Interval()
	from, to := least.Round(time.Second), most.Round(time.Second)
	switch {
	case l.Concurrency > 0 && from == 0:
		return ""
	case l.Concurrency > 0:
		return fmt.Sprintf(", at least %s", from)
	case most < time.Second:
		return ", less than a second"
	case from == to:
		return fmt.Sprintf(", about %s", from)
	}
	return fmt.Sprintf(", about %s to %s", from, to)
}

// afterLimits returns when the task can start with its limits, given when it could start without them. It returns the
// zero time if that depends on the end of an attempt.
func (f *Facts) afterLimits(next time.Time) time.Time {
	if next.IsZero() || !f.isDue() {
		return next
	}
	for _, l := range f.Limited {
		kept := 0
		if l.Reserved != 0 && l.Reserved != f.Task.ID {
			kept = 1
		}
		if l.Concurrency > 0 && l.InUse+l.Ahead+kept >= l.Concurrency || f.lacksRoom(l) {
			return time.Time{} // the end of an attempt cannot be predicted
		}
		if l.Rate.Count > 0 {
			next = latest(next, f.earliest(l))
		}
		if l.Breaker != nil {
			next = latest(next, l.Breaker.ProbeAt)
		}
	}
	return next
}

// earliest returns the earliest time at which the rate of a limit lets the task start.
func (f *Facts) earliest(l store.TaskLimit) time.Time {
	return latest(f.Now, f.after(float64(l.Ahead), l.Rate.PerSecond()).Add(-rateCredit))
}

// limitBacklog estimates the start of a task that waits for permits. With its permits, the task still waits in its
// queue; queue is the estimate of that time, or nil. limitBacklog returns nil if a limit has a concurrency, or keeps a
// permit for another task: the start then depends on the end of attempts.
func (f *Facts) limitBacklog(queue *Backlog) (b *Backlog) {
	in := backlogDelay
	if queue != nil {
		in = queue.Latest.Sub(f.Now)
	}
	for _, l := range f.Limited {
		if l.Concurrency > 0 || l.Reserved != 0 && l.Reserved != f.Task.ID {
			return nil
		}
		rate := l.Rate.PerSecond()
		one := Backlog{Due: int64(l.Ahead) + 1, Rate: rate, Earliest: f.earliest(l), Latest: f.after(float64(l.Ahead+1), rate).Add(in)}
		if b != nil && b.Latest.After(one.Latest) {
			one, *b = *b, one
		}
		if b != nil {
			one.Earliest = latest(one.Earliest, b.Earliest)
		}
		b = &one
	}
	return b
}
