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
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
)

// Workers are killed, one after the other: the janitor fences them before their leases are over, and what they were running
// starts again on the next one. How soon is measured by make recovery. A janitor that had trouble itself, as on a machine
// that stands still for a second, waits for the lease: so not all of them have to be fenced early.
func TestKilledWorkersAreFencedBeforeTheirLeaseIsOver(t *testing.T) {
	t.Parallel()
	const room = 5
	kills := slow.Pick(5, 50)
	w := newWorld(t)
	var hold atomic.Pointer[chan struct{}] // first attempts wait for it
	tg := newTarget(t, func(c call) int {
		if c.attempt == 1 {
			select {
			case <-*hold.Load():
			case <-c.ctx.Done():
			}
		}
		return 200
	})
	w.serve(t, nil, "--roles", "janitor")
	start := func(n int) *process {
		return w.serve(t, nil, "--roles", "worker", "--concurrency", fmt.Sprint(room), "--name", fmt.Sprint("worker ", n))
	}
	victim, heir := start(0), start(1)
	warm(t, w)
	var delays []time.Duration // of the slowest task of each
	tasks := 0
	for n := range kills {
		release := make(chan struct{})
		hold.Store(&release)
		before, _ := tg.snapshot()
		w.enqueue(t, room+1, deliver(tg)) // more than one of them has room for
		tg.await(t, 30*time.Second, "all are in flight", func(calls []call) bool { return len(open(calls)) == room+1 })
		since, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		victim.signal(syscall.SIGKILL)
		broken := func(calls []call) (tasks, again int, slowest time.Duration) {
			for _, cs := range byTask(calls[len(before):]) {
				if cs[0].aborted {
					tasks++
					if len(cs) > 1 {
						again++
						slowest = max(slowest, cs[1].begin.Sub(killed))
					}
				}
			}
			return tasks, again, slowest
		}
		tg.await(t, 30*time.Second, "a task was broken off", func(calls []call) bool { n, _, _ := broken(calls); return n > 0 })
		close(release) // there is room on the other one
		calls := tg.await(t, 30*time.Second, "they have started again", func(calls []call) bool {
			tasks, again, _ := broken(calls)
			return tasks == again && len(open(calls)) == 0
		})
		_, again, slowest := broken(calls)
		tasks += again
		delays = append(delays, slowest)
		victim, heir = heir, start(n+2)
		w.awaitShown(t, since, "killed") // two that die within a second are a crowd
	}
	slices.Sort(delays)
	t.Logf("%d tasks of %d killed workers started again; the slowest of each after %s (p50), %s (p90), %s (p99 and all)",
		tasks, kills, delays[kills/2], delays[kills*9/10], delays[kills-1])
	if early := w.fencedEarly(t); early < kills/5 {
		t.Errorf("%d of %d were fenced before their lease was over: %v", early, kills, delays)
	}
}

// Whatever ends the connections of a worker that lives, it is not taken for gone.
func TestLivingWorkersAreNotFencedEarly(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	mqRun, amqpURL := privateBroker(t)
	pgRun := t.TempDir()
	databaseURL, err := tryScript(pgRun, "private-postgres", nil, "up")
	if err != nil {
		if strings.Contains(err.Error(), "exit status 3") {
			t.Skip("PostgreSQL's server is not installed here: ", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { script(t, pgRun, "private-postgres", nil, "wipe") })
	w := newWorldOn(t, databaseURL, amqpURL)
	toPostgres, throughPostgres := proxied(t, databaseURL)
	toRabbit, throughRabbit := proxied(t, amqpURL)
	tg := newTarget(t, func(c call) int { <-c.ctx.Done(); return 503 })
	janitor := w.serve(t, nil, "--roles", "janitor")
	lease := "HOLDFAST_WORKER_LEASE=30s" // on a busy machine a restart of PostgreSQL takes longer than the default lease
	w.serve(t, []string{lease}, "--roles", "worker", "--name", "other", "--lanes", "other")
	w.serve(t, []string{"DATABASE_URL=" + throughPostgres, "AMQP_URL=" + throughRabbit, "HOLDFAST_WEBHOOK_TIMEOUT=1h", lease}, "--roles", "worker", "--name", "beset")
	id := w.enqueue(t, 1, deliver(tg))[0]
	tg.await(t, 30*time.Second, "the task runs", func(calls []call) bool { return len(open(calls)) == 1 })
	warm(t, w)

	terminate := func() {
		w.sql(t, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")
	}
	faults := 0
	strike := func(name string, fault func()) {
		t.Helper()
		since, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fault()
		faults++
		w.awaitShown(t, since, name)
		if task := w.task(t, id); task.State != holdfast.Running || task.Attempt != 1 || task.Crashes > 0 {
			t.Fatalf("%s: the task is %s at attempt %d with %d crashes\n%s", name, task.State, task.Attempt, task.Crashes, strings.Join(janitor.tail(20), "\n"))
		}
	}
	// The janitor sees nothing of these. Both at once are left to the simulator: on a machine that is as busy as one with
	// tests, a worker cannot be held to connecting anew within a fifth of a second.
	for range 5 {
		strike("connections to RabbitMQ reset", toRabbit.CutAbrupt)
		strike("sessions of PostgreSQL reset", toPostgres.CutAbrupt)
	}
	for range 2 {
		strike("connections closed by the broker", func() { script(t, mqRun, "private-rabbitmq", nil, "close-connections") })
		strike("backends terminated", terminate)
		strike("broker restarted", func() { script(t, mqRun, "private-rabbitmq", nil, "restart") })
		strike("PostgreSQL restarted", func() { script(t, pgRun, "private-postgres", nil, "restart") })
	}
	t.Logf("%d faults", faults)
	runs, err := w.Store.Runs(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		if (run.Name == "beset" || run.Name == "other") && run.State != store.RunLive {
			t.Errorf("the run of %q is %s", run.Name, run.State)
		}
	}
}

// fencedEarly counts the workers that were fenced while their lease had time left.
func (w *world) fencedEarly(t *testing.T) (n int) {
	t.Helper()
	db, err := sql.Open("postgres", w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query := "select count(*) from " + w.schema + ".runs where state = 'dead' and ended_at < lease_until and name like 'worker %'"
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A worker that renews at its usual interval is not fenced early because both servers end the sessions of its presence and it
// does not learn of that.
func TestAWorkerThatRenewsIsNotFencedEarly(t *testing.T) {
	t.Parallel()
	faults := slow.Pick(3, 20)
	w := newWorld(t)
	toPostgres, throughPostgres := proxied(t, w.databaseURL)
	toRabbit, throughRabbit := proxied(t, w.amqpURL)
	tg := newTarget(t, func(c call) int { <-c.ctx.Done(); return 503 })
	janitor := w.serve(t, nil, "--roles", "janitor")
	w.serve(t, nil, "--roles", "worker", "--name", "other", "--lanes", "other")
	w.serve(t, []string{"DATABASE_URL=" + throughPostgres, "AMQP_URL=" + throughRabbit, "HOLDFAST_WEBHOOK_TIMEOUT=1h"}, "--roles", "worker", "--name", "beset")
	id := w.enqueue(t, 1, deliver(tg))[0]
	tg.await(t, 30*time.Second, "the task runs", func(calls []call) bool { return len(open(calls)) == 1 })
	warm(t, w)
	run := w.task(t, id).Run
	for n := range faults {
		since, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if closed := toPostgres.CloseServers(w.signPorts(t, run)...); closed != 1 {
			t.Fatalf("%d sessions of PostgreSQL hold the sign of run %s, want 1", closed, run)
		}
		if toRabbit.CloseServers() == 0 {
			t.Fatal("the worker has no connection to RabbitMQ")
		}
		w.awaitRenewals(t, run, since, 3) // time enough for the watcher, which looks ten times a second
		if task := w.task(t, id); task.State != holdfast.Running || task.Attempt != 1 || task.Run != run {
			t.Fatalf("fault %d: the task is %s at attempt %d under run %s\n%s", n, task.State, task.Attempt, task.Run, strings.Join(janitor.tail(20), "\n"))
		}
		healed, err := w.Store.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		toPostgres.Heal()
		toRabbit.Heal()
		w.awaitShown(t, healed, "both signs lost silently")
	}
	t.Logf("%d faults", faults)
}

// The only process is killed and started again at once: on the same machine it proves that the last one is gone, and takes over
// without waiting for its lease.
func TestARestartOnTheSameMachineTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells whether a process of the machine is gone")
	}
	trials := slow.Pick(3, 20)
	w := newWorld(t)
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
		w.enqueue(t, tasks, deliver(tg))
		tg.await(t, 30*time.Second, "all are in flight", func(calls []call) bool { return len(open(calls)) == tasks })
		w.awaitShown(t, since, "started")
		p.signal(syscall.SIGKILL)
		p.exit(time.Minute)
		began := time.Now()
		p = w.spawn(t, nil, "--roles", "worker,janitor", "--name", "the only one")
		calls := tg.await(t, 60*time.Second, "all have started again", func(calls []call) bool { return len(calls) == 2*tasks*(n+1) })
		last := began
		for _, c := range calls {
			if c.begin.After(last) {
				last = c.begin
			}
		}
		delays = append(delays, last.Sub(began))
		if !p.logged("has ended: its run is fenced at once") {
			t.Errorf("trial %d: the tasks started again %s after the start, by the lease\n%s", n, delays[n], strings.Join(p.tail(20), "\n"))
		}
	}
	slices.Sort(delays)
	t.Logf("%d times, from the start of the next process until the last of %d tasks ran in it: %s (p50), %s (maximum)",
		trials, tasks, delays[trials/2], delays[trials-1])
}

// signPorts returns the client's ports of the sessions that hold the sign of a run.
func (w *world) signPorts(t *testing.T, run holdfast.RunID) (ports []int) {
	t.Helper()
	db, err := sql.Open("postgres", w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `select a.client_port from pg_locks l join pg_stat_activity a on a.pid = l.pid
		where l.locktype = 'advisory' and l.granted and l.objsubid = 2 and l.objid = $1
		  and l.classid = (select hashtext(value)::oid from `+w.schema+`.meta where key = 'incarnation')`, int64(run))
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
		t.Fatalf("the sign of run %s is held by the ports %v; %v", run, ports, err)
	}
	return ports
}

// awaitRenewals waits until a run has renewed n times since then, or is not live any more.
func (w *world) awaitRenewals(t *testing.T, run holdfast.RunID, since time.Time, n int) {
	t.Helper()
	last, seen := since, 0
	poll(t, 60*time.Second, func() string { return fmt.Sprintf("run %s has renewed %d times", run, seen) }, func(ctx context.Context) bool {
		runs, err := w.Store.Runs(ctx, false)
		i := slices.IndexFunc(runs, func(r store.Run) bool { return r.ID == run })
		if err == nil && i >= 0 && runs[i].RenewedAt.After(last) {
			last = runs[i].RenewedAt
			seen++
		}
		return err == nil && i < 0 || seen >= n
	})
}

// awaitShown waits until all who live show both signs and have renewed since a moment that is a second after since: time
// enough to be fenced.
func (w *world) awaitShown(t *testing.T, since time.Time, after string) {
	t.Helper()
	query := "select count(*) from " + w.schema + ".runs where state = 'live' and not (shown and renewed_at > $1)"
	db, err := sql.Open("postgres", w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var last error
	not := -1
	poll(t, 60*time.Second, func() string { return fmt.Sprintf("%s: %d runs are not shown again, %v", after, not, last) }, func(ctx context.Context) bool {
		last = db.QueryRowContext(ctx, query, since.Add(time.Second)).Scan(&not)
		return last == nil && not == 0
	})
}
