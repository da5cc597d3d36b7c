package benchmarks

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

var (
	scheduleIdle   = flag.Int("schedules.idle", 10_000, "BenchmarkSchedules: number of schedules that are not due")
	scheduleCalls  = flag.Int("schedules.calls", 200, "BenchmarkSchedules: number of calls without a due schedule")
	scheduleDue    = flag.Int("schedules.due", 1000, "BenchmarkSchedules: number of due schedules in a round")
	scheduleRounds = flag.Int("schedules.rounds", 5, "BenchmarkSchedules: number of rounds")
)

// BenchmarkSchedules measures what schedules cost a janitor: a call of Advance beside schedules of which none is due,
// and a firing beside them. A firing takes turns with an insert of a single task with a unique key, which is the least
// that it can cost. The share of a core is that of one call a second; it includes the time that the database takes.
func BenchmarkSchedules(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			for b.Loop() {
				s := new(scheduleFixture)
				if backend == "servers" {
					opened := pgtest.Open(b)
					s.Store, s.inserter = opened, opened
				} else {
					opened, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "holdfast.db"), Create: true})
					s.must(b, err)
					defer opened.Close()
					_, err = opened.MigrateUp(b.Context())
					s.must(b, err)
					s.Store, s.inserter = opened, opened
				}
				s.run(b)
			}
			b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
		})
	}
}

// scheduleFixture is a store with schedules.
type scheduleFixture struct {
	plan.Store
	inserter interface {
		Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error)
	}
}

func (s *scheduleFixture) must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (s *scheduleFixture) run(b *testing.B) {
	b.Helper()
	task := holdfast.NewTask{Type: "noop", Queue: "default", MaxAttempts: 9}
	earlier := s.insert(b, task)
	s.create(b, "idle", *scheduleIdle, time.Hour, earlier)
	engine := plan.New(s)
	var idle, fire, insert []float64
	used := processorTime(b)
	for range *scheduleCalls {
		began := time.Now()
		s.advance(b, engine, 0)
		idle = append(idle, time.Since(began).Seconds())
	}
	used = (processorTime(b) - used) / time.Duration(*scheduleCalls)
	for round := range *scheduleRounds {
		s.create(b, fmt.Sprint("due-", round), *scheduleDue, -5*time.Minute, earlier)
		began := time.Now()
		s.advance(b, engine, *scheduleDue)
		fire = append(fire, time.Since(began).Seconds()/float64(*scheduleDue))
		began = time.Now()
		for i := range *scheduleDue {
			task.Unique = fmt.Sprint("single-", round, "-", i)
			s.insert(b, task)
		}
		insert = append(insert, time.Since(began).Seconds()/float64(*scheduleDue))
	}
	b.ReportMetric(1000*quantile(idle, 0.5), "idle-p50-ms")
	b.ReportMetric(100*quantile(idle, 0.5)/plan.Every.Seconds(), "idle-core-%")
	b.ReportMetric(100*used.Seconds()/plan.Every.Seconds(), "idle-process-%")
	b.ReportMetric(1000*quantile(fire, 0.5), "firing-ms")
	b.ReportMetric(1000*quantile(insert, 0.5), "insert-ms")
	b.ReportMetric(quantile(fire, 0.5)/quantile(insert, 0.5), "ratio")
}

func (s *scheduleFixture) insert(b *testing.B, task holdfast.NewTask) holdfast.TaskID {
	b.Helper()
	inserted, err := s.inserter.Insert(b.Context(), []holdfast.NewTask{task}, 0)
	s.must(b, err)
	return inserted.Tasks[0].ID
}

// create stores schedules whose first moment is in the given time from now. Each has an open task.
func (s *scheduleFixture) create(b *testing.B, prefix string, n int, in time.Duration, open holdfast.TaskID) {
	b.Helper()
	now, err := s.Now(b.Context())
	s.must(b, err)
	spec := plan.Schedule{Every: plan.Duration(24 * time.Hour), Start: now.Add(in), Missed: plan.MissedOne, CatchUp: plan.DefaultCatchUp, Overlap: 2,
		Task: plan.Task{Type: "noop", Queue: "default", MaxAttempts: 9}}
	for i := range n {
		p := store.Plan{Kind: store.ScheduleKind, Name: fmt.Sprintf("%s-%d", prefix, i), State: store.PlanRunning}
		p, err := spec.Restart(p, plan.ScheduleProgress{Open: []plan.ScheduleRun{{Task: open}}}, now.Add(in-time.Minute))
		s.must(b, err)
		_, err = s.CreatePlan(b.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, p)
		s.must(b, err)
	}
}

// advance calls Advance until it has stored n tasks, at least once.
func (s *scheduleFixture) advance(b *testing.B, engine *plan.Engine, n int) {
	b.Helper()
	for {
		_, stored, err := engine.Advance(b.Context())
		s.must(b, err)
		if n -= stored; n <= 0 {
			if n < 0 {
				b.Fatalf("Advance stored %d tasks too many", -n)
			}
			return
		}
	}
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
