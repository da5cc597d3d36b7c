package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// lease is this process's own idea of how long it may act. The store counts from the
// moment it writes a renewal, this counts from the moment the renewal was sent, on
// the monotonic clock, and leaves a margin: it is over before anybody may fence.
type lease struct {
	length, margin, every time.Duration
	sent                  atomic.Pointer[time.Time] // of the last renewal that was answered
}

func newLease(length time.Duration, began time.Time) *lease {
	l := &lease{length: length, margin: length / 5, every: length / 5}
	l.sent.Store(&began)
	return l
}

func (l *lease) renewed() time.Time { return *l.sent.Load() }

// deadline is the moment from which this process must not act on the run.
func (l *lease) deadline() time.Time { return l.renewed().Add(l.length - l.margin) }

func (l *lease) valid() bool { return time.Now().Before(l.deadline()) }

// keepLease renews at intervals, and at once when there is news of the run's presence, until ctx is done (nil), the run is fenced, or the lease is over by
// this process's clock (ErrLeaseLost). What renewals bring is handed to act.
func (s *session) keepLease(ctx context.Context, act func(store.News)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := 0 // in a row
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.disowned:
			return store.ErrFenced
		case <-timer.C:
		case <-s.present.Changed():
		}
		if !s.lease.valid() { // also after this process was stopped for a while
			return holdfast.ErrLeaseLost
		}
		next := s.lease.every
		switch news, err := s.renew(ctx); {
		case err == nil:
			failed = 0
			act(news)
		case errors.Is(err, store.ErrFenced):
			return err
		case ctx.Err() != nil:
			return nil
		default:
			failed++
			s.log.WithError(err).Warn("the lease could not be renewed, trying again")
			next = s.retryAfter(failed)
		}
		timer.Reset(min(next, max(0, time.Until(s.lease.deadline()))))
	}
}

// renew sends one sign of life. It takes no longer than the interval between
// two, or a hanging store would leave no time for another try, and never
// longer than the lease.
func (s *session) renew(ctx context.Context) (store.News, error) {
	limit := time.Now().Add(s.lease.every)
	if end := s.lease.deadline(); end.Before(limit) {
		limit = end
	}
	return s.send(ctx, limit)
}

func (s *session) send(ctx context.Context, limit time.Time) (store.News, error) {
	ctx, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	sent, renewal := time.Now(), s.renewal()
	news, err := s.o.Store.Renew(ctx, renewal)
	if err == nil {
		s.lease.sent.Store(&sent)
		s.present.Heard(renewal.Shown)
	}
	return news, err
}

// act does what a renewal's news ask for.
func (s *session) act(intake context.Context, stopIntake context.CancelCauseFunc, news store.News) {
	for _, ticket := range news.Cancelled {
		s.jobs.cancel(ticket)
	}
	if news.Draining && intake.Err() == nil {
		s.log.Info("an operator asked this worker to drain")
		stopIntake(errDrainAsked)
	}
	s.noteHistory(news.History)
	s.follow(intake, news.Lanes)
}

// impatience is how soon a renewal is tried again that has to contradict, at first.
const impatience = 10 * time.Millisecond

// retryAfter is the pause after a failed renewal. A process that may be taken for gone meanwhile cannot wait as long as one
// that only has to be back before its lease ends.
func (s *session) retryAfter(failed int) time.Duration {
	usual := s.lease.every / 5
	if !s.present.Wronged() {
		return usual
	}
	return min(usual, impatience<<min(failed-1, 10))
}

// renewal is what the run tells the store with every sign of life.
func (s *session) renewal() store.Renewal {
	taken, settled := s.pages.cursors()
	return store.Renewal{
		Run: s.run, By: s.info, Lease: s.o.Lease, Taken: taken, Settled: settled, Running: s.jobs.running(), Shown: s.present.Say(),
		OwnSession: s.o.Present.Used(),
	}
}
