package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// gatekeeper is the role store.Gates.
//
// Claims must see a change of the gates at once. A claim sends the epoch of the gates that the store knows, and each
// change replaces the epoch in the rows of all workers. So if a claim begins after the commit of a change, it is
// refused. The store then reads the new epoch and tries again. Pause also waits for the claims that began before the
// commit.
type gatekeeper struct {
	*database
	flowRoles
}

func newGatekeeper(d *database) gatekeeper {
	hooks := flow.Hooks{
		Ended: &d.ended,
		Change: func(ctx context.Context, tx transact.Transaction, f func() error) error {
			if _, err := tx.Change(ctx, "gates_settings"); err != nil {
				return err
			}
			if _, err := tx.Change(ctx, "gates_change"); err != nil {
				return err
			}
			if err := f(); err != nil {
				return err
			}
			_, err := tx.Change(ctx, "gates_changed")
			return err
		},
		Lock: func(ctx context.Context, tx transact.Transaction, wait bool) (now time.Time, err error) {
			lock := "limits_lock"
			if wait {
				lock = "breakers_lock"
				if _, err := tx.Change(ctx, "gates_settings"); err != nil {
					return now, err
				}
			}
			var locked []struct{ Now time.Time }
			if err := tx.Read(ctx, lock, &locked); err != nil || len(locked) == 0 {
				return now, err
			}
			_, err = tx.Change(ctx, "buckets_arrived")
			return locked[0].Now, err
		},
		Release: func(ctx context.Context, limit int) (int, error) {
			return d.change(ctx, "release blocked tasks", "release", limit)
		},
		DeleteOpened: func(ctx context.Context, limit int) error { return deleteOpened(ctx, named{d}, limit) },
		WaitsTooLong: func(err error) bool { return pq.As(err, pqerror.LockNotAvailable) != nil },
	}
	return gatekeeper{d, flow.New(named{d}, hooks)}
}

// deleteOpened deletes gates that have opened and block no task, and their buckets, at most limit of each. It does
// nothing while another transaction gives permits.
func deleteOpened(ctx context.Context, t transact.Transactions, limit int) error {
	return t.Transact(ctx, "delete open gates", func(ctx context.Context, tx transact.Transaction) error {
		var locked []struct{ Now time.Time }
		if err := tx.Read(ctx, "limits_lock", &locked); err != nil || len(locked) == 0 {
			return err
		}
		var opened []scan.ID
		if err := tx.Read(ctx, "gates_opened", &opened, limit); err != nil || len(opened) == 0 {
			return err
		}
		_, err := tx.Change(ctx, "gates_delete", scan.IDs[holdfast.TaskID](opened), limit)
		return err
	})
}

// gateState is what the store knows about the gates.
type gateState struct {
	epoch int64
	gated bool // there are gates
}

// unknownGates has an epoch that no worker has.
var unknownGates = gateState{epoch: -1}

// knownGates returns what the store knows about the gates.
func (d *database) knownGates() gateState {
	if known := d.gateState.Load(); known != nil {
		return *known
	}
	return unknownGates
}

// Pause implements store.Gates.
func (s *gatekeeper) Pause(ctx context.Context, by store.Actor, c store.PauseChange) (store.Changed[store.Gate], error) {
	paused, err := s.flowRoles.Pause(ctx, by, c)
	if err != nil {
		return paused, err
	}
	return paused, s.awaitClaims(ctx)
}

// SetLimit implements store.Limits.
func (s *gatekeeper) SetLimit(ctx context.Context, by store.Actor, c store.LimitChange) (store.Changed[store.Limit], error) {
	set, err := s.flowRoles.SetLimit(ctx, by, c)
	if err != nil {
		return set, err
	}
	return set, s.awaitClaims(ctx)
}

// The first and the longest pause between two queries for claims in progress.
const (
	firstLook = 2 * time.Millisecond
	longLook  = 50 * time.Millisecond
)

// awaitClaims waits for the end of the claims that are in progress now. A statement locks its tables before it takes
// its snapshot. So a claim that does not see the changes committed before now already has its lock. A lock that
// conflicts with claims is no alternative, because a worker with several pages always has a claim in progress.
func (s *gatekeeper) awaitClaims(ctx context.Context) error {
	var before []string
	for pause := backoff.New(firstLook, longLook); ; {
		now, err := list[struct{ Transactions pq.StringArray }](ctx, s, "read claims in progress", "claims_in_progress")
		if err != nil {
			return err
		}
		inProgress := now[0].Transactions
		if before == nil {
			before = inProgress
		}
		before = slices.DeleteFunc(before, func(claim string) bool { return !slices.Contains(inProgress, claim) })
		if len(before) == 0 {
			return nil
		}
		if err := pause.Wait(ctx); err != nil {
			return fmt.Errorf("wait for %d claims in progress: %w: %w", len(before), holdfast.ErrUnavailable, err)
		}
	}
}
