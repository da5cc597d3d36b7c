package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// trips checks that a worker trips the breaker of a target when the rules say so, and not otherwise. It computes that
// from all attempts of the worker's process. The window of a worker has buckets, so there are short times in which
// either is right.
type trips struct {
	check   *checker
	records map[observer]*record
	calls   map[*process]*call

	rated int // times that a rate of faults had to trip a breaker
}

// observer is a process and a target of its attempts.
type observer struct {
	process *process
	target  string
}

// record has the attempts of a process for a target, and what the process must report or may report about it.
type record struct {
	attempts []attempt
	window   int // index of the first attempt that the window of the worker can have
	// unsure means that the window of the worker may lack any of the attempts before a later fault. fault is the first
	// fault since then that the worker certainly counts, or the zero time. A window after it, the checker is sure again.
	unsure bool
	fault  time.Time
	// failed has the tasks whose messages the window of the worker counts, or may count.
	failed map[holdfast.TaskID]messageFault

	may      int       // how often the rules may have tripped the breaker
	sent     int       // may when the process made its latest call that includes the target
	received int       // may at the latest call that succeeded
	due      time.Time // since when the process must report that the breaker trips; zero if it has nothing to report
}

// attempt is an attempt that has ended.
type attempt struct {
	at      time.Time
	fault   bool
	message bool // the fault accuses the message
	counted certainty
}

// certainty is whether the window of the worker counts an attempt. It counts one fault of each message.
type certainty uint8

const (
	isCounted certainty = iota
	mayCount
	notCounted
)

// messageFault is a fault of a message that the window of the worker counts, or may count if it is not sure.
type messageFault struct {
	at   time.Time
	sure bool
}

// call is the latest call of a process with reports.
type call struct {
	running bool
	ended   time.Time
	failed  bool
}

const (
	reportWithin = 100 * time.Millisecond // a worker without a running call reports within this time
	repeatWithin = 2 * time.Second        // a worker repeats a failed call within this time
)

func newTrips(c *checker) *trips {
	return &trips{check: c, records: make(map[observer]*record), calls: make(map[*process]*call)}
}

// executionStarted notes whether an execution is a probe. A worker knows that from the claim.
func (t *trips) executionStarted(e *execution) {
	if e.task.Type != holdfast.TypeHTTP {
		return
	}
	stored := t.check.world.store.Task(e.task.ID)
	e.probe = len(t.check.breakers.permits[e.claim()]) > 0
	e.stale = t.check.world.state.fellBack > 0 || stored == nil || stored.State != holdfast.Running || claimOf(&stored.Task) != e.claim()
}

// executionEnded notes the result of an attempt, before the worker does.
func (t *trips) executionEnded(e *execution, err error) {
	target := holdfast.TargetOf(e.task.Type, e.task.Payload)
	ended := context.Cause(e.ctx)
	if target == "" || e.process.dead || ended != nil && !errors.Is(ended, holdfast.ErrTimeout) {
		return
	}
	r := t.records[observer{e.process, target}]
	if r == nil {
		r = new(record)
		t.records[observer{e.process, target}] = r
	}
	now, rules, mark := time.Now(), t.check.world.plan.Breaker, holdfast.TargetMarkOf(err)
	if e.stale { // it may be a probe
		r.doubt()
	} else if e.probe || mark.Refused {
		r.emptyWindow()
	}
	switch {
	case mark.Fault && (e.probe || mark.Refused), !mark.Fault && !mark.Answered:
		return
	case mark.Fault && !mark.Answered: // it does not count if the process's network seems to be broken
		r.doubt()
	case mark.Fault && !e.stale && r.fault.IsZero():
		r.fault = now
	case !mark.Fault && r.idle(now) > rules.Window:
		r.emptyWindow()
	}
	a := attempt{at: now, fault: mark.Fault, message: mark.Message}
	if mark.Message {
		a.counted = r.countMessage(e, now, rules)
	}
	r.attempts = append(r.attempts, a)
	if !mark.Fault {
		return
	}
	may, must := r.reachesRate(rules)
	switch {
	case must:
		t.rated++
		r.may++
		r.attempts = nil
		r.emptyWindow()
		if r.due.IsZero() {
			r.due = now
		}
	case may || r.mayBeSuccessive(rules):
		r.may++
		r.doubt()
	}
}

// emptyWindow notes that the window of the worker certainly has no attempts now.
func (r *record) emptyWindow() {
	r.window, r.unsure, r.fault = len(r.attempts), false, time.Time{}
	clear(r.failed)
}

// doubt notes that the window of the worker may be empty now, or lack the last attempt.
func (r *record) doubt() {
	r.unsure, r.fault = true, time.Time{}
	for task, fault := range r.failed {
		r.failed[task] = messageFault{fault.at, false}
	}
}

// countMessage notes a fault of the message of a task, and returns whether the window of the worker counts it.
func (r *record) countMessage(e *execution, now time.Time, rules holdfast.BreakerRules) certainty {
	before, found := r.failed[e.task.ID]
	switch found = found && now.Sub(before.at) < rules.Window; {
	case found && before.sure && !e.stale:
		return notCounted
	case r.failed == nil:
		r.failed = make(map[holdfast.TaskID]messageFault)
	}
	r.failed[e.task.ID] = messageFault{now, !found && !e.stale}
	if found || e.stale {
		return mayCount
	}
	return isCounted
}

// idle returns the time since the last fault that the window of the worker may have, or 0 if it has none.
func (r *record) idle(now time.Time) time.Duration {
	for _, a := range slices.Backward(r.attempts[r.window:]) {
		if a.fault {
			return now.Sub(a.at)
		}
	}
	return 0
}

// mayBeSuccessive reports whether the last attempt, a fault, may have come after enough other faults to trip the breaker.
// Answers that ended at the same time may have come after it.
func (r *record) mayBeSuccessive(rules holdfast.BreakerRules) bool {
	last, faults := r.attempts[len(r.attempts)-1], 0
	now := last.at
	if last.message {
		return false
	}
	for _, a := range slices.Backward(r.attempts) {
		switch {
		case a.message: // says nothing about the target
		case a.fault:
			faults++
		case !a.at.Equal(now):
			return rules.Faults > 0 && faults >= rules.Faults
		}
	}
	return rules.Faults > 0 && faults >= rules.Faults
}

// reachesRate reports whether the last attempt, a fault, may reach the rate of faults, and whether it certainly does. A
// window has the attempts of between nine tenths of its length and its whole length. Answers that ended at the same
// time as the fault may have come after it.
func (r *record) reachesRate(rules holdfast.BreakerRules) (may, must bool) {
	last := r.attempts[len(r.attempts)-1]
	now := last.at
	if last.counted == notCounted {
		return false, false
	}
	unsure := r.unsure && (r.fault.IsZero() || now.Sub(r.fault) <= rules.Window)
	counted := r.attempts[r.window:]
	for !unsure && !counted[0].fault { // a window begins with a fault
		counted = counted[1:]
	}
	attempts, faults, doubtful, together := 0, 0, 0, 0
	must = !unsure && rules.Rate > 0 && last.counted == isCounted
	for i, a := range slices.Backward(counted) {
		if rules.Rate == 0 || now.Sub(a.at) > rules.Window {
			break
		}
		switch {
		case a.counted == notCounted:
		case a.counted == mayCount:
			doubtful++
		case a.fault:
			attempts, faults = attempts+1, faults+1
		case a.at.Equal(now):
			together++
		default:
			attempts++
		}
		if !unsure && i > 0 && now.Sub(counted[i-1].at) < rules.Window*9/10 {
			continue // the window has the attempt before, too
		}
		for _, more := range []int{0, doubtful} {
			before, after := tooMany(attempts+more, faults+more, rules), tooMany(attempts+more+together, faults+more, rules)
			may, must = may || before || after, must && before && after
		}
	}
	return may, must
}

// tooMany is the rule of the rate of faults.
func tooMany(attempts, faults int, rules holdfast.BreakerRules) bool {
	return faults > 0 && attempts >= rules.Attempts && float64(faults)/float64(attempts) >= float64(rules.Rate)/100
}

// reporting checks the reports that a process is about to send.
func (t *trips) reporting(p *process, reports []store.TargetReport) {
	c := t.calls[p]
	if c == nil {
		c = new(call)
		t.calls[p] = c
	}
	c.running = true
	if c.failed { // the worker repeats the call, and has not added what it has found since
		return
	}
	for _, report := range reports {
		r := t.records[observer{p, report.Target}]
		if r == nil {
			r = new(record)
			t.records[observer{p, report.Target}] = r
		}
		r.sent = r.may
		if !report.Trip {
			continue
		}
		r.due = time.Time{}
		if r.may == r.received && !t.mayBeSilent(report) {
			t.check.fail("process %s trips the breaker of the target %s, although its attempts do not reach the rules %+v: %s",
				p.name, report.Target, t.check.world.plan.Breaker, report.Cause)
		}
	}
}

// mayBeSilent reports whether a report may be about a target that has not answered for a long time.
func (t *trips) mayBeSilent(report store.TargetReport) bool {
	return slices.ContainsFunc(t.check.world.plan.Targets, func(target TargetPlan) bool {
		return target.Fault == TargetSilent && target.subject().Target == report.Target
	}) || strings.HasPrefix(report.Cause, "no answer to ")
}

// reported notes how a call with reports has ended.
func (t *trips) reported(p *process, reports []store.TargetReport, err error) {
	c := t.calls[p]
	c.running, c.ended, c.failed = false, time.Now(), err != nil
	if err != nil {
		return
	}
	for _, report := range reports {
		if r := t.records[observer{p, report.Target}]; report.Trip {
			r.received = r.sent
		}
	}
}

// afterStep checks that each process reports a breaker that must trip in time.
func (t *trips) afterStep() {
	for of, r := range t.records {
		if r.due.IsZero() || of.process.dead || of.process.ctx.Err() != nil {
			continue
		}
		since, within := r.due, reportWithin
		if c := t.calls[of.process]; c != nil {
			if c.running {
				continue
			}
			since = latest(since, c.ended)
			if c.failed {
				within = repeatWithin
			}
		}
		if time.Since(since) > within {
			t.check.fail("process %s does not report that the breaker of the target %s must trip, although its attempts reached the rules %+v at %v",
				of.process.name, of.target, t.check.world.plan.Breaker, r.due.Sub(t.check.world.began))
		}
	}
}
