package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Target is a store that tasks can be carried to.
type Target interface {
	store.Store
	store.Importer
}

// RunImporter tests the role Importer. open is that of Run.
func RunImporter(t *testing.T, open func(t *testing.T) Target) {
	for _, test := range []struct {
		name string
		run  func(*suite, store.Importer)
	}{
		{"are seen when they are committed, and not before", testCommitImport},
		{"go on where they were", testStageAgain},
		{"keep out of a store that is not empty", testImportNotEmpty},
		{"have ids of their own beside others", testImportShifts},
		{"wait until their unique keys are free", testCommitClash},
		{"can be aborted until they are committed", testAbortImport},
		{"come once from each source", testImportCopy},
		{"are on record", testImportRecord},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			target := open(t)
			test.run(&suite{T: t, Store: target, ctx: t.Context()}, target)
		})
	}
}

const transfer = "the-transfer"

func newImport() store.Import {
	return store.Import{Source: "the-source", From: "/a/file.db", Transfer: transfer}
}

// sampleRecords is one task in each state that can be carried, with every field in use.
func sampleRecords(now time.Time) []store.Record {
	at := func(d time.Duration) time.Time { return now.Add(d).Truncate(time.Microsecond) }
	task := func(id holdfast.TaskID, state holdfast.State) holdfast.Task {
		return holdfast.Task{
			ID: id, Type: kind, Lane: defaultLane, State: state, Attempt: 1, MaxAttempts: 3,
			Payload: json.RawMessage("null"), NextRunAt: at(-time.Hour), CreatedAt: at(-2 * time.Hour),
		}
	}
	ready, later, done, dead, cancelled, archived := task(2, holdfast.Ready), task(3, holdfast.Ready), task(5, holdfast.Done), task(7, holdfast.Dead), task(8, holdfast.Cancelled), task(40, holdfast.Archived)
	ready.Payload, ready.Lane, ready.Unique = json.RawMessage(`{ "b":1, "a":"é\u0000\"\\ {x,\"y\"}", "b":2e400 }`), "slow", "ключ \"1\""
	ready.Crashes, ready.Attempt, ready.StartedAt, ready.LastError = 1, 2, at(-time.Minute), "gone\n'quoted'"
	later.NextRunAt, later.Parked, later.Deferrals = at(7*24*time.Hour), "no worker, \\ here", 4
	later.NextRunAt = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	done.StartedAt, done.FinishedAt = at(-time.Minute), at(-time.Second)
	dead.Failures, dead.Attempt, dead.FinishedAt, dead.LastError = 3, 3, at(-time.Second), strings.Repeat("x", 8000)
	cancelled.FinishedAt, archived.FinishedAt = at(-time.Second), at(-time.Second)
	attempt := func(n int, event holdfast.Event) holdfast.Attempt {
		return holdfast.Attempt{
			Task: dead.ID, Attempt: n, Event: event, Worker: "host/1", StartedAt: at(-time.Minute), FinishedAt: at(time.Duration(n) * time.Second),
			Class: "http", Error: "503 \x01 é", Stack: "a\n\tb", Details: json.RawMessage(`{"status": 503}`),
		}
	}
	bare := attempt(3, holdfast.EventGiveUp)
	bare.StartedAt, bare.Stack, bare.Details = time.Time{}, "", nil
	return []store.Record{
		{Task: ready, Again: true}, {Task: later}, {Task: done},
		{Task: dead, Attempts: []holdfast.Attempt{attempt(1, holdfast.EventRetry), attempt(2, holdfast.EventRetry), bare}},
		{Task: cancelled}, {Task: archived},
	}
}

// stage begins the import and stages the records.
func (s *suite) stage(to store.Importer, into store.Into, records []store.Record) store.Import {
	s.Helper()
	a, err := to.BeginImport(s.ctx, newImport(), records[len(records)-1].ID, into)
	s.must(err)
	s.must(to.Stage(s.ctx, transfer, records))
	return a
}

// imported checks that the store holds the records, with ids that are shifted.
func (s *suite) imported(records []store.Record, shift int64) {
	s.Helper()
	for _, p := range records {
		want := p.Task
		want.ID += holdfast.TaskID(shift)
		got, err := s.Task(s.ctx, want.ID)
		s.must(err)
		if !reflect.DeepEqual(got, want) {
			s.Errorf("the task is\n%+v, want\n%+v", got, want)
		}
		attempts, err := s.Attempts(s.ctx, want.ID)
		s.must(err)
		if len(attempts) != len(p.Attempts) {
			s.Errorf("task %s has %d attempts, want %d", want.ID, len(attempts), len(p.Attempts))
			continue
		}
		for i, attempt := range p.Attempts {
			attempt.Task = want.ID
			if !reflect.DeepEqual(attempts[i], attempt) {
				s.Errorf("the attempt is\n%+v, want\n%+v", attempts[i], attempt)
			}
		}
	}
}

func testCommitImport(s *suite, to store.Importer) {
	records := sampleRecords(s.now())
	if a := s.stage(to, store.IntoEmpty, records); a.Shift != 0 || a.Through != 0 || a.BegunAt.IsZero() {
		s.Errorf("begun: %+v", a)
	}
	staged, err := to.Staged(s.ctx, transfer)
	s.must(err)
	if staged.Tasks() != 6 || staged.States[holdfast.Ready] != 2 || staged.States[holdfast.Running] != 0 || staged.Attempts != 3 || staged.Last != 40 {
		s.Errorf("staged: %+v", staged)
	}
	s.empty()
	a, err := to.CommitImport(s.ctx, transfer)
	s.must(err)
	if a.CommittedAt.IsZero() || a.Tasks != 6 || a.Through != 40 {
		s.Errorf("committed: %+v", a)
	}
	s.imported(records, 0)
	if again, err := to.CommitImport(s.ctx, transfer); err != nil || again != a {
		s.Errorf("committed again: %+v, %v", again, err)
	}
	if left, err := to.Staged(s.ctx, transfer); err != nil || left.Tasks() != 0 || left.Attempts != 0 {
		s.Errorf("left behind: %+v, %v", left, err)
	}
	if lanes, err := s.LaneNames(s.ctx); err != nil || len(lanes) != 2 {
		s.Errorf("the lanes are %v, %v", lanes, err)
	}
	var given []store.Due
	_, err = s.DispatchDue(s.ctx, 10, func(_ context.Context, due []store.Due) []bool {
		given = due
		return []bool{true}
	})
	s.must(err)
	if len(given) != 1 || given[0].Task != 2 || given[0].Attempt != 2 || given[0].Lane != "slow" || !given[0].Again {
		s.Errorf("to publish: %+v", given)
	}
	if fresh := s.insert(newTask()); fresh[0].Task <= 40 {
		s.Errorf("a new task got the id %s", fresh[0].Task)
	}
}

// empty checks that nobody sees a task.
func (s *suite) empty() {
	s.Helper()
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if n := (store.TransferCounts{States: counts}).Tasks(); n != 0 {
		s.Errorf("there are %d tasks: %v", n, counts)
	}
	did, err := s.DispatchDue(s.ctx, 10, func(_ context.Context, due []store.Due) []bool { return make([]bool, len(due)) })
	if err != nil || did.Given != 0 {
		s.Errorf("to publish: %+v, %v", did, err)
	}
}

func testStageAgain(s *suite, to store.Importer) {
	records := sampleRecords(s.now())
	s.stage(to, store.IntoEmpty, records[:4])
	for range 2 { // the answer was lost
		s.must(to.Stage(s.ctx, transfer, records[2:4]))
	}
	a, err := to.BeginImport(s.ctx, newImport(), 40, store.IntoEmpty)
	if err != nil || a.Through != records[3].ID {
		s.Errorf("begun again: %+v, %v", a, err)
	}
	s.must(to.Stage(s.ctx, transfer, records))
	if staged, err := to.Staged(s.ctx, transfer); err != nil || staged.Tasks() != 6 || staged.Attempts != 3 {
		s.Errorf("staged: %+v, %v", staged, err)
	}
	_, err = to.CommitImport(s.ctx, transfer)
	s.must(err)
	s.imported(records, 0)
	if err := to.Stage(s.ctx, transfer, records); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("staged after the end: %v", err)
	}
	if a, err := to.BeginImport(s.ctx, newImport(), 40, store.IntoEmpty); err != nil || a.CommittedAt.IsZero() {
		s.Errorf("begun after the end: %+v, %v", a, err)
	}
}

func testImportNotEmpty(s *suite, to store.Importer) {
	s.inserts(3)
	_, err := to.BeginImport(s.ctx, newImport(), 40, store.IntoEmpty)
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "3 tasks") {
		s.Errorf("into a store with tasks: %v", err)
	}
	for what, err := range map[string]error{
		"receive": to.Stage(s.ctx, transfer, sampleRecords(s.now())), "staged": second(to.Staged(s.ctx, transfer)), "commit_import": second(to.CommitImport(s.ctx, transfer)),
	} {
		if !errors.Is(err, holdfast.ErrNotFound) {
			s.Errorf("%s without a transfer: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func testImportShifts(s *suite, to store.Importer) {
	records := sampleRecords(s.now())
	var group sync.WaitGroup
	var mu sync.Mutex
	given := map[holdfast.TaskID]bool{}
	stop := make(chan struct{})
	begun := make(chan struct{}, 4)
	for range 4 {
		group.Go(func() {
			for n := 0; ; n++ {
				inserted, err := s.Insert(s.ctx, []holdfast.NewTask{newTask(), newTask()}, time.Hour)
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				for _, task := range inserted.Tasks {
					given[task.ID] = true
				}
				mu.Unlock()
				if n == 0 {
					begun <- struct{}{}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	<-begun
	a := s.stage(to, store.IntoExisting, records)
	_, err := to.CommitImport(s.ctx, transfer)
	close(stop)
	group.Wait()
	s.must(err)
	if a.Shift == 0 {
		s.Error("the ids were not shifted")
	}
	for id := holdfast.TaskID(a.Shift) + 1; id <= holdfast.TaskID(a.Shift)+40; id++ {
		if given[id] {
			s.Errorf("the id %s was given to another task", id)
		}
	}
	s.imported(records, a.Shift)
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if got, want := (store.TransferCounts{States: counts}).Tasks(), int64(len(given)+len(records)); got != want {
		s.Errorf("there are %d tasks, want %d", got, want)
	}
}

func testCommitClash(s *suite, to store.Importer) {
	records := sampleRecords(s.now())
	a := s.stage(to, store.IntoEmpty, records)
	taken := newTask()
	taken.Unique = records[0].Unique
	holder := s.insert(taken)[0]
	if a.Shift != 0 || holder.Task <= 40 {
		s.Errorf("the shift is %d, and the id of another task %s", a.Shift, holder.Task)
	}
	_, err := to.CommitImport(s.ctx, transfer)
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), `the unique key "ключ \"1\"" of task 2`) || !strings.Contains(err.Error(), "task "+holder.Task.String()) {
		s.Errorf("with a key that is taken: %v", err)
	}
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if n := (store.TransferCounts{States: counts}).Tasks(); n != 1 {
		s.Errorf("there are %d tasks", n)
	}
	if staged, err := to.Staged(s.ctx, transfer); err != nil || staged.Tasks() != 6 {
		s.Errorf("staged: %+v, %v", staged, err)
	}
}

func testAbortImport(s *suite, to store.Importer) {
	records := sampleRecords(s.now())
	s.stage(to, store.IntoEmpty, records)
	for range 2 {
		s.must(to.AbortImport(s.ctx, transfer))
	}
	s.empty()
	s.stage(to, store.IntoEmpty, records)
	_, err := to.CommitImport(s.ctx, transfer)
	s.must(err)
	if err := to.AbortImport(s.ctx, transfer); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("aborted after the end: %v", err)
	}
	s.imported(records, 0)
}

func testImportCopy(s *suite, to store.Importer) {
	records := sampleRecords(s.now())
	s.stage(to, store.IntoEmpty, records[:2])
	other := newImport()
	other.Source, other.Transfer = "other-source", "other-transfer"
	if _, err := to.BeginImport(s.ctx, other, 40, store.IntoEmpty); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "/a/file.db") {
		s.Errorf("begun beside others: %v", err)
	}
	anew := newImport()
	anew.Transfer = "another-transfer"
	if a, err := to.BeginImport(s.ctx, anew, 40, store.IntoEmpty); err != nil || a.Through != 0 {
		s.Errorf("begun anew: %+v, %v", a, err)
	}
	if err := to.Stage(s.ctx, transfer, records); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("staged for the transfer before: %v", err)
	}
	s.must(to.Stage(s.ctx, anew.Transfer, records))
	_, err := to.CommitImport(s.ctx, anew.Transfer)
	s.must(err)
	if _, err := to.BeginImport(s.ctx, newImport(), 40, store.IntoExisting); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "copy") {
		s.Errorf("begun from a copy: %v", err)
	}
	s.imported(records, 0)
}

func testImportRecord(s *suite, to store.Importer) {
	if open, err := to.OpenImports(s.ctx); err != nil || len(open) != 0 {
		s.Errorf("open before: %+v, %v", open, err)
	}
	if i, err := to.Import(s.ctx, transfer); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("before: %+v, %v", i, err)
	}
	records := sampleRecords(s.now())
	s.stage(to, store.IntoEmpty, records[:3])
	open, err := to.OpenImports(s.ctx)
	if err != nil || len(open) != 1 || open[0].Transfer != transfer || open[0].From != "/a/file.db" || open[0].Tasks != 3 || open[0].BegunAt.IsZero() || open[0].Committed() {
		s.Errorf("open: %+v, %v", open, err)
	}
	if i, err := to.Import(s.ctx, transfer); err != nil || i.Committed() || i.Through != records[2].ID {
		s.Errorf("under way: %+v, %v", i, err)
	}
	done, err := to.CommitImport(s.ctx, transfer)
	s.must(err)
	if i, err := to.Import(s.ctx, transfer); err != nil || i != done {
		s.Errorf("committed: %+v, %v", i, err)
	}
	if open, err := to.OpenImports(s.ctx); err != nil || len(open) != 0 {
		s.Errorf("open afterwards: %+v, %v", open, err)
	}
}
