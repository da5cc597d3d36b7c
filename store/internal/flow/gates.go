package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/breaker"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// Flow implements store.Flow, except that Pause and SetLimit do not wait for claims in progress.
type Flow struct {
	transactions transact.Transactions
	Hooks
	*Order
	*Topics
	sweep     *atomic.Pointer[permitSweep]
	permitted *permitRates
}

// Hooks has the functions that differ between the adapters.
type Hooks struct {
	// Ended has the tasks whose permits may be free.
	Ended *Ended
	// Change calls f, which closes and opens gates. The adapter ensures that claims see the change.
	Change func(ctx context.Context, tx transact.Transaction, f func() error) error
	// Lock locks the giving of permits for the transaction, and returns the time. If another transaction has the lock,
	// Lock waits for it, or without wait returns the zero time.
	Lock func(ctx context.Context, tx transact.Transaction, wait bool) (now time.Time, err error)
	// Release makes tasks due whose gates have opened, at most limit, and returns their number.
	Release func(ctx context.Context, limit int) (int, error)
	// DeleteOpened deletes opened gates that block no task, and their buckets, at most limit of each. It may leave some
	// to a later call.
	DeleteOpened func(ctx context.Context, limit int) error
	// WaitsTooLong reports whether an error means that a statement has waited too long for a lock.
	WaitsTooLong func(error) bool
}

// New returns the roles over the statements of an adapter.
func New(t transact.Transactions, hooks Hooks) Flow {
	sweep := new(atomic.Pointer[permitSweep])
	sweep.Store(&permitSweep{})
	return Flow{t, hooks, &Order{transactions: t, waitsTooLong: hooks.WaitsTooLong}, newTopics(t), sweep, &permitRates{queues: make(map[string]*slots.Permits)}}
}

// Pause implements store.Gates.
func (g *Flow) Pause(ctx context.Context, by store.Actor, c store.PauseChange) (result store.Changed[store.Gate], err error) {
	if err := c.Validate(); err != nil {
		return result, err
	}
	err = g.changing(ctx, "pause "+c.String(), func(ctx context.Context, tx transact.Transaction) error {
		result = store.Changed[store.Gate]{}
		var expired, before, closed []scan.Gate
		// Otherwise the new pause would get the id of the expired one.
		if err := tx.Read(ctx, "pause_expire", &expired, c.Queue, c.Type, c.Key, c.Target); err != nil {
			return err
		}
		if err := recordExpired(ctx, tx, expired); err != nil {
			return err
		}
		if err := tx.Read(ctx, "gate_get", &before, string(store.GatePause), c.Queue, c.Type, c.Key, c.Target); err != nil {
			return err
		}
		if len(before) > 0 {
			gate := before[0].Value()
			result.Before = &gate
		}
		if c.Check != nil {
			if err := c.Check(result.Before); err != nil {
				return err
			}
		}
		d := keepsEnd
		if c.For != nil {
			d = *c.For
		}
		err := tx.Read(ctx, "gate_close", &closed, string(store.GatePause), c.Queue, c.Type, c.Key, c.Target,
			column.Text(by.Name), string(by.Surface), column.Text(c.ReasonAfter(result.Before, by)), d)
		if err != nil {
			return err
		}
		result.After = closed[0].Value()
		entry := transact.EntryOf(by, store.ActionPause, c.Subject.String())
		if result.Before != nil {
			entry.Before = transact.TextOf(result.Before.Version())
		}
		entry.After = transact.TextOf(result.After.Version())
		return transact.Record(ctx, tx, []transact.AuditRow{entry})
	})
	return result, err
}

// keepsEnd is the argument of gate_close that keeps the present end of a pause.
const keepsEnd = -time.Microsecond

// Resume implements store.Gates.
func (g *Flow) Resume(ctx context.Context, by store.Actor, s store.Subject) (gate store.Gate, err error) {
	if err := s.Validate(); err != nil {
		return gate, err
	}
	err = g.changing(ctx, "resume "+s.String(), func(ctx context.Context, tx transact.Transaction) error {
		found := false
		for _, kind := range []store.GateKind{store.GatePause, store.GateBreaker} {
			var rows []scan.Gate
			if err := tx.Read(ctx, "gate_get", &rows, string(kind), s.Queue, s.Type, s.Key, s.Target); err != nil {
				return err
			}
			if len(rows) == 0 {
				continue
			}
			closed := rows[0].Value()
			if err := lift(ctx, tx, by, closed); err != nil {
				return err
			}
			if !found {
				gate, found = closed, true
			}
		}
		if !found {
			return fmt.Errorf("%w: %s is not paused", holdfast.ErrNotFound, s)
		}
		return nil
	})
	return gate, err
}

// ResumeGate implements store.Gates.
func (g *Flow) ResumeGate(ctx context.Context, by store.Actor, id store.ID, check func(store.Gate) error) (gate store.Gate, err error) {
	err = g.changing(ctx, fmt.Sprintf("resume gate %s", id), func(ctx context.Context, tx transact.Transaction) error {
		missing := fmt.Errorf("%w: gate %s is not closed", holdfast.ErrNotFound, id)
		row, err := transact.FirstOf[scan.Gate](ctx, tx, missing, "gate_by_id", int64(id))
		if err != nil {
			return err
		}
		gate = row.Value()
		if check != nil {
			if err := check(gate); err != nil {
				return err
			}
		}
		return lift(ctx, tx, by, gate)
	})
	return gate, err
}

// lift opens a gate and adds an audit entry.
func lift(ctx context.Context, tx transact.Transaction, by store.Actor, gate store.Gate) error {
	if _, err := tx.Change(ctx, "gate_lift", int64(gate.ID)); err != nil {
		return err
	}
	return transact.Record(ctx, tx, []transact.AuditRow{resumeEntry(by, gate)})
}

// resumeEntry returns the audit entry of a gate that opens.
func resumeEntry(by store.Actor, gate store.Gate) transact.AuditRow {
	entry := transact.EntryOf(by, store.ActionResume, gate.Subject.String())
	entry.Before = transact.TextOf(gate.Version())
	return entry
}

// changing calls f in a transaction that may change gates.
func (g *Flow) changing(ctx context.Context, operation string, f func(context.Context, transact.Transaction) error) error {
	return g.transactions.Transact(ctx, operation, func(ctx context.Context, tx transact.Transaction) error {
		return g.Change(ctx, tx, func() error { return f(ctx, tx) })
	})
}

// Gates implements store.Gates.
func (g *Flow) Gates(ctx context.Context) ([]store.Gate, error) {
	return transact.ListOf(ctx, transact.Alone(g.transactions, "list gates"), "gates", scan.Gate.Value, store.MaxCountedBlocked)
}

// GatesOf implements store.Gates.
func (g *Flow) GatesOf(ctx context.Context, tasks []holdfast.TaskID) (map[holdfast.TaskID]store.Gate, error) {
	of := make(map[holdfast.TaskID]store.Gate)
	if len(tasks) == 0 {
		return of, nil
	}
	var rows []scan.TaskGate
	if err := g.transactions.Read(ctx, "read gates of tasks", "gates_of", &rows, tasks); err != nil {
		return nil, err
	}
	for i := range rows {
		of[rows[i].Task] = rows[i].Value()
	}
	return of, nil
}

// ReleaseBlocked implements store.Gates. An error of one step does not delay the steps after it.
func (g *Flow) ReleaseBlocked(ctx context.Context, limit int) (store.Released, error) {
	released, ended := store.Released{Next: noNext}, g.Ended.take()
	var rows []gatesOpen
	if err := g.transactions.Read(ctx, "look for blocked tasks", "gates_open", &rows, breaker.ForgottenAfter, ended); err != nil {
		g.Ended.Add(ended...)
		return released, err
	}
	state := rows[0]
	released.PermitsInUse = state.Permits
	var errs []error
	for _, step := range []func() (store.Released, error){
		func() (store.Released, error) { return g.releaseOpened(ctx, limit, state) },
		func() (store.Released, error) { return g.releaseLimited(ctx, limit, state, ended) },
		func() (store.Released, error) { return g.releaseOrdered(ctx, limit, state) },
		func() (store.Released, error) { return g.releaseTopical(ctx, limit, state) },
	} {
		r, err := step()
		released, errs = both(released, r), append(errs, err)
	}
	return released, errors.Join(errs...)
}

// gatesOpen is the row of the statement gates_open.
type gatesOpen struct {
	Expired, Lifted, Limited, Permits, Freed, Unchecked, Topical, Open, Used bool
	bucketsNext
}

// releaseOpened releases tasks of gates that have opened. After their last tasks, it opens the next gates whose time
// has passed. So the number of open gates without tasks stays small, and a release does not have to skip many.
func (g *Flow) releaseOpened(ctx context.Context, limit int, state gatesOpen) (store.Released, error) {
	released := store.Released{Next: noNext}
	release := func() error {
		n, err := g.Release(ctx, limit-released.Tasks)
		if released.Tasks += n; n > 0 {
			released.Next = 0
		}
		return err
	}
	if state.Lifted {
		if err := release(); err != nil || released.Tasks == limit && limit > 0 {
			return released, err
		}
		if err := g.DeleteOpened(ctx, store.MaxOpened); err != nil {
			return released, err
		}
	}
	if !state.Expired {
		return released, nil
	}
	next, err := g.openExpired(ctx)
	if err == nil {
		err = release()
	}
	return both(released, store.Released{Next: next}), err
}

// openExpired opens some of the gates whose time has passed. It returns the time until the next call, or noNext if no
// other gate has to open. It does not wait for another process that changes gates or gives permits. So people and
// workers, which wait, take precedence over janitors.
func (g *Flow) openExpired(ctx context.Context) (next time.Duration, err error) {
	var ids []scan.ID
	const operation = "open gates"
	if err := g.transactions.Read(ctx, operation, "gates_expired", &ids, breaker.ForgottenAfter, store.MaxOpened); err != nil || len(ids) == 0 {
		return noNext, err
	}
	for part := range slices.Chunk(scan.IDs[holdfast.TaskID](ids), store.OpenStep) {
		if locked, err := g.expire(ctx, operation, part); err != nil || !locked {
			return busyLook, err
		}
	}
	if len(ids) == store.MaxOpened {
		return 0, nil
	}
	return noNext, nil
}

// expire opens those of the gates whose time has passed. If another transaction has locked the gates, expire does
// nothing and returns false.
func (g *Flow) expire(ctx context.Context, operation string, ids []holdfast.TaskID) (locked bool, err error) {
	err = g.transactions.Transact(ctx, operation, func(ctx context.Context, tx transact.Transaction) error {
		now, err := g.Lock(ctx, tx, false)
		if locked = !now.IsZero(); err != nil || !locked {
			return err
		}
		return g.Change(ctx, tx, func() error {
			var expired []scan.Gate
			if err := tx.Read(ctx, "gates_expire", &expired, breaker.ForgottenAfter, ids); err != nil {
				return err
			}
			return recordExpired(ctx, tx, expired)
		})
	})
	return locked, err
}

// recordExpired adds the audit entries of gates that open because their time has passed.
func recordExpired(ctx context.Context, tx transact.Transaction, expired []scan.Gate) error {
	entries := make([]transact.AuditRow, len(expired))
	for i := range expired {
		gate := expired[i].Value()
		by := store.Actor{Name: string(store.Janitor), Surface: store.Janitor, Reason: "the time of the pause has passed"}
		if gate.Kind == store.GateBreaker {
			by = store.ResetByJanitor
		}
		entries[i] = resumeEntry(by, gate)
	}
	return transact.Record(ctx, tx, entries)
}

// releaseLimited gives permits to tasks that limits and breakers block.
func (g *Flow) releaseLimited(ctx context.Context, limit int, state gatesOpen, ended []holdfast.TaskID) (store.Released, error) {
	if !state.Limited {
		return store.Released{Next: noNext}, nil
	}
	if released := state.released(); released.Next != 0 && !state.Freed && !g.sweep.Load().due() {
		return released, nil
	}
	return g.givePermits(ctx, limit, ended)
}

// releaseOrdered starts the next tasks of keys.
func (g *Flow) releaseOrdered(ctx context.Context, limit int, state gatesOpen) (store.Released, error) {
	err := g.sweepKeys(ctx)
	if !state.Unchecked {
		return store.Released{Next: noNext}, err
	}
	released, checkErr := g.check(ctx, limit)
	return released, errors.Join(err, checkErr)
}

// releaseTopical gives slots to tasks with topics.
func (g *Flow) releaseTopical(ctx context.Context, limit int, state gatesOpen) (store.Released, error) {
	switch {
	case state.Topical || state.Open && g.quiet():
		return g.giveSlots(ctx, limit)
	case state.Used: // another process may store tasks with topics
		return store.Released{Next: 2 * slotLook}, nil
	}
	return store.Released{Next: noNext}, nil
}

// both returns the combined result of two steps of ReleaseBlocked.
func both(a, b store.Released) store.Released {
	next := a.Next
	if b.Next >= 0 && (next < 0 || b.Next < next) {
		next = b.Next
	}
	return store.Released{Tasks: a.Tasks + b.Tasks, Next: next, Waiting: a.Waiting || b.Waiting, PermitsInUse: a.PermitsInUse || b.PermitsInUse}
}
