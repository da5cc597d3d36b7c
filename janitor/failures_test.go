package janitor

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/rig"
)

// Logical replication of a whole database refuses updates and deletions in a table without a replica identity. So every
// table has one, and every duty works.
func TestDutiesWithAPublicationOfAllTables(t *testing.T) {
	t.Parallel()
	address := pgtest.Database(t)
	db, err := sql.Open("postgres", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := &world{T: t, store: pgtest.Connect(t, postgres.Options{URL: address}), observed: &rig.Tally{}}
	_, err = db.ExecContext(t.Context(), "create publication everything for all tables")
	w.must(err)
	_, err = w.store.MigrateUp(t.Context())
	w.must(err)
	var without sql.NullString
	w.must(db.QueryRowContext(t.Context(), `select string_agg(c.oid::regclass::text, ', ') from pg_class c
		where c.relkind in ('r', 'p') and c.relnamespace = 'holdfast'::regnamespace and c.relreplident not in ('f', 'i')
		and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)`).Scan(&without))
	if without.Valid {
		t.Errorf("these tables have no replica identity: %s", without.String)
	}

	b, prefix := rabbittest.Open(t)
	incarnation, err := w.store.Incarnation(t.Context())
	w.must(err)
	w.broker, w.topology = b, broker.NewTopology(prefix, 1, incarnation)
	_, err = w.store.Insert(t.Context(), []holdfast.NewTask{
		{Type: kind, Queue: queue}, {Type: kind, Queue: queue, Delay: time.Hour}, {Type: kind, Queue: queue, Key: "k", Ordered: true},
		{Type: kind, Queue: queue, Topic: "t"}, {Type: kind, Queue: queue, Tags: []string{"x"}, Key: "k"},
	}, 0)
	w.must(err)
	_, err = db.ExecContext(t.Context(), "update holdfast.tasks set state = 'done', finished_at = now() - interval '1 hour', due_at = null where tags is not null")
	w.must(err)
	j := w.janitor(func(o *Options) {
		o.Prune = store.PruneAges{Done: time.Minute, Workers: time.Minute, Answers: time.Minute}
	})
	engine := operate.New(w.store, 0)
	for name, duty := range map[string]func(context.Context) error{
		"rebuild": j.rebuild, "outbox": j.outbox, "clock": j.correctTimes, "sentinels": j.sentinels, "lost tickets": j.lostTickets,
		"abandoned tasks": j.sweepAll, "sweep": j.sweep, "prune": j.prune, "deaths": j.recordDeaths, "verify": j.verify,
		"fold counts": j.foldCounts, "recount": j.recount,
		"dispatch":   func(ctx context.Context) error { _, err := j.dispatchReady(ctx); return err },
		"operations": func(ctx context.Context) error { _, _, err := engine.Advance(ctx); return err },
		"release":    func(ctx context.Context) error { look := soonestLook; _, _, err := j.release(ctx, &look); return err },
		"report": func(ctx context.Context) error {
			return errors.Join(w.store.ReportDuty(ctx, store.DutyFailure{Janitor: "j", Duty: "d", Error: "e", Valid: time.Hour}),
				w.store.ReportDuty(ctx, store.DutyFailure{Janitor: "j", Duty: "d"}))
		},
	} {
		if err := duty(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A duty that fails in one process is visible in every process, until it works again.
func TestFailingDutiesAreReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failing := func() []store.DutyFailure {
		found, err := w.store.Janitors(t.Context(), time.Minute)
		w.must(err)
		return found.Failing
	}
	j := w.janitor(nil)
	w.sql("alter table holdfast.counts rename to gone")
	stop := w.background(func(ctx context.Context) { j.repeat(ctx, "recount", time.Hour, j.recount) })
	w.eventually("the failing duty is reported", func() bool { return len(failing()) == 1 })
	if f := failing()[0]; f.Duty != "recount" || f.Janitor != "test janitor" || !strings.Contains(f.Error, "counts") {
		t.Errorf("got %+v", f)
	}
	stop()
	w.sql("alter table holdfast.gone rename to counts")
	w.background(func(ctx context.Context) { j.repeat(ctx, "recount", time.Hour, j.recount) })
	w.eventually("the report is deleted", func() bool { return len(failing()) == 0 })

	// A duty that fails only briefly and tries again soon is not reported.
	j.failed(t.Context(), "fold counts", errors.New("no"), time.Second)
	if found := failing(); len(found) != 0 {
		t.Errorf("the first failure is reported: %+v", found)
	}
	j.failures.by["fold counts"] = failure{began: time.Now().Add(-failingAfter)}
	j.failed(t.Context(), "fold counts", errors.New("no"), time.Second)
	if found := failing(); len(found) != 1 || found[0].For < failingAfter {
		t.Errorf("a duty that has failed for a while: %+v", found)
	}
	j.succeeded(t.Context(), "fold counts")
	if found := failing(); len(found) != 0 {
		t.Errorf("a duty that works again: %+v", found)
	}
}

// panickingStore is a store whose Fence and WorkerStates panic at their first calls.
type panickingStore struct {
	Store
	fences, states atomic.Int32
	again          func() // called before the second call of Fence
}

func (p *panickingStore) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.WorkerID, error) {
	switch p.fences.Add(1) {
	case 1:
		panic("a stored value")
	case 2:
		p.again()
	}
	return p.Store.Fence(ctx, asked, grace, settle)
}

func (p *panickingStore) WorkerStates(ctx context.Context, workers []holdfast.WorkerID) (map[holdfast.WorkerID]store.WorkerStatus, error) {
	if p.states.Add(1) == 1 {
		panic("a stored value")
	}
	return p.Store.WorkerStates(ctx, workers)
}

// A duty that panics is a failing duty: it is logged with its stack and counted, and it runs again.
func TestADutyThatPanicsRunsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log, hook := test.NewNullLogger()
	p := &panickingStore{Store: w.store}
	j := w.janitor(func(o *Options) { o.Store, o.Log = p, log })
	failing := make(chan bool, 1)
	p.again = func() {
		j.failures.mu.Lock()
		defer j.failures.mu.Unlock()
		_, counted := j.failures.by[fenceDuty]
		failing <- counted
	}
	worker := w.registerWorker()
	ticket := w.ticketed(1)[0]
	w.kill(worker)
	w.send(w.hold(), manifest(worker, 1, ticket))
	w.background(func(ctx context.Context) {
		j.repeat(ctx, fenceDuty, time.Millisecond, func(ctx context.Context) error {
			_, err := p.Fence(ctx, time.Time{}, 0, 0)
			return err
		})
	})
	if counted := <-failing; !counted {
		t.Error("the panic is not counted as a failure of its duty")
	}
	w.patrol(j)
	w.eventually("the patrol runs again", func() bool { return !w.position(ticket).Ticketed })
	for _, duty := range []string{fenceDuty, "subscribe to " + w.hold()} {
		if !slices.ContainsFunc(hook.AllEntries(), func(e *logrus.Entry) bool {
			stack, _ := e.Data["stack"].(string)
			return e.Data["duty"] == duty && e.Message == "duty failed, trying again" && strings.Contains(stack, "panickingStore")
		}) {
			t.Errorf("%s: the panic is not logged with its stack", duty)
		}
	}
}
