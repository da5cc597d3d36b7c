package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A worker lives through a thousand faults that end its signs: the store restarts, the broker does, its connections and its
// sessions are closed, often both within moments. The janitor is another process, and warm for most of it.
func TestALivingWorkerIsNeverFencedEarly(t *testing.T) {
	const wanted = 1000
	faults, twice := 0, 0
	for seed := uint64(1); faults < wanted; seed++ {
		plan := livingPlan(seed)
		result := Run(t, plan, false)
		if result.Violation != "" || result.Early > 0 {
			t.Errorf("%d runs were fenced early; %s\n%s", result.Early, result, plan)
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

// A worker that renews at its usual interval loses both signs a thousand times and does not learn of it for a while.
func TestAWorkerThatRenewsIsNeverFencedEarly(t *testing.T) {
	const wanted = 1000
	faults := 0
	for seed := uint64(1); faults < wanted; seed++ {
		plan := livingPlan(seed)
		r := rand.New(rand.NewPCG(seed, 0x1f83d9abfb41bd6b))
		plan.Net.PerMilleSlow, plan.Faults = 0, nil
		for at := 4 * time.Second; at < faultTime; at += between(r, 0, 2*time.Second) { // when the janitor is warm
			plan.Faults = append(plan.Faults, Fault{Name: fmt.Sprint("f", len(plan.Faults)), Kind: LoseSigns, At: at, For: between(r, 0, longest)})
		}
		result := Run(t, plan, false)
		if result.Violation != "" || result.Early > 0 {
			t.Fatalf("after %d faults %d runs were fenced early; %s\n%s", faults, result.Early, result, plan)
		}
		faults += len(plan.Faults)
	}
	t.Logf("%d faults", faults)
}

// livingPlan has faults that no process dies of.
func livingPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x510e527fade682d1))
	plan := Plan{Seed: seed, Net: newNet(r), Roles: []Role{Worker, Janitor, Produce}}
	for i := range 5 {
		task := newTask(r, i)
		task.By, task.Poison = 2, false
		plan.Tasks = append(plan.Tasks, task)
	}
	kinds := []FaultKind{CloseBroker, CloseStore, CloseBroker, CloseStore, StoreRestart, BrokerRestart}
	servers := r.IntN(2) == 0 // they restart now and then; else the janitor stays warm
	at := between(r, 0, 2*time.Second)
	for i := 0; at < faultTime; i++ {
		f := Fault{Name: fmt.Sprint("f", i), Kind: kinds[r.IntN(4)], At: at, For: between(r, 0, longest/10)}
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

// One killed worker's tasks start again elsewhere long before its lease is over.
func TestAKilledWorkerIsFencedEarly(t *testing.T) {
	for seed := range uint64(20) {
		plan := Plan{
			Seed: seed, Roles: []Role{Worker, Worker, Janitor, Produce}, Net: NetPlan{Usual: 10 * time.Millisecond},
			Faults: []Fault{{Name: "f0", Kind: Kill, At: 4 * time.Second, For: longest}},
		}
		for i := range 5 { // the first one makes the lane known; of the others each worker takes some, and has room for all
			task := TaskPlan{Name: fmt.Sprint("t", i), By: 3, Lane: "a"}
			if i > 0 {
				task.At, task.Takes = 3500*time.Millisecond, 3*time.Second
			}
			plan.Tasks = append(plan.Tasks, task)
		}
		synctest.Test(t, func(*testing.T) {
			w := newWorld(plan, false)
			result := w.run()
			again, slowest := restarts(w)
			if result.Violation != "" || result.Early != 1 || again == 0 || slowest > 500*time.Millisecond {
				t.Errorf("seed %d: %d runs were fenced early, %d tasks started again within %s; %s", seed, result.Early, again, slowest, result)
			}
			t.Logf("seed %d: %d tasks started again, the last %s after the kill", seed, again, slowest)
		})
	}
}

// The only process is killed and started again at once on its machine, with the id of the last one: it does not wait for the
// lease, nor until its janitor is warm.
func TestARestartOnTheSameMachineTakesOverAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		plan := Plan{
			Seed: seed, Roles: []Role{Serve, Produce}, Machines: []int{0, 0}, Net: NetPlan{Usual: 10 * time.Millisecond},
			Faults: []Fault{{Name: "f0", Kind: Kill, At: 4 * time.Second, For: 60 * time.Millisecond}},
		}
		for i := range 5 { // the first one makes the lane known
			task := TaskPlan{Name: fmt.Sprint("t", i), By: 1, Lane: "a"}
			if i > 0 {
				task.At, task.Takes = 3500*time.Millisecond, 3*time.Second
			}
			plan.Tasks = append(plan.Tasks, task)
		}
		synctest.Test(t, func(*testing.T) {
			w := newWorld(plan, false)
			result := w.run()
			again, slowest := restarts(w)
			if result.Violation != "" || result.Early != 1 || again == 0 || slowest > time.Second {
				t.Errorf("seed %d: %d runs were fenced early, %d tasks started again within %s; %s", seed, result.Early, again, slowest, result)
			}
			t.Logf("seed %d: %d tasks started again, the last %s after the kill", seed, again, slowest)
		})
	}
}

// restarts counts the executions that a death broke off, and says how long it took at most until their tasks ran again.
func restarts(w *world) (n int, slowest time.Duration) {
	for _, e := range w.check.executions {
		if e.process.killed.IsZero() || e.over && e.ended.Before(e.process.killed) {
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
