package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var operationTests = []test{
	{"stores operations with all their values", testOperationValues},
	{"lists operations by state, newest first", testListOperations},
	{"makes a step in one transaction, and records it", testOperationStep},
	{"makes each step once if several processes try", testOperationSteps},
	{"makes no step after a person has cancelled", testCancelledOperation},
	{"files what a person does with an operation under its own action", testOperationActions},
	{"judges the first attempts of retried tasks", testFirstAttempts},
	{"finds the tasks that an operation has changed", testTasksOfOperation},
	{"counts no first attempt of a task that a person purged or took back", testFirstAttemptsAfterChanges},
	{"judges first attempts by what followed them", testFirstAttemptsInRetrospect},
	{"a step changes no other operation", testOtherOperations},
	{"records when an operation starts and ends", testOperationTimes},
}

func (s *suite) createOperation(o store.Operation) store.Operation {
	s.Helper()
	created, err := s.CreateOperation(s.ctx, anna, o)
	s.must(err)
	return created
}

// retryOperation creates a running retry of all dead tasks.
func (s *suite) retryOperation() store.Operation {
	s.Helper()
	return s.createOperation(store.Operation{
		Action: store.ActionRetry, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}},
		State: store.OperationRunning, StopAbove: 1, StepTimeout: time.Minute,
	})
}

func (s *suite) operation(id store.ID) store.Operation {
	s.Helper()
	o, err := s.Operation(s.ctx, id)
	s.must(err)
	return o
}

// retryStep returns the step of an operation that retries the tasks.
func (s *suite) retryStep(o store.Operation, tasks ...holdfast.Task) store.OperationStep {
	s.Helper()
	step := store.OperationStep{From: o, To: o}
	for _, task := range tasks {
		step.Changes = append(step.Changes, s.changeOf(store.ActionRetry, task, holdfast.Requested(holdfast.EventRequeue)))
		step.To.Cursor = task.ID
	}
	return step
}

func testOperationValues(s *suite) {
	before := s.now()
	since := before.Add(-time.Hour).Truncate(time.Microsecond)
	want := store.Operation{
		Action: store.ActionEdit, Query: `state:dead error:"a 'b'"`, Filter: store.Filter{States: []holdfast.State{holdfast.Dead}, Error: "a 'b'", Since: since, NotIDs: []holdfast.TaskID{7, 1 << 60}},
		Patch: json.RawMessage(`[{"op":"remove","path":"/payload/a"}]`), SkipValidation: true, State: store.OperationPlanned,
		Rate: 7, Ramp: []int{1, 100}, StopAbove: 0.25, StepTimeout: 90 * time.Second, Limit: 10, Total: 12,
	}
	o := s.createOperation(want)
	if o.ID == 0 || o.Version == 0 || o.CreatedAt.Before(before) || o.CreatedAt.After(s.now()) || !o.StartedAt.IsZero() || o.Actor != anna {
		s.Errorf("created: %+v", o)
	}
	got := s.operation(o.ID)
	if got.Query != want.Query || !slices.Equal(got.Filter.States, want.Filter.States) || got.Filter.Error != want.Filter.Error || !got.Filter.Since.Equal(since) || !slices.Equal(got.Filter.NotIDs, want.Filter.NotIDs) ||
		string(got.Patch) != string(want.Patch) || !got.SkipValidation || got.State != want.State || got.Rate != 7 || !slices.Equal(got.Ramp, want.Ramp) || got.StopAbove != 0.25 ||
		got.StepTimeout != want.StepTimeout || got.Limit != 10 || got.Total != 12 || got.Foreign || !got.CreatedAt.Equal(o.CreatedAt) {
		s.Errorf("read: %+v", got)
	}
	entries := s.auditLog(store.AuditFilter{Operation: o.ID})
	if len(entries) != 1 || entries[0].Actor != anna || entries[0].Action != store.ActionEdit || entries[0].Task != 0 || entries[0].Subject == "" {
		s.Errorf("entries: %+v", entries)
	}
	if _, err := s.Operation(s.ctx, o.ID+1); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("an unknown operation: %v", err)
	}
}

func testListOperations(s *suite) {
	planned := s.createOperation(store.Operation{Action: store.ActionArchive, State: store.OperationPlanned, StopAbove: 1})
	first, second := s.retryOperation(), s.retryOperation()
	for _, c := range []struct {
		name   string
		filter store.OperationFilter
		want   []store.ID
	}{
		{"all", store.OperationFilter{}, []store.ID{second.ID, first.ID, planned.ID}},
		{"a limit", store.OperationFilter{Limit: 1}, []store.ID{second.ID}},
		{"a page", store.OperationFilter{Before: second.ID}, []store.ID{first.ID, planned.ID}},
		{"planned", store.OperationFilter{States: []store.OperationState{store.OperationPlanned}}, []store.ID{planned.ID}},
		{"running", store.OperationFilter{States: []store.OperationState{store.OperationRunning}}, []store.ID{second.ID, first.ID}},
		{"two states", store.OperationFilter{States: []store.OperationState{store.OperationPlanned, store.OperationDone}}, []store.ID{planned.ID}},
	} {
		found, err := s.ListOperations(s.ctx, c.filter)
		s.must(err)
		var got []store.ID
		for _, o := range found {
			if got = append(got, o.ID); o.State == store.OperationRunning && o.StartedAt.IsZero() {
				s.Errorf("%s: operation %s has not started", c.name, o.ID)
			}
		}
		if !slices.Equal(got, c.want) {
			s.Errorf("%s: operations %v, want %v", c.name, got, c.want)
		}
	}
}

func testOperationActions(s *suite) {
	o := s.createOperation(store.Operation{Action: store.ActionRetry, State: store.OperationPlanned, StopAbove: 1})
	for _, state := range []store.OperationState{
		store.OperationRunning, store.OperationPaused, store.OperationRunning, store.OperationStopped, store.OperationRunning, store.OperationCancelled,
	} {
		step := store.OperationStep{From: o, To: o, By: &anna}
		step.To.State = state
		var err error
		o, err = s.StepOperation(s.ctx, step)
		s.must(err)
	}
	var actions []store.Action
	for _, entry := range slices.Backward(s.auditLog(store.AuditFilter{Operation: o.ID})) {
		actions = append(actions, entry.Action)
	}
	want := []store.Action{
		store.ActionRetry, store.ActionResume, store.ActionPause, store.ActionResume, store.ActionRetry, store.ActionResume, store.ActionCancel,
	}
	if !slices.Equal(actions, want) {
		s.Errorf("the actions are %v, want %v", actions, want)
	}
	if paused := s.auditLog(store.AuditFilter{Action: store.ActionPause}); len(paused) != 1 || paused[0].Operation != o.ID || paused[0].Task != 0 {
		s.Errorf("pauses: %+v", paused)
	}
}

func testOperationStep(s *suite) {
	a, b := s.task(s.die(defaultQueue, errors.New("no order"))), s.task(s.die(defaultQueue, errors.New("no order")))
	o := s.retryOperation()
	step := s.retryStep(o, b, a)
	s.mustChange(s.changeOf(store.ActionArchive, a, holdfast.Requested(holdfast.EventArchive))) // too early for the step
	step.To.Skipped, step.To.Note, step.To.AdvancedAt = 3, "a note", o.CreatedAt.Add(time.Second)
	step.To.Step, step.To.WaitingAt = 2, o.CreatedAt.Add(time.Minute)
	stepped, err := s.StepOperation(s.ctx, step)
	s.must(err)
	got := s.operation(o.ID)
	if got.Changed != 1 || got.Skipped != 4 || got.Cursor != a.ID || got.Note != "a note" || got.Version <= o.Version || got.Step != 2 ||
		!got.AdvancedAt.Equal(step.To.AdvancedAt) || !got.WaitingAt.Equal(step.To.WaitingAt) || stepped.Version != got.Version || stepped.Changed != 1 {
		s.Errorf("the operation is %+v", got)
	}
	if s.task(b.ID).State != holdfast.Ready || s.task(a.ID).State != holdfast.Archived {
		s.Errorf("the tasks are %s and %s", s.task(b.ID).State, s.task(a.ID).State)
	}
	entries := s.auditLog(store.AuditFilter{Task: b.ID})
	if len(entries) != 1 || entries[0].Operation != o.ID || entries[0].Actor != anna {
		s.Errorf("entries of the task: %+v", entries)
	}
	if _, err := s.StepOperation(s.ctx, step); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("the same step again: %v", err)
	}
	ben := store.Actor{Name: "ben", Surface: store.API, Reason: "enough"}
	step = store.OperationStep{From: got, To: got, By: &ben}
	step.To.State, step.To.WaitingAt = store.OperationDone, time.Time{}
	if _, err = s.StepOperation(s.ctx, step); err != nil {
		s.Fatal(err)
	}
	got = s.operation(o.ID)
	if got.State != store.OperationDone || got.FinishedAt.IsZero() || got.Changed != 1 || got.Skipped != 4 || !got.WaitingAt.IsZero() {
		s.Errorf("the operation is %+v", got)
	}
	if entries := s.auditLog(store.AuditFilter{Operation: o.ID, Actor: "ben"}); len(entries) != 1 || entries[0].Subject == "" {
		s.Errorf("entries of the end: %+v", entries)
	}
}

// testOperationSteps lets four processes make the same steps. Each step is made once.
func testOperationSteps(s *suite) {
	const n = 40
	for range n {
		s.die(defaultQueue, errors.New("no order"))
	}
	o := s.retryOperation()
	var conflicts atomic.Int64
	var processes sync.WaitGroup
	for range 4 {
		processes.Go(func() {
			for {
				now, err := s.Operation(s.ctx, o.ID)
				if err != nil {
					s.Error(err)
					return
				}
				page, err := s.List(s.ctx, store.Filter{States: []holdfast.State{holdfast.Dead}, Before: now.Cursor, Limit: 3})
				if err != nil {
					s.Error(err)
					return
				}
				if len(page.Tasks) == 0 {
					return
				}
				_, err = s.StepOperation(s.ctx, s.retryStep(now, page.Tasks...))
				if errors.Is(err, holdfast.ErrConflict) {
					conflicts.Add(1)
				} else if err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	processes.Wait()
	if entries := s.auditLog(store.AuditFilter{Action: store.ActionRetry, Single: true}); len(entries) != 1 || entries[0].Operation != o.ID || entries[0].Task != 0 {
		s.Errorf("without the changes of its tasks, the operation has %d entries", len(entries))
	}
	if entries := s.auditLog(store.AuditFilter{Operation: o.ID, Single: true}); len(entries) != 1 || entries[0].Task != 0 {
		s.Errorf("of the operation, without the changes of its tasks, there are %d entries", len(entries))
	}
	if got := s.operation(o.ID); got.Changed+got.Skipped != n || got.Changed != int64(len(s.auditLog(store.AuditFilter{Action: store.ActionRetry, Operation: o.ID, Limit: 1000}))-1) {
		s.Errorf("%d changed, %d skipped; %d conflicts", got.Changed, got.Skipped, conflicts.Load())
	}
}

func testCancelledOperation(s *suite) {
	dead := s.task(s.die(defaultQueue, errors.New("no order")))
	o := s.retryOperation()
	step := s.retryStep(o, dead)
	cancel := store.OperationStep{From: o, To: o, By: &anna}
	cancel.To.State = store.OperationCancelled
	_, err := s.StepOperation(s.ctx, cancel)
	s.must(err)
	if _, err := s.StepOperation(s.ctx, step); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("a step after the cancellation: %v", err)
	}
	if got := s.task(dead.ID); got.State != holdfast.Dead {
		s.Errorf("the task is %s", got.State)
	}
}

func testTasksOfOperation(s *suite) {
	die := func() holdfast.Task { return s.task(s.die(defaultQueue, errors.New("no order"))) }
	first, second, rest := die(), die(), die()
	o, other := s.retryOperation(), s.retryOperation()
	for _, step := range []store.OperationStep{s.retryStep(o, second, first), s.retryStep(other, rest)} {
		_, err := s.StepOperation(s.ctx, step)
		s.must(err)
	}
	of := func(id store.ID, more store.Filter) []holdfast.TaskID {
		s.Helper()
		more.Operation = id
		page, err := s.List(s.ctx, more)
		s.must(err)
		counts, err := s.Count(s.ctx, more)
		s.must(err)
		n := 0
		for _, tasks := range counts.By {
			n += int(tasks)
		}
		if n != len(page.Tasks) {
			s.Errorf("operation %s has %d tasks, but %d are counted", id, len(page.Tasks), n)
		}
		return idsOf(page.Tasks)
	}
	worker := s.registerWorker()
	due, _ := s.dispatch(10)
	for _, d := range due {
		if d.Ticket.Task == first.ID {
			s.move(s.mustClaim(worker, d.Ticket)[0], holdfast.Returned(holdfast.Permanent(errors.New("no order"))))
		}
	}
	dead := []holdfast.State{holdfast.Dead}
	for _, want := range []struct {
		operation store.ID
		filter    store.Filter
		tasks     []holdfast.TaskID
	}{
		{o.ID, store.Filter{}, []holdfast.TaskID{second.ID, first.ID}},
		{o.ID, store.Filter{States: dead}, []holdfast.TaskID{first.ID}},
		{o.ID, store.Filter{IDs: []holdfast.TaskID{first.ID, rest.ID}}, []holdfast.TaskID{first.ID}},
		{other.ID, store.Filter{}, []holdfast.TaskID{rest.ID}},
		{other.ID, store.Filter{States: dead}, nil},
		{other.ID + 1, store.Filter{}, nil},
	} {
		if got := of(want.operation, want.filter); !slices.Equal(got, want.tasks) {
			s.Errorf("operation %s and %+v: tasks %v, want %v", want.operation, want.filter, got, want.tasks)
		}
	}
}

func testFirstAttempts(s *suite) {
	var dead []holdfast.Task
	for range 6 {
		dead = append(dead, s.task(s.die(defaultQueue, errors.New("no order"))))
	}
	other := s.retryOperation()
	_, err := s.StepOperation(s.ctx, s.retryStep(other, s.task(s.die(defaultQueue, errors.New("no order")))))
	s.must(err)
	o := s.retryOperation()
	o, err = s.StepOperation(s.ctx, s.retryStep(o, dead...))
	s.must(err)
	first := func(limit int) map[holdfast.TaskID]store.FirstResult {
		s.Helper()
		attempts, err := s.FirstAttempts(s.ctx, o.ID, limit)
		s.must(err)
		results := make(map[holdfast.TaskID]store.FirstResult)
		for _, a := range attempts {
			results[a.Task] = a.Result
		}
		return results
	}
	if got := first(10); len(got) != 0 {
		s.Errorf("before any attempt: %v", got)
	}
	worker := s.registerWorker()
	due, _ := s.dispatch(10)
	running := make(map[holdfast.TaskID]holdfast.Task)
	for _, d := range due {
		task := s.mustClaim(worker, d.Ticket)[0]
		running[task.ID] = task
	}
	s.move(running[dead[0].ID], holdfast.Returned(nil))
	s.move(running[dead[1].ID], holdfast.Returned(errors.New("again")))
	s.move(running[dead[2].ID], holdfast.Crashed(worker))
	s.move(running[dead[3].ID], holdfast.Interrupted(errors.New("drain")))
	s.move(running[dead[4].ID], holdfast.Requested(holdfast.EventCancel))
	want := map[holdfast.TaskID]store.FirstResult{
		dead[0].ID: store.FirstSucceeded, dead[1].ID: store.FirstFailed, dead[2].ID: store.FirstFailed, dead[4].ID: store.FirstOther,
	}
	if got := first(10); len(got) != 4 || got[dead[0].ID] != want[dead[0].ID] || got[dead[1].ID] != want[dead[1].ID] || got[dead[2].ID] != want[dead[2].ID] || got[dead[4].ID] != want[dead[4].ID] {
		s.Errorf("first attempts: %v, want %v", got, want)
	}
	if got := first(2); len(got) != 2 {
		s.Errorf("at most two: %v", got)
	}
	step := store.OperationStep{From: o, To: o, Judged: []holdfast.TaskID{dead[0].ID, dead[4].ID}}
	step.To.Succeeded, step.To.Judged = 1, 2
	o, err = s.StepOperation(s.ctx, step)
	s.must(err)
	if got := first(10); len(got) != 2 || o.Succeeded != 1 || o.Judged != 2 {
		s.Errorf("after a judgement: %v, %+v", got, o)
	}
	done := store.OperationStep{From: o, To: o, By: &anna}
	done.To.State = store.OperationDone
	_, err = s.StepOperation(s.ctx, done)
	s.must(err)
	if got := first(10); len(got) != 0 {
		s.Errorf("after the end: %v", got)
	}
}

func testFirstAttemptsAfterChanges(s *suite) {
	purged, undone := s.task(s.die(defaultQueue, errors.New("no order"))), s.task(s.die(defaultQueue, errors.New("no order")))
	o := s.retryOperation()
	o, err := s.StepOperation(s.ctx, s.retryStep(o, purged, undone))
	s.must(err)
	s.mustChange(s.changeOf(store.ActionUndo, s.task(undone.ID), holdfast.Undone(0, 0, 0)))
	due, _ := s.dispatch(10)
	again := s.mustClaim(s.registerWorker(), due[0].Ticket)[0]
	s.mustChange(store.Change{Action: store.ActionPurge, Task: s.move(again, holdfast.Returned(holdfast.Permanent(errors.New("no order"))))})
	first, err := s.FirstAttempts(s.ctx, o.ID, 10)
	s.must(err)
	if len(first) != 2 || first[0].Result != store.FirstOther || first[1].Result != store.FirstOther {
		s.Errorf("the first attempts are %+v, want two other results", first)
	}
}

// testFirstAttemptsInRetrospect judges tasks long after their first attempts: the later attempts have succeeded, or the
// task has been pruned.
func testFirstAttemptsInRetrospect(s *suite) {
	var dead []holdfast.Task
	for range 5 {
		dead = append(dead, s.task(s.die(defaultQueue, errors.New("no order"))))
	}
	o := s.step(s.retryStep(s.retryOperation(), dead[:4]...))
	s.mustChange(s.changeOf(store.ActionRetry, dead[4], holdfast.Requested(holdfast.EventRequeue)))
	s.mustChange(s.changeOf(store.ActionUndo, s.task(dead[4].ID), holdfast.Undone(1, 0, 0)))
	worker := s.registerWorker()
	attempt := func(cause func(holdfast.TaskID) holdfast.Cause) {
		s.Helper()
		due, _ := s.dispatch(10)
		for _, d := range due {
			s.move(s.mustClaim(worker, d.Ticket)[0], cause(d.Ticket.Task))
		}
	}
	attempt(func(id holdfast.TaskID) holdfast.Cause {
		switch id {
		case dead[0].ID:
			return holdfast.Returned(errors.New("again"))
		case dead[1].ID:
			return holdfast.Crashed(worker)
		case dead[2].ID:
			return holdfast.Expired()
		}
		return holdfast.Returned(nil)
	})
	s.prune(store.PruneAges{Done: time.Microsecond}, 1)
	for s.task(dead[0].ID).State != holdfast.Done || s.task(dead[1].ID).State != holdfast.Done {
		s.eventually("the retries are due", func() bool {
			attempt(func(holdfast.TaskID) holdfast.Cause { return holdfast.Returned(nil) })
			return s.task(dead[0].ID).State == holdfast.Done && s.task(dead[1].ID).State == holdfast.Done
		})
	}
	attempts, err := s.FirstAttempts(s.ctx, o.ID, 10)
	s.must(err)
	slices.SortFunc(attempts, func(a, b store.FirstAttempt) int { return int(b.Task - a.Task) })
	want := []store.FirstAttempt{
		{Task: dead[3].ID, Result: store.FirstSucceeded}, {Task: dead[2].ID, Result: store.FirstFailed},
		{Task: dead[1].ID, Result: store.FirstFailed}, {Task: dead[0].ID, Result: store.FirstFailed},
	}
	if !slices.Equal(attempts, want) {
		s.Errorf("first attempts %+v, want %+v", attempts, want)
	}
}

// testOtherOperations makes steps of two operations that retry the same task.
func testOtherOperations(s *suite) {
	again := func(task holdfast.Task) holdfast.Task {
		s.Helper()
		due, _ := s.dispatch(10)
		return s.move(s.mustClaim(s.registerWorker(), due[len(due)-1].Ticket)[0], holdfast.Returned(holdfast.Permanent(errors.New("no order"))))
	}
	watched := func(o store.Operation) int {
		s.Helper()
		attempts, err := s.FirstAttempts(s.ctx, o.ID, 10)
		s.must(err)
		return len(attempts)
	}
	first, second := s.retryOperation(), s.retryOperation()
	first = s.step(s.retryStep(first, s.task(s.die(defaultQueue, errors.New("no order")))))
	if got := s.operation(second.ID); got.Version != second.Version || got.Changed != 0 || got.Cursor != 0 {
		s.Errorf("after a step of the first operation, the second one is %+v", got)
	}
	task := again(s.task(first.Cursor))
	if watched(first) != 1 || watched(second) != 0 {
		s.Errorf("%d and %d first attempts, want 1 and 0", watched(first), watched(second))
	}
	second = s.step(s.retryStep(second, task))
	again(task)
	judged := store.OperationStep{From: first, To: first, Judged: []holdfast.TaskID{task.ID}}
	judged.To.Failed, judged.To.Judged = 1, 1
	first = s.step(judged)
	if watched(first) != 0 || watched(second) != 1 {
		s.Errorf("after a judgement: %d and %d first attempts, want 0 and 1", watched(first), watched(second))
	}
	done := store.OperationStep{From: first, To: first, By: &anna}
	done.To.State = store.OperationDone
	s.step(done)
	if watched(second) != 1 {
		s.Errorf("after the end of the first operation: %d first attempts of the second one, want 1", watched(second))
	}
}

func testOperationTimes(s *suite) {
	o := s.createOperation(store.Operation{Action: store.ActionRetry, State: store.OperationPlanned, StopAbove: 1})
	for _, c := range []struct {
		state             store.OperationState
		started, finished bool
	}{
		{store.OperationPlanned, false, false}, {store.OperationRunning, true, false}, {store.OperationPaused, true, false},
		{store.OperationRunning, true, false}, {store.OperationStopped, true, false}, {store.OperationCancelled, true, true},
	} {
		step := store.OperationStep{From: o, To: o, By: &anna}
		step.To.State = c.state
		before := o
		if o = s.step(step); o.StartedAt.IsZero() == c.started || o.FinishedAt.IsZero() == c.finished {
			s.Errorf("%s: started at %v, finished at %v", c.state, o.StartedAt, o.FinishedAt)
		}
		if !before.StartedAt.IsZero() && !o.StartedAt.Equal(before.StartedAt) {
			s.Errorf("%s: the start has changed from %v to %v", c.state, before.StartedAt, o.StartedAt)
		}
	}
}
