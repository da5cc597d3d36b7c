package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Plan describes a simulation. NewPlan draws a plan; Without removes parts of it.
type Plan struct {
	Seed  uint64
	Roles []Role // one process for each role
	// Machines holds the machine of each process; nil means one machine for each process. Cloned makes all machines
	// clones of one: they have the same boot id.
	Machines []int
	Cloned   bool
	Tasks    []TaskPlan
	// Operations are the operations that the person starts.
	Operations []OperationPlan
	Settings   []SettingPlan
	Pauses     []PausePlan
	Limits     []LimitPlan
	// AfterDeath is the effect of the death of an ordered task on the later tasks of its key.
	AfterDeath holdfast.AfterDeath
	// Specialists are the processes whose workers handle the special type. The other workers do not.
	Specialists []int
	// Unaware means that the janitors do not know which type runs at most once.
	Unaware  bool
	Targets  []TargetPlan
	Breaker  holdfast.BreakerRules // rules of the breakers of Targets
	Weights  []WeightPlan
	Faults   []Fault
	Net      NetPlan
	LockWait time.Duration // how long a claim may wait for a lock; 0 means lockWait
	// Drift is how much faster the store's clock runs than the clocks of the processes; 0.01 is 1%.
	Drift   float64
	Removed []string // names of the removed parts
	// Lasts is the minimum duration of the simulation. With 0, the simulation lasts until every task is final.
	Lasts time.Duration
}

// Role selects the services of a process.
type Role uint8

// The roles.
const (
	Serve   Role = iota // a worker and a janitor
	Worker              // a worker
	Janitor             // a janitor
	Produce             // a producer
	// Person is a person who starts operations, pauses queues, types and keys, sets limits, and changes dead ordered
	// tasks.
	Person
)

// TaskPlan is one task and the behavior of its handler.
type TaskPlan struct {
	Name     string
	At       time.Duration // when it is enqueued, from the start of the simulation
	By       int           // index of the producer in Plan.Roles
	Queue    string
	Priority holdfast.Priority
	Key      string
	Ordered  bool
	Topic    string
	// Target is the name of the target of a task of the type http.
	Target string
	Delay  time.Duration
	Takes  time.Duration // duration of one execution

	Fails    int  // number of first executions that fail
	Always   bool // every execution fails
	Defers   int  // number of executions that defer the task
	Panics   bool // the first failure is a panic
	Stubborn bool // the handler ignores the end of its context
	Hangs    int  // number of first executions that ignore their timeout for HangFor and then succeed
	HangFor  time.Duration
	Poison   bool // every execution kills the process
	Brief    bool // no attempt begins later than briefDeadline after the task was created
	Once     bool // no second attempt starts before a person retries the task
	Special  bool // only the specialists of the plan handle its type

	Children []TaskPlan  // tasks that are stored with the success
	Saves    int         // number of checkpoints of an execution
	Commits  *CommitPlan // how the handler calls CompleteTx; nil if it does not
	Parent   string      // name of the task whose success stores this one; empty if a producer enqueues it
	Unique   string      // unique key of a task with a parent
	Shared   bool        // tasks with other parents may have the same unique key
}

// FaultKind is a kind of fault.
type FaultKind uint8

// The kinds of faults. Target is the affected process for the kinds up to LosePresence, and for Block if N is odd.
const (
	Kill          FaultKind = iota // the process is killed at its N-th step from now, and restarted after For
	Stop                           // the process sends and receives nothing for For
	Drain                          // the process gets the request to stop, and is restarted after For
	CutStore                       // no connection to the store for For; if N is odd, only the answers are lost
	CutBroker                      // no connection to the broker for For; if N is odd, the broker notices later
	CloseBroker                    // the process's connections to the broker are closed
	CloseStore                     // an operator ends the process's sessions at the store
	LosePresence                   // both servers end the process's presence; the process notices after For
	StoreRestart                   // the store is down for For
	StoreFailover                  // the store fails over to a replica that lacks the commits of the last For
	StoreLeap                      // the store's clock leaps ahead by For, or back if N is odd
	BrokerRestart                  // the broker is down for For
	BrokerWipe                     // the broker is down for For and comes back empty
	DeleteQueue                    // an operator deletes the N-th AMQP queue
	Block                          // the broker accepts no messages for For; if N is odd, only Target is affected
	Silence                        // the AMQP queues of the N-th queue store and confirm nothing for For
	Purge                          // an operator purges the N-th main queue; only crowd plans have this fault
	Newer                          // a build of a newer version publishes a message to the N-th AMQP queue; only crowd plans have this fault
	faultKinds
)

// Fault is one fault of a plan.
type Fault struct {
	Name   string
	Kind   FaultKind
	At     time.Duration
	For    time.Duration
	Target int
	N      int
}

// NetPlan says how long messages take and how often publishing goes wrong.
type NetPlan struct {
	Usual time.Duration // the longest time of an ordinary message
	// Out of a thousand messages, PerMilleSlow take up to Slow longer. Out of a thousand publish calls, PerMilleMishap
	// go wrong.
	PerMilleSlow, PerMilleMishap int
	Slow                         time.Duration
	// Breaks is how long connections to the broker last at most, as long as faults begin; 0 means that they do not
	// break.
	Breaks time.Duration
}

const (
	loadTime     = 3 * time.Second // tasks are enqueued during this time
	faultTime    = 7 * time.Second // faults begin during this time
	longestFault = 5 * time.Second // the longest duration of most faults
	// patience is how long after the last fault every task must be final.
	patience = 3 * time.Minute
)

// NewPlan draws the plan of a seed.
func NewPlan(seed uint64) Plan {
	r := rand.New(rand.NewPCG(seed, 0x9b05688c2b3e6c1f))
	p := Plan{Seed: seed, Net: newNet(r)}
	for range 1 + r.IntN(3) {
		p.Roles = append(p.Roles, Serve)
	}
	if r.IntN(3) == 0 {
		p.Roles = append(p.Roles, Worker)
	}
	if r.IntN(3) == 0 {
		p.Roles = append(p.Roles, Janitor)
	}
	producers := 1 + r.IntN(2)
	for range producers {
		p.Roles = append(p.Roles, Produce)
	}
	if r.IntN(2) == 0 { // some processes share machines
		for range p.Roles {
			p.Machines = append(p.Machines, r.IntN(2))
		}
	}
	p.Cloned = r.IntN(4) == 0
	if r.IntN(4) == 0 {
		p.Drift = (r.Float64() - 0.5) * 0.1
	}
	for i := range 3 + r.IntN(18) {
		task := newTask(r, i)
		task.By = len(p.Roles) - 1 - r.IntN(producers)
		p.Tasks = append(p.Tasks, task)
	}
	for i := range r.IntN(8) {
		p.Faults = append(p.Faults, newFault(r, i, len(p.Roles)))
	}
	switch r.IntN(6) {
	case 0, 1:
		p.concentrate(r)
	case 2:
		p.isolate(r)
	}
	if r.IntN(4) == 0 {
		p.rush(r)
	}
	if r.IntN(7) == 0 {
		p.silence(r)
	}
	if r.IntN(8) == 0 {
		p.setBack(r)
	}
	if r.IntN(8) == 0 {
		p.crowd(r)
	}
	if r.IntN(8) == 0 {
		p.hang(r)
	}
	if r.IntN(3) == 0 {
		p.operate(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0x1f83d9abfb41bd6b)); r.IntN(3) == 0 {
		p.pause(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0x5be0cd19137e2179)); r.IntN(3) == 0 {
		p.limit(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0xb5c0fbcfec4d3b2f)); r.IntN(8) == 0 {
		p.takePermits(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0x6a09e667f3bcc908)); r.IntN(3) == 0 {
		p.deliver(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0xa54ff53a5f1d36f1)); r.IntN(3) == 0 {
		p.order(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0x3956c25bf348b538)); r.IntN(3) == 0 {
		p.giveTopics(r)
	}
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Kind == StoreLeap && f.N%4 >= 2 {
			f.For *= 1440 // two hours instead of five seconds
		}
	}
	if p.leapsFar() {
		p.noDelays()
	}
	if r.IntN(6) == 0 || len(p.Faults) == 0 && r.IntN(2) == 0 {
		p.changeSettings(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0xbb67ae8584caa73b)); r.IntN(3) == 0 {
		p.prioritize(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0x428a2f98d728ae22)); r.IntN(3) == 0 {
		p.runOnce(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0xd807aa98a3030242)); r.IntN(3) == 0 {
		p.addEffects(r)
	}
	if r := rand.New(rand.NewPCG(seed, 0xab1c5ed5923f82a4)); r.IntN(3) == 0 {
		p.specialize(r)
	}
	return p
}

// prioritize gives about half of the tasks a priority other than the usual one. Plans with silent queues stay as they
// are, because their checks assume one main queue for each queue.
func (p *Plan) prioritize(r *rand.Rand) {
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Silence }) {
		return
	}
	for i := range p.Tasks {
		if r.IntN(2) == 0 {
			p.Tasks[i].Priority = holdfast.Priorities()[r.IntN(len(holdfast.Priorities()))]
		}
	}
}

// subqueues returns the subqueues that the plan uses. The first ones are the queues.
func (p *Plan) subqueues() []string {
	names := slices.Clone(queues)
	add := func(t *TaskPlan) {
		if name := holdfast.Subqueue(t.Queue, t.Priority); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i := range p.Tasks {
		add(&p.Tasks[i])
		for j := range p.Tasks[i].Children {
			add(&p.Tasks[i].Children[j])
		}
	}
	return names
}

// setBack makes the store's clock leap ahead by up to three hours and then back, or back and then ahead, once in a
// plan.
func (p *Plan) setBack(r *rand.Rand) {
	if slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Name == "l0" }) {
		return
	}
	f := Fault{Name: "l0", Kind: StoreLeap, At: between(r, 0, faultTime), For: between(r, 0, 3*time.Hour), N: r.IntN(2)}
	back := f
	back.Name, back.At, back.N = "l1", f.At+between(r, 0, 5*time.Second), 1-f.N
	p.Faults = append(p.Faults, f, back)
}

// crowd makes a producer store many long tasks at once, so that their tickets share messages. Workers that have
// capacity for only a few of the tasks pass the other tickets on to the requeue queue. The tickets stay there for
// longer than sentinels need to prove tickets of the main queue lost. In half of these plans, an operator purges the
// main queue of one of the queues. Messages of a newer version are published during all of them.
func (p *Plan) crowd(r *rand.Rand) {
	begin, by := between(r, 0, loadTime), p.lastProducer()
	for i := range 16 * (len(p.Roles) - 1) {
		p.Tasks = append(p.Tasks, TaskPlan{Name: fmt.Sprint("c", i), At: begin, By: by, Queue: "a", Takes: between(r, 3*time.Second, 8*time.Second)})
	}
	if r.IntN(2) == 0 {
		p.Faults = append(p.Faults, Fault{Name: "p0", Kind: Purge, At: begin + between(r, 0, time.Second), N: r.IntN(len(queues))})
	}
	for i := range 3 {
		p.Faults = append(p.Faults, Fault{Name: fmt.Sprint("v", i), Kind: Newer, At: begin + between(r, 0, faultTime), N: r.IntN(100)})
	}
}

// hang adds tasks whose handlers ignore their timeout. Eight of them occupy all executors of two workers. A worker
// stops itself only if more handlers than that are abandoned, unless it loses its lease meanwhile.
func (p *Plan) hang(r *rand.Rand) {
	by := p.lastProducer()
	hangFor := 30 * time.Second
	if r.IntN(2) == 0 { // the late results come while other tasks run
		hangFor = between(r, 4*time.Second, 6*time.Second)
	}
	for i := range 8 {
		p.Tasks = append(p.Tasks, TaskPlan{
			Name: fmt.Sprint("h", i), At: between(r, 0, loadTime), By: by, Queue: "a", Hangs: 1, HangFor: hangFor, Takes: between(r, 0, 300*time.Millisecond),
		})
	}
}

// noDelays removes the delays of the tasks and the ends of the pauses, and makes the person retry tasks only after all
// faults. It is for plans in which the store's clock leaps by hours: the store cannot distinguish a requested delay, or
// the time of a retry, from a time that a fast clock has prolonged.
func (p *Plan) noDelays() {
	for i := range p.Tasks {
		p.Tasks[i].Delay = 0
	}
	for i := range p.Pauses {
		if g := &p.Pauses[i]; g.For > 0 {
			g.For, g.Resume = 0, max(g.For, g.Resume)
		}
	}
	for i := range p.Operations {
		if o := &p.Operations[i]; o.Request.Action == store.ActionRetry {
			o.At += faultTime + longestFault
		}
	}
}

// rush makes the workers run many short tasks, so that they claim ahead of their executors. Longer tasks follow while
// workers are killed.
func (p *Plan) rush(r *rand.Rand) {
	begin, by := between(r, 0, loadTime), p.lastProducer()
	for i := range 40 {
		task := TaskPlan{Name: fmt.Sprint("r", i), At: begin, By: by, Queue: "a", Takes: between(r, 0, 5*time.Millisecond)}
		if i >= 24 {
			task.At, task.Takes = begin+between(r, 300*time.Millisecond, 400*time.Millisecond), between(r, 0, 2*time.Second)
		}
		p.Tasks = append(p.Tasks, task)
	}
	for i := range 1 + r.IntN(3) {
		kill := newFault(r, i, len(p.Roles))
		kill.Name, kill.Kind, kill.Target = fmt.Sprint("k", i), Kill, i%len(p.Roles)
		kill.At = begin + between(r, 350*time.Millisecond, 900*time.Millisecond)
		p.Faults = append(p.Faults, kill)
	}
}

// machine returns the machine of a process.
func (p *Plan) machine(process int) int {
	if process < len(p.Machines) {
		return p.Machines[process]
	}
	return process
}

// silence turns every fault into a queue that confirms nothing, for longer than other faults last. Tasks of other
// queues must still run.
func (p *Plan) silence(r *rand.Rand) {
	p.Net, p.Drift = NetPlan{Usual: p.Net.Usual}, 0
	queue := r.IntN(len(queues))
	for i := range p.Faults {
		f := &p.Faults[i]
		f.Kind, f.N, f.For = Silence, queue, 4*f.For
	}
	for i := range p.Tasks {
		task := &p.Tasks[i]
		task.At, task.Queue = between(r, 0, faultTime), queues[r.IntN(len(queues))]
		task.Takes, task.Poison = min(task.Takes, 300*time.Millisecond), false
	}
}

// onlySilence reports whether nothing except queues that confirm nothing can delay a task, and returns these queues.
func (p *Plan) onlySilence() (silent []string, ok bool) {
	for _, f := range p.Faults {
		if f.Kind != Silence {
			return nil, false
		}
		silent = append(silent, queues[f.N%len(queues)])
	}
	poison := slices.ContainsFunc(p.Tasks, func(t TaskPlan) bool { return t.Poison || t.Hangs > 0 || t.Takes > time.Second })
	return silent, len(p.Faults) > 0 && len(p.Targets) == 0 && !poison && p.Drift == 0 && p.Net.PerMilleSlow == 0 && p.Net.PerMilleMishap == 0 && p.Net.Breaks == 0
}

// harmless reports whether nothing goes wrong: no fault, no poison task, and a fast network.
func (p *Plan) harmless() bool {
	poison := slices.ContainsFunc(p.Tasks, func(t TaskPlan) bool { return t.Poison })
	return len(p.Faults) == 0 && !poison && p.Drift == 0 && p.Net.PerMilleSlow == 0 && p.Net.PerMilleMishap == 0 && p.Net.Breaks == 0
}

// concentrate makes all faults begin within one second, most of them at one process.
func (p *Plan) concentrate(r *rand.Rand) {
	begin, target := between(r, 0, loadTime), r.IntN(len(p.Roles))
	for i := range p.Faults {
		p.Faults[i].At = begin + between(r, 0, time.Second)
		if r.IntN(3) > 0 {
			p.Faults[i].Target = target
		}
	}
}

// isolate breaks the connections of the first worker several times within half a second, and in some plans keeps it cut
// off. The worker is alive, but the janitor sees almost the same as after the end of the process.
func (p *Plan) isolate(r *rand.Rand) {
	begin, target := between(r, loadTime/2, faultTime-time.Second), 0
	if !slices.Contains(p.Roles, Janitor) { // another process must watch the worker
		p.Roles = append(p.Roles, Janitor)
	}
	kinds := []FaultKind{CloseStore, CloseBroker, CutStore, CutBroker}
	if r.IntN(2) == 0 {
		kinds = kinds[:2]
	}
	for i := range p.Faults {
		f := &p.Faults[i]
		f.Target, f.At, f.Kind = target, begin+between(r, 0, 500*time.Millisecond), kinds[r.IntN(len(kinds))]
	}
}

func newNet(r *rand.Rand) NetPlan {
	net := NetPlan{Usual: between(r, 100*time.Microsecond, 10*time.Millisecond)}
	if r.IntN(2) == 0 {
		net.PerMilleSlow, net.Slow = 1+r.IntN(30), between(r, 20*time.Millisecond, 2*time.Second)
	}
	if r.IntN(2) == 0 {
		net.PerMilleMishap = 1 + r.IntN(100)
	}
	if r.IntN(4) == 0 {
		net.Breaks = between(r, 200*time.Millisecond, 4*time.Second)
	}
	return net
}

func newTask(r *rand.Rand, i int) TaskPlan {
	task := TaskPlan{Name: fmt.Sprint("t", i), At: between(r, 0, loadTime), Queue: "a", Takes: between(r, 0, 300*time.Millisecond)}
	if r.IntN(4) == 0 {
		task.Queue = "b"
	}
	if r.IntN(5) == 0 {
		task.Takes = between(r, 0, 6*time.Second)
	}
	if r.IntN(5) == 0 {
		task.Delay = between(r, 0, 4*time.Second)
	}
	switch r.IntN(10) {
	case 0:
		task.Always = true
	case 1, 2:
		task.Fails = 1 + r.IntN(maxAttempts-1)
		task.Panics = r.IntN(2) == 0
	case 3:
		task.Defers = 1 + r.IntN(2)
	case 4:
		task.Poison = r.IntN(4) == 0
	}
	task.Stubborn = r.IntN(10) == 0
	return task
}

func newFault(r *rand.Rand, i, processes int) Fault {
	f := Fault{
		Name: fmt.Sprint("f", i), Kind: FaultKind(r.IntN(int(Purge))), At: between(r, 0, faultTime),
		For: between(r, 0, longestFault), Target: r.IntN(processes), N: r.IntN(40),
	}
	switch f.Kind {
	case StoreFailover:
		f.For /= 10
	case StoreRestart, BrokerRestart, BrokerWipe:
		if r.IntN(2) == 0 {
			f.For /= 10
		}
	}
	if r.IntN(3) == 0 { // the design is mainly about killed processes
		f.Kind = Kill
	}
	if f.Kind == Kill && r.IntN(3) == 0 { // restarted almost at once
		f.For /= 50
	}
	return f
}

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// Without returns the plan without the named tasks, faults, operations, settings, pauses, limits, targets and weights
// (such as "t3", "f0", "o1", "b0", "g2", "m0", "d0" and "a0"). A task whose target is removed succeeds. The names
// "slow", "mishaps", "breaks" and "drift" switch off these properties of the network and the clock.
func (p Plan) Without(names ...string) Plan {
	gone := func(name string) bool { return slices.Contains(names, name) }
	p.Removed = append(slices.Clone(p.Removed), names...)
	p.Tasks = slices.DeleteFunc(slices.Clone(p.Tasks), func(t TaskPlan) bool { return gone(t.Name) })
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f Fault) bool { return gone(f.Name) })
	p.Operations = slices.DeleteFunc(slices.Clone(p.Operations), func(o OperationPlan) bool { return gone(o.Name) })
	p.Settings = slices.DeleteFunc(slices.Clone(p.Settings), func(s SettingPlan) bool { return gone(s.Name) })
	p.Pauses = slices.DeleteFunc(slices.Clone(p.Pauses), func(g PausePlan) bool { return gone(g.Name) })
	p.Targets = slices.DeleteFunc(slices.Clone(p.Targets), func(t TargetPlan) bool { return gone(t.Name) })
	p.Weights = slices.DeleteFunc(slices.Clone(p.Weights), func(w WeightPlan) bool { return gone(w.Name) })
	p.Limits = slices.DeleteFunc(slices.Clone(p.Limits), func(l LimitPlan) bool { return gone(l.Name) })
	if gone("slow") {
		p.Net.PerMilleSlow = 0
	}
	if gone("mishaps") {
		p.Net.PerMilleMishap = 0
	}
	if gone("breaks") {
		p.Net.Breaks = 0
	}
	if gone("drift") {
		p.Drift = 0
	}
	return p
}

// Parts returns the names that Without can remove.
func (p Plan) Parts() []string {
	var names []string
	for _, f := range p.Faults {
		names = append(names, f.Name)
	}
	for _, t := range p.Tasks {
		names = append(names, t.Name)
	}
	for _, o := range p.Operations {
		names = append(names, o.Name)
	}
	for _, s := range p.Settings {
		names = append(names, s.Name)
	}
	for _, g := range p.Pauses {
		names = append(names, g.Name)
	}
	for _, l := range p.Limits {
		names = append(names, l.Name)
	}
	for _, t := range p.Targets {
		names = append(names, t.Name)
	}
	for _, w := range p.Weights {
		names = append(names, w.Name)
	}
	for name, there := range map[string]bool{"slow": p.Net.PerMilleSlow > 0, "mishaps": p.Net.PerMilleMishap > 0, "breaks": p.Net.Breaks > 0, "drift": p.Drift != 0} {
		if there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String describes the plan for people, one line for each part.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, processes", p.Seed)
	for i, role := range p.Roles {
		fmt.Fprintf(&b, " %d:%s on %d", i, role, p.machine(i))
	}
	fmt.Fprintf(&b, "\nnet %+v, drift %.3f\n", p.Net, p.Drift)
	if p.ordered() {
		fmt.Fprintf(&b, "after the death of an ordered task: %s\n", p.AfterDeath)
	}
	if len(p.Specialists) > 0 {
		fmt.Fprintf(&b, "processes %v handle the special type\n", p.Specialists)
	}
	if p.Unaware {
		fmt.Fprintln(&b, "the janitors do not know which type runs at most once")
	}
	for _, t := range p.Tasks {
		fmt.Fprintf(&b, "%-4s at %v by %d queue %s delay %v takes %v%s\n", t.Name, t.At, t.By, holdfast.Subqueue(t.Queue, t.Priority), t.Delay, t.Takes, t.how())
		for _, c := range t.Children {
			fmt.Fprintf(&b, "%-4s after %s queue %s delay %v takes %v%s\n", c.Name, t.Name, holdfast.Subqueue(c.Queue, c.Priority), c.Delay, c.Takes, c.how())
		}
	}
	for _, o := range p.Operations {
		fmt.Fprintf(&b, "%-4s at %v %s\n", o.Name, o.At, o)
	}
	for _, s := range p.Settings {
		fmt.Fprintf(&b, "%-4s at %v the delay is %v\n", s.Name, s.At, s.Base)
	}
	for _, g := range p.Pauses {
		fmt.Fprintf(&b, "%-4s at %v %s\n", g.Name, g.At, g)
	}
	for _, l := range p.Limits {
		fmt.Fprintf(&b, "%-4s at %v %s\n", l.Name, l.At, l)
	}
	if len(p.Targets) > 0 {
		fmt.Fprintf(&b, "breakers trip by %+v\n", p.Breaker)
	}
	for _, t := range p.Targets {
		fmt.Fprintf(&b, "%-4s at %v %s\n", t.Name, t.At, t)
	}
	for _, w := range p.Weights {
		fmt.Fprintf(&b, "%-4s at %v the weight of topic %s is %d\n", w.Name, w.At, w.Topic, w.Weight)
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "%-4s at %v %s target %d for %v n %d\n", f.Name, f.At, f.Kind, f.Target, f.For, f.N)
	}
	return b.String()
}

func (t TaskPlan) how() string {
	how := ""
	for _, h := range []struct {
		yes  bool
		text string
	}{
		{t.Fails > 0, fmt.Sprintf(", fails %d times", t.Fails)}, {t.Always, ", always fails"}, {t.Panics, ", panics"},
		{t.Defers > 0, fmt.Sprintf(", defers %d times", t.Defers)}, {t.Stubborn, ", stubborn"}, {t.Hangs > 0, fmt.Sprintf(", hangs %d times", t.Hangs)}, {t.Poison, ", poison"},
		{t.Brief, ", brief"}, {t.Once, ", once"}, {t.Special, ", special"}, {t.Key != "", ", key " + t.Key}, {t.Ordered, ", ordered"}, {t.Topic != "", ", topic " + t.Topic}, {t.Target != "", ", for the target " + t.Target},
		{t.Saves > 0, fmt.Sprintf(", stores %d checkpoints", t.Saves)}, {t.Commits != nil, fmt.Sprintf(", calls CompleteTx: %+v", t.Commits)}, {t.Unique != "", ", unique key " + t.Unique},
	} {
		if h.yes {
			how += h.text
		}
	}
	return how
}

func (r Role) String() string {
	return [...]string{"serve", "worker", "janitor", "producer", "person"}[r]
}

func (k FaultKind) String() string {
	return [...]string{
		"kill", "stop", "drain", "cut store", "cut broker", "close broker", "close store", "lose presence", "restart store", "store falls back",
		"store clock leaps", "restart broker", "wipe broker", "delete queue", "block broker", "silence queue", "purge queue", "newer message",
	}[k]
}
