package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// slowStore answers each renewal after a time, unless its context ends first.
type slowStore struct {
	Store
	after    time.Duration
	err      error
	answered func() // called before each answer
}

func (s *slowStore) Renew(ctx context.Context, _ store.Renewal) (store.RenewResult, error) {
	select {
	case <-time.After(s.after):
		s.answered()
		return store.RenewResult{}, s.err
	case <-ctx.Done():
		return store.RenewResult{}, holdfast.ErrUnavailable
	}
}

// The lease of the sole process lasts while a renewal waits, however long. The lease of another process does not, and
// neither does that of the sole process if the store refuses its renewals.
func TestTheLeaseOfTheSoleProcessLastsWhileARenewalWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sole  bool
		after time.Duration
		err   error
		lost  bool
	}{
		"sole":                 {sole: true, after: time.Minute},
		"one of several":       {after: time.Minute, lost: true},
		"sole, quick errors":   {sole: true, err: holdfast.ErrUnavailable, lost: true},
		"one of several, fast": {after: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const length = 5 * time.Second
				slow := &slowStore{after: test.after, err: test.err}
				s := testSession(t, Options{Store: slow, Handlers: new(Registry), Lease: length, Concurrency: 1, Sole: test.sole}, time.Now())
				slow.answered = func() {
					if test.after > 0 && !s.lease.valid() {
						t.Error("the lease has ended while a renewal waits")
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				renewed := 0
				err := s.keepLease(ctx, func(store.RenewResult) {
					renewed++
					if !s.lease.valid() {
						t.Error("the lease has ended although the store has just renewed it")
					}
				})
				if lost := errors.Is(err, holdfast.ErrLeaseLost); lost != test.lost {
					t.Errorf("keepLease returned %v after %d renewals", err, renewed)
				}
				if !test.lost && renewed < 9 {
					t.Errorf("%d renewals in ten minutes", renewed)
				}
			})
		})
	}
}
