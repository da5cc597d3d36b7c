package holdfast_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

var (
	now     = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	errBoom = errors.New("boom")
)

// exact returns a policy without jitter. Its delays are 10 s, 20 s, 40 s, and then a minute.
func exact() holdfast.Policy {
	return holdfast.Policy{
		Strategy: holdfast.Exponential, Base: 10 * time.Second, Factor: 2, Max: time.Minute,
		MaxAttempts: 3, MaxCrashes: 2, MaxDeferrals: 2,
	}
}

func running() holdfast.Task {
	return holdfast.Task{ID: 7, State: holdfast.Running, Attempt: 4, Worker: 9, CreatedAt: now.Add(-time.Minute)}
}

// TestEveryCauseInEveryState checks for each cause and each state which event results, or that Settle returns a
// conflict.
func TestEveryCauseInEveryState(t *testing.T) {
	t.Parallel()
	const no = ""
	order := holdfast.States() // ready running done dead cancelled archived
	for _, test := range []struct {
		name  string
		cause holdfast.Cause
		want  [6]holdfast.Event
	}{
		{"success", holdfast.Returned(nil), [6]holdfast.Event{no, "complete", no, no, no, no}},
		{"error", holdfast.Returned(errBoom), [6]holdfast.Event{no, "retry", no, no, no, no}},
		{"panic", holdfast.Returned(&holdfast.PanicError{Value: 1}), [6]holdfast.Event{no, "retry", no, no, no, no}},
		{"timeout", holdfast.Returned(holdfast.ErrTimeout), [6]holdfast.Event{no, "retry", no, no, no, no}},
		{"RetryAfter", holdfast.Returned(holdfast.RetryAfter(1, errBoom)), [6]holdfast.Event{no, "retry", no, no, no, no}},
		{"Defer", holdfast.Returned(holdfast.Defer(1, errBoom)), [6]holdfast.Event{no, "defer", no, no, no, no}},
		{"Permanent", holdfast.Returned(holdfast.Permanent(errBoom)), [6]holdfast.Event{no, "give_up", no, no, no, no}},
		{"Cancel", holdfast.Returned(holdfast.Cancel(errBoom)), [6]holdfast.Event{"cancel", "cancel", no, "cancel", no, no}},
		{"crash", holdfast.Crashed(9), [6]holdfast.Event{no, "crash", no, no, no, no}},
		{"expired", holdfast.Expired(), [6]holdfast.Event{no, "give_up", no, no, no, no}},
		{"interrupt", holdfast.Interrupted(holdfast.ErrDraining), [6]holdfast.Event{no, "interrupt", no, no, no, no}},
		{"started before", holdfast.StartedBefore(), [6]holdfast.Event{no, "give_up", no, no, no, no}},
		{"stop", holdfast.Stopped(holdfast.ErrDraining), [6]holdfast.Event{no, "interrupt", no, no, no, no}},
		{"interrupt for no reason", holdfast.Interrupted(nil), [6]holdfast.Event{no, "interrupt", no, no, no, no}},
		{"request requeue", holdfast.Requested(holdfast.EventRequeue), [6]holdfast.Event{no, no, no, "requeue", "requeue", no}},
		{"request cancel", holdfast.Requested(holdfast.EventCancel), [6]holdfast.Event{"cancel", "cancel", no, "cancel", no, no}},
		{"request archive", holdfast.Requested(holdfast.EventArchive), [6]holdfast.Event{no, no, no, "archive", no, no}},
		{"request restore", holdfast.Requested(holdfast.EventRestore), [6]holdfast.Event{no, no, no, no, no, "restore"}},
		{"request complete", holdfast.Requested(holdfast.EventComplete), [6]holdfast.Event{}},
		{"request defer", holdfast.Requested(holdfast.EventDefer), [6]holdfast.Event{}},
		{"request claim", holdfast.Requested(holdfast.EventClaim), [6]holdfast.Event{}},
		{"request nothing", holdfast.Requested(""), [6]holdfast.Event{}},
	} {
		for i, state := range order {
			task := running()
			task.State = state
			move, err := holdfast.Settle(task, test.cause, now, exact())
			if test.want[i] == no {
				if !errors.Is(err, holdfast.ErrConflict) || !reflect.DeepEqual(move, holdfast.Transition{}) {
					t.Errorf("%s while %s: got %+v, %v", test.name, state, move, err)
				}
				continue
			}
			row := holdfast.Moves()[test.want[i]]
			if err != nil || move.Event != test.want[i] || move.To != row.To || !reflect.DeepEqual(move.From, row.From) {
				t.Errorf("%s while %s: got %+v, %v; want %s", test.name, state, move, err, test.want[i])
			}
			if move.Task != task.ID || move.Attempt != task.Attempt || move.Worker != task.Worker {
				t.Errorf("%s while %s: wrong task, attempt or worker in %+v", test.name, state, move)
			}
		}
	}
}

// TestAtMostOnce checks that no cause makes a task ready again whose only attempt may have started.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	policy := exact()
	policy.AtMostOnce = true
	refused := holdfast.Detailed(errBoom, "http_503", struct{}{})
	for _, test := range []struct {
		name        string
		cause       holdfast.Cause
		buffered    bool
		event       holdfast.Event
		class, text string
		counts      [3]int // failures, crashes and deferrals
	}{
		{name: "success", cause: holdfast.Returned(nil), event: "complete"},
		{name: "Cancel", cause: holdfast.Returned(holdfast.Cancel(errBoom)), event: "cancel", class: "error", text: "boom"},
		{name: "hand-back before the start", cause: holdfast.Interrupted(holdfast.ErrDraining), event: "interrupt", class: "drain", text: "the worker is shutting down"},
		{name: "hand-back for no reason", cause: holdfast.Interrupted(nil), event: "interrupt"},
		{name: "Permanent", cause: holdfast.Returned(holdfast.Permanent(errBoom)), event: "give_up", class: "error", text: "boom", counts: [3]int{1, 0, 0}},
		{
			name: "failure", cause: holdfast.Returned(refused), event: "give_up", class: "http_503", counts: [3]int{1, 0, 0},
			text: "no other attempt starts, because its type runs at most once: boom",
		},
		{
			name: "RetryAfter", cause: holdfast.Returned(holdfast.RetryAfter(time.Hour, errBoom)), event: "give_up", class: "error", counts: [3]int{1, 0, 0},
			text: "no other attempt starts, because its type runs at most once: boom",
		},
		{
			name: "panic", cause: holdfast.Returned(&holdfast.PanicError{Value: "ouch"}), event: "give_up", class: "panic", counts: [3]int{1, 0, 0},
			text: "no other attempt starts, because its type runs at most once: panic: ouch",
		},
		{
			name: "timeout", cause: holdfast.Returned(holdfast.ErrTimeout), event: "give_up", class: "timeout", counts: [3]int{1, 0, 0},
			text: "no other attempt starts, because its type runs at most once: the attempt timed out",
		},
		{
			name: "Defer", cause: holdfast.Returned(holdfast.Defer(0, errBoom)), event: "give_up", class: "error", counts: [3]int{0, 0, 1},
			text: "no other attempt starts, because its type runs at most once: boom",
		},
		{
			name: "WorkerFault", cause: holdfast.Returned(holdfast.WorkerFault(0, errBoom)), event: "give_up", class: "error",
			text: "no other attempt starts, because its type runs at most once: boom",
		},
		{
			name: "drain", cause: holdfast.Stopped(holdfast.ErrDraining), event: "give_up", class: "once",
			text: "the attempt had started, and its type runs at most once; it was interrupted: the worker is shutting down",
		},
		{
			name: "lost lease", cause: holdfast.Stopped(holdfast.ErrLeaseLost), event: "give_up", class: "once",
			text: "the attempt had started, and its type runs at most once; it was interrupted: the worker lost its lease",
		},
		{
			name: "crash", cause: holdfast.Crashed(9), event: "give_up", class: "once", counts: [3]int{0, 1, 0},
			text: "the attempt may have started, and its type runs at most once: the worker of the task died (worker 9)",
		},
		{
			name: "crash of a buffered task", cause: holdfast.Crashed(9), buffered: true, event: "give_up", class: "once", counts: [3]int{0, 1, 0},
			text: "the attempt may have started, and its type runs at most once: the worker of the task died (worker 9)",
		},
		{
			name: "started before", cause: holdfast.StartedBefore(), event: "give_up", class: "once",
			text: "an earlier attempt had started, and its type runs at most once",
		},
	} {
		task := running()
		task.Buffered = test.buffered
		move, err := holdfast.Settle(task, test.cause, now, policy)
		if err != nil || move.Event != test.event || move.Report.Class != test.class || move.Report.Error != test.text || move.Wait != 0 ||
			[3]int{move.Failures, move.Crashes, move.Deferrals} != test.counts || (move.Fingerprint != "") != (move.To == holdfast.Dead) {
			t.Errorf("%s: got %+v, %v; want %+v", test.name, move, err, test)
		}
	}
	policy.MaxCrashes = 1
	if move, err := holdfast.Settle(running(), holdfast.Crashed(9), now, policy); err != nil || move.Report.Class != "once" {
		t.Errorf("the last crash: got %+v, %v", move, err)
	}
}

// TestStartedBefore checks which tasks have started, as far as their counters prove it.
func TestStartedBefore(t *testing.T) {
	t.Parallel()
	once := holdfast.Policy{AtMostOnce: true}
	for task, want := range map[*holdfast.Task]bool{{Attempt: 3}: false, {Failures: 1}: true, {Crashes: 1}: true, {Deferrals: 1}: true} {
		if got := once.StartedBefore(*task); got != want || (holdfast.Policy{}).StartedBefore(*task) {
			t.Errorf("%+v: got %t, want %t", task, got, want)
		}
	}
}

func TestWhatAnAttemptCosts(t *testing.T) {
	t.Parallel()
	type counters struct{ failures, crashes, deferrals int }
	for _, test := range []struct {
		name          string
		before, after counters
		limit         int
		buffered      bool
		cause         holdfast.Cause
		event         holdfast.Event
		wait          time.Duration
	}{
		{name: "success", before: counters{2, 1, 2}, after: counters{2, 1, 2}, cause: holdfast.Returned(nil), event: "complete"},
		{name: "first failure", after: counters{1, 0, 0}, cause: holdfast.Returned(errBoom), event: "retry", wait: 10 * time.Second},
		{name: "second failure", before: counters{1, 1, 1}, after: counters{2, 1, 1}, cause: holdfast.Returned(errBoom), event: "retry", wait: 20 * time.Second},
		{name: "last failure", before: counters{2, 0, 0}, after: counters{3, 0, 0}, cause: holdfast.Returned(errBoom), event: "give_up"},
		{name: "the task's own limit", before: counters{2, 0, 0}, after: counters{3, 0, 0}, limit: 5, cause: holdfast.Returned(errBoom), event: "retry", wait: 40 * time.Second},
		{name: "limit of the delay", before: counters{3, 0, 0}, after: counters{4, 0, 0}, limit: 9, cause: holdfast.Returned(errBoom), event: "retry", wait: time.Minute},
		{name: "only one attempt", limit: 1, after: counters{1, 0, 0}, cause: holdfast.Returned(errBoom), event: "give_up"},
		{name: "limit lowered after the failures", before: counters{7, 0, 0}, limit: 2, after: counters{8, 0, 0}, cause: holdfast.Returned(errBoom), event: "give_up"},
		{name: "RetryAfter", after: counters{1, 0, 0}, cause: holdfast.Returned(holdfast.RetryAfter(time.Hour, errBoom)), event: "retry", wait: time.Hour},
		{name: "RetryAfter at once", after: counters{1, 0, 0}, cause: holdfast.Returned(holdfast.RetryAfter(-1, errBoom)), event: "retry"},
		{name: "the last RetryAfter", before: counters{2, 0, 0}, after: counters{3, 0, 0}, cause: holdfast.Returned(holdfast.RetryAfter(time.Hour, errBoom)), event: "give_up"},
		{name: "Defer", before: counters{2, 1, 0}, after: counters{2, 1, 1}, cause: holdfast.Returned(holdfast.Defer(time.Hour, errBoom)), event: "defer", wait: time.Hour},
		{name: "one Defer too many", before: counters{0, 0, 2}, after: counters{0, 0, 3}, cause: holdfast.Returned(holdfast.Defer(time.Hour, nil)), event: "give_up"},
		{name: "WorkerFault", before: counters{2, 1, 2}, after: counters{2, 1, 2}, cause: holdfast.Returned(holdfast.WorkerFault(time.Hour, errBoom)), event: "defer", wait: time.Hour},
		{name: "Permanent", after: counters{1, 0, 0}, cause: holdfast.Returned(holdfast.Permanent(errBoom)), event: "give_up"},
		{name: "Cancel", before: counters{1, 1, 1}, after: counters{1, 1, 1}, cause: holdfast.Returned(holdfast.Cancel(nil)), event: "cancel"},
		{name: "crash", before: counters{2, 0, 2}, after: counters{2, 1, 2}, cause: holdfast.Crashed(9), event: "crash"},
		{name: "last crash", before: counters{0, 1, 0}, after: counters{0, 2, 0}, cause: holdfast.Crashed(9), event: "give_up"},
		{name: "crash of a buffered task", buffered: true, before: counters{2, 1, 2}, after: counters{2, 1, 2}, cause: holdfast.Crashed(9), event: "interrupt"},
		{name: "failure of a buffered task", buffered: true, after: counters{1, 0, 0}, cause: holdfast.Returned(errBoom), event: "retry", wait: 10 * time.Second},
		{name: "drain", before: counters{2, 1, 2}, after: counters{2, 1, 2}, cause: holdfast.Interrupted(holdfast.ErrDraining), event: "interrupt"},
		{name: "drain of a handler", before: counters{2, 1, 2}, after: counters{2, 1, 2}, cause: holdfast.Stopped(holdfast.ErrDraining), event: "interrupt"},
		{name: "started before", before: counters{2, 1, 2}, after: counters{2, 1, 2}, cause: holdfast.StartedBefore(), event: "give_up"},
		{name: "expired", before: counters{2, 1, 2}, after: counters{2, 1, 2}, cause: holdfast.Expired(), event: "give_up"},
		{name: "the longest wait", after: counters{1, 0, 0}, cause: holdfast.Returned(holdfast.RetryAfter(1<<63-1, nil)), event: "retry", wait: 100 * 365 * 24 * time.Hour},
	} {
		task := running()
		task.Failures, task.Crashes, task.Deferrals, task.MaxAttempts = test.before.failures, test.before.crashes, test.before.deferrals, test.limit
		task.Buffered = test.buffered
		move, err := holdfast.Settle(task, test.cause, now, exact())
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := (counters{move.Failures, move.Crashes, move.Deferrals}); got != test.after || move.Event != test.event || move.Wait != test.wait {
			t.Errorf("%s: got %s after %s, %+v; want %s after %s, %+v", test.name, move.Event, move.Wait, got, test.event, test.wait, test.after)
		}
		if want := task.Attempt + map[bool]int{true: 1}[move.To == holdfast.Ready]; move.NextAttempt != want || move.MaxAttempts != test.limit {
			t.Errorf("%s: the next attempt is %d, want %d", test.name, move.NextAttempt, want)
		}
	}
}

func TestRequeueGivesAFreshBudget(t *testing.T) {
	t.Parallel()
	for _, state := range []holdfast.State{holdfast.Dead, holdfast.Cancelled} {
		task := running()
		task.State, task.Worker, task.Failures, task.Crashes, task.Deferrals = state, 0, 3, 2, 1
		move, err := holdfast.Settle(task, holdfast.Requested(holdfast.EventRequeue), now, exact())
		if err != nil || move.Failures+move.Crashes+move.Deferrals != 0 || move.Wait != 0 || move.NextAttempt != 5 {
			t.Errorf("%s: got %+v, %v", state, move, err)
		}
	}
}

func TestTheDeadline(t *testing.T) {
	t.Parallel()
	policy := exact()
	policy.Deadline = 70 * time.Second // the task is a minute old
	for name, test := range map[string]struct {
		cause holdfast.Cause
		event holdfast.Event
	}{
		"a retry just in time":      {holdfast.Returned(errBoom), "retry"},
		"a retry too late":          {holdfast.Returned(holdfast.RetryAfter(11*time.Second, errBoom)), "give_up"},
		"a worker's fault too late": {holdfast.Returned(holdfast.WorkerFault(time.Hour, errBoom)), "give_up"},
		"a deferral too late":       {holdfast.Returned(holdfast.Defer(time.Hour, errBoom)), "give_up"},
		"a crash in time":           {holdfast.Crashed(9), "crash"},
		"a hand-back is no retry":   {holdfast.Interrupted(nil), "interrupt"},
		"success":                   {holdfast.Returned(nil), "complete"},
	} {
		move, err := holdfast.Settle(running(), test.cause, now, policy)
		if err != nil || move.Event != test.event {
			t.Errorf("%s: got %s, %v", name, move.Event, err)
		}
		if move.Event == "give_up" && (!strings.HasPrefix(move.Report.Error, "the deadline of 1m10s has passed; last error: boom") || move.Wait != 0) {
			t.Errorf("%s: got %+v", name, move)
		}
	}
	move, err := holdfast.Settle(running(), holdfast.Crashed(9), now.Add(time.Hour), policy)
	if err != nil || move.Event != "give_up" || move.Crashes != 1 {
		t.Errorf("a crash after the deadline: got %+v, %v", move, err)
	}
	move, err = holdfast.Settle(running(), holdfast.Interrupted(nil), now.Add(time.Hour), policy)
	if err != nil || move.Event != "interrupt" {
		t.Errorf("a hand-back after the deadline: got %+v, %v", move, err)
	}
}

// An attempt must not begin after the deadline if its task was due before the deadline.
func TestTheDeadlineOfATaskThatWaits(t *testing.T) {
	t.Parallel()
	task := running() // a minute old
	for name, test := range map[string]struct {
		deadline, due time.Duration // due is the time from the creation of the task
		want          bool
	}{
		"no deadline":                 {0, 0, false},
		"before the deadline":         {time.Minute, 0, false},
		"after the deadline":          {59 * time.Second, 0, true},
		"due at the deadline":         {59 * time.Second, 59 * time.Second, true},
		"due only after the deadline": {59 * time.Second, 60 * time.Second, false},
	} {
		policy := exact()
		policy.Deadline, task.NextRunAt = test.deadline, task.CreatedAt.Add(test.due)
		if got := policy.Expired(task, now); got != test.want {
			t.Errorf("%s: expired is %t", name, got)
		}
	}
	move, err := holdfast.Settle(task, holdfast.Expired(), now, exact())
	if err != nil || move.Report.Class != "deadline" || move.Report.Error != "the deadline passed before the attempt began" || !move.Recorded || move.Fingerprint == "" {
		t.Errorf("the transition is %+v, %v", move, err)
	}
}

// TestOutcomesInsideOtherErrors wraps an outcome and details in every order.
func TestOutcomesInsideOtherErrors(t *testing.T) {
	t.Parallel()
	facts := map[string]int{"status": 429}
	for name, err := range map[string]error{
		"details outside":          holdfast.Detailed(holdfast.Defer(time.Hour, errBoom), "http_429", facts),
		"details inside":           holdfast.Defer(time.Hour, holdfast.Detailed(errBoom, "http_429", facts)),
		"with text around":         fmt.Errorf("call: %w", holdfast.Detailed(fmt.Errorf("x: %w", holdfast.Defer(time.Hour, errBoom)), "http_429", facts)),
		"with text between":        holdfast.Defer(time.Hour, fmt.Errorf("x: %w", holdfast.Detailed(errBoom, "http_429", facts))),
		"joined":                   errors.Join(holdfast.Detailed(errBoom, "http_429", facts), holdfast.Defer(time.Hour, nil)),
		"the outer outcome counts": holdfast.Defer(time.Hour, holdfast.Permanent(holdfast.Detailed(errBoom, "http_429", facts))),
	} {
		move, settleErr := holdfast.Settle(running(), holdfast.Returned(err), now, exact())
		if settleErr != nil || move.Event != "defer" || move.Wait != time.Hour {
			t.Errorf("%s: got %+v, %v", name, move, settleErr)
		}
		if move.Report.Class != "http_429" || string(move.Report.Details) != `{"status":429}` || !strings.Contains(move.Report.Error, "boom") {
			t.Errorf("%s: got %+v", name, move.Report)
		}
	}
	for name, err := range map[string]error{
		"details outside": holdfast.Detailed(holdfast.Permanent(errBoom), "http_410", nil),
		"details inside":  holdfast.Permanent(holdfast.Detailed(errBoom, "http_410", nil)),
	} {
		move, settleErr := holdfast.Settle(running(), holdfast.Returned(err), now, exact())
		if settleErr != nil || move.Event != "give_up" || move.Report.Class != "http_410" || string(move.Report.Details) != "null" {
			t.Errorf("permanent, %s: got %+v, %v", name, move, settleErr)
		}
	}
}

func TestConflictsNameTheAllowedStates(t *testing.T) {
	t.Parallel()
	for event, want := range map[holdfast.Event]string{
		holdfast.EventRequeue: "conflict: cannot retry task 7: its state is running; only dead or cancelled tasks can be retried",
		holdfast.EventArchive: "conflict: cannot archive task 7: its state is running; only dead tasks can be archived",
		holdfast.EventClaim:   `conflict: cannot "claim" task 7: its state is running`,
	} {
		if _, err := holdfast.Settle(running(), holdfast.Requested(event), now, exact()); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", event, err, want)
		}
	}
}

// TestWhichAttemptsAreRecorded checks each value of KeepAttempts with each result of an attempt.
func TestWhichAttemptsAreRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause  holdfast.Cause
		before func(*holdfast.Task) // changes the task before the attempt
		want   [4]bool              // with "", none, retried and all
	}{
		"success at the first attempt":            {holdfast.Returned(nil), nil, [4]bool{false, false, false, true}},
		"success after a hand-back":               {holdfast.Returned(nil), func(t *holdfast.Task) { t.Attempt = 5 }, [4]bool{false, false, false, true}},
		"success after a failure":                 {holdfast.Returned(nil), func(t *holdfast.Task) { t.Failures = 1 }, [4]bool{true, false, true, true}},
		"success after a crash":                   {holdfast.Returned(nil), func(t *holdfast.Task) { t.Crashes = 1 }, [4]bool{true, false, true, true}},
		"success after a deferral":                {holdfast.Returned(nil), func(t *holdfast.Task) { t.Deferrals = 1 }, [4]bool{true, false, true, true}},
		"success after a restart of the counters": {holdfast.Returned(nil), func(t *holdfast.Task) { t.LastError = "boom" }, [4]bool{true, false, true, true}},
		"failure":                {holdfast.Returned(errBoom), nil, [4]bool{true, false, true, true}},
		"deferral":               {holdfast.Returned(holdfast.Defer(time.Hour, nil)), nil, [4]bool{true, false, true, true}},
		"crash":                  {holdfast.Crashed(9), nil, [4]bool{true, false, true, true}},
		"interruption":           {holdfast.Interrupted(holdfast.ErrDraining), nil, [4]bool{true, false, true, true}},
		"hand-back before start": {holdfast.Interrupted(nil), nil, [4]bool{}},
		"cancelled by itself":    {holdfast.Returned(holdfast.Cancel(errBoom)), nil, [4]bool{true, false, true, true}},
		"request of an operator": {holdfast.Requested(holdfast.EventCancel), nil, [4]bool{}},
		"death":                  {holdfast.Returned(holdfast.Permanent(nil)), nil, [4]bool{true, true, true, true}},
		"death by the limit":     {holdfast.Returned(errBoom), func(t *holdfast.Task) { t.Failures = 2 }, [4]bool{true, true, true, true}},
		"death by crashes":       {holdfast.Crashed(9), func(t *holdfast.Task) { t.Crashes = 1 }, [4]bool{true, true, true, true}},
	} {
		for i, keep := range []holdfast.Keep{"", holdfast.KeepNone, holdfast.KeepRetried, holdfast.KeepAll} {
			task, policy := running(), exact()
			if policy.KeepAttempts = keep; c.before != nil {
				c.before(&task)
			}
			if move, err := holdfast.Settle(task, c.cause, now, policy); err != nil || move.Recorded != c.want[i] {
				t.Errorf("%s, keep %q: recorded %t, %v; want %t", name, keep, move.Recorded, err, c.want[i])
			}
		}
	}
}

func TestOnlyFailedAttemptsAreReported(t *testing.T) {
	t.Parallel()
	for _, cause := range []holdfast.Cause{holdfast.Returned(nil), holdfast.Interrupted(nil), holdfast.Requested(holdfast.EventCancel)} {
		move, err := holdfast.Settle(running(), cause, now, exact())
		if err != nil || !reflect.DeepEqual(move.Report, holdfast.Report{}) {
			t.Errorf("got %+v, %v", move.Report, err)
		}
	}
	move, err := holdfast.Settle(running(), holdfast.Crashed(9), now, exact())
	if err != nil || move.Report.Class != "crash" || move.Report.Error != "the worker of the task died (worker 9)" {
		t.Errorf("got %+v, %v", move.Report, err)
	}
}
