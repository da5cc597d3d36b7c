package benchmarks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
)

var (
	arrivalRates = flag.String("arrivals.rate", "200,400,800", "BenchmarkLimitArrivals: tasks per second, one or several numbers")
	arrivalFor   = flag.Duration("arrivals.for", 30*time.Second, "BenchmarkLimitArrivals: how long tasks arrive at each rate")
	arrivalKeys  = flag.Int("arrivals.keys", 300, "BenchmarkLimitArrivals: number of keys")
	arrivalTakes = flag.Duration("arrivals.takes", 10*time.Millisecond, "BenchmarkLimitArrivals: how long a handler takes")
)

const (
	arrivalClients = 3
	arrivalCallers = 16
	arrivalSettles = 5 * time.Second
	arrivalDrain   = time.Minute // how long the tasks may take after the last arrival
)

// BenchmarkLimitArrivals stores tasks of random keys at a given rate. A limit lets one task of each key run at a time.
// Three clients of package queue, which share only the servers, run the tasks. The arrivals follow a schedule and do
// not wait for the tasks. A late arrival is stored at once.
func BenchmarkLimitArrivals(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	for text := range strings.SplitSeq(*arrivalRates, ",") {
		rate, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || rate <= 0 {
			b.Fatalf("-arrivals.rate: %q is not a rate", text)
		}
		b.Run(fmt.Sprintf("rate=%g", rate), func(b *testing.B) {
			for b.Loop() {
				s := newArrivals(b)
				before := s.deadlocks(b)
				began, last := s.store(b, rate, *arrivalFor)
				left := s.left(arrivalSettles)
				end, rest := s.drain(last)
				s.stop(b)
				s.report(b, arrivalTimes{began: began, last: last, end: end}, left, rest, s.deadlocks(b)-before)
			}
		})
	}
}

// arrivals has the clients, and the records of their tasks.
type arrivals struct {
	db       *sql.DB
	clients  [arrivalClients]*queue.Client
	stopOnce func() error
	logged   *trouble

	mu       sync.Mutex
	stored   map[holdfast.TaskID]time.Time // when Enqueue returned
	failed   []error                       // errors of Enqueue
	executed map[holdfast.TaskID]bool
	attempts []keyedAttempt      // attempts that have ended
	served   [arrivalClients]int // number of attempts of each client
}

// keyedAttempt is an execution of a handler.
type keyedAttempt struct {
	task       holdfast.TaskID
	key        string
	start, end time.Time
}

// arrivalTimes are the times of the first and the last arrival, and the end of the wait for the tasks.
type arrivalTimes struct{ began, last, end time.Time }

// trouble counts log messages about locks.
type trouble struct {
	deadlocks, timeouts, others atomic.Int64
	example                     atomic.Pointer[string] // one of the other messages
}

// Levels implements logrus.Hook.
func (t *trouble) Levels() []logrus.Level {
	return []logrus.Level{logrus.PanicLevel, logrus.FatalLevel, logrus.ErrorLevel, logrus.WarnLevel}
}

// Fire implements logrus.Hook.
func (t *trouble) Fire(entry *logrus.Entry) error {
	text, err := entry.String()
	if err != nil {
		return err
	}
	n := int64(1)
	if left, ok := entry.Data["left_out"]; ok { // see logs.Limited
		more, _ := strconv.ParseInt(fmt.Sprint(left), 10, 64)
		n += more
	}
	switch {
	case strings.Contains(text, "deadlock"):
		t.deadlocks.Add(n)
	case strings.Contains(text, "lock timeout"):
		t.timeouts.Add(n)
	default:
		t.others.Add(n)
		t.example.Store(&text)
	}
	return nil
}

// newArrivals sets the limit and returns once each client executes tasks.
func newArrivals(b *testing.B) *arrivals {
	b.Helper()
	env := isolatedEnv(b, 0)
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	s := &arrivals{db: db, logged: new(trouble), stored: make(map[holdfast.TaskID]time.Time), executed: make(map[holdfast.TaskID]bool)}
	s.setLimit(b, env)
	text := logrus.New()
	text.SetOutput(io.Discard)
	text.AddHook(s.logged)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, arrivalClients)
	started := 0
	s.stopOnce = sync.OnceValue(func() error {
		cancel()
		var failed []error
		for range started {
			failed = append(failed, <-ended)
		}
		for _, q := range s.clients {
			if q != nil {
				failed = append(failed, q.Close())
			}
		}
		return errors.Join(failed...)
	})
	b.Cleanup(func() { s.stop(b) })
	for i := range s.clients {
		log := logs.Limited(text.WithField("client", i)) // each process has a limit of its own
		q, err := queue.Open(b.Context(), queue.Environment(env), queue.NoSignals(), queue.Logger(log))
		if err != nil {
			b.Fatal(err)
		}
		s.clients[i] = q
		err = queue.Handle(q, "timed", func(ctx context.Context, task holdfast.Task, _ json.RawMessage) error { return s.handle(ctx, i, task) })
		if err != nil {
			b.Fatal(err)
		}
		started++
		go func() {
			err := q.Run(ctx)
			logs.Flush(log)
			ended <- err
		}()
	}
	s.await(b)
	return s
}

// setLimit sets the limit through a backend of its own.
func (s *arrivals) setLimit(b *testing.B, env []string) {
	b.Helper()
	backend, err := open(env)
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	_, err = backend.Store.SetLimit(b.Context(), store.Actor{Name: "benchmark", Surface: store.CommandLine}, store.Limit{
		Scope: store.Scope{Subject: store.Subject{Type: "timed"}, Per: store.PerKey}, Concurrency: 1,
	}.Change())
	if err != nil {
		b.Fatal(err)
	}
}

// await waits until each client has executed a task without a key, and deletes the records of these tasks.
func (s *arrivals) await(b *testing.B) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		served := s.served
		s.mu.Unlock()
		if !slices.Contains(served[:], 0) {
			break
		}
		if time.Now().After(deadline) {
			b.Fatalf("the clients have executed %v tasks", served)
		}
		if _, err := s.clients[0].Enqueue(b.Context(), "timed", nil); err != nil {
			b.Fatal(err)
		}
	}
	<-time.After(time.Second) // wait for the last of these tasks
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = nil
	clear(s.executed)
}

func (s *arrivals) handle(ctx context.Context, client int, task holdfast.Task) error {
	attempt := keyedAttempt{task: task.ID, key: task.Key, start: time.Now()}
	select {
	case <-time.After(*arrivalTakes):
	case <-ctx.Done():
		return ctx.Err()
	}
	attempt.end = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[client]++
	s.executed[task.ID] = true
	s.attempts = append(s.attempts, attempt)
	return nil
}

// store stores tasks at a rate, and returns the times of the first and the last arrival.
func (s *arrivals) store(b *testing.B, rate float64, d time.Duration) (began, last time.Time) {
	b.Helper()
	var callers sync.WaitGroup
	var next atomic.Int64
	began = time.Now()
	for i := range arrivalCallers {
		q := s.clients[i%arrivalClients]
		callers.Go(func() {
			for {
				at := time.Duration(float64(next.Add(1)-1) / rate * float64(time.Second))
				if at >= d {
					return
				}
				time.Sleep(time.Until(began.Add(at)))
				result, err := q.Enqueue(b.Context(), "timed", nil, queue.Key(fmt.Sprint("tenant-", rand.N(*arrivalKeys))))
				now := time.Now()
				s.mu.Lock()
				if err != nil {
					s.failed = append(s.failed, err)
				} else {
					s.stored[result.ID] = now
				}
				s.mu.Unlock()
			}
		})
	}
	callers.Wait()
	return began, time.Now()
}

// left waits for the given time, and returns how many tasks have not been executed by then.
func (s *arrivals) left(after time.Duration) int {
	<-time.After(after)
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, len(s.stored)-len(s.executed))
}

// drain waits until all tasks have been executed, but at most for arrivalDrain after the last arrival. It returns when
// the wait ended, and how many tasks have not been executed by then.
func (s *arrivals) drain(last time.Time) (end time.Time, rest int) {
	rest = s.left(0)
	for rest > 0 && time.Since(last) < arrivalDrain {
		rest = s.left(20 * time.Millisecond)
	}
	return time.Now(), rest
}

// stop stops the clients.
func (s *arrivals) stop(b *testing.B) {
	b.Helper()
	if err := s.stopOnce(); err != nil {
		b.Error(err)
	}
}

// deadlocks returns the number of deadlocks in the database so far, including those of other programs.
func (s *arrivals) deadlocks(b *testing.B) (n int64) {
	b.Helper()
	if err := s.db.QueryRow("select deadlocks from pg_stat_database where datname = current_database()").Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// report reports the figures of a round. left is the number of tasks that have not been executed arrivalSettles after
// the last arrival. rest is that number at the end.
func (s *arrivals) report(b *testing.B, t arrivalTimes, left, rest int, deadlocks int64) {
	b.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	lasted := t.last.Sub(t.began).Seconds()
	started, longest, at := 0, time.Duration(0), t.began
	slices.SortFunc(s.attempts, func(a, b keyedAttempt) int { return a.start.Compare(b.start) })
	for _, attempt := range s.attempts {
		if !attempt.start.After(t.last) {
			started++
		}
		longest, at = max(longest, attempt.start.Sub(at)), attempt.start
	}
	if rest > 0 {
		longest = max(longest, t.end.Sub(at))
	}
	passed, overlaps := s.passed()
	for _, metric := range []struct {
		value float64
		unit  string
	}{
		{float64(len(s.stored)) / lasted, "arrivals/s"}, {float64(started) / lasted, "starts/s"},
		{1000 * longest.Seconds(), "longest-ms"}, {float64(left), "left-after-5s"}, {float64(rest), "left-at-end"},
		{1000 * quantile(passed, 0.5), "pass-p50-ms"}, {1000 * quantile(passed, 0.99), "pass-p99-ms"},
		{float64(deadlocks), "deadlocks"}, {float64(s.logged.timeouts.Load()), "lock-timeouts"}, {0, "ns/op"}, // 0 hides ns/op
	} {
		b.ReportMetric(metric.value, metric.unit)
	}
	b.Logf("%d tasks in %.1f s (%.0f/s), %d of them started meanwhile (%.0f/s); longest time without a start %d ms; "+
		"%d tasks left after %s, %d at the end, %.1f s after the last arrival; permit to next start p50 %.1f ms, p99 %.1f ms, max %.1f ms of %d",
		len(s.stored), lasted, float64(len(s.stored))/lasted, started, float64(started)/lasted, longest.Milliseconds(),
		left, arrivalSettles, rest, t.end.Sub(t.last).Seconds(),
		1000*quantile(passed, 0.5), 1000*quantile(passed, 0.99), 1000*quantile(passed, 1), len(passed))
	b.Logf("deadlocks: %d in the database, in the logs %d, lock timeouts %d, other warnings %d; failed calls of Enqueue: %d (%v); "+
		"attempts that overlap one of the same key: %d; tasks executed again: %d; attempts by client: %v",
		deadlocks, s.logged.deadlocks.Load(), s.logged.timeouts.Load(), s.logged.others.Load(),
		len(s.failed), errors.Join(s.failed[:min(len(s.failed), 3)]...), overlaps, len(s.attempts)-len(s.executed), s.served)
	if example := s.logged.example.Load(); example != nil {
		b.Logf("the last of the other warnings: %s", strings.TrimSpace(*example))
	}
}

// passed returns the seconds from the end of an attempt to the start of the next attempt of the same key. It considers
// only tasks that were stored before that end. It also returns how many attempts started while another attempt of their
// key ran. The caller must hold s.mu.
func (s *arrivals) passed() (seconds []float64, overlaps int) {
	before := make(map[string]time.Time)
	for _, attempt := range s.attempts { // in the order of their starts
		end, ok := before[attempt.key]
		stored, known := s.stored[attempt.task]
		switch {
		case ok && attempt.start.Before(end):
			overlaps++
		case ok && known && stored.Before(end):
			seconds = append(seconds, attempt.start.Sub(end).Seconds())
		}
		if attempt.end.After(end) {
			before[attempt.key] = attempt.end
		}
	}
	return seconds, overlaps
}
