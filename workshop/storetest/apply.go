package storetest

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var applyTests = []test{
	{"applies every transition of the state table", testApplyMoves},
	{"gives a restored task the time of its death", testApplyRestore},
	{"refuses a transition if the task has changed", testApplyRefuses},
	{"records each failed attempt", testApplyRecords},
	{"records a success if the transition says so", testApplyRecordsSuccess},
	{"applies different transitions in one call", testApplyMixed},
	{"accepts one of several equal transitions", testApplyOnce},
	{"accepts one transition per attempt from concurrent callers", testApplyConcurrently},
	{"accepts a report with invalid text", testApplyDirtyReport},
	{"agrees with a model", testApplyModel},
}

// taskIn returns a new task in a state.
func (s *suite) taskIn(state holdfast.State) holdfast.Task {
	s.Helper()
	switch state {
	case holdfast.Ready:
		return s.task(s.insertN(1)[0].Task)
	case holdfast.Running:
		return s.runningTask()
	case holdfast.Done:
		return s.move(s.runningTask(), holdfast.Returned(nil))
	case holdfast.Dead:
		return s.move(s.runningTask(), holdfast.Returned(holdfast.Permanent(errors.New("hopeless"))))
	case holdfast.Archived:
		return s.move(s.taskIn(holdfast.Dead), holdfast.Requested(holdfast.EventArchive))
	case holdfast.Cancelled:
		return s.move(s.taskIn(holdfast.Ready), holdfast.Requested(holdfast.EventCancel))
	}
	s.Fatalf("no task can be created in state %q", state)
	return holdfast.Task{}
}

// causes has a cause for each event except EventClaim.
var causes = map[holdfast.Event]holdfast.Cause{
	holdfast.EventComplete:  holdfast.Returned(nil),
	holdfast.EventRetry:     holdfast.Returned(errors.New("failed")),
	holdfast.EventDefer:     holdfast.Returned(holdfast.Defer(time.Hour, errors.New("busy"))),
	holdfast.EventInterrupt: holdfast.Interrupted(errors.New("shutting down")),
	holdfast.EventCrash:     holdfast.Crashed(1),
	holdfast.EventGiveUp:    holdfast.Returned(holdfast.Permanent(errors.New("hopeless"))),
	holdfast.EventRequeue:   holdfast.Requested(holdfast.EventRequeue),
	holdfast.EventCancel:    holdfast.Requested(holdfast.EventCancel),
	holdfast.EventArchive:   holdfast.Requested(holdfast.EventArchive),
	holdfast.EventRestore:   holdfast.Requested(holdfast.EventRestore),
	holdfast.EventUndo:      holdfast.Undone(0, 0, 0),
}

func testApplyMoves(s *suite) {
	for event, move := range holdfast.Moves() {
		if event == holdfast.EventClaim {
			continue
		}
		for _, from := range move.From {
			before := s.taskIn(from)
			transition := s.settle(before, causes[event])
			if !s.apply(transition)[0] {
				s.Errorf("the store refused %s from %s", event, from)
				continue
			}
			after := s.task(before.ID)
			s.checkMove(transition, before, after)
			if s.apply(transition)[0] && transition.NextAttempt != transition.Attempt {
				s.Errorf("the store accepted %s from %s twice", event, from)
			}
		}
	}
}

// The time of the archive counts for the retention of an archived task. A restored task has died when it died, also if
// it was archived twice.
func testApplyRestore(s *suite) {
	dead := s.taskIn(holdfast.Dead)
	task := dead
	for range 2 {
		archived := s.move(task, holdfast.Requested(holdfast.EventArchive))
		if !archived.FinishedAt.After(task.FinishedAt) {
			s.Errorf("the task that died at %s is archived at %s", task.FinishedAt, archived.FinishedAt)
		}
		task = s.move(archived, holdfast.Requested(holdfast.EventRestore))
		if task.State != holdfast.Dead || !task.FinishedAt.Equal(dead.FinishedAt) {
			s.Errorf("the restored task is %s since %s; want dead since %s", task.State, task.FinishedAt, dead.FinishedAt)
		}
	}

	// A death without a record of an attempt has the time of the archive, which is the nearest one that is known.
	died := s.settle(s.runningTask(), holdfast.Returned(holdfast.Permanent(errors.New("hopeless"))))
	died.Recorded = false
	s.apply(died)
	archived := s.move(s.task(died.Task), holdfast.Requested(holdfast.EventArchive))
	if got := s.move(archived, holdfast.Requested(holdfast.EventRestore)); !got.FinishedAt.Equal(archived.FinishedAt) {
		s.Errorf("the restored task has died at %s; want %s", got.FinishedAt, archived.FinishedAt)
	}
}

// checkMove checks that a task has changed as the transition requires.
func (s *suite) checkMove(move holdfast.Transition, before, after holdfast.Task) {
	s.Helper()
	if after.State != move.To || after.Attempt != move.NextAttempt || after.Failures != move.Failures || after.Crashes != move.Crashes ||
		after.Deferrals != move.Deferrals || after.MaxAttempts != move.MaxAttempts || after.Worker != 0 {
		s.Errorf("%s: the task is %+v, before %+v", move.Event, after, before)
	}
	if move.To == holdfast.Ready {
		position := s.position(message.Ticket{Task: after.ID})
		if !after.FinishedAt.IsZero() || position.Ticketed || after.NextRunAt.Before(before.CreatedAt.Add(move.Wait)) {
			s.Errorf("%s: the task is %+v, ticketed %t", move.Event, after, position.Ticketed)
		}
	} else if after.FinishedAt.IsZero() || after.FinishedAt.Before(before.FinishedAt) && move.Event != holdfast.EventRestore {
		s.Errorf("%s: the task has the finish time %s", move.Event, after.FinishedAt)
	}
	want := before.LastError
	if move.Report.Error != "" {
		want = move.Report.Error
	}
	if after.LastError != want {
		s.Errorf("%s: the last error is %q, want %q", move.Event, after.LastError, want)
	}
}

func testApplyRefuses(s *suite) {
	task := s.runningTask()
	good := s.settle(task, holdfast.Returned(nil))
	failed := s.settle(task, holdfast.Returned(errors.New("failed")))
	for name, change := range map[string]func(*holdfast.Transition){
		"another attempt": func(m *holdfast.Transition) { m.Attempt++ },
		"another worker":  func(m *holdfast.Transition) { m.Worker++ },
		"no worker":       func(m *holdfast.Transition) { m.Worker = 0 },
		"another state":   func(m *holdfast.Transition) { m.From = []holdfast.State{holdfast.Ready, holdfast.Dead} },
		"no state":        func(m *holdfast.Transition) { m.From = nil },
		"another task":    func(m *holdfast.Transition) { m.Task = 1 << 60 },
	} {
		for _, move := range []holdfast.Transition{good, failed} {
			change(&move)
			if s.apply(move)[0] {
				s.Errorf("%s: the store accepted %s", name, move.Event)
			}
		}
	}
	attempts, err := s.Attempts(s.ctx, task.ID)
	s.must(err)
	if got := s.task(task.ID); !equalTasks(got, task) || len(attempts) > 0 {
		s.Errorf("after refused transitions the task is %+v with %d attempts", got, len(attempts))
	}
	if !s.apply(good)[0] {
		s.Error("the store refused a valid transition")
	}
}

func testApplyRecords(s *suite) {
	worker := s.registerWorker()
	ticket := s.insertN(1)[0]
	first := s.mustClaim(worker, ticket)[0]
	details := holdfast.Detailed(errors.New("no answer"), "http.503", map[string]int{"status": 503})
	second := s.move(first, holdfast.Returned(details))
	second = s.mustClaim(worker, message.Ticket{Task: second.ID, Attempt: 2})[0]
	s.move(second, holdfast.Returned(&holdfast.PanicError{Value: "boom", Stack: "main.go:1"}))

	attempts, err := s.Attempts(s.ctx, ticket.Task)
	s.must(err)
	if len(attempts) != 2 {
		s.Fatalf("got %d attempts, want 2: %+v", len(attempts), attempts)
	}
	a := attempts[0]
	if a.Task != ticket.Task || a.Attempt != 1 || a.Event != holdfast.EventRetry || a.Worker != worker || a.WorkerName != "worker" ||
		!a.StartedAt.Equal(first.StartedAt) || a.FinishedAt.Before(a.StartedAt) || a.Class != "http.503" || a.Error != "no answer" || string(a.Details) != `{"status":503}` {
		s.Errorf("the first attempt is %+v", a)
	}
	if a = attempts[1]; a.Attempt != 2 || a.Class != "panic" || a.Stack != "main.go:1" || a.Details != nil {
		s.Errorf("the second attempt is %+v", a)
	}
	if attempts, err := s.Attempts(s.ctx, s.insertN(1)[0].Task); err != nil || len(attempts) != 0 {
		s.Errorf("the attempts of a new task are %v, %v; want none", attempts, err)
	}
	if _, err := s.Attempts(s.ctx, 1<<60); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("Attempts of a task that does not exist: %v, want ErrNotFound", err)
	}
}

// testApplyRecordsSuccess completes tasks with each value of KeepAttempts, at the first attempt and after a failure.
// One call applies all results.
func testApplyRecordsSuccess(s *suite) {
	worker := s.registerWorker()
	type want struct{ failure, success bool }
	for keep, wants := range map[holdfast.Keep][2]want{ // want[0] is for a success at the first attempt, want[1] for one after a failure
		holdfast.KeepNone:    {{false, false}, {false, false}},
		holdfast.KeepRetried: {{false, false}, {true, true}},
		holdfast.KeepAll:     {{false, true}, {true, true}},
	} {
		policy := holdfast.DefaultPolicy()
		policy.Strategy, policy.Base, policy.KeepAttempts = holdfast.Fixed, 0, keep
		tickets := s.insertN(3)
		tasks := s.mustClaim(worker, tickets...)
		failed, err := holdfast.Settle(tasks[1], holdfast.Returned(errors.New("failed")), tasks[1].StartedAt, policy)
		s.must(err)
		s.apply(failed)
		tasks[1] = s.mustClaim(worker, message.Ticket{Task: tasks[1].ID, Attempt: 2})[0]
		var moves []holdfast.Transition
		for _, task := range tasks {
			move, err := holdfast.Settle(task, holdfast.Returned(nil), task.StartedAt, policy)
			s.must(err)
			moves = append(moves, move)
		}
		if got := s.apply(moves...); !slices.Equal(got, []bool{true, true, true}) {
			s.Fatalf("%s: accepted %v", keep, got)
		}
		if again := s.apply(moves...); !slices.Equal(again, []bool{false, false, false}) {
			s.Errorf("%s: accepted %v again", keep, again)
		}
		for i, task := range tasks {
			s.checkSuccess(keep, task, wants[i%2])
		}
	}
}

// checkSuccess checks the two possible records of a done task: the failure of attempt 1, and the success of the last
// attempt.
func (s *suite) checkSuccess(keep holdfast.Keep, last holdfast.Task, want struct{ failure, success bool }) {
	s.Helper()
	attempts, err := s.Attempts(s.ctx, last.ID)
	s.must(err)
	if want.failure && (len(attempts) == 0 || attempts[0].Event != holdfast.EventRetry) {
		s.Errorf("%s: the attempts of task %s are %+v, want a failure", keep, last.ID, attempts)
		return
	}
	if want.failure {
		attempts = attempts[1:]
	}
	switch {
	case !want.success && len(attempts) > 0:
		s.Errorf("%s: task %s has more attempts: %+v", keep, last.ID, attempts)
	case want.success && (len(attempts) != 1 || attempts[0].Event != holdfast.EventComplete || attempts[0].Attempt != last.Attempt ||
		attempts[0].Worker != last.Worker || attempts[0].WorkerName != "worker" || attempts[0].Class != "" || attempts[0].Error != "" ||
		!attempts[0].StartedAt.Equal(last.StartedAt) || attempts[0].FinishedAt.Before(last.StartedAt)):
		s.Errorf("%s: task %s has the attempts %+v, want its success", keep, last.ID, attempts)
	}
	if task := s.task(last.ID); task.State != holdfast.Done || want.failure && task.LastError != "failed" {
		s.Errorf("%s: the task is %+v", keep, task)
	}
}

func testApplyMixed(s *suite) {
	worker := s.registerWorker()
	tasks := s.mustClaim(worker, s.insertN(6)...)
	moves := []holdfast.Transition{
		s.settle(tasks[0], holdfast.Returned(nil)),
		s.settle(tasks[1], holdfast.Returned(errors.New("failed"))),
		s.settle(tasks[2], holdfast.Returned(nil)),
		s.settle(tasks[3], holdfast.Returned(holdfast.Cancel(nil))),
		s.settle(tasks[4], holdfast.Returned(holdfast.Permanent(nil))),
		s.settle(tasks[5], holdfast.Returned(nil)),
	}
	moves[2].Attempt = 9
	if got, want := s.apply(moves...), []bool{true, true, false, true, true, true}; !slices.Equal(got, want) {
		s.Errorf("accepted %v, want %v", got, want)
	}
	for i, want := range []holdfast.State{holdfast.Done, holdfast.Ready, holdfast.Running, holdfast.Cancelled, holdfast.Dead, holdfast.Done} {
		if got := s.task(tasks[i].ID).State; got != want {
			s.Errorf("task %d is %s, want %s", i, got, want)
		}
	}
	if got := s.apply(); len(got) != 0 {
		s.Errorf("Apply without transitions returned %v", got)
	}
}

func testApplyOnce(s *suite) {
	for _, cause := range []holdfast.Cause{holdfast.Returned(nil), holdfast.Returned(errors.New("failed")), holdfast.Interrupted(nil)} {
		move := s.settle(s.runningTask(), cause)
		if got, want := s.apply(move, move, move), []bool{true, false, false}; !slices.Equal(got, want) {
			s.Errorf("%s three times in one call: accepted %v", move.Event, got)
		}
	}
	task := s.runningTask()
	done, failed := s.settle(task, holdfast.Returned(nil)), s.settle(task, holdfast.Returned(errors.New("failed")))
	if got := s.apply(failed, done); !slices.Equal(got, []bool{true, false}) {
		s.Errorf("a failure and a success of one attempt in one call: accepted %v", got)
	}
}

func testApplyConcurrently(s *suite) {
	const callers = 6
	worker := s.registerWorker()
	tasks := s.mustClaim(worker, s.insertN(100)...)
	accepted := make([][]bool, callers)
	var group sync.WaitGroup
	for c := range callers {
		moves := make([]holdfast.Transition, len(tasks))
		for i, j := range rand.Perm(len(tasks)) {
			cause := holdfast.Returned(nil)
			if (j+c)%2 == 0 {
				cause = holdfast.Crashed(worker)
			}
			moves[i] = s.settle(tasks[j], cause)
		}
		accepted[c] = make([]bool, len(tasks))
		group.Go(func() {
			answers, err := s.Apply(s.ctx, moves)
			if err != nil {
				s.Error(err)
				return
			}
			for i, ok := range answers {
				accepted[c][slices.IndexFunc(tasks, func(t holdfast.Task) bool { return t.ID == moves[i].Task })] = ok
			}
		})
	}
	group.Wait()
	for i, task := range tasks {
		n := 0
		for c := range callers {
			if accepted[c][i] {
				n++
			}
		}
		if n != 1 {
			s.Errorf("the store accepted %d results of task %s, want 1", n, task.ID)
		}
	}
}

func testApplyDirtyReport(s *suite) {
	tasks := s.mustClaim(s.registerWorker(), s.insertN(2)...)
	dirty := s.settle(tasks[0], holdfast.Returned(errors.New("failed")))
	dirty.Report = holdfast.Report{Class: "a\x00b", Error: "bad \xff text\x00", Stack: "\xfe", Details: json.RawMessage("not \x00 JSON")}
	if got := s.apply(dirty, s.settle(tasks[1], holdfast.Returned(nil))); !slices.Equal(got, []bool{true, true}) {
		s.Errorf("accepted %v", got)
	}
}

// model is the expected state of one task.
type model struct {
	task     holdfast.Task
	ticketed bool
	earlier  []holdfast.Transition // settled earlier; the store may refuse them by now
}

// testApplyModel applies random transitions, both current and outdated ones. It compares the rows with a model that
// implements only Settle and the rule for refused transitions.
func testApplyModel(s *suite) {
	workers := []holdfast.WorkerID{s.registerWorker(), s.registerWorker()}
	rapid.Check(s.T, func(t *rapid.T) {
		models := make([]*model, 3)
		for i, ticket := range s.insertN(len(models)) {
			models[i] = &model{task: s.task(ticket.Task), ticketed: true}
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				s.modelClaim(t, rapid.SampledFrom(models).Draw(t, "task"), rapid.SampledFrom(workers).Draw(t, "worker"))
			},
			"settle": func(t *rapid.T) { s.modelSettle(t, rapid.SampledFrom(models).Draw(t, "task")) },
			"apply an earlier transition": func(t *rapid.T) {
				m := rapid.SampledFrom(models).Draw(t, "task")
				if len(m.earlier) > 0 {
					s.modelApply(t, m, rapid.SampledFrom(m.earlier).Draw(t, "move"))
				}
			},
			"unticket": func(t *rapid.T) {
				m := rapid.SampledFrom(models).Draw(t, "task")
				n, err := s.Unticket(s.ctx, []message.Ticket{{Task: m.task.ID, Attempt: m.task.Attempt}})
				if want := m.task.State == holdfast.Ready && m.ticketed; err != nil || (n == 1) != want {
					t.Fatalf("Unticket changed %d tasks, %v; want a change: %t", n, err, want)
				}
				m.ticketed = false
			},
			"dispatch": func(t *rapid.T) {
				for due, _ := s.dispatch(100); len(due) > 0; due, _ = s.dispatch(100) {
				}
				for _, m := range models {
					m.ticketed = m.ticketed || m.task.State == holdfast.Ready
				}
			},
			"": func(t *rapid.T) { s.modelCompare(t, models) },
		})
	})
}

func (s *suite) modelClaim(t *rapid.T, m *model, worker holdfast.WorkerID) {
	claims, err := s.Claim(s.ctx, worker, kinds, []message.Ticket{{Task: m.task.ID, Attempt: m.task.Attempt}}, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	want := store.Stale
	switch {
	case m.task.State == holdfast.Ready, m.task.State == holdfast.Running && m.task.Worker == worker:
		want = store.Claimed
	case m.task.State == holdfast.Running:
		want = store.Contended
	}
	if claims[0].Verdict != want {
		t.Fatalf("the verdict is %s, want %s for %+v", verdictName(claims[0].Verdict), verdictName(want), m.task)
	}
	if want == store.Claimed {
		m.task.State, m.task.Worker, m.ticketed = holdfast.Running, worker, false
	}
}

func (s *suite) modelSettle(t *rapid.T, m *model) {
	var events []holdfast.Event
	for event := range causes {
		if event != holdfast.EventDefer && holdfast.Allowed(event, m.task.State) { // the wait of a deferred task is too long for a test
			events = append(events, event)
		}
	}
	if len(events) == 0 {
		return
	}
	slices.Sort(events)
	move, err := holdfast.Settle(m.task, causes[rapid.SampledFrom(events).Draw(t, "event")], m.task.CreatedAt, policy())
	if err != nil {
		t.Fatal(err)
	}
	move.Wait = 0 // the test does not wait
	m.earlier = append(m.earlier, move)
	if rapid.Bool().Draw(t, "apply") {
		s.modelApply(t, m, move)
	}
}

// modelApply applies a transition to the store and to the model.
func (s *suite) modelApply(t *rapid.T, m *model, move holdfast.Transition) {
	accepted, err := s.Apply(s.ctx, []holdfast.Transition{move})
	if err != nil {
		t.Fatal(err)
	}
	valid := m.task.Attempt == move.Attempt && m.task.Worker == move.Worker && slices.Contains(move.From, m.task.State)
	if accepted[0] != valid {
		t.Fatalf("%s: accepted %t, want %t; the task is %+v", move.Event, accepted[0], valid, m.task)
	}
	if !valid {
		return
	}
	m.task.State, m.task.Attempt, m.task.Worker = move.To, move.NextAttempt, 0
	m.task.Failures, m.task.Crashes, m.task.Deferrals = move.Failures, move.Crashes, move.Deferrals
	if move.Report.Error != "" {
		m.task.LastError = move.Report.Error
	}
	m.ticketed = false
}

func (s *suite) modelCompare(t *rapid.T, models []*model) {
	tickets := make([]message.Ticket, len(models))
	for i, m := range models {
		tickets[i] = message.Ticket{Task: m.task.ID}
	}
	positions, err := s.Positions(s.ctx, tickets)
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := s.TasksByID(s.ctx, ids(tickets))
	if err != nil || len(tasks) != len(models) {
		t.Fatalf("TasksByID returned %d tasks, %v", len(tasks), err)
	}
	for i, m := range models {
		got := tasks[slices.IndexFunc(tasks, func(task holdfast.Task) bool { return task.ID == m.task.ID })]
		want := got
		want.State, want.Attempt, want.Worker, want.LastError = m.task.State, m.task.Attempt, m.task.Worker, m.task.LastError
		want.Failures, want.Crashes, want.Deferrals = m.task.Failures, m.task.Crashes, m.task.Deferrals
		if !equalTasks(got, want) || positions[i].Ticketed != m.ticketed {
			t.Fatalf("the task is %+v, ticketed %t; want %+v, ticketed %t", got, positions[i].Ticketed, want, m.ticketed)
		}
		if got.State.Final() == got.FinishedAt.IsZero() {
			t.Fatalf("the task is %s and has the finish time %s", got.State, got.FinishedAt)
		}
	}
}
