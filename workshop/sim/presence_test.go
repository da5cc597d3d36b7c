package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A worker goes through a thousand faults that end its presence: the servers restart, and its connections and sessions
// are closed, often within milliseconds of each other. The janitor runs in another process. Its quiet period has passed
// most of the time.
func TestALivingWorkerIsNeverFencedEarly(t *testing.T) {
	const wanted = 1000
	faults, twice := 0, 0
	for seed := uint64(1); faults < wanted; seed++ {
		plan := livingPlan(seed)
		result := Run(t, plan, false)
		// Some messages take longer than a janitor waits for a renewal. A worker that could not report in time is excused.
		if result.Violation != "" || result.Early > result.Excused {
			t.Errorf("%d workers were fenced early, %d of them are excused; %s\n%s", result.Early, result.Excused, result, plan)
		}
		faults += len(plan.Faults)
		for i, f := range plan.Faults[1:] {
			if f.At-plan.Faults[i].At < 100*time.Millisecond {
				twice++
			}
		}
	}
	t.Logf("%d faults, %d of them within 100 ms of another one", faults, twice)
}

// A worker that renews at its usual interval loses its presence at both servers a thousand times, and does not notice
// for some time.
func TestAWorkerThatRenewsIsNeverFencedEarly(t *testing.T) {
	const wanted = 1000
	faults := 0
	for seed := uint64(1); faults < wanted; seed++ {
		plan := livingPlan(seed)
		r := rand.New(rand.NewPCG(seed, 0x1f83d9abfb41bd6b))
		plan.Net.PerMilleSlow, plan.Faults = 0, nil
		// The faults begin after the janitor's quiet period.
		for at := 4 * time.Second; at < faultTime; at += between(r, 0, 2*time.Second) {
			plan.Faults = append(plan.Faults, Fault{Name: fmt.Sprint("f", len(plan.Faults)), Kind: LosePresence, At: at, For: between(r, 0, longestFault)})
		}
		result := Run(t, plan, false)
		if result.Violation != "" || result.Early > 0 {
			t.Fatalf("after %d faults, %d workers were fenced early; %s\n%s", faults, result.Early, result, plan)
		}
		faults += len(plan.Faults)
	}
	t.Logf("%d faults", faults)
}

// livingPlan returns a plan whose faults end no process.
func livingPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x510e527fade682d1))
	plan := Plan{Seed: seed, Net: newNet(r), Roles: []Role{Worker, Janitor, Produce}}
	for i := range 5 {
		task := newTask(r, i)
		task.By, task.Poison = 2, false
		plan.Tasks = append(plan.Tasks, task)
	}
	kinds := []FaultKind{CloseBroker, CloseStore, CloseBroker, CloseStore, StoreRestart, BrokerRestart}
	servers := r.IntN(2) == 0 // the servers restart; otherwise the janitor's quiet period is never interrupted
	at := between(r, 0, 2*time.Second)
	for i := 0; at < faultTime; i++ {
		f := Fault{Name: fmt.Sprint("f", i), Kind: kinds[r.IntN(4)], At: at, For: between(r, 0, longestFault/10)}
		if servers {
			f.Kind = kinds[r.IntN(len(kinds))]
		}
		plan.Faults = append(plan.Faults, f)
		if r.IntN(2) == 0 {
			at += between(r, 0, 50*time.Millisecond)
		} else {
			at += between(r, 0, 2*time.Second)
		}
	}
	return plan
}

// The tasks of a killed worker start again on another worker long before its lease expires.
func TestAKilledWorkerIsFencedEarly(t *testing.T) {
	for seed := range uint64(20) {
		plan := Plan{
			Seed: seed, Roles: []Role{Worker, Worker, Janitor, Produce}, Net: NetPlan{Usual: 10 * time.Millisecond},
			Faults: []Fault{{Name: "f0", Kind: Kill, At: 4 * time.Second, For: longestFault}},
		}
		for i := range 5 { // task 0 makes the queue known; each worker takes some of the others
			task := TaskPlan{Name: fmt.Sprint("t", i), By: 3, Queue: "a"}
			if i > 0 {
				task.At, task.Takes = 3500*time.Millisecond, 3*time.Second
			}
			plan.Tasks = append(plan.Tasks, task)
		}
		synctest.Test(t, func(*testing.T) {
			w := newWorld(plan, false)
			result := w.run()
			restarted, slowest := restarts(w)
			if result.Violation != "" || result.Early != 1 || restarted == 0 || slowest > 500*time.Millisecond {
				t.Errorf("seed %d: %d workers were fenced early, %d tasks started again within %s; %s", seed, result.Early, restarted, slowest, result)
			}
			t.Logf("seed %d: %d tasks started again, the last %s after the kill", seed, restarted, slowest)
		})
	}
}

// The only process is killed and restarted at once on its machine, with the same process id. The new process takes the
// tasks over without waiting for the lease or for the quiet period of its janitor.
func TestARestartOnTheSameMachineTakesOverAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		plan := Plan{
			Seed: seed, Roles: []Role{Serve, Produce}, Machines: []int{0, 0}, Net: NetPlan{Usual: 10 * time.Millisecond},
			Faults: []Fault{{Name: "f0", Kind: Kill, At: 4 * time.Second, For: 60 * time.Millisecond}},
		}
		for i := range 5 { // task 0 makes the queue known
			task := TaskPlan{Name: fmt.Sprint("t", i), By: 1, Queue: "a"}
			if i > 0 {
				task.At, task.Takes = 3500*time.Millisecond, 3*time.Second
			}
			plan.Tasks = append(plan.Tasks, task)
		}
		synctest.Test(t, func(*testing.T) {
			w := newWorld(plan, false)
			result := w.run()
			restarted, slowest := restarts(w)
			if result.Violation != "" || result.Early != 1 || restarted == 0 || slowest > time.Second {
				t.Errorf("seed %d: %d workers were fenced early, %d tasks started again within %s; %s", seed, result.Early, restarted, slowest, result)
			}
			t.Logf("seed %d: %d tasks started again, the last %s after the kill", seed, restarted, slowest)
		})
	}
}

// restarts counts the executions that a killed process did not finish, and returns the longest time until their tasks
// ran again.
func restarts(w *world) (n int, slowest time.Duration) {
	for _, e := range w.check.executions {
		if e.process.killed.IsZero() || e.done && e.endedAt.Before(e.process.killed) {
			continue
		}
		next := slices.IndexFunc(w.check.executions, func(o *execution) bool { return o.task.ID == e.task.ID && o.task.Attempt == e.task.Attempt+1 })
		if next < 0 {
			return 0, 0
		}
		n++
		slowest = max(slowest, w.check.executions[next].began.Sub(e.process.killed))
	}
	return n, slowest
}
