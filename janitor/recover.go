package janitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// RecoveryPlan describes the loss of the broker, and the work to replace it.
type RecoveryPlan struct {
	BrokerLost bool     // the marker is missing: the broker was wiped or replaced
	Objects    int      // AMQP queues and exchanges that must exist
	Missing    []string // the names of those that are missing
	Queues     []QueueRecovery
	Lost       int64 // sum over the queues
	Due        int64
	// Expected is the approximate duration of a recovery. It is computed from the time that reading the tasks took for
	// this plan, and from the usual rate of publishing.
	Expected time.Duration
}

// QueueRecovery is the part of a RecoveryPlan for one queue.
type QueueRecovery struct {
	Queue    string
	Missing  []string // its missing AMQP queues
	Ticketed int64    // ready tasks with a ticket
	Lost     int64    // ready tasks whose ticket is lost
	Due      int64    // ready tasks that are due and have no ticket
}

// recoveryRate is the approximate number of tickets that one process publishes per second. It was measured with both
// servers on the same two cores. The progress of a recovery contains the actual rate.
const recoveryRate = 10_000

// recoveryStore is the part of a store that PlanRecovery uses.
type recoveryStore interface {
	queueNames
	CountTickets(ctx context.Context, after holdfast.TaskID) ([]store.TicketCount, holdfast.TaskID, error)
}

// queueNames is the part of a store that knownQueues uses.
type queueNames interface {
	QueueNames(ctx context.Context) ([]string, error)
}

// PlanRecovery compares the broker with the topology, and counts the lost tickets. It changes nothing. The tickets of
// the queues in purged are treated as lost although their AMQP queues exist.
func PlanRecovery(ctx context.Context, s recoveryStore, admin broker.Admin, topology broker.Topology, purged []string) (RecoveryPlan, error) {
	var plan RecoveryPlan
	queues, err := knownQueues(ctx, s, purged)
	if err != nil {
		return plan, err
	}
	objects := append(topology.Queues(queues), topology.MarkerObject())
	plan.Objects = len(objects)
	if plan.Missing, err = admin.Missing(ctx, objects); err != nil {
		return plan, fmt.Errorf("verify the topology: %w", err)
	}
	plan.BrokerLost = slices.Contains(plan.Missing, topology.MarkerObject().Name)
	began := time.Now()
	counts, err := countTickets(ctx, s)
	if err != nil {
		return plan, err
	}
	scan := time.Since(began)
	for _, queue := range queues {
		row := QueueRecovery{Queue: queue, Ticketed: counts[queue].Ticketed, Due: counts[queue].Due}
		for _, amqpQueue := range topology.Queue(queue) {
			if slices.Contains(plan.Missing, amqpQueue) {
				row.Missing = append(row.Missing, amqpQueue)
			}
		}
		if plan.BrokerLost || len(row.Missing) > 0 || slices.Contains(purged, queue) {
			row.Lost = row.Ticketed
			plan.Expected += scan // for UnticketQueue
		}
		plan.Lost, plan.Due = plan.Lost+row.Lost, plan.Due+row.Due
		plan.Queues = append(plan.Queues, row)
	}
	plan.Expected += time.Duration(plan.Lost+plan.Due) * time.Second / recoveryRate
	return plan, nil
}

// knownQueues returns the names of all queues. It returns ErrNotFound if one of the purged queues is not among them.
func knownQueues(ctx context.Context, s queueNames, purged []string) ([]string, error) {
	queues, err := s.QueueNames(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(purged, func(queue string) bool { return !slices.Contains(queues, queue) }); i >= 0 {
		return nil, fmt.Errorf("%w: no task was ever put in queue %q", holdfast.ErrNotFound, purged[i])
	}
	return queues, nil
}

// countTickets counts the tickets of each queue, in short steps.
func countTickets(ctx context.Context, s recoveryStore) (map[string]store.TicketCount, error) {
	counts := make(map[string]store.TicketCount)
	for after := holdfast.TaskID(0); ; {
		found, next, err := s.CountTickets(ctx, after)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			sum := counts[c.Queue]
			counts[c.Queue] = store.TicketCount{Queue: c.Queue, Ticketed: sum.Ticketed + c.Ticketed, Due: sum.Due + c.Due}
		}
		if after = next; after == 0 {
			return counts, nil
		}
	}
}

// RecoveryPhase is a part of a recovery.
type RecoveryPhase string

// The phases of a recovery, in order.
const (
	RecoverBroker  RecoveryPhase = "declare"   // declare missing AMQP queues, and make the tasks of lost tickets due
	RecoverWorkers RecoveryPhase = "take back" // take the tasks of ended workers back
	RecoverFaults  RecoveryPhase = "verify"    // find and repair other tasks that break an invariant
	RecoverTickets RecoveryPhase = "publish"   // publish the tickets of due tasks
)

// RecoveryProgress is the progress of a recovery. Total is 0 while it is unknown.
type RecoveryProgress struct {
	Phase       RecoveryPhase
	Done, Total int64
}

// RecoveryReport is the result of a recovery.
type RecoveryReport struct {
	Missing   []string // names of the declared objects
	Renewed   int64    // tasks that became due because their tickets were lost
	Repaired  int64    // other tasks that broke an invariant and were changed
	Published int64    // tickets that this process published
}

const (
	// recoveryIdle is how long a recovery waits for other janitors that publish due tasks.
	recoveryIdle = 5 * time.Second
	// recoveryPatience is the maximum time without a confirm by the broker.
	recoveryPatience = time.Minute
)

// Recover does at once the work of several duties. It declares the missing AMQP queues, makes tasks with lost tickets
// due, takes the tasks of ended workers back, and publishes the tickets of due tasks. The tickets of the queues in
// purged are treated as lost, too. It returns ErrNotFound, and changes nothing, if one of these queues does not exist.
//
// Recover may run beside janitors and workers, may be killed at any time, and may be repeated. If it publishes a ticket
// that was not lost, the claim drops one of the two copies. Do not call Run on the same Janitor.
func (j *Janitor) Recover(ctx context.Context, purged []string, progress func(RecoveryProgress)) (report RecoveryReport, err error) {
	if _, err = knownQueues(ctx, j.o.Store, purged); err != nil {
		return report, err
	}
	progress(RecoveryProgress{Phase: RecoverBroker})
	var tasks int
	if _, report.Missing, tasks, err = rebuild(ctx, j.o.Store, j.o.Broker, j.o.Topology); err != nil {
		return report, err
	}
	report.Renewed = int64(tasks)
	if tasks, err = unticket(ctx, j.o.Store, purged); err != nil {
		return report, err
	}
	report.Renewed += int64(tasks)

	progress(RecoveryProgress{Phase: RecoverWorkers})
	if err = j.sweep(ctx); err != nil {
		return report, err
	}
	progress(RecoveryProgress{Phase: RecoverFaults})
	repaired, err := j.repairFaults(ctx, j.verifyOptions())
	if report.Repaired = int64(repaired); err != nil {
		return report, err
	}
	counts, err := countTickets(ctx, j.o.Store)
	if err != nil {
		return report, err
	}
	total := int64(0)
	for _, c := range counts {
		total += c.Due
	}
	report.Published, err = j.publishDue(ctx, total, progress)
	return report, err
}

// publishDue publishes the tickets of the tasks that are due now and of ripe outbox entries, and returns their number.
// Other janitors may publish some of them. It does not wait for tasks that become due meanwhile, because a busy system
// always has some.
func (j *Janitor) publishDue(ctx context.Context, total int64, progress func(RecoveryProgress)) (published int64, err error) {
	began := time.Now()
	moved := began
	for pause := backoff.New(firstPause, longPause); ; {
		progress(RecoveryProgress{RecoverTickets, published, max(total, published)})
		b, err := j.publishBatch(ctx, time.Since(began))
		published += int64(b.confirmed)
		switch {
		case ctx.Err() != nil:
			return published, context.Cause(ctx)
		case b.confirmed > 0 && !b.more:
			return published, nil
		case b.confirmed > 0:
			moved = time.Now()
			pause.Reset()
			continue
		case err == nil && b.given == 0 && (b.next > time.Second || time.Since(moved) > recoveryIdle):
			return published, nil
		case time.Since(moved) > recoveryPatience:
			return published, errors.Join(fmt.Errorf("%w: the broker has confirmed no ticket for %s", holdfast.ErrUnavailable, recoveryPatience), err)
		}
		if err := pause.Wait(ctx); err != nil {
			return published, err
		}
	}
}

// published is the result of publishBatch.
type published struct {
	given     int           // tickets
	confirmed int           // tickets that the broker has confirmed
	more      bool          // more tickets of the given age may remain
	next      time.Duration // until the next task is due
}

// publishBatch publishes the tickets of one batch of due tasks, the longest due first, and of some outbox entries.
func (j *Janitor) publishBatch(ctx context.Context, age time.Duration) (b published, err error) {
	var publishErr error
	publish := func(tickets byQueue) map[message.Ticket]bool {
		all := make(map[message.Ticket]bool)
		for _, queue := range tickets {
			for _, list := range queue {
				b.given += len(list)
			}
			confirmed, err := j.publishTickets(ctx, queue)
			maps.Copy(all, confirmed)
			publishErr = errors.Join(publishErr, err)
		}
		b.confirmed += len(all)
		return all
	}
	entries, err := j.dispatchOutbox(ctx, store.Queues{}, outboxBatch, publish)
	if err != nil {
		return b, err
	}
	dispatched, err := j.o.Store.DispatchDue(ctx, store.Queues{}, dispatchBatch, func(_ context.Context, due []store.Due) []bool {
		b.more = slices.ContainsFunc(due, func(d store.Due) bool { return d.Late > age })
		return j.publishDueTasks(due, publish)
	})
	b.more = b.more || entries == outboxBatch || publishErr != nil
	b.next = dispatched.Next
	return b, errors.Join(err, publishErr)
}
