// Package explain explains why a task does not run, what happens to it next, and what ends it.
//
// It reads the facts that the services decide by, and computes with the same functions: [holdfast.Settle] and the retry
// policy. It uses the settings that the workers publish. So an explanation is right unless something changes after it.
package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Code identifies a cause for programs. Codes do not change between releases.
type Code string

// The causes, in the order in which an explanation lists them.
const (
	Final        Code = "final"         // the task has ended
	Running      Code = "running"       // a live worker runs the task
	Stuck        Code = "stuck"         // its handler still runs although its context has ended
	LeaseExpired Code = "lease_expired" // its worker is dead or does not renew its lease
	Doomed       Code = "doomed"        // an earlier ordered task of its key is dead, and it dies without an attempt
	Ordered      Code = "ordered"       // it waits until the earlier ordered tasks of its key have ended
	NotDue       Code = "not_due"       // its due time lies in the future
	Topic        Code = "topic"         // it waits for a slot, which its topic shares with others
	Paused       Code = "paused"        // a person has paused its queue, its type or its target
	Broken       Code = "breaker"       // its target fails, and it needs a permit of the breaker
	Limited      Code = "limited"       // it needs a permit of a limit
	NoWorker     Code = "no_worker"     // no live worker takes tasks of the queue
	Unhandled    Code = "unhandled"     // no live worker of the queue has a handler for the type
	WorkersDrain Code = "workers_drain" // all workers of the queue are draining
	Parked       Code = "parked"        // the worker that received its ticket has no handler for the type
	LastChance   Code = "last_chance"   // one more crash makes it dead, so a worker runs it exclusively
	NotPublished Code = "not_published" // its ticket is not published yet
	Waiting      Code = "waiting"       // its ticket waits in the queue, or in a worker without capacity
)

// Cause is one reason why a task does not run, or why it does not end.
type Cause struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	// Until is when the cause ends without an action of a person. It is zero if that time is not known.
	Until time.Time `json:"until,omitzero"`
}

// Facts are the input of an explanation. Now is the time of the store's clock.
type Facts struct {
	Now      time.Time
	Task     holdfast.Task
	Attempts []holdfast.Attempt // the recorded attempts, oldest first
	Position store.Position     // of the ticket of the current attempt
	Queue    store.Queue        // the subqueue of the task
	Gates    []store.Gate       // the pauses that concern the task
	Limited  []store.TaskLimit  // the limits and breakers from which the task needs a permit
	Place    *store.KeyPlace    // of an ordered task that is active or waits for its turn; nil for all other tasks
	Slot     *store.TopicPlace  // of a task that waits for a slot of its topic; nil for all other tasks
	Workers  []store.Worker     // live workers
	Schedule *OriginFacts       // of a task whose unique key names a schedule; nil for all other tasks
	Source   *OriginFacts       // of a task whose unique key names a source; nil for all other tasks
	Values   []store.Datum      // the progress of a task that is running
	// Edits are the changes of the task in the audit log, newest first; an old one may be missing.
	Edits []store.AuditEntry
	// Settings are the settings of the process that explains. They apply if no worker publishes settings for the type.
	Settings holdfast.TypeSettings
	// Ages are the ages after which a janitor with the settings of that process deletes tasks.
	Ages store.PruneAges

	settledBy string // the worker whose settings apply, if other workers have different settings; else ""
	policyFor bool   // a function in the program of that worker may choose another policy
}

// Explanation is what a person or a program reads about a task.
type Explanation struct {
	Task  holdfast.TaskID `json:"task"`
	State holdfast.State  `json:"state"`
	// Causes are the reasons why the task does not run or does not end. The first one is decisive.
	Causes []Cause `json:"causes"`
	// Attempts are the recorded attempts, oldest first.
	Attempts []holdfast.Attempt `json:"attempts"`
	// Next lists the possible next events, each with its condition.
	Next []string `json:"next"`
	// Limits lists the limits of failures, crashes, deferrals and time, after which the task becomes dead.
	Limits []string `json:"limits"`
	// NextStart is when the next attempt is due. It is zero if the task is not ready, or waits for a gate without an
	// end, a permit, a slot or its turn.
	NextStart time.Time `json:"next_start,omitzero"`
	// Backlog estimates the start of a task that waits behind others, in a queue or at a limit with a rate. It is nil
	// for other tasks, if no live worker has run a task of the queue, or if a limit has a concurrency.
	Backlog *Backlog `json:"backlog,omitempty"`
	// Schedule is the schedule that has made the task. It is nil if the unique key of the task names none.
	Schedule *Origin `json:"schedule,omitempty"`
	// Slice is the slice of a source that the task pulls. It is nil if the unique key of the task names none.
	Slice *SliceOrigin `json:"slice,omitempty"`
	// Pass is the pass of a shard job that the task runs. It is nil if the unique key of the task names none.
	Pass *Pass `json:"pass,omitempty"`
	// Batch is the batch to which the task belongs, or nil.
	Batch *BatchOrigin `json:"batch,omitempty"`
}

// Backlog is an estimate of when a task starts. It is computed from the recent throughput of the workers that take the
// task, or from the rate of a limit.
type Backlog struct {
	Due      int64     `json:"due"`      // due tasks of the queue, or tasks that wait for the limit; both include this task
	Rate     float64   `json:"rate"`     // due tasks of the queue, or tasks that wait for the limit
	Earliest time.Time `json:"earliest"` // attempts per second that the workers can end or the limit allows
	Latest   time.Time `json:"latest"`   // if all other tasks start first
}

// Of explains a task from facts about it.
func Of(f Facts) Explanation {
	f.usePublished()
	f.Settings = *plan.TaskSettings(&f.Settings, &f.Task)
	e := Explanation{Task: f.Task.ID, State: f.Task.State, Causes: []Cause{}, Next: []string{}, Limits: []string{}, Attempts: append([]holdfast.Attempt{}, f.Attempts...)}
	e.Schedule, e.Slice = f.schedule(), f.slice()
	switch f.Task.State {
	case holdfast.Ready:
		e.Causes, e.Backlog = f.whyReady()
		if e.NextStart = f.Now; !f.isDue() {
			e.NextStart = f.Task.NextRunAt
		}
		for _, gate := range f.Gates {
			if gate.Until.IsZero() {
				e.NextStart = time.Time{}
				break
			}
			e.NextStart = latest(e.NextStart, gate.Until)
		}
		e.NextStart = f.afterLimits(e.NextStart)
		e.Next = f.outcomes("the next attempt")
		if f.waitsForTurn() {
			e.NextStart = time.Time{}
			e.Next = append(f.nextTurn(), e.Next...)
		}
		if f.waitsForSlot() {
			e.NextStart = time.Time{}
		}
		if f.Settings.Policy.Expired(f.Task, latest(e.NextStart, f.Now)) {
			e.Next = []string{"its deadline passes before its next start, so that the task is dead then, without another attempt"}
		}
		if f.Settings.Policy.StartedBefore(f.Task) {
			e.Next = []string{"the next worker makes the task dead and does not call its handler, because an attempt has started and its type runs at most once"}
		}
		if f.Task.Doomed {
			e.Next = f.nextDoomed()
		}
		e.Limits = f.limits()
	case holdfast.Running:
		cause := f.whyRunning()
		cause.Text += f.howFar()
		e.Causes = []Cause{cause}
		e.Next = f.outcomes("this attempt")
		e.Limits = f.limits()
	default:
		e.Causes = append([]Cause{{Code: Final, Text: f.whyFinal()}}, f.stillRunning()...)
		e.Next = append(e.Next, append(f.behind(), f.afterTheEnd()...)...)
	}
	return e
}

// whyReady returns the causes of a ready task, and its estimate.
func (f *Facts) whyReady() (causes []Cause, backlog *Backlog) {
	add := func(code Code, until time.Time, format string, args ...any) {
		causes = append(causes, Cause{code, fmt.Sprintf(format, args...), until})
	}
	due, turn := f.isDue(), !f.waitsForTurn()
	switch {
	case f.Task.Doomed:
		causes = append(causes, f.whyDoomed())
	case !turn:
		causes = append(causes, f.whyOrdered())
	}
	if turn && !due && !f.waitsForSlot() && f.Task.Parked == "" {
		add(NotDue, f.Task.NextRunAt, "attempt %d is due in %s, %s", f.Task.Attempt, rounded(f.Task.NextRunAt.Sub(f.Now)), f.whyDelayed())
	}
	if f.waitsForSlot() {
		add(Topic, time.Time{}, "%s", f.whyTopic())
	}
	for _, gate := range f.Gates {
		add(Paused, gate.Until, "%s", f.whyPaused(gate))
	}
	for _, limit := range f.Limited {
		if limit.Breaker != nil {
			add(Broken, time.Time{}, "%s", f.whyBroken(limit))
		} else {
			add(Limited, time.Time{}, "%s", f.whyLimited(limit))
		}
	}
	takers := slices.DeleteFunc(slices.Clone(f.Workers), func(w store.Worker) bool { return !takes(w, f.Task.Queue) })
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
	case !turn: // the task gets a ticket at its turn
	case f.Task.Parked != "" && !due:
		text := "parked: %s; it gets another ticket in %s"
		if !slices.ContainsFunc(f.Workers, func(w store.Worker) bool { return slices.Contains(w.Types, f.Task.Type) }) {
			text += ", or when a worker with a handler registers"
		}
		add(Parked, f.Task.NextRunAt, text, f.Task.Parked, rounded(f.Task.NextRunAt.Sub(f.Now)))
	case f.Task.Parked != "":
		add(Parked, time.Time{}, "it was parked: %s; it gets another ticket now", f.Task.Parked)
	}
	if f.isLastChance() {
		add(LastChance, time.Time{}, "%s crashed its worker, and the next crash makes it dead; so a worker runs it only while no other task is in progress",
			count(f.Task.Crashes, "attempt"))
	}
	if !due || f.waitsForSlot() { // the task gets a ticket together with its slot
		return causes, nil
	}
	if len(f.Gates) > 0 {
		return causes, nil // no estimate reaches beyond a pause
	}
	able := slices.DeleteFunc(takers, func(w store.Worker) bool { return !handles(w) || draining(w) })
	backlog = f.estimate(able)
	if len(f.Limited) > 0 {
		backlog = f.limitBacklog(backlog)
	}
	if slices.ContainsFunc(f.Limited, isBlocked) {
		return causes, backlog
	}
	if !f.Position.Ticketed {
		add(NotPublished, time.Time{}, "it has no ticket yet; a janitor publishes one as soon as the broker accepts it")
		return causes, nil
	}
	capacity := 0
	for _, w := range able {
		capacity += w.Concurrency
	}
	estimate := ""
	switch {
	case len(f.Limited) > 0: // the limit has an estimate of its own
	case backlog != nil:
		estimate = fmt.Sprintf("; by the recent throughput of about %.3g tasks per second it starts in %s to %s",
			backlog.Rate, rounded(backlog.Earliest.Sub(f.Now)), rounded(backlog.Latest.Sub(f.Now)))
	case capacity > 0:
		estimate = "; no estimate of its start, because no live worker has run a task of this queue and priority yet"
	}
	add(Waiting, time.Time{}, "its ticket is in the queue or in the outbox; tasks of this queue and priority that are due: %d, running: %d, at once at most: %d%s",
		f.Queue.Due, f.Queue.Running, capacity, estimate)
	return causes, backlog
}

func (f *Facts) whyPaused(gate store.Gate) string {
	text := fmt.Sprintf("%s has paused the %s for %s", gate.Name, gate.Subject, rounded(f.Now.Sub(gate.ClosedAt)))
	if gate.Reason != "" {
		text += fmt.Sprintf(" (%s)", gate.Reason)
	}
	if gate.Until.IsZero() {
		return text + "; the pause has no end until somebody resumes it"
	}
	return text + fmt.Sprintf("; the pause ends in %s", rounded(gate.Until.Sub(f.Now)))
}

const (
	// backlogMargin widens an estimate, because the throughput may double or halve.
	backlogMargin = 2
	// backlogDelay is added to the latest start. In this time a ticket passes the broker and the worker.
	backlogDelay = 2 * time.Second
)

// estimate returns when a task with a ticket starts, or nil if no worker has run a task of its queue.
//
// Two figures bound the rate: how many attempts of this queue the workers have ended recently, and how many all
// executors could end. The first is too low for a queue that was idle, the second too high if the workers take other
// queues. Tasks start about in the order in which they become due. estimate derives the number of tasks that became due
// earlier from the age of the oldest one, as if tasks had become due at a constant rate.
func (f *Facts) estimate(takers []store.Worker) *Backlog {
	observed, possible := 0.0, 0.0
	for _, w := range takers {
		for _, t := range w.Report.Throughput {
			if t.Queue != f.Task.Subqueue() {
				continue
			}
			if t.Over > 0 {
				observed += float64(t.Ended) / t.Over.Seconds()
			}
			if t.Mean > 0 {
				possible += float64(w.Concurrency) / t.Mean.Seconds()
			}
		}
	}
	highest, lowest := max(observed, possible), min(observed, possible)
	if highest == 0 {
		return nil
	}
	if lowest == 0 {
		lowest = highest
	}
	ahead := float64(max(0, f.Queue.Due-1))
	earlier := 0.0
	if oldest := f.Queue.OldestDue; oldest > 0 {
		earlier = ahead * float64(max(0, oldest-max(0, f.Now.Sub(f.Task.NextRunAt)))) / float64(oldest)
	}
	return &Backlog{
		Due: f.Queue.Due, Rate: highest,
		Earliest: f.after(earlier, highest*backlogMargin), Latest: f.after(ahead+1, lowest/backlogMargin).Add(backlogDelay),
	}
}

// after returns when the given number of tasks has started, at a rate in tasks per second.
func (f *Facts) after(tasks, rate float64) time.Time {
	const most = float64(100 * 365 * 24 * time.Hour)
	return f.Now.Add(time.Duration(min(most, tasks/rate*float64(time.Second))))
}

// isDue reports whether a ready task is due and does not wait for its turn. A task with a ticket is due even if
// NextRunAt lies in the future, as it may after the store's clock was set back: a worker claims it.
func (f *Facts) isDue() bool {
	return !f.waitsForTurn() && (f.Position.Ticketed || !f.Task.NextRunAt.After(f.Now))
}

// whyDelayed returns why a task is due in the future. Each edit gives the task a new attempt number. So whyDelayed
// follows the edits back to the one that moved the due time, or to the attempt that ended before them.
func (f *Facts) whyDelayed() string {
	before := f.Task.Attempt - 1
	for _, entry := range f.Edits {
		var was, is store.Version
		if json.Unmarshal(entry.Before, &was) != nil || json.Unmarshal(entry.After, &is) != nil || is.Attempt != before+1 || is.State != holdfast.Ready {
			continue
		}
		if !is.RunAt.IsZero() {
			edit := "an edit"
			if entry.Action == store.ActionUndo {
				edit = "the undo of an edit"
			}
			return fmt.Sprintf("because %s by %s moved its time %s ago", edit, entry.Name, rounded(f.Now.Sub(entry.At)))
		}
		if was.State != holdfast.Ready {
			return fmt.Sprintf("since the %s by %s %s ago", entry.Action, entry.Name, rounded(f.Now.Sub(entry.At)))
		}
		before = was.Attempt - 1
	}
	if before == 0 {
		return "as it was enqueued"
	}
	i := slices.IndexFunc(f.Attempts, func(a holdfast.Attempt) bool { return a.Attempt == before })
	if i < 0 {
		return fmt.Sprintf("after attempt %d, which has no record", before)
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
		return Cause{LeaseExpired, fmt.Sprintf("%s claimed attempt %d %s ago and has ended; a janitor makes the task %s", name, f.Task.Attempt, since, f.afterCrash()), time.Time{}}
	}
	w := f.Workers[i]
	name = describe(w)
	if w.LeaseUntil.Before(f.Now) {
		return Cause{LeaseExpired, fmt.Sprintf("%s runs attempt %d, but its lease expired %s ago; a janitor fences it and makes the task %s",
			name, f.Task.Attempt, rounded(f.Now.Sub(w.LeaseUntil)), f.afterCrash()), time.Time{}}
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

// afterCrash describes what a janitor does with the task of a dead worker.
func (f *Facts) afterCrash() string {
	if f.Settings.Policy.AtMostOnce {
		return "dead, because its type runs at most once"
	}
	return "ready again"
}

// howFar returns the last progress of the attempt that runs, or "" if it has reported none.
func (f *Facts) howFar() string {
	for i := range f.Values {
		value := &f.Values[i]
		progress, ok := value.Progress()
		if !ok || value.Attempt != f.Task.Attempt {
			continue
		}
		text := fmt.Sprintf("; %s ago it was %d%% done", rounded(max(0, f.Now.Sub(value.At))), progress.Percent)
		if progress.Note != "" {
			text += fmt.Sprintf(" (%s)", progress.Note)
		}
		return text
	}
	return ""
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

// stillRunning returns a cause for each handler that still runs although its task is final. A handler may for instance
// ignore a cancellation.
func (f *Facts) stillRunning() (causes []Cause) {
	for _, w := range f.Workers {
		for _, s := range w.Report.Stuck {
			if s.Task != f.Task.ID {
				continue
			}
			ended := w.RenewedAt.Add(-s.For)
			causes = append(causes, Cause{Stuck, fmt.Sprintf("%s still runs attempt %d; its context ended %s ago, and its handler ignores that",
				describe(w), s.Attempt, rounded(f.Now.Sub(ended))), time.Time{}})
		}
	}
	return causes
}

// takes reports whether a worker takes tasks of a queue.
func takes(w store.Worker, queue string) bool {
	return len(w.Queues) == 0 || slices.Contains(w.Queues, queue)
}

// describe names a worker and its process.
func describe(w store.Worker) string {
	return fmt.Sprintf("worker %s (%s, process %d on %s)", w.ID, w.Name, w.PID, w.Host)
}

func (f *Facts) whyFinal() string {
	ended := rounded(f.Now.Sub(f.Task.FinishedAt))
	if len(f.Attempts) == 0 || f.Task.State != holdfast.Dead {
		return fmt.Sprintf("it has been %s for %s", f.Task.State, ended)
	}
	last := f.Attempts[len(f.Attempts)-1]
	return fmt.Sprintf("it died %s ago: %s", ended, strings.TrimSuffix(fmt.Sprintf("%s: %s", last.Class, last.Error), ": "))
}

// RetriesOnce is the entry of Explanation.Next of a dead or cancelled task whose type runs at most once.
const RetriesOnce = "an operator can retry it, and then its handler is called once more"

// afterTheEnd returns what can happen to a task in a final state.
func (f *Facts) afterTheEnd() []string {
	retry := "an operator can retry it, with all its attempts"
	if f.Settings.Policy.AtMostOnce {
		retry = RetriesOnce
	}
	var events []string
	for event, can := range map[holdfast.Event]string{
		holdfast.EventRequeue: retry,
		holdfast.EventArchive: "an operator can archive it",
		holdfast.EventRestore: "an operator can restore it",
		holdfast.EventCancel:  "an operator can cancel it",
	} {
		if holdfast.Allowed(event, f.Task.State) {
			events = append(events, can)
		}
	}
	slices.Sort(events)
	if until := f.Ages.KeptUntil(&f.Task); !until.IsZero() {
		text := "a janitor deletes it after " + until.UTC().Format(time.RFC3339)
		if f.Task.Batch != 0 {
			text += " and the end of its batch"
		}
		events = append(events, text)
	}
	return events
}

// Result describes the transition after an attempt, in the words of Explanation.Next.
func Result(move holdfast.Transition) string {
	switch {
	case move.To != holdfast.Ready:
		return "the task is " + string(move.To)
	case move.Wait == 0:
		return fmt.Sprintf("attempt %d is due at once", move.NextAttempt)
	}
	return fmt.Sprintf("attempt %d is due %s later", move.NextAttempt, rounded(move.Wait))
}

// outcomes describes what follows each result of an attempt. It settles the task as the worker would.
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
	next := []string{
		fmt.Sprintf("if %s succeeds, %s", attempt, settle(holdfast.Returned(nil))),
		fmt.Sprintf("if %s fails, %s", attempt, settle(holdfast.Returned(errors.New("a failure")))),
		fmt.Sprintf("if its worker crashes, %s", settle(holdfast.Crashed(f.Task.Worker))),
	}
	if f.policyFor {
		next = append(next, "a function in the program of the worker may choose another policy for some errors")
	}
	if f.settledBy != "" {
		next = append(next, fmt.Sprintf("the workers have different settings for the type %s; these are those of %s", f.Task.Type, f.settledBy))
	}
	return next
}

// limits describes the limits of a task that is not final.
func (f *Facts) limits() []string {
	p := f.Settings.Policy
	if p.AtMostOnce {
		return append([]string{"no second attempt starts before an operator retries the task"}, f.deadline()...)
	}
	return append([]string{
		fmt.Sprintf("%d of %s used", f.Task.Failures, count(f.maxAttempts(), "failure")),
		fmt.Sprintf("%d of %s used", f.Task.Crashes, count(p.MaxCrashes, "crash")),
		fmt.Sprintf("%d of %s used", f.Task.Deferrals, count(p.MaxDeferrals, "deferral")),
	}, f.deadline()...)
}

// deadline describes the deadline of a task. It returns nil if there is none.
func (f *Facts) deadline() []string {
	p := f.Settings.Policy
	if p.Deadline == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no attempt starts after %s", f.Task.CreatedAt.Add(p.Deadline).UTC().Format(time.RFC3339))}
}

func (f *Facts) maxAttempts() int {
	if f.Task.MaxAttempts > 0 {
		return f.Task.MaxAttempts
	}
	return f.Settings.Policy.MaxAttempts
}

// isLastChance reports whether one more crash makes the task dead, so that a worker runs it exclusively.
func (f *Facts) isLastChance() bool {
	return !f.Settings.Policy.AtMostOnce && f.Task.Crashes > 0 && f.Task.Crashes >= f.Settings.Policy.MaxCrashes-1
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rounded rounds a duration for people.
func rounded(d time.Duration) time.Duration {
	if d > 10*time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// upTo describes a number that the store counts only up to store.MaxCountedBlocked. The result has the number and a
// phrase: one for none and for a single one, and otherwise many and verb.
func upTo(n int, one, many, verb string) string {
	switch {
	case n == 0:
		return "no " + one
	case n == 1:
		return "1 " + one
	case n >= store.MaxCountedBlocked:
		many += " or more"
	}
	return fmt.Sprintf("%d %s %s", n, many, verb)
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
