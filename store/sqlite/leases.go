package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// leaser is the role store.Leases.
type leaser struct{ *database }

// RegisterWorker implements store.Leases. Like Renew, it takes precedence, because the lease begins when it is called.
func (s *leaser) RegisterWorker(ctx context.Context, info store.WorkerInfo, lease time.Duration) (holdfast.WorkerID, error) {
	var worker holdfast.WorkerID
	err := s.writeAt(ctx, "register worker", first, func(ctx context.Context, tx *transaction) error {
		queues := stringList(info.Queues)
		if _, err := tx.exec(ctx, "insert_queues", queues, tx.now); err != nil {
			return err
		}
		var types any
		if info.Types != nil {
			types = stringList(info.Types)
		}
		row, err := one[scan.ID](ctx, tx, "register_worker",
			column.Text(info.Name), column.Text(info.Host), info.PID, column.Text(info.Version), info.Concurrency, queues, tx.now, micros(lease), types)
		if err != nil {
			return err
		}
		worker = holdfast.WorkerID(row.ID)
		_, err = tx.exec(ctx, "describe_types", row.ID, tx.now, scan.WorkerSchemas(info))
		return err
	})
	if err != nil {
		return 0, err
	}
	return worker, nil
}

// Renew implements store.Leases. It takes precedence over all calls of this process that wait to write, so it waits for
// one of them at most. The result has no history, because an answered commit is on disk.
func (s *leaser) Renew(ctx context.Context, r store.Renewal) (store.RenewResult, error) {
	var result store.RenewResult
	err := s.writeAt(ctx, "renew lease", first, func(ctx context.Context, tx *transaction) error {
		row, err := one[struct{ Draining bool }](ctx, tx, "renew", int64(r.Worker), tx.now, micros(r.Lease), r.Taken, r.Settled, r.Running, scan.WorkerReport(r.Report), string(r.Settings))
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("worker %s: %w", r.Worker, store.ErrFenced)
		}
		if err != nil {
			return err
		}
		result = store.RenewResult{Draining: row.Draining}
		if result.Cancelled, err = takeCancellations(ctx, tx, r.Worker); err != nil {
			return err
		}
		queues, err := all[scan.Name](ctx, tx, "queue_names")
		if err != nil {
			return err
		}
		paused, err := all[scan.Name](ctx, tx, "paused_queues", tx.now)
		result.Queues, result.Paused = scan.Names(queues), scan.Names(paused)
		slices.Sort(result.Paused)
		return err
	})
	if err != nil {
		return store.RenewResult{}, err
	}
	return result, nil
}

// takeCancellations deletes the cancellations that no renewal of the worker has returned yet. It returns them, the
// oldest first.
func takeCancellations(ctx context.Context, tx *transaction, worker holdfast.WorkerID) ([]message.Ticket, error) {
	type cancellation struct {
		ID      int64
		Task    holdfast.TaskID
		Attempt int
	}
	rows, err := all[cancellation](ctx, tx, "renew_result", int64(worker))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b cancellation) int { return cmp.Compare(a.ID, b.ID) })
	tickets := make([]message.Ticket, len(rows))
	for i, n := range rows {
		tickets[i] = message.Ticket{Task: n.Task, Attempt: n.Attempt}
	}
	return tickets, nil
}

// DeregisterWorker implements store.Leases.
func (s *leaser) DeregisterWorker(ctx context.Context, worker holdfast.WorkerID, clean bool) error {
	_, err := s.change(ctx, "deregister worker", "deregister_worker", int64(worker), clean)
	return err
}

// Drain implements store.Leases.
func (s *leaser) Drain(ctx context.Context, worker holdfast.WorkerID) error {
	return s.write(ctx, "drain worker", func(ctx context.Context, tx *transaction) error {
		changed, err := tx.exec(ctx, "drain", int64(worker))
		if err != nil || changed > 0 {
			return err
		}
		row, err := one[struct {
			scan.ID
			store.WorkerStatus
		}](ctx, tx, "worker_states", numbers([]holdfast.WorkerID{worker}))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: there is no worker %s", holdfast.ErrNotFound, worker)
		case err != nil:
			return err
		}
		return fmt.Errorf("%w: worker %s is %s", holdfast.ErrConflict, worker, row.State)
	})
}

// Workers implements store.Leases.
func (s *leaser) Workers(ctx context.Context, all bool) ([]store.Worker, error) {
	return list[store.Worker](ctx, s, "list workers", "workers", all)
}
