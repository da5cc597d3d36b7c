package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/holdfastq/holdfast"
)

// UnticketLost implements store.Repair. An index finds the tasks, so a call that finds no lost ticket is cheap.
func (s *repairer) UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error) {
	const operation = "unticket lost tasks"
	queues, err := s.proofs(ctx, operation, slack)
	if err != nil {
		return 0, 0, err
	}
	for _, queue := range queues {
		// The ticket of a new task is published shortly after ticketed_at: see dispatch_outbox.
		before := queue.ProvedThrough - micros(min(slack, 10*time.Second))
		if queue.Uncertain != 0 {
			before = min(before, queue.Uncertain)
		}
		// The tickets of these tasks went to a requeue queue, about which a sentinel proves nothing, or to a type queue.
		requeuedBefore := min(before, queue.ProvedThrough-micros(10*min(slack, math.MaxInt64/10)))
		n, err := s.unticketBefore(ctx, operation, queue.Name, requeuedBefore, true)
		doubtful += n
		if err != nil {
			return lost, doubtful, err
		}
		if _, taskType := holdfast.SplitTypeQueue(queue.Name); taskType != "" {
			continue
		}
		n, err = s.unticketBefore(ctx, operation, queue.Name, before, false)
		if queue.Full { // the worker may hold or return the same ticket whenever a sentinel passes
			doubtful += n
		} else {
			lost += n
		}
		if err != nil {
			return lost, doubtful, err
		}
	}
	return lost, doubtful, nil
}

// KeepSentinels implements store.Repair.
func (s *repairer) KeepSentinels(ctx context.Context, slack time.Duration) error {
	_, err := s.proofs(ctx, "keep sentinels", slack)
	return err
}

// unticketBefore makes ready tasks of a queue due at once, and returns their number. It selects tasks that were
// ticketed before a time in microseconds: only requeued tasks if requeued is true, otherwise only the others. For a type
// queue, it selects the tasks whose tickets may wait there.
func (s *repairer) unticketBefore(ctx context.Context, operation, queue string, before int64, requeued bool) (int, error) {
	subqueue, taskType := holdfast.SplitTypeQueue(queue)
	return s.unticketInSteps(ctx, operation, func(ctx context.Context, from ticketedRow) ([]ticketedRow, error) {
		return list[ticketedRow](ctx, s, operation, "unticket_find", subqueue, from.At, int64(from.ID), before, requeued, unticketStep, taskType)
	})
}

// provedQueue is a queue with a delivered sentinel. Times are in microseconds; 0 means none.
type provedQueue struct {
	Name           string
	DrainedThrough int64 `db:"drained_through"`
	DrainedAt      int64 `db:"drained_at"`
	HeldThrough    int64 `db:"held_through"`
	HeldAt         int64 `db:"held_at"`
	ProvedThrough  int64 `db:"proved_through"`
	// Uncertain is the time of the oldest outbox entry of the queue. A task that was inserted after it may not have had
	// a ticket yet; its outbox entry provides the ticket.
	Uncertain int64
	Full      bool // whether a live worker reports that all its executors are busy; it is equal for all queues
}

// proofs returns the queues that are proved to be drained through some time. A sentinel becomes a proof when the broker
// delivers a second sentinel, sent at least slack after the delivery of the first one.
//
// In a busy queue the newest sentinel is always recent. So the store keeps an older sentinel, and replaces it only when
// it has become a proof.
func (s *repairer) proofs(ctx context.Context, operation string, slack time.Duration) ([]provedQueue, error) {
	queues, err := list[provedQueue](ctx, s, operation, "unticket_lost_queues")
	if err != nil {
		return nil, err
	}
	var proved []provedQueue
	var replace []string
	for _, queue := range queues {
		isProof := queue.HeldAt != 0 && queue.DrainedThrough-queue.HeldAt >= micros(slack)
		if (queue.HeldAt == 0 || isProof) && (queue.HeldAt != queue.DrainedAt || queue.ProvedThrough != queue.HeldThrough) {
			replace = append(replace, queue.Name)
		}
		if isProof {
			queue.ProvedThrough = queue.HeldThrough
		}
		if queue.ProvedThrough != 0 {
			proved = append(proved, queue)
		}
	}
	if len(replace) > 0 {
		_, err = s.change(ctx, operation, "unticket_lost_hold", replace, slack)
	}
	return proved, err
}
