package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var migrationTests = []test{
	{"migrate down and up again", testMigrateDownAndUp},
	{"run once for concurrent callers", testMigrateConcurrently},
	{"create one incarnation", testIncarnation},
	{"make blocked tasks due on the way down", testMigrateDownBlocked},
	{"keep plans and their items", testMigratePlans},
}

func testMigrateDownAndUp(s *suite) {
	s.must(s.CheckSchema(s.ctx))
	known := s.status(true)
	for i := len(known) - 1; i >= 0; i-- {
		down, err := s.MigrateDown(s.ctx)
		s.must(err)
		if down.Version != known[i].Version || down.Name != known[i].Name || down.Applied {
			s.Errorf("MigrateDown returned %+v, want %+v", down, known[i])
		}
		if err := s.CheckSchema(s.ctx); !errors.Is(err, store.ErrSchema) {
			s.Errorf("CheckSchema without version %d: %v, want ErrSchema", known[i].Version, err)
		}
	}
	if _, err := s.MigrateDown(s.ctx); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("MigrateDown without versions: %v, want ErrNotFound", err)
	}
	s.status(false)
	if _, err := s.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0); !errors.Is(err, store.ErrSchema) {
		s.Errorf("Insert without tables: %v, want ErrSchema", err)
	}
	up, err := s.MigrateUp(s.ctx)
	s.must(err)
	if len(up) != len(known) {
		s.Errorf("MigrateUp returned %v, want %v", up, known)
	}
	if up, err = s.MigrateUp(s.ctx); err != nil || len(up) > 0 {
		s.Errorf("the second MigrateUp returned %v, %v; want no versions", up, err)
	}
	s.must(s.CheckSchema(s.ctx))
	s.status(true)
	s.insert(newTask())
	if names, err := s.QueueNames(s.ctx); err != nil || len(names) != 1 {
		s.Errorf("the queues are %v, %v", names, err)
	}
}

// status checks that all versions are applied, or none, and that they are in order. It returns the versions.
func (s *suite) status(applied bool) []store.Migration {
	s.Helper()
	list, err := s.MigrationStatus(s.ctx)
	s.must(err)
	if len(list) == 0 {
		s.Fatal("MigrationStatus returned no versions")
	}
	for i, migration := range list {
		if migration.Version != int64(i+1) || migration.Name == "" || migration.Applied != applied || migration.AppliedAt.IsZero() == applied {
			s.Errorf("version %d is %+v", i+1, migration)
		}
	}
	return list
}

func testMigrateConcurrently(s *suite) {
	known := s.status(true)
	for range known {
		_, err := s.MigrateDown(s.ctx)
		s.must(err)
	}
	var mu sync.Mutex
	applied := 0
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			up, err := s.MigrateUp(s.ctx)
			if err != nil {
				s.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			applied += len(up)
		})
	}
	group.Wait()
	if applied != len(known) {
		s.Errorf("%d versions were applied, want %d", applied, len(known))
	}
	s.must(s.CheckSchema(s.ctx))
}

func testIncarnation(s *suite) {
	first, err := s.Incarnation(s.ctx)
	s.must(err)
	if first == "" {
		s.Error("the incarnation is empty")
	}
	if second, err := s.Incarnation(s.ctx); err != nil || second != first {
		s.Errorf("the incarnation changed from %s to %s, %v", first, second, err)
	}
	for range s.status(true) {
		_, err := s.MigrateDown(s.ctx)
		s.must(err)
	}
	_, err = s.MigrateUp(s.ctx)
	s.must(err)
	if second, err := s.Incarnation(s.ctx); err != nil || second == first {
		s.Errorf("the incarnation of a new schema is %s, %v; want another one", second, err)
	}
}

// A build of an older version does not release tasks that gates, turns or slots block. So the migration to its schema
// makes them due.
func testMigrateDownBlocked(s *suite) {
	versions := s.status(true)
	if len(versions) < 4 {
		s.Skip("the store has no older version of its schema")
	}
	worker, later := s.registerWorker(), newTask()
	later.At = store.BlockedUntil // a person wants that time
	s.insert(later)
	paused, limited, broken := newTask(), newTask(), deliveryTo(slowURL)
	paused.Key, limited.Type = "paused", other
	tickets := s.insert(paused, limited, broken)
	pause := s.pause(store.Subject{Key: "paused"}, 0)
	limit := s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Type: other}}, Concurrency: 1})
	s.must(s.ReportTargets(s.ctx, []store.TargetReport{{Target: slowTarget, Trip: true, Cause: "503"}}))
	gates := s.gates()
	for i, gate := range []store.ID{pause.ID, limit.ID, gates[len(gates)-1].ID} {
		s.block(worker, gate, tickets[i])
	}
	want := ids(tickets)
	ordered, topical := newTask(), newTask()
	ordered.Key, ordered.Ordered, topical.Topic = "k", true, "site"
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{ordered, ordered, topical}, time.Hour)
	s.must(err)
	for _, task := range inserted.Tasks[1:] { // the first one has its turn, and a ticket
		want = append(want, task.ID)
	}
	if due := s.due(); len(due) > 0 {
		s.Fatalf("the tasks %v are due before the migration", due)
	}
	for i := len(versions); i > 3; i-- {
		_, err := s.MigrateDown(s.ctx)
		s.must(err)
	}
	_, err = s.MigrateUp(s.ctx)
	s.must(err)
	if due := s.due(); !slices.Equal(due, want) {
		s.Errorf("the tasks %v are due after the migration, want %v", due, want)
	}
}

// The migration to the schema with batches and the way back keep plans with their items, except for what an older build
// does not know. No later plan gets the id of a deleted one.
func testMigratePlans(s *suite) {
	versions := s.status(true)
	if len(versions) < 11 {
		s.Skip("the store has no older version of its schema")
	}
	kept, stopped, cancelled := s.createPlan(s.planOf("kept", time.Minute)), s.createPlan(s.planOf("stopped", 0)), s.createPlan(s.planOf("cancelled", 0))
	batch := s.createPlan(store.Plan{Kind: store.BatchKind, Name: "batch", State: store.PlanRunning, Spec: kept.Spec})
	step := func(p store.Plan, state store.PlanState, items ...store.PlanItem) store.Plan {
		s.Helper()
		to := p
		to.State = state
		stepped, err := s.StepPlan(s.ctx, store.PlanStep{From: p}, func(store.Inserted) (store.Plan, []store.PlanItem) { return to, items })
		s.must(err)
		return stepped
	}
	items := []store.PlanItem{
		{Item: "closed", State: store.ItemClosed}, {Item: "dead", State: store.ItemDead},
		{Item: "open", State: store.ItemOpen, NextAt: kept.NextAt, Data: json.RawMessage(`{"n":1}`)},
	}
	kept = step(kept, store.PlanRunning, items...)
	step(stopped, store.PlanStopped)
	step(cancelled, store.PlanCancelled)
	step(batch, store.PlanRunning, items...)
	for range len(versions) - 10 {
		_, err := s.MigrateDown(s.ctx)
		s.must(err)
	}
	_, err := s.MigrateUp(s.ctx)
	s.must(err)
	if got := s.planByName("kept"); got.Version != kept.Version || !got.NextAt.Equal(kept.NextAt) || string(got.Spec) != string(kept.Spec) || !got.CreatedAt.Equal(kept.CreatedAt) || got.Actor != kept.Actor {
		s.Errorf("the plan is %+v, want %+v", got, kept)
	}
	open, err := s.PlanItems(s.ctx, kept.ID, store.PlanItemFilter{State: store.ItemOpen})
	s.must(err)
	if len(open) != 1 || open[0].Item != "open" || !open[0].NextAt.Equal(kept.NextAt) || string(open[0].Data) != `{"n":1}` {
		s.Errorf("the open items are %+v", open)
	}
	if dead, closed := s.itemsOf(kept, store.PlanItemFilter{State: store.ItemDead}), s.itemsOf(kept, store.PlanItemFilter{State: store.ItemClosed}); dead != "dead" || closed != "" {
		s.Errorf("the dead items are %s, the closed ones %s", dead, closed)
	}
	if got := s.planByName("stopped"); got.State != store.PlanPaused {
		s.Errorf("the stopped plan is %s", got.State)
	}
	if _, err := s.PlanByName(s.ctx, store.ScheduleKind, "cancelled"); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("the cancelled plan: %v", err)
	}
	if _, err := s.PlanByName(s.ctx, store.BatchKind, "batch"); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("the batch: %v", err)
	}
	if got := s.itemsOf(batch, store.PlanItemFilter{State: store.ItemOpen}); got != "" {
		s.Errorf("the deleted batch has the items %s", got)
	}
	if next := s.createPlan(s.planOf("next", 0)); next.ID <= batch.ID {
		s.Errorf("the next plan has the id %s, the batch had %s", next.ID, batch.ID)
	}
}
