package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// lease is the lease as this process measures it. The store counts from the time at which it writes a renewal. The
// process counts from the time at which it sent the renewal, on the monotonic clock, and subtracts a margin. So the
// process stops before a janitor may fence the worker.
//
// If no other process may fence the worker, the lease does not end while a renewal waits.
type lease struct {
	length, margin, every time.Duration
	sole                  bool                      // no other process may fence the worker; see Options.Sole
	waiting               atomic.Bool               // the store has not answered a renewal of the sole process yet
	sent                  atomic.Pointer[time.Time] // when the last answered renewal was sent
}

func newLease(length time.Duration, sole bool, began time.Time) *lease {
	l := &lease{length: length, margin: length / 5, every: length / 5, sole: sole}
	l.sent.Store(&began)
	return l
}

func (l *lease) renewed() time.Time { return *l.sent.Load() }

// deadline returns the time after which this process must not act as the worker.
func (l *lease) deadline() time.Time { return l.renewed().Add(l.length - l.margin) }

// valid reports whether this process may act as the worker. While a renewal of the sole process waits, it may.
func (l *lease) valid() bool { return l.waiting.Load() || time.Now().Before(l.deadline()) }

// keepLease renews the lease at intervals, and at once when the worker's presence changes. It calls act with the result
// of each renewal. It returns nil when ctx is done, a store.ErrFenced when the worker is fenced or disowned, and
// ErrLeaseLost when the lease has expired by this process's clock.
func (s *session) keepLease(ctx context.Context, act func(store.RenewResult)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := 0 // failed renewals in a row
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.disowned:
			return store.ErrFenced
		case <-timer.C:
		case <-s.present.Changed():
		}
		if !s.lease.valid() { // the process may have been suspended
			return holdfast.ErrLeaseLost
		}
		next := s.lease.every
		switch result, err := s.renew(ctx); {
		case err == nil:
			failed = 0
			act(result)
		case errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() != nil:
			return nil
		default:
			failed++
			s.log.WithError(err).Warn("lease not renewed, trying again")
			next = s.retryAfter(failed)
		}
		timer.Reset(min(next, max(0, time.Until(s.lease.deadline()))))
	}
}

// renew renews the lease once. It takes at most the interval between two renewals, so that there is time for another
// try if the store hangs. It never takes longer than the lease. The renewal of the sole process takes as long as the
// store needs: another try would have to wait again.
func (s *session) renew(ctx context.Context) (store.RenewResult, error) {
	if s.lease.sole {
		s.lease.waiting.Store(true)
		defer s.lease.waiting.Store(false)
		return s.sendUntil(ctx)
	}
	limit := time.Now().Add(s.lease.every)
	if end := s.lease.deadline(); end.Before(limit) {
		limit = end
	}
	return s.send(ctx, limit)
}

// send sends a renewal and waits for its result, at most until limit.
func (s *session) send(ctx context.Context, limit time.Time) (store.RenewResult, error) {
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	return s.sendUntil(ctx)
}

// sendUntil sends a renewal and waits for its result, at most until ctx is done.
func (s *session) sendUntil(ctx context.Context) (store.RenewResult, error) {
	sent, renewal := time.Now(), s.renewal()
	result, err := s.o.Store.Renew(ctx, renewal)
	if err == nil {
		if s.lease.sole { // the renewal may have waited for longer than the lease, and the store counts from the end of the wait
			sent = time.Now()
		}
		s.lease.sent.Store(&sent)
		if len(renewal.Settings) > 0 {
			s.settings = renewal.Settings
		}
		s.present.Confirmed(renewal.Present)
	}
	return result, err
}

// act handles the result of a renewal: cancelled tasks, a drain, a change of the store's history, paused queues and new
// queues.
func (s *session) act(intake context.Context, stopIntake context.CancelCauseFunc, result store.RenewResult) {
	for _, ticket := range result.Cancelled {
		s.jobs.cancel(ticket)
	}
	if result.Draining && intake.Err() == nil {
		s.log.Info("an operator requested the drain of this worker")
		stopIntake(errDrainRequested)
	}
	s.noteHistory(result.History)
	s.paused.set(result.Paused)
	s.noteQueues(result.Queues)
	s.startIntakes(intake, result.Queues)
	select {
	case s.firstQueues <- result.Queues:
	default: // introduce has the queues of an earlier renewal
	}
}

// presenceRetryPause is the first pause after the failure of a renewal that reports a lost presence.
const presenceRetryPause = 10 * time.Millisecond

// retryAfter returns the pause after the given number of failed renewals in a row. If this process has lost its
// presence and the store still records it, janitors may conclude that the process has ended. So the pause is short.
func (s *session) retryAfter(failed int) time.Duration {
	usual := s.lease.every / 5
	if !s.present.MustContradict() {
		return usual
	}
	return min(usual, presenceRetryPause<<min(failed-1, 10))
}

// renewal returns the renewal to send now.
func (s *session) renewal() store.Renewal {
	taken, settled := s.pages.cursors()
	return store.Renewal{
		Report: s.report(), Worker: s.worker, Lease: s.o.Lease, Taken: taken, Settled: settled, Running: s.jobs.running(), Tasks: s.jobs.tasks(), Present: s.present.Report(),
		OwnSession: s.o.Present.Used(), Settings: s.changedSettings(),
	}
}

// changedSettings returns the JSON of the settings of all types with a handler, or nil if the store already has it.
func (s *session) changedSettings() []byte {
	used := make(store.WorkerSettings, len(s.types))
	for _, taskType := range s.types {
		t := s.o.Settings.For(taskType)
		used[taskType] = store.TypeSettings{Policy: t.Policy, PolicyFor: t.PolicyFor != nil, Timeout: t.Timeout, AbandonAfter: t.AbandonAfter}
	}
	text, err := json.Marshal(used)
	if err != nil || bytes.Equal(text, s.settings) { // Marshal fails only for numbers that no valid policy contains
		return nil
	}
	return text
}
