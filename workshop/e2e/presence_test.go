package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// The test kills one worker after another. The janitor fences them before their leases expire, and their tasks start
// again on another worker. `make recovery` measures how soon. If the janitor itself had a problem, for example because the
// machine paused for a second, it waits until the lease of the worker expires. So the test requires only that a fifth of
// the workers is fenced early.
func TestKilledWorkersAreFencedBeforeTheirLeaseIsOver(t *testing.T) {
	t.Parallel()
	const capacity = 5
	kills := slow.Pick(5, 50)
	w := newWorld(t)
	w.lease = shortLease()
	var current atomic.Pointer[chan struct{}] // first attempts wait until this channel is closed
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			select {
			case <-*current.Load():
			case <-c.ctx.Done():
			}
		}
		return 200
	})
	w.serve(t, nil, "--roles", "janitor")
	start := func(n int) *process {
		return w.serve(t, nil, "--roles", "worker", "--concurrency", fmt.Sprint(capacity), "--name", fmt.Sprint("worker ", n))
	}
	victim, other := start(0), start(1)
	awaitFencing(t, w)
	var delays []time.Duration // delay of the slowest task of each worker
	tasks := 0
	for n := range kills {
		release := make(chan struct{})
		current.Store(&release)
		before, _ := tg.snapshot()
		w.enqueue(t, capacity+1, httpTask(tg)) // more tasks than one worker can run
		tg.await(t, "all tasks are in flight", func(calls []call) bool { return len(open(calls)) == capacity+1 })
		since, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		victim.signal(syscall.SIGKILL)
		interrupted := func(calls []call) (tasks, restarted int, slowest time.Duration) {
			for _, cs := range byTask(calls[len(before):]) {
				if cs[0].aborted {
					tasks++
					if len(cs) > 1 {
						restarted++
						slowest = max(slowest, cs[1].begin.Sub(killed))
					}
				}
			}
			return tasks, restarted, slowest
		}
		tg.await(t, "a task was interrupted", func(calls []call) bool { n, _, _ := interrupted(calls); return n > 0 })
		close(release) // gives the other worker capacity
		calls := tg.await(t, "the interrupted tasks have started again", func(calls []call) bool {
			tasks, restarted, _ := interrupted(calls)
			return tasks == restarted && len(open(calls)) == 0
		})

		_, restarted, slowest := interrupted(calls)
		tasks += restarted
		delays = append(delays, slowest)
		victim, other = other, start(n+2)
		w.awaitPresent(t, since, "after a kill") // if two workers end within a second, the janitor waits for their leases
	}
	slices.Sort(delays)
	t.Logf("%d tasks of %d killed workers started again; the slowest of each after %s (p50), %s (p90), %s (maximum)",
		tasks, kills, delays[kills/2], delays[kills*9/10], delays[kills-1])
	if early := w.fencedEarly(t); early < kills/5 {
		t.Errorf("%d of %d workers were fenced before their lease expired, want at least %d; delays: %v", early, kills, kills/5, delays)
	}
}

// A live worker is not fenced when its connections end, for whatever reason.
func TestLivingWorkersAreNotFencedEarly(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	mqFolder, amqpURL := privateBroker(t)
	pgFolder := t.TempDir()
	databaseURL, err := tryScript(pgFolder, "private-postgres", nil, "up")
	if err != nil {
		if strings.Contains(err.Error(), "exit status 3") {
			t.Skip("PostgreSQL's server is not installed here: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { script(t, pgFolder, "private-postgres", nil, "wipe") })
	w := newWorldOn(t, databaseURL, amqpURL)
	toPostgres, throughPostgres := proxied(t, databaseURL)
	toRabbit, throughRabbit := proxied(t, amqpURL)
	tg := newTarget(t, func(c call) int { <-c.ctx.Done(); return 503 })
	janitor := w.serve(t, nil, "--roles", "janitor")
	lease := "HOLDFAST_WORKER_LEASE=" + slow.Times(30*time.Second).String() // on a busy machine a restart of PostgreSQL takes longer than the default lease
	w.serve(t, []string{lease}, "--roles", "worker", "--name", "other", "--queues", "other")
	w.serve(t, []string{"DATABASE_URL=" + throughPostgres, "AMQP_URL=" + throughRabbit, "HOLDFAST_WEBHOOK_TIMEOUT=1h", lease}, "--roles", "worker", "--name", "faulty links")
	id := w.enqueue(t, 1, httpTask(tg))[0]
	tg.await(t, "the task runs", func(calls []call) bool { return len(open(calls)) == 1 })
	awaitFencing(t, w)

	terminate := func() {
		w.sql(t, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")
	}
	faults := 0
	inflict := func(name string, fault func()) {
		t.Helper()
		since, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fault()
		faults++
		w.awaitPresent(t, since, name)
		if task := w.task(t, id); task.State != holdfast.Running || task.Attempt != 1 || task.Crashes > 0 {
			t.Fatalf("%s: the task is %s at attempt %d with %d crashes\n%s", name, task.State, task.Attempt, task.Crashes, strings.Join(janitor.tail(20), "\n"))
		}
	}
	// Each of these faults affects one server. The simulator tests faults of both servers at the same time. This test
	// cannot, because a worker on a busy machine may not connect again before the janitor fences it.
	for range 5 {
		inflict("connections to RabbitMQ reset", toRabbit.CutAbrupt)
		inflict("sessions of PostgreSQL reset", toPostgres.CutAbrupt)
	}
	for range 2 {
		inflict("connections closed by the broker", func() { script(t, mqFolder, "private-rabbitmq", nil, "close-connections") })
		inflict("backends terminated", terminate)
		inflict("broker restarted", func() { script(t, mqFolder, "private-rabbitmq", nil, "restart") })
		inflict("PostgreSQL restarted", func() { script(t, pgFolder, "private-postgres", nil, "restart") })
	}
	t.Logf("%d faults", faults)
	workers, err := w.Store.Workers(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, worker := range workers {
		if (worker.Name == "faulty links" || worker.Name == "other") && worker.State != store.WorkerLive {
			t.Errorf("the worker named %q is %s", worker.Name, worker.State)
		}
	}
}

// fencedEarly returns the number of workers that were fenced before their lease expired.
func (w *world) fencedEarly(t *testing.T) (n int) {
	t.Helper()
	db, err := sql.Open("postgres", w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query := "select count(*) from " + w.schema + ".workers where state = 'dead' and ended_at < lease_until and name like 'worker %'"
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Both servers end the sessions that hold the presence of a worker, and the worker does not notice. It still renews its
// lease at the usual interval, so it is not fenced early.
func TestAWorkerThatRenewsIsNotFencedEarly(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	faults := slow.Pick(3, 20)
	w := newWorld(t)
	w.lease = shortLease()
	toPostgres, throughPostgres := proxied(t, w.databaseURL)
	toRabbit, throughRabbit := proxied(t, w.amqpURL)
	tg := newTarget(t, func(c call) int { <-c.ctx.Done(); return 503 })
	janitor := w.serve(t, nil, "--roles", "janitor")
	w.serve(t, nil, "--roles", "worker", "--name", "other", "--queues", "other")
	w.serve(t, []string{"DATABASE_URL=" + throughPostgres, "AMQP_URL=" + throughRabbit, "HOLDFAST_WEBHOOK_TIMEOUT=1h"}, "--roles", "worker", "--name", "faulty links")
	id := w.enqueue(t, 1, httpTask(tg))[0]
	tg.await(t, "the task runs", func(calls []call) bool { return len(open(calls)) == 1 })
	awaitFencing(t, w)
	worker := w.task(t, id).Worker
	for n := range faults {
		since, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if closed := toPostgres.CloseServers(w.presencePorts(t, worker)...); closed != 1 {
			t.Fatalf("%d sessions of PostgreSQL hold the presence lock of worker %s, want 1", closed, worker)
		}
		if toRabbit.CloseServers() == 0 {
			t.Fatal("the worker has no connection to RabbitMQ")
		}
		w.awaitRenewals(t, worker, since, 3) // enough time for the janitor, which checks the presence ten times per second
		if task := w.task(t, id); task.State != holdfast.Running || task.Attempt != 1 || task.Worker != worker {
			t.Fatalf("fault %d: the task is %s at attempt %d under worker %s\n%s", n, task.State, task.Attempt, task.Worker, strings.Join(janitor.tail(20), "\n"))
		}
		healed, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		toPostgres.Heal()
		toRabbit.Heal()
		w.awaitPresent(t, healed, "both presence locks lost")
	}
	t.Logf("%d faults", faults)
}

// The only process is killed and started again at once. The new process runs on the same machine, proves that the
// previous one has ended, and takes over its tasks without waiting for its lease.
func TestARestartOnTheSameMachineTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can prove that a process of this machine has ended")
	}
	trials := slow.Pick(3, 20)
	w := newWorld(t)
	w.lease = shortLease()
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			<-c.ctx.Done()
		}
		return 200
	})
	const tasks = 10
	p := w.serve(t, nil, "--roles", "worker,janitor", "--name", "the only one")
	var delays []time.Duration
	for n := range trials {
		since, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.enqueue(t, tasks, httpTask(tg))
		tg.await(t, "all tasks are in flight", func(calls []call) bool { return len(open(calls)) == tasks })
		w.awaitPresent(t, since, "after the start")
		p.signal(syscall.SIGKILL)
		p.exit()
		began := time.Now()
		p = w.spawn(t, nil, "--roles", "worker,janitor", "--name", "the only one")
		calls := tg.await(t, "all tasks have started again", func(calls []call) bool { return len(calls) == 2*tasks*(n+1) })
		last := began
		for _, c := range calls {
			if c.begin.After(last) {
				last = c.begin
			}
		}
		delays = append(delays, last.Sub(began))
		if !p.logged("worker fenced: its process on this machine has ended") {
			t.Errorf("trial %d: the tasks started again %s after the start, but the process did not log that the previous one has ended\n%s", n, delays[n], strings.Join(p.tail(20), "\n"))
		}
	}
	slices.Sort(delays)
	t.Logf("%d trials, from the start of the next process until it ran the last of %d tasks: %s (p50), %s (maximum)",
		trials, tasks, delays[trials/2], delays[trials-1])
}

// presencePorts returns the client ports of the sessions that hold the presence lock of a worker.
func (w *world) presencePorts(t *testing.T, worker holdfast.WorkerID) (ports []int) {
	t.Helper()
	db, err := sql.Open("postgres", w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `select a.client_port from pg_locks l join pg_stat_activity a on a.pid = l.pid
		where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.objid = $1
		  and l.classid = (select hashtext(value)::oid from `+w.schema+`.meta where key = 'incarnation')`, int64(worker))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var port int
		if err := rows.Scan(&port); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	if err := rows.Err(); err != nil || len(ports) == 0 {
		t.Fatalf("the sessions with the presence lock of worker %s have the ports %v: %v", worker, ports, err)
	}
	return ports
}

// awaitRenewals waits until a worker has renewed its lease n times since the given time, or is no longer live.
func (w *world) awaitRenewals(t *testing.T, worker holdfast.WorkerID, since time.Time, n int) {
	t.Helper()
	last, seen := since, 0
	poll(t, func() string { return fmt.Sprintf("worker %s has renewed %d times", worker, seen) }, func(ctx context.Context) bool {
		workers, err := w.Store.Workers(ctx, false)
		i := slices.IndexFunc(workers, func(r store.Worker) bool { return r.ID == worker })
		if err == nil && i >= 0 && workers[i].RenewedAt.After(last) {
			last = workers[i].RenewedAt
			seen++
		}
		return err == nil && i < 0 || seen >= n
	})
}

// awaitPresent waits until all live workers are present and have renewed their leases more than a second after the time
// since. A janitor would fence a worker within that second.
func (w *world) awaitPresent(t *testing.T, since time.Time, after string) {
	t.Helper()
	query := "select count(*) from " + w.schema + ".workers where state = 'live' and not (present and renewed_at > $1)"
	db, err := sql.Open("postgres", w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var last error
	missing := -1
	poll(t, func() string { return fmt.Sprintf("%s: %d workers are not present again: %v", after, missing, last) }, func(ctx context.Context) bool {
		last = db.QueryRowContext(ctx, query, since.Add(time.Second)).Scan(&missing)
		return last == nil && missing == 0
	})
}
