package benchmarks

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

var (
	changeRounds = flag.Int("changes.rounds", 5, "BenchmarkChangesBesideBlocks: number of rounds")
	changeTasks  = flag.Int("changes.tasks", 150_000, "BenchmarkChangesBesideBlocks: number of tasks of the paused type")
	permitLimits = flag.Int("permits.limits", 1000, "BenchmarkPermitPasses: number of limits of single keys")
	permitEach   = flag.Int("permits.each", 100, "BenchmarkPermitPasses: blocked tasks of each of these limits")
	permitKeys   = flag.Int("permits.keys", 100_000, "BenchmarkPermitPasses: number of keys with a running and a blocked task")
	permitDue    = flag.Int("permits.due", 20_000, "BenchmarkPermitPasses: number of keys that are due at once")
	permitIdle   = flag.Int("permits.idle", 60, "BenchmarkPermitPasses: number of calls with nothing to do")
)

const (
	changeBlockers = 16
	changePage     = 100             // tickets in a call of Block
	releaseLimit   = 1000            // as in the janitor
	permitMost     = 2 * time.Minute // limits the calls that give permits in one state
)

// storeFixture is a store with a schema of its own.
type storeFixture struct {
	*postgres.Store
	db      *sql.DB
	schema  string
	changes atomic.Int64
}

// newStoreFixture returns a store. Only the method analyze analyzes its tables.
func newStoreFixture(b *testing.B) *storeFixture {
	b.Helper()
	address, schema := pgtest.Schema(b)
	db, err := sql.Open("postgres", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	s := &storeFixture{Store: pgtest.Connect(b, postgres.Options{URL: address, Schema: schema}), db: db, schema: schema}
	for _, table := range s.tables(b) {
		s.exec(b, "alter table "+table+" set (autovacuum_enabled = false)")
	}
	return s
}

func (s *storeFixture) tables(b *testing.B) (names []string) {
	b.Helper()
	err := s.db.QueryRow("select array_agg(format('%I.%I', schemaname, tablename)) from pg_tables where schemaname = $1", s.schema).
		Scan((*pq.StringArray)(&names))
	if err != nil {
		b.Fatal(err)
	}
	return names
}

func (s *storeFixture) analyze(b *testing.B) {
	b.Helper()
	s.exec(b, "analyze "+strings.Join(s.tables(b), ", "))
}

// exec executes a statement, in which "holdfast." is replaced by the schema.
func (s *storeFixture) exec(b *testing.B, statement string, args ...any) {
	b.Helper()
	if _, err := s.db.Exec(strings.ReplaceAll(statement, "holdfast.", s.schema+"."), args...); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

// BenchmarkChangesBesideBlocks measures how long changes of gates and the registration of a worker take. Meanwhile,
// many calls of Block block the tasks of a paused type. First the changes run one after the other. Then they run beside
// the Resume of that type.
func BenchmarkChangesBesideBlocks(b *testing.B) {
	s := newStoreFixture(b)
	tickets := s.insertPaused(b, *changeTasks)
	limit := store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "limited"}}, Concurrency: 1}
	if _, err := s.SetLimit(b.Context(), benchmarker, limit.Change()); err != nil {
		b.Fatal(err)
	}
	others := []string{"SetLimit", "Pause", "RegisterWorker"}
	times := &changeTimes{took: make(map[string][]float64), failed: make(map[string][]error)}
	for b.Loop() {
		for round := range *changeRounds {
			pause, err := s.Pause(b.Context(), benchmarker, store.PauseFor(store.Subject{Type: "paused"}, 0))
			if err != nil {
				b.Fatal(err)
			}
			blocks := s.beginBlocks(b, pause.After.ID, tickets)
			for _, name := range others {
				time.Sleep(100 * time.Millisecond)
				times.measure(name, func() error { return s.change(b.Context(), name) })
			}
			before := blocks.tasks.Load()
			resumed := s.beside(b.Context(), times, others)
			took := times.measure("Resume", func() error { return s.change(b.Context(), "Resume") })
			resumed()
			b.Logf("round %d: Block was called for %d tasks when Resume began, and for %d when it ended, %s later",
				round, before, blocks.tasks.Load(), took.Round(time.Millisecond))
			blocks.end(b)
			s.reset(b)
		}
	}
	times.report(b)
}

// beside makes the changes repeatedly until the returned function is called.
func (s *storeFixture) beside(ctx context.Context, times *changeTimes, names []string) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var callers sync.WaitGroup
	for _, name := range names {
		callers.Go(func() {
			for ctx.Err() == nil {
				times.measure(name+"-beside-Resume", func() error { return s.change(context.WithoutCancel(ctx), name) })
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	return func() { stop(); callers.Wait() }
}

// changeTimes are the durations of changes by name. It is safe for concurrent use.
type changeTimes struct {
	mu     sync.Mutex
	took   map[string][]float64 // seconds
	failed map[string][]error
}

func (t *changeTimes) measure(name string, change func() error) time.Duration {
	began := time.Now()
	err := change()
	took := time.Since(began)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.took[name] = append(t.took[name], took.Seconds()); err != nil {
		t.failed[name] = append(t.failed[name], err)
	}
	return took
}

func (t *changeTimes) report(b *testing.B) {
	b.Helper()
	for _, name := range slices.Sorted(maps.Keys(t.took)) {
		b.ReportMetric(1000*quantile(t.took[name], 0.5), name+"-p50-ms")
		b.ReportMetric(1000*quantile(t.took[name], 1), name+"-max-ms")
		b.Logf("%s: median %.0f ms, max %.0f ms of %d calls, of which %d failed: %v", name, 1000*quantile(t.took[name], 0.5),
			1000*quantile(t.took[name], 1), len(t.took[name]), len(t.failed[name]), errors.Join(t.failed[name][:min(1, len(t.failed[name]))]...))
	}
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

// change makes one of the changes that are measured.
func (s *storeFixture) change(ctx context.Context, name string) (err error) {
	switch n := int(s.changes.Add(1)); name {
	case "SetLimit":
		limit := store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "limited"}}, Concurrency: 1 + n%1000}
		_, err = s.SetLimit(ctx, benchmarker, limit.Change())
	case "Pause":
		_, err = s.Pause(ctx, benchmarker, store.PauseFor(store.Subject{Type: fmt.Sprint("other-", n%10)}, 0))
	case "RegisterWorker":
		_, err = s.RegisterWorker(ctx, store.WorkerInfo{Name: "benchmark"}, time.Hour)
	case "Resume":
		_, err = s.Resume(ctx, benchmarker, store.Subject{Type: "paused"})
	}
	return err
}

// insertPaused stores tasks of the paused type, and returns their tickets.
func (s *storeFixture) insertPaused(b *testing.B, n int) (tickets []message.Ticket) {
	b.Helper()
	tasks := slices.Repeat([]holdfast.NewTask{{Type: "paused", Queue: holdfast.DefaultQueue, MaxAttempts: 3}}, n)
	for part := range slices.Chunk(tasks, 1000) {
		inserted, err := s.Insert(b.Context(), part, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		for _, entry := range inserted.Entries {
			tickets = append(tickets, entry.Tickets...)
		}
	}
	return tickets
}

// reset gives all tasks their tickets back.
func (s *storeFixture) reset(b *testing.B) {
	b.Helper()
	s.exec(b, "update holdfast.tasks set due_at = null, ticketed_at = now() where due_at is not null")
	s.exec(b, "truncate holdfast.blocked, holdfast.buckets")
	s.exec(b, "vacuum analyze holdfast.tasks")
}

// blocks are goroutines that call Block until end.
type blocks struct {
	tasks   atomic.Int64 // tasks for which Block has been called
	stop    context.CancelFunc
	callers sync.WaitGroup
	mu      sync.Mutex
	failed  []error
}

// beginBlocks begins to call Block with pages of the tickets. After the last page, it begins with the first one again.
func (s *storeFixture) beginBlocks(b *testing.B, gate store.ID, tickets []message.Ticket) *blocks {
	pages := slices.Collect(slices.Chunk(tickets, changePage))
	ctx, stop := context.WithCancel(b.Context())
	l := &blocks{stop: stop}
	var next atomic.Int64
	for range changeBlockers {
		l.callers.Go(func() {
			for ctx.Err() == nil {
				page := pages[int(next.Add(1)-1)%len(pages)]
				err := s.Block(context.WithoutCancel(ctx), gate, page)
				l.tasks.Add(int64(len(page)))
				if err != nil {
					l.mu.Lock()
					l.failed = append(l.failed, err)
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// end stops the calls.
func (l *blocks) end(b *testing.B) {
	b.Helper()
	l.stop()
	l.callers.Wait()
	if n := len(l.failed); n > 0 {
		b.Logf("%d calls of Block failed, such as: %v", n, l.failed[0])
	}
}

// BenchmarkPermitPasses measures calls of ReleaseBlocked at three states of the limits, each before the first ANALYZE
// of the tables and after it.
//
//   - limits: many limits of single keys, each with blocked tasks, which are all due.
//   - idle: a limit for each key, and many keys with a running and a blocked task. No call releases a task.
//   - due: a limit for each key, and many keys with a blocked task, which are all due.
func BenchmarkPermitPasses(b *testing.B) {
	for _, state := range []struct {
		name string
		make func(*storeFixture, *testing.B) (permits int)
	}{
		{"limits", (*storeFixture).makeLimits}, {"idle", (*storeFixture).makeIdle}, {"due", (*storeFixture).makeDue},
	} {
		for _, analyzed := range []string{"never-analyzed", "analyzed"} {
			b.Run(state.name+"/"+analyzed, func(b *testing.B) {
				for b.Loop() {
					s := newStoreFixture(b)
					permits := state.make(s, b)
					if analyzed == "analyzed" {
						s.analyze(b)
					}
					s.givePermits(b, permits)
					s.callIdly(b)
				}
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
			})
		}
	}
}

// givePermits calls ReleaseBlocked until the given number of tasks have permits, at most for permitMost.
func (s *storeFixture) givePermits(b *testing.B, permits int) {
	b.Helper()
	if permits == 0 {
		return
	}
	var took []float64
	given, at := 0, 0 // at counts the calls whose result requests the next call at once
	for began := time.Now(); given < permits && time.Since(began) < permitMost; {
		call := time.Now()
		released, err := s.ReleaseBlocked(b.Context(), releaseLimit)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(call).Seconds())
		given += released.Tasks
		if released.Next == 0 && released.Tasks > 0 {
			at++
		}
	}
	total := sum(took)
	b.ReportMetric(1000*quantile(took, 0.5), "call-p50-ms")
	b.ReportMetric(1000*quantile(took, 1), "call-max-ms")
	b.ReportMetric(total, "total-s")
	b.Logf("%d of %d permits in %d calls, of which %d asked for the next call at once: %.2f s, and %.2f s with a pause as long as each call; "+
		"a call: first %.1f ms, mean %.1f ms, p50 %.1f ms, max %.1f ms, last %.1f ms", given, permits, len(took), at, total, 2*total,
		1000*took[0], 1000*total/float64(len(took)), 1000*quantile(took, 0.5), 1000*quantile(took, 1), 1000*took[len(took)-1])
}

// callIdly calls ReleaseBlocked when there is nothing to do, and reports the share of a core that a janitor would use.
func (s *storeFixture) callIdly(b *testing.B) {
	b.Helper()
	var took []float64
	periods := 0.0
	var last store.Released
	for range *permitIdle {
		call := time.Now()
		released, err := s.ReleaseBlocked(b.Context(), releaseLimit)
		if err != nil {
			b.Fatal(err)
		}
		d := time.Since(call)
		took, last = append(took, d.Seconds()), released
		periods += idlePeriod(released, d).Seconds()
		if released.Tasks > 0 {
			b.Logf("an idle call has released %d tasks", released.Tasks)
		}
	}
	mean := sum(took) / float64(len(took))
	perSecond := float64(len(took)) / periods
	b.ReportMetric(1000*mean, "idle-mean-ms")
	b.ReportMetric(perSecond, "idle-calls/s")
	b.ReportMetric(100*mean*perSecond, "idle-%core")
	b.Logf("idle calls: mean %.1f ms, p50 %.1f ms, max %.1f ms; the last has returned %+v; a janitor makes %.1f calls/s, which are %.0f %% of a core",
		1000*mean, 1000*quantile(took, 0.5), 1000*quantile(took, 1), last, perSecond, 100*mean*perSecond)
}

// idlePeriod returns the time from one call of an idle janitor to the next, as in package janitor after several calls
// that have released nothing.
func idlePeriod(released store.Released, took time.Duration) time.Duration {
	const soonest, latest, every = 10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond
	switch {
	case released.Next < 0:
		return took + every
	case !released.Waiting:
		return took + max(took, soonest, min(released.Next, every))
	}
	return took + max(took, soonest, min(released.Next, latest))
}

func sum(values []float64) (total float64) {
	for _, value := range values {
		total += value
	}
	return total
}

// The statements below make the rows that Insert, Claim, Block and ReleaseBlocked write, because the calls would take
// too long. $1 is the number of keys.
const (
	// insertBlocked stores $2 blocked tasks of each key. $3 is true if each key has a limit of its own.
	insertBlocked = `
with stored as (
  insert into holdfast.tasks (type, queue, max_attempts, payload, key, due_at)
  select 'timed', 'default', 3, '{"n": 1}', 'tenant-' || k, timestamptz '9999-01-01 00:00:00+00'
  from generate_series(1, $2::int) as n, generate_series(1, $1::int) as k
  returning id, key
), keys as (
  insert into holdfast.keys (key, task_id) select key, id from stored
)
insert into holdfast.blocked (task_id, attempt, gate_id, bucket)
select s.id, 1, g.id, case when $3::bool then '' else s.key end
from stored s join holdfast.gates g on g.key = case when $3::bool then s.key else '' end`

	// insertRunning stores a running task of each key, with its permit.
	insertRunning = `
with stored as (
  insert into holdfast.tasks (type, queue, max_attempts, payload, key, state, worker_id, started_at)
  select 'timed', 'default', 3, '{"n": 1}', 'tenant-' || k, 'running', $2::bigint, now()
  from generate_series(1, $1::int) as k
  returning id, key
), keys as (
  insert into holdfast.keys (key, task_id) select key, id from stored
)
insert into holdfast.permits (task_id, attempt, gate_id, bucket)
select s.id, 1, g.id, s.key from stored s, holdfast.gates g`

	// insertBuckets stores the buckets of the blocked tasks. They are due, or wait for a permit.
	insertBuckets = `
insert into holdfast.buckets (gate_id, bucket, next_at)
select distinct gate_id, bucket, case when $1::bool then now() else timestamptz '9999-01-01 00:00:00+00' end from holdfast.blocked`

	// insertLimits sets a limit for each key.
	insertLimits = `
insert into holdfast.gates (kind, type, key, actor, surface, concurrency)
select 'limit', 'timed', 'tenant-' || k, 'benchmark', 'cli', 1 from generate_series(1, $1::int) as k`
)

// makeLimits makes the state limits, and returns how many permits can be given.
func (s *storeFixture) makeLimits(b *testing.B) (permits int) {
	b.Helper()
	s.exec(b, insertLimits, *permitLimits)
	s.exec(b, insertBlocked, *permitLimits, *permitEach, true)
	s.exec(b, insertBuckets, true)
	return *permitLimits
}

// makeIdle makes the state idle.
func (s *storeFixture) makeIdle(b *testing.B) (permits int) {
	b.Helper()
	worker, err := s.RegisterWorker(b.Context(), store.WorkerInfo{Name: "benchmark", Concurrency: 1000}, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	s.limitKeys(b)
	s.exec(b, insertRunning, *permitKeys, int64(worker))
	s.exec(b, insertBlocked, *permitKeys, 1, false)
	s.exec(b, insertBuckets, false)
	return 0
}

// makeDue makes the state due, and returns how many permits can be given.
func (s *storeFixture) makeDue(b *testing.B) (permits int) {
	b.Helper()
	s.limitKeys(b)
	s.exec(b, insertBlocked, *permitDue, 1, false)
	s.exec(b, insertBuckets, true)
	return *permitDue
}

// limitKeys lets one task of each key run.
func (s *storeFixture) limitKeys(b *testing.B) {
	b.Helper()
	_, err := s.SetLimit(b.Context(), benchmarker, store.Limit{
		Scope: store.Scope{Subject: store.Subject{Type: "timed"}, Per: store.PerKey}, Concurrency: 1,
	}.Change())
	if err != nil {
		b.Fatal(err)
	}
}
