package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	KillWorker    Kind = "worker: kill -9"
	StopWorker    Kind = "worker: SIGSTOP for two leases"
	KillJanitor   Kind = "janitor: kill -9"
	StopJanitor   Kind = "janitor: SIGSTOP for two leases"
	KillProducer  Kind = "producer: kill -9"
	StopProducer  Kind = "producer: SIGSTOP"
	KillNode      Kind = "broker: kill -9 of a node"
	KillLeader    Kind = "broker: kill -9 of the leader"
	KillTwoNodes  Kind = "broker: kill -9 of two nodes"
	PartNode      Kind = "broker: a node cut from the two others"
	PartNodeHalf  Kind = "broker: a node cut from the two others, one way"
	CutBroker     Kind = "worker and broker cut apart"
	CutBrokerHalf Kind = "worker and broker cut apart, one way"
	CutStore      Kind = "worker and database cut apart"
	CutStoreHalf  Kind = "worker and database cut apart, one way"
	StoreRestart  Kind = "database: restart"
	StoreKill     Kind = "database: kill -9"
	StorePromote  Kind = "database: kill -9, replica promoted"
	StoreFull     Kind = "database: disk full"
	MemoryAlarm   Kind = "broker: memory alarm"
	DiskAlarm     Kind = "broker: disk alarm"
	CloseAll      Kind = "broker: all connections closed"
	DeleteQueues  Kind = "broker: all queues deleted"
	Upgrade       Kind = "rolling change to the older build and back"
)

// reach defines which workers a fault hits, and so which repeated executions it can explain.
type reach uint8

const (
	hitsNoWorker reach = iota // explains no repeated execution
	hitsWorkers               // hits the workers that the fault names
	hitsStore                 // hits the database, and so every worker
)

// trait describes a kind of fault.
type trait struct {
	kind  Kind
	reach reach
	// least and most limit the duration of the fault. 0 means that the campaign does not wait before it undoes the
	// fault.
	least, most time.Duration
}

// traits has every kind, in the order of the report.
var traits = []trait{
	{KillWorker, hitsWorkers, 0, 0},
	{StopWorker, hitsWorkers, 2 * lease, 2 * lease},
	{CutStore, hitsWorkers, 2 * time.Second, 12 * time.Second},
	{CutStoreHalf, hitsWorkers, 2 * time.Second, 12 * time.Second},
	{CutBroker, hitsNoWorker, 2 * time.Second, 12 * time.Second},
	{CutBrokerHalf, hitsNoWorker, 2 * time.Second, 12 * time.Second},
	{KillJanitor, hitsNoWorker, 0, 0},
	{StopJanitor, hitsNoWorker, 2 * lease, 2 * lease},
	{KillProducer, hitsNoWorker, 0, 0},
	{StopProducer, hitsNoWorker, 2 * time.Second, 8 * time.Second},
	{KillNode, hitsNoWorker, 3 * time.Second, 10 * time.Second},
	{KillLeader, hitsNoWorker, 3 * time.Second, 10 * time.Second},
	{KillTwoNodes, hitsNoWorker, 3 * time.Second, 10 * time.Second},
	{PartNode, hitsNoWorker, 12 * time.Second, 20 * time.Second},
	{PartNodeHalf, hitsNoWorker, 12 * time.Second, 20 * time.Second},
	{MemoryAlarm, hitsNoWorker, 3 * time.Second, 10 * time.Second},
	{DiskAlarm, hitsNoWorker, 3 * time.Second, 10 * time.Second},
	{CloseAll, hitsNoWorker, 0, 0},
	{DeleteQueues, hitsNoWorker, 0, 0},
	{StoreRestart, hitsStore, 0, 0},
	{StoreKill, hitsStore, 0, 0},
	{StorePromote, hitsStore, 0, 0},
	{StoreFull, hitsStore, 3 * time.Second, 8 * time.Second},
	{Upgrade, hitsWorkers, 0, 0},
}

func traitOf(k Kind) trait {
	return traits[slices.IndexFunc(traits, func(t trait) bool { return t.kind == k })]
}

// Fault is one fault of a plan.
type Fault struct {
	Kind Kind
	For  time.Duration
	Pick int // chooses the process or node that it hits
	Way  int // direction of a one-way cut, 0 or 1
}

func (f Fault) String() string {
	if f.For == 0 {
		return string(f.Kind)
	}
	return fmt.Sprintf("%s (%s)", f.Kind, f.For.Round(100*time.Millisecond))
}

// Act has the faults that begin at the same time: one fault, or sometimes two.
type Act struct {
	Calm   time.Duration // pause before the act
	Faults []Fault
}

// Plan is an endless list of acts that a seed determines. It draws all kinds of faults once before it draws any kind
// again.
type Plan struct {
	rng  *rand.Rand
	only []Kind
	deck []Kind // the kinds that are not drawn yet, in random order
}

// NewPlan returns the plan of a seed with the given kinds of faults. If only is empty, the plan has all kinds.
func NewPlan(seed uint64, only []Kind) *Plan {
	if len(only) == 0 {
		for _, t := range traits {
			only = append(only, t.kind)
		}
		only = append(only, KillWorker, KillWorker) // the most frequent fault in real deployments
	}
	return &Plan{rng: rand.New(rand.NewPCG(seed, 0x510e527fade682d1)), only: only}
}

// Next returns the next act.
func (p *Plan) Next() Act {
	act := Act{Calm: p.between(4*time.Second, 9*time.Second), Faults: []Fault{p.fault()}}
	if p.rng.IntN(5) > 0 {
		return act
	}
	// In one act of five there is a second fault, if the two can be inflicted at the same time.
	if second := p.fault(); compatible(act.Faults[0].Kind, second.Kind) {
		act.Faults = append(act.Faults, second)
	} else {
		p.deck = append(p.deck, second.Kind)
	}
	return act
}

// fault draws a fault.
func (p *Plan) fault() Fault {
	if len(p.deck) == 0 {
		p.deck = slices.Clone(p.only)
		p.rng.Shuffle(len(p.deck), func(i, j int) { p.deck[i], p.deck[j] = p.deck[j], p.deck[i] })
	}
	kind := p.deck[len(p.deck)-1]
	p.deck = p.deck[:len(p.deck)-1]
	t := traitOf(kind)
	return Fault{Kind: kind, For: p.between(t.least, t.most), Pick: p.rng.IntN(1 << 16), Way: p.rng.IntN(2)}
}

func (p *Plan) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(p.rng.Int64N(int64(most-least)))
}

// compatible reports whether two faults can be inflicted at the same time. One must hit a process and the other a
// server or the network.
func compatible(a, b Kind) bool { return a != Upgrade && b != Upgrade && ofProcess(a) != ofProcess(b) }

func ofProcess(k Kind) bool {
	return slices.Contains([]Kind{KillWorker, StopWorker, KillJanitor, StopJanitor, KillProducer, StopProducer}, k)
}

// ParseKind returns the kind with the given name. It returns an error that lists all kinds if there is none.
func ParseKind(name string) (Kind, error) {
	var names []string
	for _, t := range traits {
		if string(t.kind) == name {
			return t.kind, nil
		}
		names = append(names, fmt.Sprintf("%q", t.kind))
	}
	return "", fmt.Errorf("unknown kind of fault %q; the kinds are %s", name, strings.Join(names, ", "))
}
