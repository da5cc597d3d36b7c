// Package explain says why a task does not run, what happens to it next, and what ends it.
//
// It reads the facts that decide this in the services, and computes with the functions that they use: [holdfast.Settle]
// and the retry policy. So an explanation cannot differ from what happens, unless something changes in between, or a
// worker has other settings than the caller.
package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Code identifies a cause. Codes are stable, for programs.
type Code string

// The causes, in the order in which an explanation lists them.
const (
	Final        Code = "final"         // the task has ended
	Running      Code = "running"       // a live worker runs the task
	Stuck        Code = "stuck"         // its handler still runs although its context has ended
	LeaseExpired Code = "lease_expired" // its worker is dead or does not renew its lease
	NotDue       Code = "not_due"       // its time has not come
	NoWorker     Code = "no_worker"     // no live worker takes tasks of the queue
	Unhandled    Code = "unhandled"     // no live worker of the queue has a handler for the type
	WorkersDrain Code = "workers_drain" // all workers of the queue are draining
	Parked       Code = "parked"        // the worker that got its ticket has no handler for the type
	LastChance   Code = "last_chance"   // one more crash makes it dead, so a worker runs it exclusively
	NotPublished Code = "not_published" // its ticket is not published yet
	Waiting      Code = "waiting"       // its ticket waits in the queue, or in a worker without capacity
)

// Cause is one reason why a task does not run or does not end.
type Cause struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	// Until is when the cause ends by itself. It is zero if it does not, or if that time is not known.
	Until time.Time `json:"until,omitzero"`
}

// Facts is what an explanation is made of. Now is a time of the store's clock.
type Facts struct {
	Now      time.Time
	Task     holdfast.Task
	Attempts []holdfast.Attempt // the recorded ones, oldest first
	Position store.Position     // of the ticket of the current attempt
	Queue    store.Queue        // the queue of the task
	Workers  []store.Worker     // those that are live
	Settings holdfast.TypeSettings
}

// Explanation is the answer.
type Explanation struct {
	Task  holdfast.TaskID `json:"task"`
	State holdfast.State  `json:"state"`
	// Causes are why the task does not run or does not end, the first of them decisive.
	Causes []Cause `json:"causes"`
	// Next are the things that happen next, each with its condition.
	Next []string `json:"next"`
	// Limits are what makes the task dead if it is used up.
	Limits []string `json:"limits"`
	// NextStart is when the next attempt is due. It is zero unless the task is ready.
	NextStart time.Time `json:"next_start,omitzero"`
}

// Of explains a task.
func Of(f Facts) Explanation {
	e := Explanation{Task: f.Task.ID, State: f.Task.State, Causes: []Cause{}, Next: []string{}, Limits: []string{}}
	switch f.Task.State {
	case holdfast.Ready:
		e.Causes = f.whyReady()
		if e.NextStart = f.Now; !f.isDue() {
			e.NextStart = f.Task.NextRunAt
		}
		e.Next = f.outcomes("the next attempt")
		e.Limits = f.limits()
	case holdfast.Running:
		e.Causes = []Cause{f.whyRunning()}
		e.Next = f.outcomes("this attempt")
		e.Limits = f.limits()
	default:
		e.Causes = []Cause{{Code: Final, Text: f.whyFinal()}}
		e.Next = f.afterTheEnd()
	}
	return e
}

// whyReady returns the causes of a task that is ready.
func (f *Facts) whyReady() (causes []Cause) {
	add := func(code Code, until time.Time, format string, args ...any) {
		causes = append(causes, Cause{code, fmt.Sprintf(format, args...), until})
	}
	due := f.isDue()
	if !due && f.Task.Parked == "" {
		add(NotDue, f.Task.NextRunAt, "attempt %d is due in %s, %s", f.Task.Attempt, rounded(f.Task.NextRunAt.Sub(f.Now)), f.whyDelayed())
	}
	takers := slices.DeleteFunc(slices.Clone(f.Workers), func(w store.Worker) bool {
		return len(w.Queues) > 0 && !slices.Contains(w.Queues, f.Task.Queue)
	})
	draining := func(w store.Worker) bool { return w.Draining }
	handles := func(w store.Worker) bool { return w.Types == nil || slices.Contains(w.Types, f.Task.Type) }
	switch {
	case len(takers) == 0:
		add(NoWorker, time.Time{}, "no live worker takes tasks of the queue %s", f.Task.Queue)
	case !slices.ContainsFunc(takers, handles):
		add(Unhandled, time.Time{}, "no live worker of the queue %s has a handler for the type %s", f.Task.Queue, f.Task.Type)
	case !slices.ContainsFunc(takers, func(w store.Worker) bool { return handles(w) && !draining(w) }):
		add(WorkersDrain, time.Time{}, "every worker of the queue %s that handles the type %s is draining", f.Task.Queue, f.Task.Type)
	}
	switch {
	case f.Task.Parked != "" && !due:
		add(Parked, f.Task.NextRunAt, "parked: %s; it gets another ticket in %s", f.Task.Parked, rounded(f.Task.NextRunAt.Sub(f.Now)))
	case f.Task.Parked != "":
		add(Parked, time.Time{}, "it was parked: %s; it gets another ticket now", f.Task.Parked)
	}
	if f.isLastChance() {
		add(LastChance, time.Time{}, "%s crashed its worker, and the next crash makes it dead; so a worker runs it only while no other task is in progress",
			count(f.Task.Crashes, "attempt"))
	}
	if !due {
		return causes
	}
	if !f.Position.Ticketed {
		add(NotPublished, time.Time{}, "it has no ticket yet; a janitor publishes one as soon as the broker accepts it")
		return causes
	}
	capacity := 0
	for _, w := range takers {
		if handles(w) && !draining(w) {
			capacity += w.Concurrency
		}
	}
	add(Waiting, time.Time{}, "its ticket is in the queue or in the outbox; tasks of this queue that are due: %d, running: %d, at once at most: %d",
		f.Queue.Due, f.Queue.Running, capacity)
	return causes
}

// isDue reports whether the time of a ready task has come. A worker claims a task that has a ticket also if its time lies
// ahead, as it can after the store's clock was set back.
func (f *Facts) isDue() bool { return f.Position.Ticketed || !f.Task.NextRunAt.After(f.Now) }

// whyDelayed returns why a task is due in the future.
func (f *Facts) whyDelayed() string {
	if f.Task.Attempt == 1 {
		return "as it was enqueued"
	}
	before := f.Task.Attempt - 1
	i := slices.IndexFunc(f.Attempts, func(a holdfast.Attempt) bool { return a.Attempt == before })
	if i < 0 {
		return fmt.Sprintf("after attempt %d, of which there is no record", before)
	}
	switch f.Attempts[i].Event {
	case holdfast.EventRetry:
		return fmt.Sprintf("after failure %d of %d", f.Task.Failures, f.maxAttempts())
	case holdfast.EventDefer:
		return "because the handler deferred it"
	case holdfast.EventCrash:
		return fmt.Sprintf("after crash %d of %d", f.Task.Crashes, f.Settings.Policy.MaxCrashes)
	}
	return fmt.Sprintf("after attempt %d was handed back", before)
}

func (f *Facts) whyRunning() Cause {
	name := fmt.Sprintf("worker %s", f.Task.Worker)
	since := rounded(f.Now.Sub(f.Task.StartedAt))
	i := slices.IndexFunc(f.Workers, func(w store.Worker) bool { return w.ID == f.Task.Worker })
	if i < 0 {
		return Cause{LeaseExpired, fmt.Sprintf("%s claimed attempt %d %s ago and has ended; a janitor makes the task ready again", name, f.Task.Attempt, since), time.Time{}}
	}
	w := f.Workers[i]
	name += fmt.Sprintf(" (%s, process %d on %s)", w.Name, w.PID, w.Host)
	if w.LeaseUntil.Before(f.Now) {
		return Cause{LeaseExpired, fmt.Sprintf("%s runs attempt %d, but its lease expired %s ago; a janitor fences it and makes the task ready again",
			name, f.Task.Attempt, rounded(f.Now.Sub(w.LeaseUntil))), time.Time{}}
	}
	if f.Task.Buffered {
		return Cause{Running, fmt.Sprintf("%s claimed attempt %d %s ago; the attempt starts when an executor is free", name, f.Task.Attempt, since), time.Time{}}
	}
	if i := slices.IndexFunc(w.Report.Stuck, func(s store.StuckTask) bool { return s.Task == f.Task.ID && s.Attempt == f.Task.Attempt }); i >= 0 {
		return f.whyStuck(name, since, w.RenewedAt.Add(-w.Report.Stuck[i].For))
	}
	cause := Cause{Running, fmt.Sprintf("%s has run attempt %d for %s", name, f.Task.Attempt, since), time.Time{}}
	if f.Settings.Timeout > 0 {
		cause.Until = f.Task.StartedAt.Add(f.Settings.Timeout)
		cause.Text += fmt.Sprintf("; its time limit is %s", f.Settings.Timeout)
	}
	return cause
}

// whyStuck returns the cause of a task whose handler has ignored the end of its context since the given time.
func (f *Facts) whyStuck(worker string, since time.Duration, ended time.Time) Cause {
	cause := Cause{Stuck, fmt.Sprintf("%s has run attempt %d for %s; its context ended %s ago, and its handler ignores that",
		worker, f.Task.Attempt, since, rounded(f.Now.Sub(ended))), time.Time{}}
	if limit := f.Settings.AbandonAfter; limit > 0 {
		cause.Until = latest(ended.Add(limit), f.Now)
		cause.Text += fmt.Sprintf("; in %s the worker gives the attempt up", rounded(cause.Until.Sub(f.Now)))
	} else {
		cause.Text += "; abandon_after is not set for its type, so the worker waits for it"
	}
	return cause
}

func (f *Facts) whyFinal() string {
	ended := rounded(f.Now.Sub(f.Task.FinishedAt))
	if len(f.Attempts) == 0 || f.Task.State != holdfast.Dead {
		return fmt.Sprintf("it has been %s for %s", f.Task.State, ended)
	}
	last := f.Attempts[len(f.Attempts)-1]
	return fmt.Sprintf("it died %s ago: %s", ended, strings.TrimSuffix(fmt.Sprintf("%s: %s", last.Class, last.Error), ": "))
}

// afterTheEnd returns what can happen to a task in a final state.
func (f *Facts) afterTheEnd() []string {
	var events []string
	for event, can := range map[holdfast.Event]string{
		holdfast.EventRequeue: "an operator can retry it, with all its attempts",
		holdfast.EventArchive: "an operator can archive it",
		holdfast.EventRestore: "an operator can restore it",
		holdfast.EventCancel:  "an operator can cancel it",
	} {
		if holdfast.Allowed(event, f.Task.State) {
			events = append(events, can)
		}
	}
	slices.Sort(events)
	return append([]string{}, events...)
}

// Result returns what follows a result of an attempt, as the list Explanation.Next says it.
func Result(move holdfast.Transition) string {
	switch {
	case move.To != holdfast.Ready:
		return "the task is " + string(move.To)
	case move.Wait == 0:
		return fmt.Sprintf("attempt %d is due at once", move.NextAttempt)
	}
	return fmt.Sprintf("attempt %d is due %s later", move.NextAttempt, rounded(move.Wait))
}

// outcomes returns what happens after an attempt, by its result. It settles the task as the worker would.
func (f *Facts) outcomes(attempt string) []string {
	running := f.Task
	running.State = holdfast.Running // a task that is ready is not Buffered
	settle := func(cause holdfast.Cause) string {
		move, err := holdfast.Settle(running, cause, latest(f.Task.NextRunAt, f.Now), f.Settings.Policy)
		if err != nil {
			return err.Error()
		}
		return Result(move)
	}
	return []string{
		fmt.Sprintf("if %s succeeds, %s", attempt, settle(holdfast.Returned(nil))),
		fmt.Sprintf("if %s fails, %s", attempt, settle(holdfast.Returned(errors.New("a failure")))),
		fmt.Sprintf("if its worker crashes, %s", settle(holdfast.Crashed(f.Task.Worker))),
	}
}

// limits returns the limits of a task that is not final.
func (f *Facts) limits() []string {
	p := f.Settings.Policy
	limits := []string{
		fmt.Sprintf("%d of %s used", f.Task.Failures, count(f.maxAttempts(), "failure")),
		fmt.Sprintf("%d of %s used", f.Task.Crashes, count(p.MaxCrashes, "crash")),
		fmt.Sprintf("%d of %s used", f.Task.Deferrals, count(p.MaxDeferrals, "deferral")),
	}
	if p.Deadline > 0 {
		limits = append(limits, fmt.Sprintf("no attempt starts after %s", f.Task.CreatedAt.Add(p.Deadline).UTC().Format(time.RFC3339)))
	}
	return limits
}

func (f *Facts) maxAttempts() int {
	if f.Task.MaxAttempts > 0 {
		return f.Task.MaxAttempts
	}
	return f.Settings.Policy.MaxAttempts
}

// isLastChance reports whether one more crash makes the task dead.
func (f *Facts) isLastChance() bool {
	return f.Task.Crashes > 0 && f.Task.Crashes >= f.Settings.Policy.MaxCrashes-1
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rounded returns a duration with a precision that a person reads.
func rounded(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// count returns a number with a noun, in the plural if necessary.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "sh"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
