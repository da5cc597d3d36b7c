package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var auditTests = []test{
	{"makes the changes that people request, and records each", testChanges},
	{"refuses a change of a task that has changed since", testRefusedChanges},
	{"edits a ready task and gives it a new ticket", testEditReady},
	{"edits a dead task, which stays in its group", testEditDead},
	{"edits nothing that runs or is done", testEditRunning},
	{"edits tags", testEditTags},
	{"keeps every character of a payload", testEditPayload},
	{"purges a task with its attempts", testPurge},
	{"takes back a retry that no worker has claimed", testUndoRetry},
	{"filters the audit log", testAuditFilter},
	{"ends a page of the audit log by its size", testAuditPage},
	{"refuses a long reason and a long name", testLongActor},
	{"has one winner in a race of an edit against a claim", testEditAgainstClaim},
	{"has one winner in a race of two editors", testTwoEditors},
	{"edits the idempotency key of an imported task", testEditImportedKey},
	{"changes no other task", testOtherTasks},
	{"refuses a change of another attempt or another state", testRefusedVersions},
	{"filters the entries of a task and of an operation", testAuditFilterCombined},
}

// anna is the actor of most tests.
var anna = store.Actor{Name: "anna", Surface: store.CommandLine, Reason: "the target is back"}

// changeOf returns a change with the move of an event.
func (s *suite) changeOf(action store.Action, task holdfast.Task, cause holdfast.Cause) store.Change {
	s.Helper()
	move := s.settle(task, cause)
	return store.Change{Action: action, Task: task, Move: &move}
}

func editOf(task holdfast.Task, edit store.Edit) store.Change {
	return store.Change{Action: store.ActionEdit, Task: task, Edit: &edit}
}

func (s *suite) change(changes ...store.Change) []bool {
	s.Helper()
	made, err := s.Change(s.ctx, anna, changes)
	s.must(err)
	return made
}

func (s *suite) mustChange(changes ...store.Change) {
	s.Helper()
	if made := s.change(changes...); slices.Contains(made, false) {
		s.Fatalf("made: %v", made)
	}
}

func (s *suite) auditLog(f store.AuditFilter) []store.AuditEntry {
	s.Helper()
	entries, err := s.AuditLog(s.ctx, f)
	s.must(err)
	return entries
}

func versionOf(t testing.TB, document json.RawMessage) store.Version {
	t.Helper()
	var v store.Version
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return v
}

func testChanges(s *suite) {
	dead, other := s.task(s.die(defaultQueue, errors.New("no order"))), s.task(s.die(defaultQueue, errors.New("no bill")))
	before := s.now()
	s.mustChange(
		s.changeOf(store.ActionRetry, dead, holdfast.Requested(holdfast.EventRequeue)),
		s.changeOf(store.ActionArchive, other, holdfast.Requested(holdfast.EventArchive)))
	if got := s.task(dead.ID); got.State != holdfast.Ready || got.Failures != 0 || got.Attempt != dead.Attempt+1 {
		s.Errorf("the retried task is %+v", got)
	}
	if got := s.task(other.ID); got.State != holdfast.Archived {
		s.Errorf("the archived task is %+v", got)
	}
	entries := s.auditLog(store.AuditFilter{})
	if len(entries) != 2 || entries[0].ID <= entries[1].ID {
		s.Fatalf("entries: %+v", entries)
	}
	for _, e := range entries {
		if e.Actor != anna || e.At.Before(before) || e.At.After(s.now()) || e.Operation != 0 || e.Subject != "" {
			s.Errorf("entry: %+v", e)
		}
	}
	retried := s.auditLog(store.AuditFilter{Task: dead.ID})[0]
	was, is := versionOf(s.T, retried.Before), versionOf(s.T, retried.After)
	if retried.Action != store.ActionRetry || was.State != holdfast.Dead || was.Failures != dead.Failures || was.Attempt != dead.Attempt ||
		is.State != holdfast.Ready || is.Failures != 0 || is.Attempt != dead.Attempt+1 {
		s.Errorf("the entry of the retry has %s and %s", retried.Before, retried.After)
	}
}

func testRefusedChanges(s *suite) {
	dead := s.task(s.die(defaultQueue, errors.New("no order")))
	retry := s.changeOf(store.ActionRetry, dead, holdfast.Requested(holdfast.EventRequeue))
	s.mustChange(retry)
	for _, c := range []store.Change{
		retry,
		editOf(dead, store.Edit{MaxAttempts: 7}),
		{Action: store.ActionPurge, Task: dead},
		editOf(holdfast.Task{ID: dead.ID + 1000, Attempt: 1, State: holdfast.Dead}, store.Edit{MaxAttempts: 7}),
	} {
		if made := s.change(c); made[0] {
			s.Errorf("a late %s was made", c.Action)
		}
	}
	if entries := s.auditLog(store.AuditFilter{}); len(entries) != 1 {
		s.Errorf("%d entries, want 1", len(entries))
	}
	if got := s.change(); len(got) != 0 {
		s.Errorf("no changes returned %v", got)
	}
}

func testEditReady(s *suite) {
	ticket := s.insertN(1)[0]
	before := s.task(ticket.Task)
	s.mustChange(editOf(before, store.Edit{Payload: json.RawMessage(`{"a":1}`), Queue: "elsewhere", MaxAttempts: 9}))
	after := s.task(ticket.Task)
	if string(after.Payload) != `{"a":1}` || after.Queue != "elsewhere" || after.MaxAttempts != 9 || after.State != holdfast.Ready || after.Attempt != 2 {
		s.Errorf("the edited task is %+v", after)
	}
	worker := s.registerWorker()
	if got := s.claim(worker, ticket)[0].Verdict; got != store.Stale {
		s.Errorf("the ticket from before the edit is %v, want stale", got)
	}
	due, _ := s.dispatch(10)
	if len(due) != 1 || due[0].Ticket != (message.Ticket{Task: ticket.Task, Attempt: 2}) || due[0].Queue != "elsewhere" {
		s.Fatalf("due: %+v", due)
	}
	if got := s.mustClaim(worker, due[0].Ticket); string(got[0].Payload) != `{"a":1}` {
		s.Errorf("claimed %+v", got[0])
	}
	queues, err := s.Queues(s.ctx)
	s.must(err)
	if !slices.ContainsFunc(queues, func(q store.Queue) bool { return q.Name == "elsewhere" && q.Running == 1 }) {
		s.Errorf("queues: %+v", queues)
	}
	entry := s.auditLog(store.AuditFilter{Task: ticket.Task})[0]
	was, is := versionOf(s.T, entry.Before), versionOf(s.T, entry.After)
	if string(was.Payload) != string(before.Payload) || was.Queue != defaultQueue || string(is.Payload) != `{"a":1}` || is.Queue != "elsewhere" || is.MaxAttempts != 9 {
		s.Errorf("the entry has %s and %s", entry.Before, entry.After)
	}

	later := s.insertN(1)[0]
	at := s.now().Add(time.Hour).Truncate(time.Microsecond)
	s.mustChange(editOf(s.task(later.Task), store.Edit{RunAt: at}))
	if got := s.task(later.Task); !got.NextRunAt.Equal(at) {
		s.Errorf("next run at %s, want %s", got.NextRunAt, at)
	}
	if due, _ := s.dispatch(10); len(due) != 0 {
		s.Errorf("due: %+v", due)
	}
}

func testEditDead(s *suite) {
	dead := s.task(s.die(defaultQueue, errors.New("no order")))
	s.mustChange(editOf(dead, store.Edit{Queue: "elsewhere", Payload: json.RawMessage(`2`)}))
	got := s.task(dead.ID)
	if got.State != holdfast.Dead || got.Queue != "elsewhere" || string(got.Payload) != "2" || !got.FinishedAt.Equal(dead.FinishedAt) || got.LastError != dead.LastError {
		s.Errorf("the edited task is %+v", got)
	}
	s.mustChange(s.changeOf(store.ActionRetry, got, holdfast.Requested(holdfast.EventRequeue)))
}

func testEditRunning(s *suite) {
	running := s.runningTask()
	done := s.runningTask()
	s.move(done, holdfast.Returned(nil))
	for _, task := range []holdfast.Task{running, s.task(done.ID)} {
		if made := s.change(editOf(task, store.Edit{MaxAttempts: 5})); made[0] {
			s.Errorf("a task that is %s was edited", task.State)
		}
	}
	if made := s.change(store.Change{Action: store.ActionPurge, Task: running}); made[0] {
		s.Error("a running task was purged")
	}
}

func testEditTags(s *suite) {
	tagged := newTask()
	tagged.Tags = []string{"ada", "eu"}
	id := s.insert(tagged)[0].Task
	withTag := func(tag string) int {
		s.Helper()
		page, err := s.List(s.ctx, store.Filter{Tags: []string{tag}})
		s.must(err)
		return len(page.Tasks)
	}
	for _, tags := range [][]string{{"eu", "ben"}, {}, {"cy"}} {
		s.mustChange(editOf(s.task(id), store.Edit{Tags: &tags}))
		if got := s.task(id).Tags; !slices.Equal(got, tags) && len(got)+len(tags) > 0 {
			s.Errorf("the tags are %v, want %v", got, tags)
		}
		for _, tag := range []string{"ada", "eu", "ben", "cy"} {
			want := 0
			if slices.Contains(tags, tag) {
				want = 1
			}
			if got := withTag(tag); got != want {
				s.Errorf("tags %v: %d tasks have the tag %s", tags, got, tag)
			}
		}
	}
	s.mustChange(editOf(s.task(id), store.Edit{MaxAttempts: 9}))
	if withTag("cy") != 1 {
		s.Error("an edit of something else removed the tag")
	}
	entry := s.auditLog(store.AuditFilter{Task: id})[3]
	if was := versionOf(s.T, entry.Before); was.Tags == nil || !slices.Equal(*was.Tags, tagged.Tags) {
		s.Errorf("the entry has %s", entry.Before)
	}
}

func testEditPayload(s *suite) {
	for _, payload := range []string{
		`null`, `"'; drop table tasks; --"`, `{"n":12345678901234567890.10,"t":"\u0001\u001b[31m é \\ \" <b>"}`, `[ 1,  2 ]`,
		`"` + strings.Repeat("long ", 100_000) + `"`, `1`,
	} {
		task := s.task(s.insertN(1)[0].Task)
		s.mustChange(editOf(task, store.Edit{Payload: json.RawMessage(payload)}))
		s.mustChange(editOf(s.task(task.ID), store.Edit{MaxAttempts: 2}))
		if got := s.task(task.ID).Payload; string(got) != payload {
			s.Errorf("payload %.100s is %.100s", payload, got)
		}
		entry := s.auditLog(store.AuditFilter{Task: task.ID})[1]
		if got := versionOf(s.T, entry.After).Payload; string(got) != payload {
			s.Errorf("the entry of payload %.100s has %.200s", payload, entry.After)
		}
	}
	long := newTask()
	long.Payload = json.RawMessage(`"` + strings.Repeat("x", 200_000) + `"`)
	task := s.task(s.insert(long)[0].Task)
	s.mustChange(editOf(task, store.Edit{Payload: json.RawMessage(`3`)}))
	if got := s.task(task.ID).Payload; string(got) != "3" {
		s.Errorf("a payload that was long is %.100s", got)
	}
}

func testPurge(s *suite) {
	dead := s.task(s.die(defaultQueue, errors.New("no order")))
	ready := s.task(s.insertN(1)[0].Task)
	if made := s.change(store.Change{Action: store.ActionPurge, Task: dead}, store.Change{Action: store.ActionPurge, Task: ready}); !slices.Equal(made, []bool{true, false}) {
		s.Errorf("made: %v", made)
	}
	if _, err := s.Task(s.ctx, dead.ID); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("the purged task: %v", err)
	}
	entries := s.auditLog(store.AuditFilter{Task: dead.ID})
	if len(entries) != 1 || entries[0].After != nil || versionOf(s.T, entries[0].Before).Error != "no order" {
		s.Errorf("entries: %+v", entries)
	}
}

func testUndoRetry(s *suite) {
	dead := s.task(s.die(defaultQueue, errors.New("no order")))
	s.mustChange(s.changeOf(store.ActionRetry, dead, holdfast.Requested(holdfast.EventRequeue)))
	undo := s.changeOf(store.ActionUndo, s.task(dead.ID), holdfast.Undone(dead.Failures, dead.Crashes, dead.Deferrals))
	s.mustChange(undo)
	if got := s.task(dead.ID); got.State != holdfast.Dead || got.Failures != dead.Failures {
		s.Errorf("the task is %+v", got)
	}
	s.mustChange(s.changeOf(store.ActionRetry, s.task(dead.ID), holdfast.Requested(holdfast.EventRequeue)))
	due, _ := s.dispatch(10)
	late := s.changeOf(store.ActionUndo, s.task(dead.ID), holdfast.Undone(1, 0, 0))
	s.mustClaim(s.registerWorker(), due[0].Ticket)
	if made := s.change(late); made[0] {
		s.Error("the retry of a claimed task was taken back")
	}
}

func testAuditFilter(s *suite) {
	a, b := s.task(s.insertN(1)[0].Task), s.task(s.insertN(1)[0].Task)
	s.mustChange(editOf(a, store.Edit{MaxAttempts: 5}))
	_, err := s.Change(s.ctx, store.Actor{Name: "ben", Surface: store.API}, []store.Change{s.changeOf(store.ActionCancel, b, holdfast.Requested(holdfast.EventCancel))})
	s.must(err)
	all := s.auditLog(store.AuditFilter{})
	first, second := all[1].ID, all[0].ID
	for _, c := range []struct {
		name   string
		filter store.AuditFilter
		want   []store.ID
	}{
		{"all", store.AuditFilter{}, []store.ID{second, first}},
		{"a task", store.AuditFilter{Task: a.ID}, []store.ID{first}},
		{"an actor", store.AuditFilter{Actor: "ben"}, []store.ID{second}},
		{"an unknown actor", store.AuditFilter{Actor: "'"}, nil},
		{"an action", store.AuditFilter{Action: store.ActionEdit}, []store.ID{first}},
		{"an operation", store.AuditFilter{Operation: 1}, nil},
		{"since", store.AuditFilter{Since: all[0].At}, []store.ID{second}},
		{"until", store.AuditFilter{Until: all[0].At}, []store.ID{first}},
		{"a page", store.AuditFilter{Before: second}, []store.ID{first}},
		{"a limit", store.AuditFilter{Limit: 1}, []store.ID{second}},
		{"a task and an action", store.AuditFilter{Task: a.ID, Action: store.ActionCancel}, nil},
	} {
		var got []store.ID
		for _, e := range s.auditLog(c.filter) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, c.want) {
			s.Errorf("%s: entries %v, want %v", c.name, got, c.want)
		}
	}
}

func testAuditFilterCombined(s *suite) {
	dead := s.task(s.die(defaultQueue, errors.New("no order")))
	o := s.step(s.retryStep(s.retryOperation(), dead))
	s.mustChange(s.changeOf(store.ActionCancel, s.task(dead.ID), holdfast.Requested(holdfast.EventCancel)))
	subject := "operation " + o.ID.String()
	for _, c := range []struct {
		name   string
		filter store.AuditFilter
		want   []store.Action
	}{
		{"a task", store.AuditFilter{Task: dead.ID}, []store.Action{store.ActionCancel, store.ActionRetry}},
		{"a task and its operation", store.AuditFilter{Task: dead.ID, Operation: o.ID}, []store.Action{store.ActionRetry}},
		{"a task and another operation", store.AuditFilter{Task: dead.ID, Operation: o.ID + 1}, nil},
		{"a task and a subject", store.AuditFilter{Task: dead.ID, Subject: subject}, nil},
		{"an operation", store.AuditFilter{Operation: o.ID}, []store.Action{store.ActionRetry, store.ActionRetry}},
		{"an operation and its subject", store.AuditFilter{Operation: o.ID, Subject: subject}, []store.Action{store.ActionRetry}},
		{"another operation", store.AuditFilter{Operation: o.ID + 1}, nil},
		{"the subject", store.AuditFilter{Subject: subject}, []store.Action{store.ActionRetry}},
		{"another subject", store.AuditFilter{Subject: subject + "0"}, nil},
	} {
		var got []store.Action
		for _, e := range s.auditLog(c.filter) {
			got = append(got, e.Action)
		}
		if !slices.Equal(got, c.want) {
			s.Errorf("%s: entries %v, want %v", c.name, got, c.want)
		}
	}
}

// testOtherTasks edits and purges tasks beside others that have the same properties.
func testOtherTasks(s *suite) {
	long := newTask()
	long.Payload, long.Tags = json.RawMessage(`"`+strings.Repeat("x", 200_000)+`"`), []string{"eu"}
	short := newTask()
	short.Payload, short.Tags = json.RawMessage(`1`), []string{"eu"}
	tickets := s.insert(long, short)
	kept, edited := tickets[0].Task, tickets[1].Task
	s.mustChange(editOf(s.task(edited), store.Edit{Tags: &[]string{}}), editOf(s.task(kept), store.Edit{MaxAttempts: 9}))
	if got := s.task(kept); string(got.Payload) != string(long.Payload) || got.MaxAttempts != 9 {
		s.Errorf("after an edit of something else, the payload is %.100s", got.Payload)
	}
	if page, err := s.List(s.ctx, store.Filter{Tags: []string{"eu"}}); err != nil || !slices.Equal(idsOf(page.Tasks), []holdfast.TaskID{kept}) {
		s.Errorf("the tasks with the tag are %v, %v", idsOf(page.Tasks), err)
	}

	gate := s.pause(store.Subject{Queue: defaultQueue}, 0)
	blocked := s.insertN(2)
	s.block(s.registerWorker(), gate.ID, blocked...)
	s.mustChange(editOf(s.task(blocked[0].Task), store.Edit{MaxAttempts: 9}))
	s.resume(store.Subject{Queue: defaultQueue})
	if n := s.release(1000); n != 1 {
		s.Errorf("%d tasks are released, want the one that was not edited", n)
	}

	first, second := s.task(s.die(defaultQueue, errors.New("no order"))), s.task(s.die(defaultQueue, errors.New("no order")))
	s.mustChange(editOf(second, store.Edit{Queue: "elsewhere"}))
	third := s.die(defaultQueue, errors.New("no order")) // at the same attempt as the purged one
	s.mustChange(store.Change{Action: store.ActionPurge, Task: first})
	for _, id := range []holdfast.TaskID{second.ID, third} {
		if got := s.task(id); got.State != holdfast.Dead {
			s.Errorf("the other task %s is %s", id, got.State)
		}
	}
}

// testRefusedVersions requests changes of a dead task that has been archived, and of one that has died again.
func testRefusedVersions(s *suite) {
	archived, again := s.task(s.die(defaultQueue, errors.New("no order"))), s.task(s.die(defaultQueue, errors.New("no order")))
	s.mustChange(s.changeOf(store.ActionArchive, archived, holdfast.Requested(holdfast.EventArchive)),
		s.changeOf(store.ActionRetry, again, holdfast.Requested(holdfast.EventRequeue)))
	due, _ := s.dispatch(1)
	s.move(s.mustClaim(s.registerWorker(), due[0].Ticket)[0], holdfast.Returned(holdfast.Permanent(errors.New("no order"))))
	for _, task := range []holdfast.Task{archived, again} {
		if made := s.change(editOf(task, store.Edit{MaxAttempts: 7})); made[0] {
			s.Errorf("an edit was made of task %s, which was %s at attempt %d", task.ID, task.State, task.Attempt)
		}
		if made := s.change(store.Change{Action: store.ActionPurge, Task: task}); made[0] {
			s.Errorf("task %s was purged, which was %s at attempt %d", task.ID, task.State, task.Attempt)
		}
	}
}

// testAuditPage reads entries with large documents, in pages that end before the limit.
func testAuditPage(s *suite) {
	const size = 1_000_000
	edits := slow.Pick(8, 20)
	id := s.insertN(1)[0].Task
	for i := range edits {
		payload := fmt.Sprintf(`"%0*d"`, size, i)
		s.mustChange(editOf(s.task(id), store.Edit{Payload: json.RawMessage(payload)}))
	}
	var got []store.ID
	for f := (store.AuditFilter{Limit: 1000}); ; f.Before = got[len(got)-1] {
		entries := s.auditLog(f)
		if len(entries) == 0 {
			break
		}
		if len(entries) > 3 { // each has up to 2 MB, before and after the edit
			s.Fatalf("a page has %d entries", len(entries))
		}
		for _, e := range entries {
			got = append(got, e.ID)
		}
	}
	if len(got) != edits || !slices.IsSortedFunc(got, func(a, b store.ID) int { return int(b - a) }) {
		s.Errorf("the pages have the entries %v", got)
	}
}

// longActors returns actors whose reason or name is one character too long.
func longActors() []store.Actor {
	return []store.Actor{
		{Name: "anna", Surface: store.API, Reason: strings.Repeat("é", 1001)}, {Name: strings.Repeat("é", 201), Surface: store.API},
	}
}

// testLongActor requests each kind of change with a reason, and with a name, that is one character too long.
func testLongActor(s *suite) {
	ready := s.task(s.insertN(1)[0].Task)
	o, err := s.CreateOperation(s.ctx, anna, store.Operation{Action: store.ActionRetry, State: store.OperationRunning, StopAbove: 1})
	s.must(err)
	requests := func(by store.Actor) map[string]error {
		errs := make(map[string]error)
		_, errs["change"] = s.Change(s.ctx, by, []store.Change{editOf(ready, store.Edit{MaxAttempts: 7})})
		_, errs["create an operation"] = s.CreateOperation(s.ctx, by, store.Operation{Action: store.ActionRetry, State: store.OperationRunning, StopAbove: 1})
		paused := o
		paused.State = store.OperationPaused
		_, errs["pause an operation"] = s.StepOperation(s.ctx, store.OperationStep{From: o, To: paused, By: &by})
		return errs
	}
	before := s.auditLog(store.AuditFilter{})
	for _, by := range longActors() {
		for what, err := range requests(by) {
			if !errors.Is(err, holdfast.ErrInvalid) {
				s.Errorf("%s with a name of %d and a reason of %d bytes: %v", what, len(by.Name), len(by.Reason), err)
			}
		}
	}
	operations, err := s.ListOperations(s.ctx, store.OperationFilter{})
	s.must(err)
	if got := s.task(ready.ID); got.Attempt != ready.Attempt || len(operations) != 1 || len(s.auditLog(store.AuditFilter{})) != len(before) {
		s.Errorf("a refused request has changed something: %+v, %d operations", got, len(operations))
	}
	for what, err := range requests(store.Actor{Name: strings.Repeat("é", 200), Surface: store.API, Reason: strings.Repeat("é", 1000)}) {
		if err != nil {
			s.Errorf("%s: %v", what, err)
		}
	}
}

// races returns the number of rounds of a race test. Each round has new tasks.
func races() int { return slow.Pick(100, 1000) }

// testEditAgainstClaim edits tasks while a worker claims them. Either the edit is made and the ticket is stale, or the
// worker runs the task as it was before the edit.
func testEditAgainstClaim(s *suite) {
	worker := s.registerWorker()
	tickets := s.insertN(races())
	var claims []store.Claim
	edited := make([]bool, len(tickets))
	tasks := make([]holdfast.Task, len(tickets))
	for i := range tasks {
		tasks[i] = s.task(tickets[i].Task)
	}
	var race sync.WaitGroup
	race.Go(func() {
		for i := range tickets {
			claim, err := s.Claim(s.ctx, worker, kinds, tickets[i:i+1], store.IntoExecutors)
			if err != nil {
				s.Error(err)
				return
			}
			claims = append(claims, claim...)
		}
	})
	race.Go(func() {
		for i := range tickets {
			made, err := s.Change(s.ctx, anna, []store.Change{editOf(tasks[i], store.Edit{Payload: json.RawMessage(`"edited"`)})})
			if err != nil {
				s.Error(err)
				return
			}
			edited[i] = made[0]
		}
	})
	race.Wait()
	if s.Failed() {
		return
	}
	for i, claim := range claims {
		if claimed := claim.Verdict == store.Claimed; claimed == edited[i] || claimed && string(claim.Task.Payload) == `"edited"` {
			s.Errorf("race %d: the verdict is %v, edited is %v, the payload is %s", i, claim.Verdict, edited[i], claim.Task.Payload)
		}
	}
}

// testTwoEditors lets two editors edit the same version of tasks. Exactly one of them succeeds, and the task has the
// values of that editor.
func testTwoEditors(s *suite) {
	tickets := s.insertN(races())
	var tasks []holdfast.Task
	for _, ticket := range tickets {
		tasks = append(tasks, s.task(ticket.Task))
	}
	made := [2][]bool{make([]bool, len(tickets)), make([]bool, len(tickets))}
	var race sync.WaitGroup
	for editor := range made {
		race.Go(func() {
			for i := range tasks {
				ok, err := s.Change(s.ctx, anna, []store.Change{editOf(tasks[i], store.Edit{Payload: json.RawMessage(fmt.Sprint(editor))})})
				if err != nil {
					s.Error(err)
					return
				}
				made[editor][i] = ok[0]
			}
		})
	}
	race.Wait()
	for i := range tasks {
		if made[0][i] == made[1][i] {
			s.Errorf("race %d: made %v and %v", i, made[0][i], made[1][i])
			continue
		}
		winner := 0
		if made[1][i] {
			winner = 1
		}
		if got := s.task(tasks[i].ID).Payload; string(got) != fmt.Sprint(winner) {
			s.Errorf("race %d: editor %d won, but the payload is %s", i, winner, got)
		}
		if entries := s.auditLog(store.AuditFilter{Task: tasks[i].ID}); len(entries) != 1 {
			s.Errorf("race %d: %d audit entries", i, len(entries))
		}
	}
}

func testEditImportedKey(s *suite) {
	here, ok := s.Store.(store.Transfer)
	if !ok {
		s.Skip("this store imports no tasks")
	}
	_, err := here.Import(s.ctx, sampleRecords(s.now()), 50)
	s.must(err)
	imported := s.task(3)
	if imported.ImportedKey == "" {
		s.Fatal("the imported task has no key of its own")
	}
	s.mustChange(editOf(imported, store.Edit{Payload: json.RawMessage(`{"x":1}`)}))
	if edited := s.task(3); edited.IdempotencyKey() == imported.IdempotencyKey() {
		s.Errorf("after the edit the key is still %q", edited.IdempotencyKey())
	}
	s.mustChange(editOf(s.task(3), store.Edit{Payload: imported.Payload, Key: imported.ImportedKey}))
	if got := s.task(3); got.IdempotencyKey() != imported.IdempotencyKey() || string(got.Payload) != string(imported.Payload) {
		s.Errorf("after the second edit the key is %q and the payload %s", got.IdempotencyKey(), got.Payload)
	}
}
