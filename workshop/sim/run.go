package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/sim/patch"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// Result is the outcome of a simulation.
type Result struct {
	Violation   string // the first broken invariant; empty if none was broken
	Steps       int
	Sum         uint64        // hash of all steps: equal sums mean equal simulations
	Lasted      time.Duration // simulated time
	Tasks       int           // accepted tasks
	Started     int           // executions
	Early       int           // workers that were fenced before their leases expired
	Lost        int           // tickets that the janitor reported as lost
	Checks      int           // results of the janitors' checks for tasks that break an invariant
	Excused     int           // the part of Early whose processes were live but could not report in time
	Predicted   int           // predictions of explanations that came true
	Changed     int           // predictions that another cause replaced
	Ranges      int           // starts with a predicted range
	InRange     int           // the part of Ranges that was in the range
	Operated    int           // changes of tasks by operations
	Interrupted int           // kills of janitors while an operation was running
	Pauses      int           // gates that were closed
	Blocked     int           // tasks that were blocked at a gate
	Released    int           // tasks that were released from a gate
	Limited     int           // limits that were set
	Permitted   int           // tasks that got permits
	Tripped     int           // breakers that tripped
	Probed      int           // tasks that got permits of breakers
	Rated       int           // times that a rate of faults had to trip a breaker
	Typed       int           // tickets that entered type queues
	Unparked    int           // tasks whose wait for a handler a registration ended
	Expired     int           // tasks that are dead because their deadline passed while they waited
	Turns       int           // ordered tasks that started after they had waited
	Doomed      int           // ordered tasks that were doomed
	Unblocked   int           // dead ordered tasks that the person retried, archived or deleted, to let others start
	Slots       int           // tasks that got slots of their topics
	Compared    int           // slots for which the check compared the shares of two topics
	Cursors     int           // parts of topics whose cursors were compared with the tasks
	Children    int           // next tasks that were stored
	Saves       int           // checkpoints that were stored
	Commits     int           // successes that CompleteTx stored
	Late        int           // checkpoints and calls of CompleteTx that were refused
	Exact       bool          // the edited runtime of package patch was active
	Journal     []string      // the printed journal, if it was kept
}

// Run simulates a plan in its own synctest bubble. If keep is true, the result includes the journal.
func Run(t *testing.T, plan Plan, keep bool) (result Result) {
	// A garbage collection during the simulation would change the order of its goroutines.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	synctest.Test(t, func(*testing.T) {
		exact := patch.Active()
		for range plan.Seed % 97 { // so that the choices of the runtime differ from seed to seed
			rand.Uint64()
		}
		w := newWorld(plan, keep)
		result = w.run()
		result.Exact = exact
	})
	return result
}

func newWorld(plan Plan, keep bool) *world {
	now := time.Now()
	w := &world{
		plan: plan, began: now, rng: rand.New(rand.NewPCG(plan.Seed, 0x3c6ef372fe94f82b)),
		clock: clock{drift: plan.Drift, began: now}, state: serverState{storeUp: now}, wakeup: make(chan struct{}, 1),
		log: &journal{keep: keep, sum: 0xcbf29ce484222325}, todo: make(map[string]bool), silences: make(map[string]int), faults: len(plan.Faults),
		processes: make([]*process, len(plan.Roles)), lives: make([]int, len(plan.Roles)),
	}
	w.check = newChecker(w)
	w.store = memory.New(w.clock.now)
	w.store.Observe(w.check.changed)
	w.store.ObserveSlots(w.check.topical.decided)
	w.holdKeys()
	w.broker = simbroker.New()
	w.broker.Observe(w.check.observer())
	incarnation, err := w.store.Client(nil).Incarnation(context.Background())
	if err != nil {
		w.check.fail("incarnation: %v", err)
	}
	w.topology = broker.NewTopology(broker.DefaultPrefix, 1, incarnation)
	for _, task := range plan.Tasks {
		w.todo[task.Name] = true
	}
	for _, o := range plan.Operations {
		w.todo[o.Name] = true
	}
	for _, g := range plan.Pauses {
		w.todo[g.Name] = true
	}
	for _, l := range plan.Limits {
		w.todo[l.Name] = true
	}
	return w
}

func (w *world) run() Result {
	w.mu.Lock()
	for index := range w.plan.Roles {
		w.start(index, 1)
	}
	for _, f := range w.plan.Faults {
		w.after(f.At, &step{what: "fault " + f.Name + ": " + f.Kind.String(), run: func() { w.inject(f) }})
	}
	for _, s := range w.plan.Settings {
		w.after(s.At, &step{what: fmt.Sprintf("setting %s: the delay is %v", s.Name, s.Base), run: func() { w.set(s) }})
	}
	for _, change := range w.plan.Weights {
		w.after(change.At, &step{what: fmt.Sprintf("weight %s: %d for topic %s", change.Name, change.Weight, change.Topic), run: func() { w.weigh(change) }})
	}
	w.mu.Unlock()
	w.drive()
	w.mu.Lock()
	w.check.effects.compare("at the end")
	w.mu.Unlock()
	result := Result{
		Violation: w.check.violation, Steps: w.log.count, Sum: w.log.sum, Lasted: time.Since(w.began),
		Tasks: len(w.check.wanted), Started: len(w.check.executions), Early: w.check.early, Excused: w.check.excused, Lost: w.check.lost, Checks: w.check.checks,
		Predicted: w.check.explanations.kept, Changed: w.check.explanations.changed,
		Ranges: w.check.explanations.ranges, InRange: w.check.explanations.inRange,
		Operated: w.check.operations.changes, Interrupted: w.check.operations.interrupted,
		Pauses: w.check.gates.pauses, Blocked: w.check.gates.blocked, Released: w.check.gates.released, Expired: w.check.gates.expired,
		Limited: w.check.limits.set, Permitted: w.check.limits.admitted,
		Turns: w.check.order.turns, Doomed: w.check.order.doomed, Unblocked: w.check.order.unblocked,
		Slots: w.check.topical.given, Compared: w.check.topical.compared, Cursors: w.check.topical.cursors,
		Children: w.check.effects.children, Saves: w.check.effects.saves, Commits: w.check.effects.commits, Late: w.check.effects.refused,
		Tripped: w.check.breakers.tripped, Probed: w.check.breakers.probed, Rated: w.check.trips.rated,
		Typed: w.check.typed, Unparked: w.check.unparked,
	}
	w.end()
	result.Journal = w.log.lines
	return result
}

// String summarizes the result in one line.
func (r Result) String() string {
	how := "held"
	if r.Violation != "" {
		how = "BROKEN: " + r.Violation
	}
	return fmt.Sprintf("%d tasks, %d executions, %d steps in %.1f simulated seconds, sum %016x: %s",
		r.Tasks, r.Started, r.Steps, r.Lasted.Seconds(), r.Sum, how)
}
