package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

var leaseTests = []test{
	{"register, renew and end a worker", testWorkerLifecycle},
	{"keep the newest schemas of types", testTypeSchemas},
	{"list workers, newest first", testWorkerList},
	{"return what a worker reports", testWorkerReport},
	{"return the settings that a worker uses", testWorkerSettings},
	{"move page cursors forward only", testRenewCursors},
	{"report cancelled tasks", testRenewResult},
	{"request a drain", testDrain},
	{"return one history", testHistory},
}

func testWorkerLifecycle(s *suite) {
	info := store.WorkerInfo{Name: "host/7", Host: "host", PID: 7, Version: "v1", Concurrency: 4, Queues: []string{"a", "b"}, Types: []string{"x", "y"}}
	worker, err := s.RegisterWorker(s.ctx, info, time.Minute)
	s.must(err)
	result, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour, Taken: 5, Settled: 3, Running: 2})
	s.must(err)
	// The queues of a worker are known before the first task is stored.
	if result.Draining || len(result.Cancelled) > 0 || !slices.Equal(result.Queues, []string{"a", "b", defaultQueue}) {
		s.Errorf("Renew returned %+v", result)
	}
	workers, err := s.Workers(s.ctx, false)
	s.must(err)
	if len(workers) != 1 {
		s.Fatalf("got %d workers, want 1", len(workers))
	}
	got := workers[0]
	if got.ID != worker || got.Name != info.Name || got.Host != info.Host || got.PID != 7 || got.Version != "v1" || got.Concurrency != 4 ||
		!slices.Equal(got.Queues, info.Queues) || !slices.Equal(got.Types, info.Types) || got.State != store.WorkerLive || got.Taken != 5 || got.Settled != 3 || got.Running != 2 || !got.EndedAt.IsZero() {
		s.Errorf("the worker is %+v", got)
	}
	if lease := got.LeaseUntil.Sub(got.RenewedAt); lease != time.Hour || got.RenewedAt.Before(got.StartedAt) {
		s.Errorf("the lease is %s, want an hour; the worker is %+v", lease, got)
	}

	s.must(s.DeregisterWorker(s.ctx, worker, true))
	s.must(s.DeregisterWorker(s.ctx, worker, true))
	if _, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		s.Errorf("Renew of a stopped worker: %v, want ErrFenced", err)
	}
	if _, err := s.Renew(s.ctx, store.Renewal{Worker: 1 << 60, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		s.Errorf("Renew of a worker that does not exist: %v, want ErrFenced", err)
	}
	next := s.registerWorker()
	if next <= worker {
		s.Errorf("the next worker is %s, want an id above %s", next, worker)
	}
	if workers, err = s.Workers(s.ctx, false); err != nil || len(workers) != 1 || workers[0].Types != nil {
		s.Errorf("a worker with unknown types is %+v, %v", workers, err)
	}
}

// RunWorkerIDs checks that the ids of workers are partly random. s is empty and migrated.
func RunWorkerIDs(t *testing.T, s desk.Store) {
	last, suffixes := holdfast.WorkerID(0), map[holdfast.WorkerID]bool{}
	for range 3 {
		id, err := s.RegisterWorker(t.Context(), store.WorkerInfo{}, time.Hour)
		if err != nil || id/1_000_000 <= last/1_000_000 || id > 1_000_000_000 {
			t.Fatalf("after worker %s, got the id %s, %v", last, id, err)
		}
		last, suffixes[id%1_000_000] = id, true
	}
	deregistered := last
	if err := s.DeregisterWorker(t.Context(), last, true); err != nil {
		t.Fatal(err)
	}
	for pruned := false; !pruned; { // once the clock has advanced
		if _, err := s.Prune(t.Context(), store.PruneAges{Workers: time.Microsecond}, 10); err != nil {
			t.Fatal(err)
		}
		states, err := s.WorkerStates(t.Context(), []holdfast.WorkerID{deregistered})
		if err != nil {
			t.Fatal(err)
		}
		pruned = len(states) == 0
	}
	if next, err := s.RegisterWorker(t.Context(), store.WorkerInfo{}, time.Hour); err != nil || next/1_000_000 <= deregistered/1_000_000 {
		t.Errorf("after worker %s was pruned, got the id %s, %v", deregistered, next, err)
	}
	if len(suffixes) == 1 { // happens by chance once in 10^12 runs
		t.Errorf("all ids end with the same six digits: the last id is %s", last)
	}
}

func testWorkerList(s *suite) {
	first, second, third := s.registerWorker(), s.registerWorker(), s.registerWorker()
	s.must(s.DeregisterWorker(s.ctx, second, true))
	s.fence(third)
	list := func(all bool) (ids []holdfast.WorkerID, states []store.WorkerState) {
		workers, err := s.Workers(s.ctx, all)
		s.must(err)
		for _, worker := range workers {
			ids, states = append(ids, worker.ID), append(states, worker.State)
			if (worker.State == store.WorkerLive) != worker.EndedAt.IsZero() {
				s.Errorf("worker %s is %s and has the end time %s", worker.ID, worker.State, worker.EndedAt)
			}
		}
		return ids, states
	}
	if ids, _ := list(false); !slices.Equal(ids, []holdfast.WorkerID{first}) {
		s.Errorf("the live workers are %v", ids)
	}
	ids, states := list(true)
	if !slices.Equal(ids, []holdfast.WorkerID{third, second, first}) || !slices.Equal(states, []store.WorkerState{store.WorkerDead, store.WorkerStopped, store.WorkerLive}) {
		s.Errorf("all workers are %v, %v", ids, states)
	}
	got, err := s.WorkerStates(s.ctx, []holdfast.WorkerID{first, third, 1 << 60})
	s.must(err)
	if len(got) != 2 || got[first].State != store.WorkerLive || got[third].State != store.WorkerDead {
		s.Errorf("the states are %v", got)
	}
}

func testWorkerReport(s *suite) {
	worker := s.registerWorker()
	for _, report := range []store.WorkerReport{
		{},
		{Stuck: []store.StuckTask{{Task: 1<<60 + 1, Attempt: 7, For: time.Hour}, {Task: 2, Attempt: 1, For: 1}}, Abandoned: 3},
		{Abandoned: 1, Throughput: []store.QueueThroughput{{Queue: "a", Ended: 1 << 40, Over: time.Hour, Mean: 1}, {Queue: "b"}}},
		{},
	} {
		_, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour, Report: report})
		s.must(err)
		if workers, err := s.Workers(s.ctx, false); err != nil || len(workers) != 1 || !reflect.DeepEqual(workers[0].Report, report) {
			s.Errorf("the report is %+v, %v; want %+v", workers, err, report)
		}
	}
}

func testWorkerSettings(s *suite) {
	worker := s.registerWorker()
	used := func() store.WorkerSettings {
		workers, err := s.Workers(s.ctx, false)
		s.must(err)
		return workers[0].Settings
	}
	if got := used(); got != nil {
		s.Errorf("before a renewal the settings are %v", got)
	}
	want := store.WorkerSettings{"a": {Policy: holdfast.DefaultPolicy(), PolicyFor: true, Timeout: time.Minute, AbandonAfter: time.Hour}}
	for _, sent := range []store.WorkerSettings{want, nil, {}} {
		r := store.Renewal{Worker: worker, Lease: time.Hour}
		if sent != nil {
			text, err := json.Marshal(sent)
			s.must(err)
			r.Settings, want = text, sent
		}
		_, err := s.Renew(s.ctx, r)
		s.must(err)
		if got := used(); !reflect.DeepEqual(got, want) {
			s.Errorf("after a renewal with %v: got %v, want %v", sent, got, want)
		}
	}
}

func testRenewCursors(s *suite) {
	worker := s.registerWorker()
	for _, r := range []store.Renewal{{Taken: 9, Settled: 7}, {Taken: 4, Settled: 2}} { // the second renewal is late
		r.Worker, r.Lease = worker, time.Hour
		_, err := s.Renew(s.ctx, r)
		s.must(err)
	}
	states, err := s.WorkerStates(s.ctx, []holdfast.WorkerID{worker})
	s.must(err)
	if states[worker].Settled != 7 {
		s.Errorf("Settled is %d, want 7", states[worker].Settled)
	}
}

func testRenewResult(s *suite) {
	mine, theirs := s.registerWorker(), s.registerWorker()
	tasks := s.mustClaim(mine, s.insertN(2)...)
	s.move(s.mustClaim(theirs, s.insertN(1)...)[0], holdfast.Requested(holdfast.EventCancel))
	s.move(tasks[0], holdfast.Requested(holdfast.EventCancel))
	renew := func() []message.Ticket {
		result, err := s.Renew(s.ctx, store.Renewal{Worker: mine, Lease: time.Hour})
		s.must(err)
		return result.Cancelled
	}
	if got, want := renew(), []message.Ticket{{Task: tasks[0].ID, Attempt: 1}}; !slices.Equal(got, want) {
		s.Errorf("Renew reported cancelled tasks %v, want %v", got, want)
	}
	if got := renew(); len(got) > 0 {
		s.Errorf("Renew reported cancelled tasks twice: %v", got)
	}
	s.move(tasks[1], holdfast.Requested(holdfast.EventCancel))
	if got, want := renew(), []message.Ticket{{Task: tasks[1].ID, Attempt: 1}}; !slices.Equal(got, want) {
		s.Errorf("Renew reported cancelled tasks %v, want %v", got, want)
	}
	s.move(s.task(s.insertN(1)[0].Task), holdfast.Requested(holdfast.EventCancel))
	if got := renew(); len(got) > 0 {
		s.Errorf("Renew reported a task that was not running: %v", got)
	}
}

func testDrain(s *suite) {
	worker := s.registerWorker()
	s.must(s.Drain(s.ctx, worker))
	s.must(s.Drain(s.ctx, worker))
	result, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour})
	s.must(err)
	if !result.Draining {
		s.Error("Renew did not report the drain")
	}
	if workers, err := s.Workers(s.ctx, false); err != nil || !workers[0].Draining {
		s.Errorf("Workers does not show the drain: %+v, %v", workers, err)
	}
	s.must(s.DeregisterWorker(s.ctx, worker, true))
	if err := s.Drain(s.ctx, worker); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("Drain of a stopped worker: %v, want ErrConflict", err)
	}
	if err := s.Drain(s.ctx, 1<<60); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("Drain of a worker that does not exist: %v, want ErrNotFound", err)
	}
}

func testTypeSchemas(s *suite) {
	register := func(schemas map[string]json.RawMessage, types ...string) holdfast.WorkerID {
		s.Helper()
		worker, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "worker", Types: types, Schemas: schemas}, time.Hour)
		s.must(err)
		return worker
	}
	read := func(taskType string) []store.TypeSchema {
		s.Helper()
		schemas, err := s.TypeSchemas(s.ctx, taskType)
		s.must(err)
		return schemas
	}
	if got := read(""); len(got) != 0 {
		s.Fatalf("schemas before any worker: %+v", got)
	}
	const mail, call = `{"type":["object"],  "n":1e2, "'":"\u0001 é"}`, `{"type":["string"]}`
	before := s.now()
	first := register(map[string]json.RawMessage{"mail": json.RawMessage(mail), "Call": json.RawMessage(call)}, "Call", "any", "mail")
	got := read("")
	if len(got) != 2 || got[0].Type != "Call" || string(got[0].Schema) != call || got[1].Type != "mail" || string(got[1].Schema) != mail ||
		got[1].Worker != first || got[1].UpdatedAt.Before(before) || got[1].UpdatedAt.After(s.now()) {
		s.Fatalf("schemas: %+v", got)
	}
	if one := read("mail"); len(one) != 1 || !reflect.DeepEqual(one[0], got[1]) {
		s.Errorf("the schema of one type: %+v", one)
	}
	for _, none := range []string{"any", "other", "'", "call"} {
		if got := read(none); len(got) != 0 {
			s.Errorf("the schema of type %q: %+v", none, got)
		}
	}
	// A worker with the same schema, or without known types, changes nothing.
	register(map[string]json.RawMessage{"mail": json.RawMessage(mail)}, "mail")
	register(nil)
	if again := read(""); !reflect.DeepEqual(again, got) {
		s.Errorf("schemas after equal ones: %+v, want %+v", again, got)
	}
	// The schema of the newest worker is stored, even if that worker accepts any payload.
	third := register(map[string]json.RawMessage{"any": json.RawMessage(call)}, "any", "mail")
	if got := read(""); len(got) != 2 || got[0].Type != "Call" || got[0].Worker != first || got[1].Type != "any" || got[1].Worker != third {
		s.Errorf("schemas after a newer worker: %+v", got)
	}
	if got := register(map[string]json.RawMessage{"mail": json.RawMessage(mail)}, "mail"); len(read("mail")) != 1 || read("mail")[0].Worker != got {
		s.Errorf("the schema is not back: %+v", read("mail"))
	}
	workers, err := s.Workers(s.ctx, true)
	s.must(err)
	for _, w := range workers {
		if w.Schemas != nil {
			s.Errorf("Workers returned schemas: %+v", w)
		}
	}
	// Workers that register at the same time do not fail.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			types := []string{"a", "b", "c"}
			if i%2 == 1 {
				slices.Reverse(types)
			}
			schema := json.RawMessage(fmt.Sprint(i))
			_, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Types: types, Schemas: map[string]json.RawMessage{"a": schema, "b": schema, "c": schema}}, time.Hour)
			if err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
	if a, c := read("a"), read("c"); len(a) != 1 || len(c) != 1 || !bytes.Equal(a[0].Schema, c[0].Schema) {
		s.Errorf("schemas of two workers: %+v, %+v", a, c)
	}
}
