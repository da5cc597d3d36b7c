package storetest

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var applyTests = []test{
	{"makes every move of the state table", testApplyMoves},
	{"refuses what does not stand as judged", testApplyRefuses},
	{"keeps a record of each failure", testApplyRecords},
	{"takes a mixed batch", testApplyMixed},
	{"accepts one of equal results", testApplyOnce},
	{"accepts one of many callers", testApplyConcurrently},
	{"survives a report that no column can hold", testApplyDirtyReport},
	{"agrees with the model", testApplyModel},
}

// origins bring a new task into a state.
func (s *suite) taskIn(state holdfast.State) holdfast.Task {
	s.Helper()
	switch state {
	case holdfast.Ready:
		return s.task(s.inserts(1)[0].Task)
	case holdfast.Running:
		return s.running()
	case holdfast.Done:
		return s.move(s.running(), holdfast.Returned(nil))
	case holdfast.Dead:
		return s.move(s.running(), holdfast.Returned(holdfast.Permanent(errors.New("hopeless"))))
	case holdfast.Archived:
		return s.move(s.taskIn(holdfast.Dead), holdfast.Asked(holdfast.EventArchive))
	case holdfast.Cancelled:
		return s.move(s.taskIn(holdfast.Ready), holdfast.Asked(holdfast.EventCancel))
	}
	s.Fatalf("no way to state %q", state)
	return holdfast.Task{}
}

// causes lead to the events, except the claim.
var causes = map[holdfast.Event]holdfast.Cause{
	holdfast.EventComplete:  holdfast.Returned(nil),
	holdfast.EventRetry:     holdfast.Returned(errors.New("failed")),
	holdfast.EventDefer:     holdfast.Returned(holdfast.Defer(time.Hour, errors.New("busy"))),
	holdfast.EventInterrupt: holdfast.Interrupted(errors.New("shutting down")),
	holdfast.EventCrash:     holdfast.Crashed(1),
	holdfast.EventGiveUp:    holdfast.Returned(holdfast.Permanent(errors.New("hopeless"))),
	holdfast.EventRequeue:   holdfast.Asked(holdfast.EventRequeue),
	holdfast.EventCancel:    holdfast.Asked(holdfast.EventCancel),
	holdfast.EventArchive:   holdfast.Asked(holdfast.EventArchive),
	holdfast.EventRestore:   holdfast.Asked(holdfast.EventRestore),
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
				s.Errorf("%s from %s was refused", event, from)
				continue
			}
			after := s.task(before.ID)
			s.checkMove(transition, before, after)
			if s.apply(transition)[0] && transition.NextAttempt != transition.Attempt {
				s.Errorf("%s from %s was accepted twice", event, from)
			}
		}
	}
}

// checkMove compares a row with what the judge ordered.
func (s *suite) checkMove(move holdfast.Transition, before, after holdfast.Task) {
	s.Helper()
	if after.State != move.To || after.Attempt != move.NextAttempt || after.Failures != move.Failures || after.Crashes != move.Crashes ||
		after.Deferrals != move.Deferrals || after.MaxAttempts != move.MaxAttempts || after.Run != 0 {
		s.Errorf("%s made %+v of %+v", move.Event, after, before)
	}
	if move.To == holdfast.Ready {
		position := s.position(message.Ticket{Task: after.ID})
		if !after.FinishedAt.IsZero() || position.Ticketed || after.NextRunAt.Before(before.CreatedAt.Add(move.Wait)) {
			s.Errorf("%s leaves %+v, ticketed: %t", move.Event, after, position.Ticketed)
		}
	} else if after.FinishedAt.IsZero() || after.FinishedAt.Before(before.FinishedAt) {
		s.Errorf("%s leaves a task that finished at %s", move.Event, after.FinishedAt)
	}
	want := before.LastError
	if move.Report.Error != "" {
		want = move.Report.Error
	}
	if after.LastError != want {
		s.Errorf("%s leaves the last error %q, want %q", move.Event, after.LastError, want)
	}
}

func testApplyRefuses(s *suite) {
	task := s.running()
	good := s.settle(task, holdfast.Returned(nil))
	failed := s.settle(task, holdfast.Returned(errors.New("failed")))
	for name, change := range map[string]func(*holdfast.Transition){
		"another attempt": func(m *holdfast.Transition) { m.Attempt++ },
		"another run":     func(m *holdfast.Transition) { m.Run++ },
		"no run":          func(m *holdfast.Transition) { m.Run = 0 },
		"another state":   func(m *holdfast.Transition) { m.From = []holdfast.State{holdfast.Ready, holdfast.Dead} },
		"no state":        func(m *holdfast.Transition) { m.From = nil },
		"another task":    func(m *holdfast.Transition) { m.Task = 1 << 60 },
	} {
		for _, move := range []holdfast.Transition{good, failed} {
			change(&move)
			if s.apply(move)[0] {
				s.Errorf("%s: %s was accepted", name, move.Event)
			}
		}
	}
	attempts, err := s.Attempts(s.ctx, task.ID)
	s.must(err)
	if got := s.task(task.ID); !equalTasks(got, task) || len(attempts) > 0 {
		s.Errorf("refused moves left %+v and %d attempts", got, len(attempts))
	}
	if !s.apply(good)[0] {
		s.Error("the good move was refused")
	}
}

func testApplyRecords(s *suite) {
	run := s.openRun()
	ticket := s.inserts(1)[0]
	first := s.claimed(run, ticket)[0]
	details := holdfast.Detailed(errors.New("no answer"), "http.503", map[string]int{"status": 503})
	second := s.move(first, holdfast.Returned(details))
	second = s.claimed(run, message.Ticket{Task: second.ID, Attempt: 2})[0]
	s.move(second, holdfast.Returned(&holdfast.PanicError{Value: "boom", Stack: "main.go:1"}))

	attempts, err := s.Attempts(s.ctx, ticket.Task)
	s.must(err)
	if len(attempts) != 2 {
		s.Fatalf("there are %d attempts: %+v", len(attempts), attempts)
	}
	a := attempts[0]
	if a.Task != ticket.Task || a.Attempt != 1 || a.Event != holdfast.EventRetry || a.Run != run || a.Worker != "worker" ||
		!a.StartedAt.Equal(first.StartedAt) || a.FinishedAt.Before(a.StartedAt) || a.Class != "http.503" || a.Error != "no answer" || string(a.Details) != `{"status":503}` {
		s.Errorf("the first attempt is %+v", a)
	}
	if a = attempts[1]; a.Attempt != 2 || a.Class != "panic" || a.Stack != "main.go:1" || a.Details != nil {
		s.Errorf("the second attempt is %+v", a)
	}
	if attempts, err := s.Attempts(s.ctx, s.inserts(1)[0].Task); err != nil || len(attempts) != 0 {
		s.Errorf("a new task has the attempts %v, %v", attempts, err)
	}
	if _, err := s.Attempts(s.ctx, 1<<60); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("the attempts of a task that does not exist: %v", err)
	}
}

func testApplyMixed(s *suite) {
	run := s.openRun()
	tasks := s.claimed(run, s.inserts(6)...)
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
		s.Errorf("no moves were answered with %v", got)
	}
}

func testApplyOnce(s *suite) {
	for _, cause := range []holdfast.Cause{holdfast.Returned(nil), holdfast.Returned(errors.New("failed")), holdfast.Interrupted(nil)} {
		move := s.settle(s.running(), cause)
		if got, want := s.apply(move, move, move), []bool{true, false, false}; !slices.Equal(got, want) {
			s.Errorf("%s three times in one call: %v", move.Event, got)
		}
	}
	task := s.running()
	done, failed := s.settle(task, holdfast.Returned(nil)), s.settle(task, holdfast.Returned(errors.New("failed")))
	if got := s.apply(failed, done); !slices.Equal(got, []bool{true, false}) {
		s.Errorf("a failure and a success of one attempt in one call: %v", got)
	}
}

func testApplyConcurrently(s *suite) {
	const callers = 6
	run := s.openRun()
	tasks := s.claimed(run, s.inserts(100)...)
	accepted := make([][]bool, callers)
	var group sync.WaitGroup
	for c := range callers {
		moves := make([]holdfast.Transition, len(tasks))
		for i, j := range rand.Perm(len(tasks)) {
			cause := holdfast.Returned(nil)
			if (j+c)%2 == 0 {
				cause = holdfast.Crashed(run)
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
			s.Errorf("%d results of task %s were accepted", n, task.ID)
		}
	}
}

func testApplyDirtyReport(s *suite) {
	tasks := s.claimed(s.openRun(), s.inserts(2)...)
	dirty := s.settle(tasks[0], holdfast.Returned(errors.New("failed")))
	dirty.Report = holdfast.Report{Class: "a\x00b", Error: "bad \xff text\x00", Stack: "\xfe", Details: json.RawMessage("not \x00 JSON")}
	if got := s.apply(dirty, s.settle(tasks[1], holdfast.Returned(nil))); !slices.Equal(got, []bool{true, true}) {
		s.Errorf("accepted %v", got)
	}
}

// model is what the tests expect of one task.
type model struct {
	task     holdfast.Task
	ticketed bool
	old      []holdfast.Transition // judged earlier; whether they fit still is the question
}

// testApplyModel makes random moves, fitting and late ones, and compares the rows with a
// model that knows only Settle and the compare-and-set rule.
func testApplyModel(s *suite) {
	runs := []holdfast.RunID{s.openRun(), s.openRun()}
	rapid.Check(s.T, func(t *rapid.T) {
		models := make([]*model, 3)
		for i, ticket := range s.inserts(len(models)) {
			models[i] = &model{task: s.task(ticket.Task), ticketed: true}
		}
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				s.modelClaim(t, rapid.SampledFrom(models).Draw(t, "task"), rapid.SampledFrom(runs).Draw(t, "run"))
			},
			"judge": func(t *rapid.T) { s.modelJudge(t, rapid.SampledFrom(models).Draw(t, "task")) },
			"late": func(t *rapid.T) {
				m := rapid.SampledFrom(models).Draw(t, "task")
				if len(m.old) > 0 {
					s.modelApply(t, m, rapid.SampledFrom(m.old).Draw(t, "move"))
				}
			},
			"unticket": func(t *rapid.T) {
				m := rapid.SampledFrom(models).Draw(t, "task")
				n, err := s.Unticket(s.ctx, []message.Ticket{{Task: m.task.ID, Attempt: m.task.Attempt}})
				if want := m.task.State == holdfast.Ready && m.ticketed; err != nil || (n == 1) != want {
					t.Fatalf("unticket changed %d rows, %v; want a change: %t", n, err, want)
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

func (s *suite) modelClaim(t *rapid.T, m *model, run holdfast.RunID) {
	claims, err := s.Claim(s.ctx, run, kinds, []message.Ticket{{Task: m.task.ID, Attempt: m.task.Attempt}}, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	want := store.Stale
	switch {
	case m.task.State == holdfast.Ready, m.task.State == holdfast.Running && m.task.Run == run:
		want = store.Claimed
	case m.task.State == holdfast.Running:
		want = store.Contended
	}
	if claims[0].Verdict != want {
		t.Fatalf("%s, want %s for %+v", verdictName(claims[0].Verdict), verdictName(want), m.task)
	}
	if want == store.Claimed {
		m.task.State, m.task.Run, m.ticketed = holdfast.Running, run, false
	}
}

func (s *suite) modelJudge(t *rapid.T, m *model) {
	var events []holdfast.Event
	for event := range causes {
		if event != holdfast.EventDefer && holdfast.Allowed(event, m.task.State) { // a deferred task waits too long for a test
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
	move.Wait = 0 // a test would have to wait as well
	m.old = append(m.old, move)
	if rapid.Bool().Draw(t, "apply") {
		s.modelApply(t, m, move)
	}
}

// modelApply applies a move to the row and to the model.
func (s *suite) modelApply(t *rapid.T, m *model, move holdfast.Transition) {
	accepted, err := s.Apply(s.ctx, []holdfast.Transition{move})
	if err != nil {
		t.Fatal(err)
	}
	fits := m.task.Attempt == move.Attempt && m.task.Run == move.Run && slices.Contains(move.From, m.task.State)
	if accepted[0] != fits {
		t.Fatalf("%s: accepted %t, but it fits: %t; the task is %+v", move.Event, accepted[0], fits, m.task)
	}
	if !fits {
		return
	}
	m.task.State, m.task.Attempt, m.task.Run = move.To, move.NextAttempt, 0
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
		t.Fatalf("read %d tasks, %v", len(tasks), err)
	}
	for i, m := range models {
		got := tasks[slices.IndexFunc(tasks, func(task holdfast.Task) bool { return task.ID == m.task.ID })]
		want := got
		want.State, want.Attempt, want.Run, want.LastError = m.task.State, m.task.Attempt, m.task.Run, m.task.LastError
		want.Failures, want.Crashes, want.Deferrals = m.task.Failures, m.task.Crashes, m.task.Deferrals
		if !equalTasks(got, want) || positions[i].Ticketed != m.ticketed {
			t.Fatalf("the row is %+v, ticketed %t; want %+v, ticketed %t", got, positions[i].Ticketed, want, m.ticketed)
		}
		if got.State.Final() == got.FinishedAt.IsZero() {
			t.Fatalf("a task that is %s finished at %s", got.State, got.FinishedAt)
		}
	}
}
