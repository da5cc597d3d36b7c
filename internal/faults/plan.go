package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is what breaks.
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

// reach says whom a fault hits, and so what it can explain.
type reach uint8

const (
	hitsNobody  reach = iota // that runs tasks: it explains no execution beyond the first
	hitsWorkers              // those it names
	hitsStore                // and with it every worker
)

// trait is what is known of a kind beforehand.
type trait struct {
	kind  Kind
	reach reach
	// least and most are how long the fault stays; 0 means that it is over at once.
	least, most time.Duration
}

// traits lists every kind, in the order of the report.
var traits = []trait{
	{KillWorker, hitsWorkers, 0, 0},
	{StopWorker, hitsWorkers, 2 * lease, 2 * lease},
	{CutStore, hitsWorkers, 2 * time.Second, 12 * time.Second},
	{CutStoreHalf, hitsWorkers, 2 * time.Second, 12 * time.Second},
	{CutBroker, hitsNobody, 2 * time.Second, 12 * time.Second},
	{CutBrokerHalf, hitsNobody, 2 * time.Second, 12 * time.Second},
	{KillJanitor, hitsNobody, 0, 0},
	{StopJanitor, hitsNobody, 2 * lease, 2 * lease},
	{KillProducer, hitsNobody, 0, 0},
	{StopProducer, hitsNobody, 2 * time.Second, 8 * time.Second},
	{KillNode, hitsNobody, 3 * time.Second, 10 * time.Second},
	{KillLeader, hitsNobody, 3 * time.Second, 10 * time.Second},
	{KillTwoNodes, hitsNobody, 3 * time.Second, 10 * time.Second},
	{PartNode, hitsNobody, 12 * time.Second, 20 * time.Second},
	{PartNodeHalf, hitsNobody, 12 * time.Second, 20 * time.Second},
	{MemoryAlarm, hitsNobody, 3 * time.Second, 10 * time.Second},
	{DiskAlarm, hitsNobody, 3 * time.Second, 10 * time.Second},
	{CloseAll, hitsNobody, 0, 0},
	{DeleteQueues, hitsNobody, 0, 0},
	{StoreRestart, hitsStore, 0, 0},
	{StoreKill, hitsStore, 0, 0},
	{StorePromote, hitsStore, 0, 0},
	{StoreFull, hitsStore, 3 * time.Second, 8 * time.Second},
	{Upgrade, hitsWorkers, 0, 0},
}

func traitOf(k Kind) trait {
	return traits[slices.IndexFunc(traits, func(t trait) bool { return t.kind == k })]
}

// Fault is one thing that is to break.
type Fault struct {
	Kind Kind
	For  time.Duration
	// Pick chooses the victim among those there are.
	Pick int
	// Way is the direction of a cut that goes one way.
	Way int
}

func (f Fault) String() string {
	if f.For == 0 {
		return string(f.Kind)
	}
	return fmt.Sprintf("%s (%s)", f.Kind, f.For.Round(100*time.Millisecond))
}

// Act is what breaks at one time: a fault, or now and then two.
type Act struct {
	Calm   time.Duration // before it
	Faults []Fault
}

// Plan is an endless list of acts that follows from a seed. Every kind comes in a round before the
// next one begins.
type Plan struct {
	rng  *rand.Rand
	only []Kind
	deck []Kind
}

// NewPlan returns the plan of a seed, of all kinds if only is empty.
func NewPlan(seed uint64, only []Kind) *Plan {
	if len(only) == 0 {
		for _, t := range traits {
			only = append(only, t.kind)
		}
		only = append(only, KillWorker, KillWorker) // the fault there is most of
	}
	return &Plan{rng: rand.New(rand.NewPCG(seed, 0x510e527fade682d1)), only: only}
}

// Next draws the next act.
func (p *Plan) Next() Act {
	act := Act{Calm: p.between(4*time.Second, 9*time.Second), Faults: []Fault{p.fault()}}
	if p.rng.IntN(5) > 0 {
		return act
	}
	// A second one beside it, if the two do not work with the same thing.
	if second := p.fault(); apart(act.Faults[0].Kind, second.Kind) {
		act.Faults = append(act.Faults, second)
	} else {
		p.deck = append(p.deck, second.Kind)
	}
	return act
}

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

// apart reports whether two faults can be inflicted at the same time: one of processes beside one of servers.
func apart(a, b Kind) bool { return a != Upgrade && b != Upgrade && ofProcess(a) != ofProcess(b) }

func ofProcess(k Kind) bool {
	return slices.Contains([]Kind{KillWorker, StopWorker, KillJanitor, StopJanitor, KillProducer, StopProducer}, k)
}

// ParseKind returns the kind of that name.
func ParseKind(name string) (Kind, error) {
	var names []string
	for _, t := range traits {
		if string(t.kind) == name {
			return t.kind, nil
		}
		names = append(names, fmt.Sprintf("%q", t.kind))
	}
	return "", fmt.Errorf("there is no fault %q; there are %s", name, strings.Join(names, ", "))
}
