package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Struck is a fault that was inflicted.
type Struck struct {
	Kind  Kind
	Began time.Time
	Ended time.Time // undone, as far as somebody does that by hand
	Ends  []string  // the workers it hit, if it hits some
	Turns []Turn    // instead of Ends, of a fault that takes its workers one after the other
	Alone bool      // nothing else was broken at the time
}

// Turn is one worker's part of a fault.
type Turn struct {
	End          string
	Began, Ended time.Time
}

// turns returns when the fault hit a worker: its whole time, or that worker's part of it.
func (s Struck) turns(worker string) (turns []Turn) {
	if slices.Contains(s.Ends, worker) {
		turns = append(turns, Turn{worker, s.Began, s.Ended})
	}
	for _, t := range s.Turns {
		if t.End == worker {
			turns = append(turns, t)
		}
	}
	return turns
}

const (
	restartAfter = 2 * time.Second // what a supervisor takes to start a process again
	drainLimit   = 60 * time.Second
)

// inflict breaks something, waits for as long as it lasts, and mends it.
func (c *campaign) inflict(ctx context.Context, f Fault) (Struck, error) {
	s := Struck{Kind: f.Kind, Began: time.Now()}
	var err error
	switch f.Kind {
	case KillWorker, KillJanitor, KillProducer:
		err = c.killProcess(ctx, f, &s)
	case StopWorker, StopJanitor, StopProducer:
		err = c.stopProcess(ctx, f, &s)
	case CutBroker, CutBrokerHalf, CutStore, CutStoreHalf:
		err = c.cutWorker(ctx, f, &s)
	case Upgrade:
		err = c.upgrade(ctx, &s)
	case KillNode, KillLeader, KillTwoNodes:
		err = c.killNodes(ctx, f, &s)
	case PartNode, PartNodeHalf:
		err = c.part(ctx, f, &s)
	case StoreRestart, StoreKill, StorePromote, StoreFull:
		err = c.breakStore(ctx, f, &s)
	case MemoryAlarm:
		err = c.onNodes(ctx, f, &s, "set_vm_memory_high_watermark 0.0000001", "set_vm_memory_high_watermark 0.6")
	case DiskAlarm:
		err = c.onNodes(ctx, f, &s, "set_disk_free_limit 99999GB", "set_disk_free_limit 50MB")
	case CloseAll:
		err = c.onNodes(ctx, f, &s, "close_all_connections closed-by-an-operator", "")
	case DeleteQueues:
		err = c.deleteQueues(ctx, &s)
	}
	if s.Ended.IsZero() {
		s.Ended = time.Now()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f, err)
	}
	return s, err
}

func roleOf(k Kind) string {
	switch k {
	case KillJanitor, StopJanitor:
		return roleJanitor
	case KillProducer, StopProducer:
		return roleProducer
	default:
		return roleWorker
	}
}

func (c *campaign) victim(f Fault) *seat {
	seats := c.crew.of(roleOf(f.Kind))
	if c.Soak {
		seats = seats[1:] // the first is measured
	}
	return seats[f.Pick%len(seats)]
}

func (c *campaign) killProcess(ctx context.Context, f Fault, s *Struck) error {
	v := c.victim(f)
	s.Ends, s.Began = []string{v.name}, time.Now()
	if err := v.kill(); err != nil {
		return err
	}
	s.Ended = time.Now()
	sleep(ctx, restartAfter)
	return v.start()
}

func (c *campaign) stopProcess(ctx context.Context, f Fault, s *Struck) error {
	v := c.victim(f)
	s.Ends, s.Began = []string{v.name}, time.Now()
	if err := v.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, f.For)
	return v.signal(syscall.SIGCONT)
}

// cutWorker drops what a worker and a server send to each other, or what one of the two sends.
func (c *campaign) cutWorker(ctx context.Context, f Fault, s *Struck) error {
	v := c.victim(f)
	peers := []string{"client"} // which is where the database is
	if f.Kind == CutBroker || f.Kind == CutBrokerHalf {
		peers = nodes
	}
	s.Ends, s.Began = []string{v.name}, time.Now()
	oneWay := f.Kind == CutBrokerHalf || f.Kind == CutStoreHalf
	err := c.cut(ctx, v.name, peers, oneWay, f.Way)
	sleep(ctx, f.For)
	return errors.Join(err, c.heal(ctx, v.name, peers))
}

var nodes = []string{"1", "2", "3"}

func (c *campaign) cut(ctx context.Context, end string, peers []string, oneWay bool, way int) error {
	for _, peer := range peers {
		command := []string{"cut", end, peer}
		if oneWay {
			command[0] = "cut-one-way"
			if way == 1 {
				command = []string{command[0], peer, end}
			}
		}
		if _, err := c.servers.cluster(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}

func (c *campaign) heal(ctx context.Context, end string, peers []string) error {
	var problems []error
	for _, peer := range peers {
		_, err := c.servers.cluster(ctx, "heal", end, peer)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// upgrade replaces every process of ours in turn by one of the older build, in good order, and then by the newer again.
func (c *campaign) upgrade(ctx context.Context, s *Struck) error {
	s.Began = time.Now()
	for _, build := range []int{older, newer} {
		for _, seat := range append(c.crew.of(roleJanitor), c.crew.of(roleWorker)...) {
			began := time.Now()
			err := seat.replace(ctx, build)
			s.Turns = append(s.Turns, Turn{seat.name, began, time.Now()})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// killNodes kills one node, the leader of a queue, or two, and starts them again.
func (c *campaign) killNodes(ctx context.Context, f Fault, s *Struck) error {
	first := f.Pick % len(nodes)
	victims := []string{nodes[first]}
	switch f.Kind {
	case KillLeader:
		leader, err := c.servers.cluster(ctx, "leader", c.backend.Topology.Main(lane))
		if err != nil {
			return err
		}
		victims = []string{leader}
	case KillTwoNodes:
		victims = append(victims, nodes[(first+1)%len(nodes)])
	}
	s.Began = time.Now()
	for _, n := range victims {
		if _, err := c.servers.cluster(ctx, "kill", n); err != nil {
			return err
		}
	}
	sleep(ctx, f.For)
	var problems []error
	var starting sync.WaitGroup
	var mu sync.Mutex
	for _, n := range victims {
		starting.Go(func() {
			_, err := c.servers.cluster(ctx, "start", n)
			mu.Lock()
			problems = append(problems, err)
			mu.Unlock()
		})
	}
	starting.Wait()
	s.Ended = time.Now()
	_, err := c.servers.cluster(ctx, "settle")
	return errors.Join(append(problems, err)...)
}

// part cuts a node from the two others; clients reach all three.
func (c *campaign) part(ctx context.Context, f Fault, s *Struck) error {
	n := f.Pick % len(nodes)
	others := []string{nodes[(n+1)%len(nodes)], nodes[(n+2)%len(nodes)]}
	s.Began = time.Now()
	err := c.cut(ctx, nodes[n], others, f.Kind == PartNodeHalf, f.Way)
	sleep(ctx, f.For)
	err = errors.Join(err, c.heal(ctx, nodes[n], others))
	s.Ended = time.Now()
	if _, unsettled := c.servers.cluster(ctx, "settle"); unsettled != nil {
		// A node may stay apart for good after a cut that only one side has seen; what helps is what the runbook says.
		c.say("  node %s stays apart: it is started again", nodes[n])
		err = errors.Join(err, all(ctx, c.servers.cluster, "stop "+nodes[n], "start "+nodes[n], "settle"))
		s.Ended = time.Now()
	}
	return err
}

// breakStore restarts the database in good order or not, promotes the replica, or fills the disk.
func (c *campaign) breakStore(ctx context.Context, f Fault, s *Struck) error {
	s.Began = time.Now()
	switch f.Kind {
	case StoreRestart:
		return all(ctx, c.servers.postgres, "restart")
	case StoreKill:
		return all(ctx, c.servers.postgres, "kill", "up")
	case StorePromote:
		if err := all(ctx, c.servers.postgres, "kill", "promote"); err != nil {
			return err
		}
		s.Ended = time.Now()
		return all(ctx, c.servers.postgres, "swap", "replica-up", "replica-sync")
	default:
		err := all(ctx, c.servers.postgres, "fill", "refuses")
		sleep(ctx, f.For)
		return errors.Join(err, all(ctx, c.servers.postgres, "unfill", "up"))
	}
}

// onNodes runs a command of rabbitmqctl on all nodes at once, and another one when the fault is over.
func (c *campaign) onNodes(ctx context.Context, f Fault, s *Struck, command, undo string) error {
	each := func(command string) error {
		problems := make([]error, len(nodes))
		var running sync.WaitGroup
		for i, n := range nodes {
			running.Go(func() {
				_, problems[i] = c.servers.cluster(ctx, append([]string{"ctl", n}, strings.Fields(command)...)...)
			})
		}
		running.Wait()
		return errors.Join(problems...)
	}
	s.Began = time.Now()
	err := each(command)
	if undo == "" {
		return err
	}
	sleep(ctx, f.For)
	return errors.Join(err, each(undo))
}

// deleteQueues deletes every queue there is of ours, with what is in it; the exchange that marks the broker stays.
func (c *campaign) deleteQueues(ctx context.Context, s *Struck) error {
	lanes, err := c.backend.Store.LaneNames(ctx)
	if err != nil {
		return err
	}
	s.Began = time.Now()
	return c.backend.Broker.Delete(ctx, c.backend.Topology.Queues(lanes))
}

// sleep waits, or until ctx ends: then everything is about to be wiped, and nothing needs mending.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
