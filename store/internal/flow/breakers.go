package flow

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast/internal/breaker"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// ReportTargets implements store.Breakers.
func (g *Flow) ReportTargets(ctx context.Context, reports []store.TargetReport) error {
	if len(reports) == 0 {
		return nil
	}
	targets := make([]string, len(reports))
	for i, r := range reports {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("report %d of %d: %w", i+1, len(reports), err)
		}
		targets[i] = r.Target
	}
	return g.transactions.Transact(ctx, "report targets", func(ctx context.Context, tx transact.Transaction) error {
		now, err := g.Lock(ctx, tx, true)
		if err != nil {
			return err
		}
		var rows []scan.Breaker
		if err := tx.Read(ctx, "breakers", &rows, transact.Encode(targets)); err != nil {
			return err
		}
		var executors []struct{ N int }
		if err := tx.Read(ctx, "executors", &executors); err != nil {
			return err
		}
		c := changesOf(now, rows, reports, executors[0].N)
		if len(c.tripped)+len(c.reset) == 0 {
			return c.write(ctx, tx)
		}
		return g.Change(ctx, tx, func() error { return c.write(ctx, tx) })
	})
}

// breakerRow is a breaker in a JSON document for a statement. Times are in microseconds since 1970.
type breakerRow struct {
	ID        int64  `json:"id,omitempty"`
	Target    string `json:"target,omitempty"`
	Reason    string `json:"reason"`
	ProbeAt   int64  `json:"probe_at"`
	ProbeWait int64  `json:"probe_wait"`
	Probes    int    `json:"probes"`
	Passed    int    `json:"passed"`
	Failed    int    `json:"failed"`
	Rejected  int    `json:"rejected"`
}

// breakerChanges has the breakers that the reports of workers have changed, and the audit entries of trips and resets.
type breakerChanges struct {
	tripped, set, reset []breakerRow
	entries             []transact.AuditRow
}

// changesOf returns the changes that reports make. rows has the breakers of their targets, and executors the number of
// executors of all live workers.
func changesOf(now time.Time, rows []scan.Breaker, reports []store.TargetReport, executors int) (c breakerChanges) {
	byTarget := make(map[string]*scan.Breaker, len(rows))
	for i := range rows {
		byTarget[rows[i].Target] = &rows[i]
	}
	for _, r := range reports {
		before := byTarget[r.Target]
		if before == nil {
			if s := breaker.Next(now, nil, r, false, executors); s != nil {
				row := rowOf(s, r)
				c.tripped = append(c.tripped, row)
				entry := transact.EntryOf(r.TrippedBy(), store.ActionTrip, store.Subject{Target: r.Target}.String())
				entry.After = versionOf(row.Reason)
				c.entries = append(c.entries, entry)
			}
			continue
		}
		s := breaker.Next(now, before.Value(), r, before.Blocked, executors)
		if s == nil {
			c.reset = append(c.reset, breakerRow{ID: before.ID})
			entry := transact.EntryOf(store.ResetByWorker, store.ActionResume, store.Subject{Target: r.Target}.String())
			entry.Before = versionOf(before.Reason)
			c.entries = append(c.entries, entry)
			continue
		}
		row := rowOf(s, r)
		row.ID = before.ID
		c.set = append(c.set, row)
	}
	return c
}

func rowOf(s *breaker.State, r store.TargetReport) breakerRow {
	return breakerRow{
		Target: r.Target, Reason: column.Text(r.Cause), ProbeAt: s.ProbeAt.UnixMicro(), ProbeWait: s.Wait.Microseconds(), Probes: s.Probes,
		Passed: s.Passed, Failed: s.Failed, Rejected: s.Rejected,
	}
}

// versionOf returns the version of a breaker in the audit log.
func versionOf(reason string) *string {
	return transact.TextOf(store.Gate{Kind: store.GateBreaker, Actor: store.Actor{Reason: reason}}.Version())
}

func (c *breakerChanges) write(ctx context.Context, tx transact.Transaction) error {
	err := transact.ChangeRows(ctx, tx, "breakers_trip", c.tripped)
	if err == nil {
		err = transact.ChangeRows(ctx, tx, "breakers_set", c.set)
	}
	if err == nil {
		err = transact.ChangeRows(ctx, tx, "breakers_reset", c.reset)
	}
	if err == nil {
		err = transact.Record(ctx, tx, c.entries)
	}
	return err
}
