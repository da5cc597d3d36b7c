package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Source is a store that tasks can leave.
type Source interface {
	store.Store
	store.Exporter
}

// RunExporter tests the role Exporter. open returns a store as for Run, and another process's view of the same tasks.
func RunExporter(t *testing.T, open func(t *testing.T) (here, elsewhere Source)) {
	for _, test := range []struct {
		name string
		run  func(s *suite, from, elsewhere Source)
	}{
		{"keep everybody from changing a task", testExport},
		{"can be taken back", testCancelExport},
		{"do not begin while a task is running", testExportRunning},
		{"bring everything, in order", testRecords},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here, elsewhere := open(t)
			test.run(&suite{T: t, Store: here, ctx: t.Context()}, here, elsewhere)
		})
	}
}

func exportTo(target string) store.Export {
	return store.Export{Transfer: "to " + target, From: "/a/file.db", To: target, Destination: "the-" + target}
}

// refused checks that every change is an ErrConflict that says why, wherever it is tried.
func (s *suite) refused(ticket holdfast.Ticket, done holdfast.Task, text string, changes ...store.Store) {
	s.Helper()
	unique := newTask()
	unique.Unique = "taken"
	for _, there := range changes {
		move, err := holdfast.Settle(done, holdfast.Asked(holdfast.EventCancel), time.Now(), holdfast.DefaultPolicy())
		s.must(err)
		run, err := there.OpenRun(s.ctx, store.RunInfo{Name: "w", Concurrency: 1}, time.Hour)
		s.must(err)
		for what, err := range map[string]error{
			"insert":        second(there.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0)),
			"insert unique": second(there.Insert(s.ctx, []holdfast.NewTask{unique}, 0)),
			"claim":         second(there.Claim(s.ctx, run, kinds, []holdfast.Ticket{ticket}, store.IntoExecutors)),
			"apply":         second(there.Apply(s.ctx, []holdfast.Transition{move})),
			"park":          there.Park(s.ctx, []holdfast.Ticket{ticket}, time.Second, "why"),
			"unticket":      second(there.Unticket(s.ctx, []holdfast.Ticket{ticket})),
		} {
			if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), text) {
				s.Errorf("%s: %v", what, err)
			}
		}
		s.must(there.CloseRun(s.ctx, run, false))
	}
}

func testExport(s *suite, from, elsewhere Source) {
	unique := newTask()
	unique.Unique = "taken"
	tickets := s.insert(newTask(), unique)
	task, err := elsewhere.Task(s.ctx, tickets[1].Task) // it has prepared statements, before
	s.must(err)
	mark := exportTo("the sea")
	for range 2 {
		s.must(from.BeginExport(s.ctx, mark))
	}
	if err := from.BeginExport(s.ctx, exportTo("the moon")); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "the sea") {
		s.Errorf("exported to elsewhere: %v", err)
	}
	s.refused(tickets[0], task, "are being carried to the sea since 20", from, elsewhere)
	got, err := elsewhere.Export(s.ctx)
	s.must(err)
	if got.BegunAt.IsZero() || !got.FinishedAt.IsZero() || got.Transfer != mark.Transfer || got.From != mark.From || got.To != mark.To || got.Destination != mark.Destination {
		s.Errorf("the mark is %+v", got)
	}
	for range 2 {
		s.must(from.FinishExport(s.ctx, mark.Transfer))
	}
	s.refused(tickets[0], task, "were carried to the sea at 20", from, elsewhere)
	if counts, err := elsewhere.Count(s.ctx, store.Filter{}); err != nil || counts[holdfast.Ready] != 2 {
		s.Errorf("there are %v, %v", counts, err)
	}
}

func testCancelExport(s *suite, from, elsewhere Source) {
	ticket := s.inserts(1)[0]
	mark := exportTo("the sea")
	s.must(from.CancelExport(s.ctx, mark.Transfer))
	s.must(from.BeginExport(s.ctx, mark))
	if err := from.CancelExport(s.ctx, "another transfer"); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("cancelled another transfer: %v", err)
	}
	for range 2 {
		s.must(from.CancelExport(s.ctx, mark.Transfer))
	}
	if got, err := from.Export(s.ctx); err != nil || got != (store.Export{}) {
		s.Errorf("the mark is %+v, %v", got, err)
	}
	for _, there := range []store.Store{from, elsewhere} {
		_, err := there.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0)
		s.must(err)
		_, err = there.Unticket(s.ctx, []holdfast.Ticket{ticket})
		s.must(err)
	}
	s.must(from.BeginExport(s.ctx, exportTo("the moon")))
}

func testExportRunning(s *suite, from, elsewhere Source) {
	ticket := s.inserts(1)[0]
	claims, err := elsewhere.Claim(s.ctx, s.openRun(), kinds, []holdfast.Ticket{ticket}, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		s.Fatalf("%+v, %v", claims, err)
	}
	if err := from.BeginExport(s.ctx, exportTo("the sea")); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "1 tasks of /a/file.db are running; stop") {
		s.Errorf("exported: %v", err)
	}
	if got, err := from.Export(s.ctx); err != nil || got.Transfer != "" {
		s.Errorf("the mark is %+v, %v", got, err)
	}
}

func testRecords(s *suite, from, _ Source) {
	if none, err := from.Records(s.ctx, 0, 10, 1000); err != nil || len(none) != 0 {
		s.Errorf("of nothing: %v, %v", none, err)
	}
	tasks := make([]holdfast.NewTask, 30)
	for i := range tasks {
		tasks[i] = newTask()
		tasks[i].Payload = []byte(`"` + strings.Repeat("é", 50*i) + `"`)
	}
	tasks[20].Payload = []byte(`"` + strings.Repeat("long", 10_000) + `"`)
	tickets := s.insert(tasks...)
	run := s.openRun()
	claims, err := from.Claim(s.ctx, run, kinds, tickets[3:4], store.IntoExecutors)
	s.must(err)
	move, err := holdfast.Settle(claims[0].Task, holdfast.Crashed(run), s.now(), holdfast.DefaultPolicy())
	s.must(err)
	_, err = from.Apply(s.ctx, []holdfast.Transition{move})
	s.must(err)

	const limit, size = 7, 5000
	var got []store.Record
	for after := holdfast.TaskID(0); ; after = got[len(got)-1].ID {
		some, err := from.Records(s.ctx, after, limit, size)
		s.must(err)
		if len(some) == 0 {
			break
		}
		bytes := 0
		for _, p := range some {
			bytes += len(p.Payload)
		}
		if len(some) > limit || len(some) > 1 && bytes > size {
			s.Errorf("%d tasks with %d bytes at once", len(some), bytes)
		}
		got = append(got, some...)
	}
	if len(got) != len(tasks) {
		s.Fatalf("%d tasks, want %d", len(got), len(tasks))
	}
	for i, p := range got {
		if p.ID != tickets[i].Task || string(p.Payload) != string(tasks[i].Payload) || p.Again != (i == 3) || len(p.Attempts) > 0 != (i == 3) {
			s.Errorf("task %d is %.300s", i, p.Task.Payload)
		}
	}
	if a := got[3].Attempts[0]; a.Event != holdfast.EventCrash || a.Run != 0 || a.Worker == "" || a.FinishedAt.IsZero() || got[3].Attempt != 2 {
		s.Errorf("the attempt is %+v", a)
	}
	counts, err := from.TransferCounts(s.ctx)
	if err != nil || counts.Tasks() != 30 || counts.States[holdfast.Ready] != 30 || counts.Attempts != 1 || counts.Last != tickets[29].Task {
		s.Errorf("the counts are %+v, %v", counts, err)
	}
}
