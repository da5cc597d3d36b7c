package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Plan is what happens in a run. Plans are made by NewPlan; Without takes parts away.
type Plan struct {
	Seed  uint64
	Roles []Role // of the processes
	// Machines are those that the processes run on; nil means one for each process. Cloned makes all of them clones of one.
	Machines []int
	Cloned   bool
	Tasks    []TaskPlan
	Faults   []Fault
	Net      NetPlan
	// Drift is how much faster the store's clock goes than that of the processes; 0.01 is 1 %.
	Drift   float64
	Removed []string // names of the parts taken away
}

// Role is what a process does.
type Role uint8

// The roles.
const (
	Serve   Role = iota // a worker and a janitor
	Worker              // a worker alone
	Janitor             // a janitor alone
	Produce             // a producer
)

// TaskPlan is one task and what its handler does.
type TaskPlan struct {
	Name  string
	At    time.Duration // when it is enqueued, since the begin
	By    int           // index of the producer among the processes
	Lane  string
	Delay time.Duration
	Takes time.Duration // of one execution

	Fails    int  // the first executions fail
	Always   bool // they all do
	Defers   int  // the first executions ask to come back later
	Panics   bool // the first failure is a panic
	Stubborn bool // goes on when its context has ended
	Poison   bool // kills its process, each time
}

// FaultKind is what breaks.
type FaultKind uint8

// The kinds of faults. Target is a process unless something else is said.
const (
	Kill          FaultKind = iota // killed before or after its N-th step from then on, started again after For
	Stop                           // neither sends nor hears for For
	Drain                          // asked to end, started again after For
	CutStore                       // no way to the store for For; with N odd, its questions arrive and only the answers do not
	CutBroker                      // no way to the broker for For; with N odd the broker notices later
	CloseBroker                    // its connections to the broker are closed
	CloseStore                     // an operator ends its sessions at the store
	LoseSigns                      // both servers end the sessions of its signs, and it learns of that after For
	StoreRestart                   // the store is away for For
	StoreBack                      // the store fails over to a replica that lacks the last For
	StoreLeap                      // the store's clock leaps ahead by For, or back with N odd
	BrokerRestart                  // the broker is away for For
	BrokerWipe                     // and comes back empty
	DeleteQueue                    // an operator deletes the N-th queue
	Block                          // the broker takes no messages from anybody for For
	Silence                        // the N-th lane's queues take and confirm nothing for For
	Purge                          // an operator purges the N-th lane's main queue; only crowd draws it
	faultKinds
)

// Fault is one thing that breaks.
type Fault struct {
	Name   string
	Kind   FaultKind
	At     time.Duration
	For    time.Duration
	Target int
	N      int
}

// NetPlan says how messages fare.
type NetPlan struct {
	Usual time.Duration // the most an ordinary message takes
	// Of a thousand messages so many are slow, up to Slow, and so many publish calls go wrong.
	PerMilleSlow, PerMilleMishap int
	Slow                         time.Duration
	// Breaks is how long connections to the broker last at most, while faults begin; 0 means for ever.
	Breaks time.Duration
}

const (
	loadTime  = 3 * time.Second // in which tasks are enqueued
	faultTime = 7 * time.Second // in which faults begin
	longest   = 5 * time.Second // a fault lasts at most
	// patience is how long after the last fault everything must be over.
	patience = 3 * time.Minute
)

// NewPlan draws a plan.
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
	if r.IntN(2) == 0 { // some share machines
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
		p.gather(r)
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
	for i := range p.Faults {
		if f := &p.Faults[i]; f.Kind == StoreLeap && f.N%4 >= 2 {
			f.For *= 1440 // two hours instead of five seconds
			p.noDelays()
		}
	}
	return p
}

// setBack has the store's clock leap ahead by hours and then back, or back and then ahead.
func (p *Plan) setBack(r *rand.Rand) {
	f := Fault{Name: "l0", Kind: StoreLeap, At: between(r, 0, faultTime), For: between(r, 0, 3*time.Hour), N: r.IntN(2)}
	back := f
	back.Name, back.At, back.N = "l1", f.At+between(r, 0, 5*time.Second), 1-f.N
	p.Faults = append(p.Faults, f, back)
	p.noDelays()
}

// crowd has a producer store many long tasks at once, so that their tickets share messages, and workers with room for a few of them pass
// the others on to the requeue queue. There they rest for longer than sentinels need to prove tickets of the main queue lost. In half
// of these plans an operator purges that queue.
func (p *Plan) crowd(r *rand.Rand) {
	begin, by := between(r, 0, loadTime), len(p.Roles)-1
	for by > 0 && p.Roles[by] != Produce {
		by--
	}
	for i := range 16 * (len(p.Roles) - 1) {
		p.Tasks = append(p.Tasks, TaskPlan{Name: fmt.Sprint("c", i), At: begin, By: by, Lane: "a", Takes: between(r, 3*time.Second, 8*time.Second)})
	}
	if r.IntN(2) == 0 {
		p.Faults = append(p.Faults, Fault{Name: "p0", Kind: Purge, At: begin + between(r, 0, time.Second), N: r.IntN(len(lanes))})
	}
}

// noDelays is for plans in which the store's clock leaps by hours: nothing tells a delay that a clock ahead has prolonged from one that
// was asked for.
func (p *Plan) noDelays() {
	for i := range p.Tasks {
		p.Tasks[i].Delay = 0
	}
}

// rush has workers see many tasks that take no time, so that they claim ahead of their executors, and then some that take long
// while a worker is killed.
func (p *Plan) rush(r *rand.Rand) {
	begin, by := between(r, 0, loadTime), len(p.Roles)-1
	for by > 0 && p.Roles[by] != Produce {
		by--
	}
	for i := range 40 {
		task := TaskPlan{Name: fmt.Sprint("r", i), At: begin, By: by, Lane: "a", Takes: between(r, 0, 5*time.Millisecond)}
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

// machine is the one that a process runs on.
func (p *Plan) machine(process int) int {
	if process < len(p.Machines) {
		return p.Machines[process]
	}
	return process
}

// silence leaves no fault but lanes that confirm nothing, for longer than other faults last: tasks of other lanes go on meanwhile.
func (p *Plan) silence(r *rand.Rand) {
	p.Net, p.Drift = NetPlan{Usual: p.Net.Usual}, 0
	lane := r.IntN(len(lanes))
	for i := range p.Faults {
		f := &p.Faults[i]
		f.Kind, f.N, f.For = Silence, lane, 4*f.For
	}
	for i := range p.Tasks {
		task := &p.Tasks[i]
		task.At, task.Lane = between(r, 0, faultTime), lanes[r.IntN(len(lanes))]
		task.Takes, task.Poison = min(task.Takes, 300*time.Millisecond), false
	}
}

// onlySilence reports whether nothing but lanes that confirm nothing can delay a task, and which lanes these are.
func (p *Plan) onlySilence() (silent []string, ok bool) {
	for _, f := range p.Faults {
		if f.Kind != Silence {
			return nil, false
		}
		silent = append(silent, lanes[f.N%len(lanes)])
	}
	poison := slices.ContainsFunc(p.Tasks, func(t TaskPlan) bool { return t.Poison || t.Takes > time.Second })
	return silent, len(p.Faults) > 0 && !poison && p.Drift == 0 && p.Net.PerMilleSlow == 0 && p.Net.PerMilleMishap == 0 && p.Net.Breaks == 0
}

// gather makes a storm of the faults: they begin within a second, most of them at the same process.
func (p *Plan) gather(r *rand.Rand) {
	begin, target := between(r, 0, loadTime), r.IntN(len(p.Roles))
	for i := range p.Faults {
		p.Faults[i].At = begin + between(r, 0, time.Second)
		if r.IntN(3) > 0 {
			p.Faults[i].Target = target
		}
	}
}

// isolate lets the first worker lose its connections, again and again within a second, and perhaps not get new ones: it lives, and
// little tells it from one that is gone.
func (p *Plan) isolate(r *rand.Rand) {
	begin, target := between(r, loadTime/2, faultTime-time.Second), 0
	if !slices.Contains(p.Roles, Janitor) { // somebody else has to judge
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
	task := TaskPlan{Name: fmt.Sprint("t", i), At: between(r, 0, loadTime), Lane: "a", Takes: between(r, 0, 300*time.Millisecond)}
	if r.IntN(4) == 0 {
		task.Lane = "b"
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
		For: between(r, 0, longest), Target: r.IntN(processes), N: r.IntN(40),
	}
	switch f.Kind {
	case StoreBack:
		f.For /= 10
	case StoreRestart, BrokerRestart, BrokerWipe:
		if r.IntN(2) == 0 {
			f.For /= 10
		}
	}
	if r.IntN(3) == 0 { // killed often: it is what the design is about
		f.Kind = Kill
	}
	if f.Kind == Kill && r.IntN(3) == 0 { // and started again at once
		f.For /= 50
	}
	return f
}

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// Without returns the plan without the named task or fault ("t3", "f0"), or with the fault's numbers eased.
func (p Plan) Without(names ...string) Plan {
	gone := func(name string) bool { return slices.Contains(names, name) }
	p.Removed = append(slices.Clone(p.Removed), names...)
	p.Tasks = slices.DeleteFunc(slices.Clone(p.Tasks), func(t TaskPlan) bool { return gone(t.Name) })
	p.Faults = slices.DeleteFunc(slices.Clone(p.Faults), func(f Fault) bool { return gone(f.Name) })
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

// Parts are the names that Without can take away.
func (p Plan) Parts() []string {
	var names []string
	for _, f := range p.Faults {
		names = append(names, f.Name)
	}
	for _, t := range p.Tasks {
		names = append(names, t.Name)
	}
	for name, there := range map[string]bool{"slow": p.Net.PerMilleSlow > 0, "mishaps": p.Net.PerMilleMishap > 0, "breaks": p.Net.Breaks > 0, "drift": p.Drift != 0} {
		if there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String prints the plan for a person, a line a part.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, processes", p.Seed)
	for i, role := range p.Roles {
		fmt.Fprintf(&b, " %d:%s on %d", i, role, p.machine(i))
	}
	fmt.Fprintf(&b, "\nnet %+v, drift %.3f\n", p.Net, p.Drift)
	for _, t := range p.Tasks {
		fmt.Fprintf(&b, "%-4s at %v by %d lane %s delay %v takes %v%s\n", t.Name, t.At, t.By, t.Lane, t.Delay, t.Takes, t.how())
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
		{t.Defers > 0, fmt.Sprintf(", defers %d times", t.Defers)}, {t.Stubborn, ", stubborn"}, {t.Poison, ", poison"},
	} {
		if h.yes {
			how += h.text
		}
	}
	return how
}

func (r Role) String() string { return [...]string{"serve", "worker", "janitor", "producer"}[r] }

func (k FaultKind) String() string {
	return [...]string{
		"kill", "stop", "drain", "cut store", "cut broker", "close broker", "close store", "lose signs", "restart store", "store falls back",
		"store clock leaps", "restart broker", "wipe broker", "delete queue", "block broker", "silence lane", "purge queue",
	}[k]
}
