package janitor

import (
	"context"
	"errors"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// sentinelLost is how many intervals a sentinel may be on its way before it counts
// as lost itself. Behind a long backlog it may well take longer; then there are a few in the
// lane at once, which does no harm.
const sentinelLost = 6

// lostEvery is how many intervals lie between two looks for lost tickets, by all
// janitors together: a look may have to read the whole table.
const lostEvery = 3

// sentinels sends a marker down each lane now and then. A lane being first in first out,
// its arrival proves that every ticket published before it has been delivered.
func (j *Janitor) sentinels(ctx context.Context) error {
	due, err := j.o.Store.SentinelsDue(ctx, j.o.SentinelInterval, sentinelLost*j.o.SentinelInterval)
	if err != nil {
		return err
	}
	letters := make([]broker.Message, len(due))
	for i := range due {
		letters[i] = broker.Message{Queue: j.o.Topology.Main(due[i].Lane), Body: message.Message{Sentinel: &due[i]}.Encode()}
	}
	if err := j.publishAll(ctx, letters); err != nil && !errors.Is(err, broker.ErrNoQueue) {
		return err
	}
	return nil // a lane without a queue gets one from the rebuild duty
}

// lostTickets publishes tickets anew that a sentinel has proved lost. This tells a
// lost ticket from one in a long backlog, which no age could.
func (j *Janitor) lostTickets(ctx context.Context) error {
	mine, err := j.o.Store.Turn(ctx, "lost tickets", lostEvery*j.o.SentinelInterval)
	if err != nil || !mine {
		return err
	}
	lost, doubtful, err := j.o.Store.UnticketLost(ctx, j.o.SentinelSlack)
	if lost > 0 {
		j.o.Log.WithField("tasks", lost).Warn("tickets were lost without a fault anybody saw; the tasks get new ones")
		j.see(holdfast.ObservedRepaired, lost)
	}
	if doubtful > 0 {
		j.o.Log.WithField("tasks", doubtful).Info("tickets are overdue; the tasks get another one each, and a second ticket is dropped")
	}
	if lost+doubtful > 0 {
		j.Nudge(0)
	}
	return err
}
