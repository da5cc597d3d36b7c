package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/breaker"
	"github.com/holdfastq/holdfast/store"
)

// targets detects failing targets from the attempts of this process, and reports them to the store. Its methods are
// safe for concurrent use.
//
// A target without a breaker is reported in four cases: it has several faults in succession that accuse it; most of its
// recent attempts are faults, including those that accuse only the messages of different tasks; it requests a pause; or
// it does not answer and occupies many executors. If no other target answers either, the process's own network is
// probably broken, and only requested pauses are reported. For a target with a breaker, each probe is reported.
type targets struct {
	rules     func() holdfast.BreakerRules // if they are off, only probes are reported
	executors int
	report    func(context.Context, []store.TargetReport) error
	log       logrus.FieldLogger
	began     time.Time

	mu       sync.Mutex
	answered time.Duration            // time of the last answer of any target, relative to began
	forgot   time.Duration            // time of the last run of forget, relative to began
	faults   map[string]*faults       // by target
	windows  map[string]*window       // by target; only those with a recent fault
	open     map[string]*openAttempts // by target
	reports  map[string]*store.TargetReport
	sent     chan struct{} // closed when the store has the reports, or refuses them
	pending  chan struct{} // has a token if there are reports
}

// faults counts the successive faults that accuse a target.
type faults struct {
	n            int
	last, before time.Duration // times of the last two faults, relative to targets.began
}

// window counts the recent attempts of a target. It begins with a fault, so that targets without faults need none.
type window struct {
	breaker.Window
	last   time.Duration                     // time of the last fault, relative to targets.began
	failed map[holdfast.TaskID]time.Duration // when a fault of a message was counted, by task; at most maxFailed
}

// countsMessage reports whether the window counts a fault of the message of a task: each task counts once, because the
// retries of a few bad messages show nothing about the target.
func (w *window) countsMessage(task holdfast.TaskID, now, length time.Duration) bool {
	maps.DeleteFunc(w.failed, func(_ holdfast.TaskID, at time.Duration) bool { return now-at >= length })
	if _, counted := w.failed[task]; counted {
		return false
	}
	if len(w.failed) < maxFailed {
		if w.failed == nil {
			w.failed = make(map[holdfast.TaskID]time.Duration)
		}
		w.failed[task] = now
	}
	return true
}

// openAttempts counts the attempts for a target that have not ended.
type openAttempts struct {
	n      int
	silent time.Duration // since when the target has not answered, relative to targets.began
}

const (
	// silence is how long a target with many open attempts may not answer before its breaker trips. Most slow targets
	// answer faster. Otherwise the breaker of a slow target could trip when its tasks arrive after an idle time.
	silence = 3 * time.Second
	// forgetAfter is the time after which a fault no longer counts.
	forgetAfter = 10 * time.Minute
	// maxSuspects is the maximum number of failing targets that a process tracks. It ignores the faults of more
	// targets.
	maxSuspects = 10_000
	// maxFailed is the number of failed tasks of a target that a process remembers, so that their retries do not count
	// in a window.
	maxFailed = 100
	// maxCause is the maximum length of a cause in a report, in bytes.
	maxCause = 300
	// reportEvery is the minimum time between two calls with reports.
	reportEvery   = 20 * time.Millisecond
	reportTimeout = 5 * time.Second
	// probeReportTimeout is the maximum time for which a probe waits until the store has its report.
	probeReportTimeout = time.Second
)

// newTargets returns targets for a worker with the given number of executors.
func newTargets(rules func() holdfast.BreakerRules, executors int, report func(context.Context, []store.TargetReport) error, log logrus.FieldLogger) *targets {
	return &targets{
		rules: rules, executors: executors, report: report, log: log, began: time.Now(),
		faults: make(map[string]*faults), windows: make(map[string]*window), open: make(map[string]*openAttempts), reports: make(map[string]*store.TargetReport), sent: make(chan struct{}),
		pending: make(chan struct{}, 1),
	}
}

// begin records the beginning of an attempt, and returns the target of its task, or "" if it has none. For each call
// that returns a target, the caller must call end.
func (ts *targets) begin(task *holdfast.Task, probe bool) (target string) {
	if task.Type != holdfast.TypeHTTP {
		return ""
	}
	rules := ts.rules()
	if !rules.On() && !probe {
		return ""
	}
	if target = holdfast.TargetOf(task.Type, task.Payload); target == "" {
		return ""
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	now := time.Since(ts.began)
	attempts := ts.open[target]
	if attempts == nil {
		attempts = &openAttempts{silent: now}
		ts.open[target] = attempts
	}
	attempts.n++
	many := max(ts.executors/5, rules.Faults, 1) // executors that a silent target may occupy
	if silent := now - attempts.silent; attempts.n > many && silent >= silence && ts.answered > attempts.silent && !probe {
		ts.add(store.TargetReport{Target: target, Trip: true, Cause: fmt.Sprintf("no answer to %d requests for %s", attempts.n-1, silent.Round(100*time.Millisecond))})
	}
	return target
}

// end records the end of an attempt. err is the error of the handler, or the reason why the worker interrupted the
// attempt.
//
// For a probe, end waits until the store has the report, at most one second, before the caller writes the result. The
// result frees the permit, and the next probe must not start before the time that the report sets.
func (ts *targets) end(target string, task holdfast.TaskID, probe, interrupted bool, err error) {
	sent := ts.note(target, task, probe, interrupted, err)
	if !probe || sent == nil {
		return
	}
	timer := time.NewTimer(probeReportTimeout)
	defer timer.Stop()
	select {
	case <-sent:
	case <-timer.C:
	}
}

// note does the work of end. It returns a channel that is closed when the store has the report, or nil if there is
// nothing to report.
func (ts *targets) note(target string, task holdfast.TaskID, probe, interrupted bool, err error) (sent <-chan struct{}) {
	if target == "" {
		return nil
	}
	mark, rules := holdfast.TargetMarkOf(err), ts.rules()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	attempts, now := ts.open[target], time.Since(ts.began)
	if attempts.n--; attempts.n == 0 {
		delete(ts.open, target)
	}
	if _, panicked := errors.AsType[*holdfast.PanicError](err); panicked || interrupted || holdfast.IsWorkerFault(err) {
		return nil // such an error says nothing about the target
	}
	if mark.Answered {
		attempts.silent, ts.answered = now, now
	}
	r := store.TargetReport{Target: target, Refused: mark.Refused, Pause: mark.Pause}
	if mark.Fault {
		r.Cause = causeText(err)
	}
	if probe || mark.Refused {
		delete(ts.windows, target) // the attempts before the breaker tripped do not count when it is reset
	}
	switch {
	case mark.Message && probe:
		r.Rejected = 1
	case mark.Fault && probe:
		r.Failed = 1
	case mark.Fault && !mark.Refused && rules.On():
		if !mark.Message {
			r.Trip = ts.count(target, now, mark.Answered, rules)
		}
		if cause := ts.countInWindow(target, task, now, mark, rules); cause != "" && !r.Trip {
			r.Trip, r.Cause = true, short(cause+r.Cause)
		}
		if r.Trip {
			delete(ts.faults, target)
			delete(ts.windows, target)
		}
	case mark.Answered && !mark.Fault:
		delete(ts.faults, target)
		ts.answer(target, now, rules)
		if probe {
			r.Passed = 1
		}
	}
	if !r.Trip && !r.Refused && r.Passed+r.Failed+r.Rejected == 0 {
		return nil
	}
	ts.add(r)
	return ts.sent
}

// causeText describes a fault for people.
func causeText(err error) string {
	return short(holdfast.ReportOf(err).Error)
}

func short(cause string) string { return cause[:min(len(cause), maxCause)] }

// count counts a fault that accuses a target, and reports whether the faults in succession trip the breaker. answered
// reports whether the target answered. The caller holds ts.mu.
func (ts *targets) count(target string, now time.Duration, answered bool, rules holdfast.BreakerRules) (trips bool) {
	ts.forget(now)
	f := ts.faults[target]
	if f == nil {
		if len(ts.faults) >= maxSuspects {
			return false
		}
		f = &faults{before: now, last: now}
		ts.faults[target] = f
	}
	f.n++
	f.before, f.last = f.last, now
	networkWorks := answered || len(ts.faults) == 1 || ts.answered > f.before
	return rules.Faults > 0 && f.n >= rules.Faults && networkWorks
}

// countInWindow counts a fault in the window of its target. If the window trips the breaker, countInWindow returns the
// beginning of a cause, and otherwise "". It counts no attempt that may have failed because the process's own network
// is broken. The caller holds ts.mu, and has called count unless the fault accuses only the message of the task.
func (ts *targets) countInWindow(target string, task holdfast.TaskID, now time.Duration, mark holdfast.TargetMark, rules holdfast.BreakerRules) (cause string) {
	ts.forget(now)
	if rules.Rate == 0 {
		clear(ts.windows)
		return ""
	}
	w := ts.windows[target]
	if w == nil {
		if len(ts.windows) >= maxSuspects {
			return ""
		}
		w = &window{last: now}
		ts.windows[target] = w
	}
	networkWorks := mark.Answered || len(ts.faults) == 1 || ts.answered > w.last
	w.last = now
	if !networkWorks || mark.Message && !w.countsMessage(task, now, rules.Window) {
		return ""
	}
	w.Add(now, rules.Window, true)
	attempts, faults := w.Counts(now)
	if !breaker.TooMany(attempts, faults, rules.Rate, rules.Attempts) {
		return ""
	}
	return fmt.Sprintf("%d of %d requests within %s failed, at last with: ", faults, attempts, rules.Window)
}

// answer counts an answer of a target that has a window. The caller holds ts.mu.
func (ts *targets) answer(target string, now time.Duration, rules holdfast.BreakerRules) {
	w := ts.windows[target]
	switch {
	case w == nil:
	case now-w.last > rules.Window || rules.Rate == 0:
		delete(ts.windows, target)
	default:
		w.Add(now, rules.Window, false)
	}
}

// forget removes the targets whose last fault no longer counts. The caller holds ts.mu.
func (ts *targets) forget(now time.Duration) {
	if now-ts.forgot < time.Second {
		return
	}
	ts.forgot = now
	maps.DeleteFunc(ts.faults, func(_ string, f *faults) bool { return now-f.last > forgetAfter })
	maps.DeleteFunc(ts.windows, func(_ string, w *window) bool { return now-w.last > holdfast.MaxBreakerWindow })
}

// add adds a report to the reports to send. The caller holds ts.mu.
func (ts *targets) add(r store.TargetReport) {
	waiting := ts.reports[r.Target]
	if waiting == nil {
		ts.reports[r.Target] = &r
	} else {
		waiting.Trip = waiting.Trip || r.Trip
		waiting.Refused = waiting.Refused || r.Refused
		waiting.Pause = max(waiting.Pause, r.Pause)
		waiting.Passed += r.Passed
		waiting.Failed += r.Failed
		waiting.Rejected += r.Rejected
		if r.Cause != "" {
			waiting.Cause = r.Cause
		}
	}
	select {
	case ts.pending <- struct{}{}:
	default:
	}
}

// take returns the reports to send, sorted by target. The caller calls sent when the store has them.
func (ts *targets) take() (all []store.TargetReport, sent func()) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	done := ts.sent
	ts.sent = make(chan struct{})
	all = make([]store.TargetReport, 0, len(ts.reports))
	for _, r := range ts.reports {
		all = append(all, *r)
	}
	clear(ts.reports)
	slices.SortFunc(all, func(a, b store.TargetReport) int { return strings.Compare(a.Target, b.Target) })
	return all, func() { close(done) }
}

// run sends the reports until ctx is done. It repeats a call that the store does not answer. If reports of probes are
// lost when ctx ends, later probes replace them.
func (ts *targets) run(ctx context.Context) {
	for {
		select {
		case <-ts.pending:
		case <-ctx.Done():
			return
		}
		reports, sent := ts.take()
		for pause := backoff.New(firstPause, longPause); ; {
			call, cancel := context.WithTimeout(ctx, reportTimeout)
			err := ts.report(call, reports)
			cancel()
			if err == nil {
				ts.logTrips(reports)
				break
			}
			if ctx.Err() != nil {
				return
			}
			if !errors.Is(err, holdfast.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
				ts.log.WithError(err).Error("the store refuses the reports about targets: dropping them")
				break
			}
			ts.log.WithError(err).Warn("faults of targets not reported, trying again")
			if pause.Wait(ctx) != nil {
				return
			}
		}
		sent()
		if backoff.Sleep(ctx, reportEvery) != nil {
			return
		}
	}
}

// logTrips logs the reports that trip breakers. A refused probe is not news.
func (ts *targets) logTrips(reports []store.TargetReport) {
	for _, r := range reports {
		if r.Trip || r.Refused && r.Failed == 0 {
			ts.log.WithFields(logrus.Fields{"target": r.Target, "cause": r.Cause}).Warn("target fails or asks for a pause: its breaker has tripped, and until the target answers only probes start")
		}
	}
}
