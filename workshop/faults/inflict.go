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
	Ended time.Time // when the campaign had undone the fault
	Ends  []string  // the ends of the processes that it hit
	Turns []Turn    // instead of Ends: for a fault that hits one process after another
	Alone bool      // no other fault was active at the time
}

// Turn is the part of a fault that hit one process.
type Turn struct {
	End          string
	Began, Ended time.Time
}

// turns returns the times at which the fault hit a worker: the duration of the fault, or the turns of that worker.
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
	restartAfter = 2 * time.Second // delay of a supervisor that starts a process again
	drainLimit   = 60 * time.Second
)

// inflict begins a fault, waits for its duration and undoes it.
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
		err = c.partition(ctx, f, &s)
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

// roleOf returns the role of the processes that a kind of fault hits.
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

// victim returns the slot that a fault hits.
func (c *campaign) victim(f Fault) *slot {
	slots := c.deployment.of(roleOf(f.Kind))
	if c.Soak {
		slots = slots[1:] // the first slot is measured
	}
	return slots[f.Pick%len(slots)]
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

// cutWorker drops the packets between a worker and a server in both directions, or in one.
func (c *campaign) cutWorker(ctx context.Context, f Fault, s *Struck) error {
	v := c.victim(f)
	peers := []string{"client"} // the database runs in this end
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

// cut drops the packets between an end and its peers. If the cut is one-way, way 0 drops the packets that the end
// sends, and way 1 those that it receives.
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

// heal undoes the cuts between an end and its peers.
func (c *campaign) heal(ctx context.Context, end string, peers []string) error {
	var problems []error
	for _, peer := range peers {
		_, err := c.servers.cluster(ctx, "heal", end, peer)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// upgrade drains and replaces each janitor and worker in turn by a process of the older build, and then again by one of
// the newer build.
func (c *campaign) upgrade(ctx context.Context, s *Struck) error {
	s.Began = time.Now()
	for _, build := range []int{older, newer} {
		for _, slot := range append(c.deployment.of(roleJanitor), c.deployment.of(roleWorker)...) {
			began := time.Now()
			err := slot.replace(ctx, build)
			s.Turns = append(s.Turns, Turn{slot.name, began, time.Now()})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// killNodes kills one node, the leader of an AMQP queue, or two nodes, and starts them again after the duration of the
// fault.
func (c *campaign) killNodes(ctx context.Context, f Fault, s *Struck) error {
	first := f.Pick % len(nodes)
	victims := []string{nodes[first]}
	switch f.Kind {
	case KillLeader:
		leader, err := c.servers.cluster(ctx, "leader", c.backend.Topology.Main(queue))
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

// partition cuts a node from the two others. Clients still reach all three nodes.
func (c *campaign) partition(ctx context.Context, f Fault, s *Struck) error {
	n := f.Pick % len(nodes)
	others := []string{nodes[(n+1)%len(nodes)], nodes[(n+2)%len(nodes)]}
	s.Began = time.Now()
	err := c.cut(ctx, nodes[n], others, f.Kind == PartNodeHalf, f.Way)
	sleep(ctx, f.For)
	err = errors.Join(err, c.heal(ctx, nodes[n], others))
	s.Ended = time.Now()
	if _, unsettled := c.servers.cluster(ctx, "settle"); unsettled != nil {
		// After a one-way cut, a node may stay separated. A restart of the node helps.
		c.say("  node %s stays separated from the cluster: restarting it", nodes[n])
		err = errors.Join(err, runAll(ctx, c.servers.cluster, "stop "+nodes[n], "start "+nodes[n], "settle"))
		s.Ended = time.Now()
	}
	return err
}

// breakStore restarts the database, kills it, promotes the replica, or fills the disk.
func (c *campaign) breakStore(ctx context.Context, f Fault, s *Struck) error {
	s.Began = time.Now()
	switch f.Kind {
	case StoreRestart:
		return runAll(ctx, c.servers.postgres, "restart")
	case StoreKill:
		return runAll(ctx, c.servers.postgres, "kill", "up")
	case StorePromote:
		if err := runAll(ctx, c.servers.postgres, "kill", "promote"); err != nil {
			return err
		}
		s.Ended = time.Now()
		return runAll(ctx, c.servers.postgres, "swap", "replica-up", "replica-sync")
	default:
		err := runAll(ctx, c.servers.postgres, "fill", "refuses")
		sleep(ctx, f.For)
		return errors.Join(err, runAll(ctx, c.servers.postgres, "unfill", "up"))
	}
}

// onNodes runs a rabbitmqctl command on all nodes at the same time. If undo is not empty, onNodes runs undo after the
// duration of the fault.
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

// deleteQueues deletes all AMQP queues of the deployment with their messages. It keeps the incarnation exchange.
func (c *campaign) deleteQueues(ctx context.Context, s *Struck) error {
	queues, err := c.backend.Store.QueueNames(ctx)
	if err != nil {
		return err
	}
	s.Began = time.Now()
	return c.backend.Broker.Delete(ctx, c.backend.Topology.Queues(queues))
}

// sleep waits for d or until ctx is done. It returns no error: when ctx is done, the whole deployment is deleted.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
