package janitor

import (
	"context"
	"errors"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// sentinelLost is how many intervals a sentinel may take before the janitor sends another one. Behind a long backlog a
// sentinel may take longer. Then the queue contains several sentinels, which is harmless.
const sentinelLost = 2

// lostEvery is the number of sentinel intervals between two searches for lost tickets, over all janitors. A search may
// have to read the whole table.
const lostEvery = 3

// sentinels publishes a sentinel to the main queue of each queue that is due for one. A main queue delivers in order,
// so a sentinel that arrives proves that every ticket published before it has been delivered.
func (j *Janitor) sentinels(ctx context.Context) error {
	due, err := j.o.Store.SentinelsDue(ctx, j.o.SentinelInterval, sentinelLost*j.o.SentinelInterval)
	if err != nil || len(due) == 0 {
		return err
	}
	// Keep the sentinels that have arrived since the last ones were sent. A proof needs a sentinel that is sent later.
	if err := j.o.Store.KeepSentinels(ctx, j.o.SentinelSlack); err != nil {
		return err
	}
	messages := make([]broker.Message, len(due))
	for i := range due {
		messages[i] = broker.Message{Queue: j.o.Topology.Main(due[i].Queue), Body: message.Message{Sentinel: &due[i]}.Encode()}
	}
	err = j.publishAll(ctx, messages)
	switch {
	case !errors.Is(err, broker.ErrNoQueue):
		return err
	case j.topologyErr.Load() == nil: // the first rebuild, at the start of the janitor, declares the queues
		return nil
	}
	return j.rebuild(ctx) // most likely a new queue, whose tickets wait for its declaration
}

// lostTickets makes a task due again if sentinels prove that its ticket is lost. The age of a ticket proves nothing,
// because the ticket may wait in a long backlog.
func (j *Janitor) lostTickets(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "lost tickets", lostEvery*j.o.SentinelInterval)
	if err != nil || !myTurn {
		return err
	}
	lost, doubtful, err := j.o.Store.UnticketLost(ctx, j.o.SentinelSlack)
	if lost > 0 {
		j.o.Log.WithField("tasks", lost).Warn("tickets lost without a detected fault, publishing new ones")
		j.observe(holdfast.ObservedRepaired, lost)
		// The next check finds these tasks repaired. Until then, people see them.
		shown := store.VerifyResult{Part: store.VerifyTickets, Counts: []store.FaultCount{{Code: store.LostTicket, Tasks: lost}}}
		err = errors.Join(err, j.o.Store.StoreVerifyResult(ctx, shown))
	}
	if doubtful > 0 {
		j.o.Log.WithField("tasks", doubtful).Info("tickets overdue, publishing another one for each task")
	}
	if lost+doubtful > 0 {
		j.Nudge(0)
	}
	return err
}
