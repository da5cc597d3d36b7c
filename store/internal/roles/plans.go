package roles

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// plans implements store.Plans.
type plans struct{ transactions transact.Transactions }

// CreatePlan implements store.Plans.
func (r *plans) CreatePlan(ctx context.Context, by store.Actor, p store.Plan) (created store.Plan, err error) {
	taken := fmt.Errorf("%w: there is already a %s", holdfast.ErrConflict, store.PlanSubject(p.Kind, p.Name))
	err = r.transactions.Transact(ctx, "create plan", func(ctx context.Context, tx transact.Transaction) error {
		created, err = transact.FirstOf[store.Plan](ctx, tx, taken, "plan_create", string(p.Kind), p.Name, string(p.State), transact.Bound(p.NextAt),
			string(p.Spec), progress(p), column.Text(by.Name), string(by.Surface), column.Text(by.Reason))
		if err != nil {
			return err
		}
		return recordPlan(ctx, tx, by, store.ActionCreate, nil, &created)
	})
	return created, err
}

// progress returns the progress of a plan as a column stores it.
func progress(p store.Plan) string { return cmp.Or(string(p.Progress), "{}") }

// recordPlan adds an audit entry for a plan. from is nil if the plan is new.
func recordPlan(ctx context.Context, tx transact.Transaction, by store.Actor, action store.Action, from, to *store.Plan) error {
	row := transact.EntryOf(by, action, to.Subject())
	row.After = transact.TextOf(to.Document())
	if from != nil {
		row.Before = transact.TextOf(from.Document())
	}
	return transact.Record(ctx, tx, []transact.AuditRow{row})
}

// PlanByName implements store.Plans.
func (r *plans) PlanByName(ctx context.Context, kind store.PlanKind, name string) (store.Plan, error) {
	missing := fmt.Errorf("%w: there is no %s", holdfast.ErrNotFound, store.PlanSubject(kind, name))
	return transact.FirstOf[store.Plan](ctx, transact.Alone(r.transactions, "read plan"), missing, "plan", string(kind), column.Text(name))
}

// ListPlans implements store.Plans.
func (r *plans) ListPlans(ctx context.Context, f store.PlanFilter) (found []store.Plan, err error) {
	if f.Limit <= 0 {
		f.Limit = transact.DefaultLimit
	}
	states := scan.Map(f.States, func(s store.PlanState) string { return string(s) })
	ids := scan.Map(f.IDs, func(id store.ID) holdfast.TaskID { return holdfast.TaskID(id) })
	name, after := "plans", any(column.Text(f.After))
	switch {
	case f.Ended && len(ids) > 0:
		name, after = "plans_by_id", int64(f.Before)
	case f.Ended:
		name, after = "plans_all", int64(f.Before)
	}
	return found, r.transactions.Read(ctx, "list plans", name, &found, string(f.Kind), states, after, ids, f.Limit)
}

// DuePlans implements store.Plans.
func (r *plans) DuePlans(ctx context.Context, kinds []store.PlanKind, within time.Duration, limit int) (due []store.Plan, err error) {
	names := scan.Map(kinds, func(k store.PlanKind) string { return string(k) })
	return due, r.transactions.Read(ctx, "find due plans", "plans_due", &due, names, limit, within, store.MaxDueSpec)
}

// StepPlan implements store.Plans. It locks the version first: there, a late process waits, and then changes nothing.
func (r *plans) StepPlan(ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (stepped store.Plan, err error) {
	err = r.transactions.Transact(ctx, "step of plan", func(ctx context.Context, tx transact.Transaction) error {
		inserted, err := beginStep(ctx, tx, &step)
		if err != nil {
			return err
		}
		changed := planChanged(&step.From)
		to, items := finish(inserted)
		first, last := bounds(&step, inserted)
		var spec *string
		if !bytes.Equal(to.Spec, step.From.Spec) {
			spec = transact.TextOf(to.Spec)
		}
		stepped, err = transact.FirstOf[store.Plan](ctx, tx, changed, "plan_step", int64(step.From.ID), step.From.Version, string(to.State), transact.Bound(to.NextAt),
			spec, progress(to), int64(first), int64(last))
		stepped.Spec = to.Spec
		if err == nil {
			err = storeItems(ctx, tx, step.From.ID, step.Drop, items)
		}
		if err != nil || step.By == nil {
			return err
		}
		return recordPlan(ctx, tx, *step.By, step.Action, &step.From, &stepped)
	})
	return stepped, err
}

// failureRow is a failed step in the JSON array that plans_fail reads.
type failureRow struct {
	ID       int64  `json:"id"`
	Version  int64  `json:"version"`
	Failures int    `json:"failures"`
	Failure  string `json:"failure"`
	Pause    int64  `json:"pause"` // microseconds
}

// FailPlans implements store.Plans.
func (r *plans) FailPlans(ctx context.Context, failed []store.PlanFailure) error {
	if len(failed) == 0 {
		return nil
	}
	rows := scan.Map(failed, func(f store.PlanFailure) failureRow {
		return failureRow{int64(f.Plan.ID), f.Plan.Version, f.Plan.Failures, column.Text(fmt.Sprintf("%.*s", store.MaxPlanFailure, f.Error)), f.Pause.Microseconds()}
	})
	return r.transactions.Change(ctx, "postpone failed plans", "plans_fail", transact.Encode(rows))
}

// postponedRow is a plan in the JSON array that plans_postpone reads.
type postponedRow struct {
	ID      int64 `json:"id"`
	Version int64 `json:"version"`
}

// PostponePlans implements store.Plans.
func (r *plans) PostponePlans(ctx context.Context, plans []store.Plan, pause time.Duration) (postponed []store.ID, err error) {
	if len(plans) == 0 {
		return nil, nil
	}
	rows := scan.Map(plans, func(p store.Plan) postponedRow { return postponedRow{int64(p.ID), p.Version} })
	err = r.transactions.Transact(ctx, "postpone plans", func(ctx context.Context, tx transact.Transaction) error {
		var ids []scan.ID
		if err := tx.Read(ctx, "plans_postpone", &ids, transact.Encode(rows), pause); err != nil {
			return err
		}
		postponed = scan.IDs[store.ID](ids)
		return nil
	})
	return postponed, err
}

// beginStep makes the part of a step before the plan is stored: it locks the plan, checks the conditions of the step, and
// stores the tasks.
func beginStep(ctx context.Context, tx transact.Transaction, step *store.PlanStep) (inserted store.Inserted, err error) {
	switch {
	case step.Accept != nil:
		step.From, err = acceptPlan(ctx, tx, step)
	case len(step.Insert) > 0 || step.Fence != nil:
		err = lockPlan(ctx, tx, &step.From)
	}
	if err != nil {
		return inserted, err
	}
	if step.Fence != nil {
		if err := lockAttempt(ctx, tx, *step.Fence); err != nil {
			return inserted, err
		}
	}
	switch {
	case len(step.Insert) == 0:
		return inserted, nil
	case step.Members:
		return tx.InsertMembers(ctx, step.From.ID, step.Insert)
	}
	return tx.Insert(ctx, step.Insert)
}

// bounds returns the lowest and the highest id of the members that a step has stored, or 0 if there are none.
func bounds(step *store.PlanStep, inserted store.Inserted) (first, last holdfast.TaskID) {
	if ids := store.StoredIDs(inserted.Tasks); step.Members && len(ids) > 0 {
		return ids[0].First, ids[len(ids)-1].Last
	}
	return 0, 0
}

// lockPlan locks a plan in the version of p. It returns ErrConflict if the plan has another version.
func lockPlan(ctx context.Context, tx transact.Transaction, p *store.Plan) error {
	_, err := transact.FirstOf[scan.ID](ctx, tx, planChanged(p), "plan_lock", int64(p.ID), p.Version)
	return err
}

// acceptPlan locks the plan of a step in any version, and returns it if the step accepts it.
func acceptPlan(ctx context.Context, tx transact.Transaction, step *store.PlanStep) (store.Plan, error) {
	missing := fmt.Errorf("%w: there is no plan %d", holdfast.ErrNotFound, int64(step.From.ID))
	found, err := transact.FirstOf[planNow](ctx, tx, missing, "plan_hold", int64(step.From.ID))
	if err == nil {
		err = step.Accept(found.Plan, found.Now)
	}
	return found.Plan, err
}

// planNow is a plan, and the time of the store.
type planNow struct {
	store.Plan
	Now time.Time
}

// lockAttempt locks the task of an attempt, so that no janitor can take it back. It returns ErrFenced if the attempt
// does not run any more.
func lockAttempt(ctx context.Context, tx transact.Transaction, by store.Fence) error {
	_, err := transact.FirstOf[scan.ID](ctx, tx, ended(by), "plan_fence", by.Task, by.Attempt, int64(by.Worker))
	return err
}

// planChanged is the error of a step that is too late.
func planChanged(p *store.Plan) error {
	return fmt.Errorf("%w: the %s has changed since it was read", holdfast.ErrConflict, p.Subject())
}

// SaveItems implements store.Plans. It locks the plan, so that a step that changes the plan waits, and then refuses the
// next call.
func (r *plans) SaveItems(ctx context.Context, plan store.Plan, by store.Fence, items []store.PlanItem) error {
	return r.transactions.Transact(ctx, "save items of a plan", func(ctx context.Context, tx transact.Transaction) error {
		if err := lockPlan(ctx, tx, &plan); err != nil {
			return err
		}
		if err := lockAttempt(ctx, tx, by); err != nil {
			return err
		}
		return storeItems(ctx, tx, plan.ID, nil, items)
	})
}

// itemRow is an item in the JSON array that plan_items_put reads.
type itemRow struct {
	Item   string              `json:"item"`
	State  store.PlanItemState `json:"state"`
	NextAt int64               `json:"next_at"` // microseconds since 1970; 0: never
	Data   string              `json:"data"`
}

func storeItems(ctx context.Context, tx transact.Transaction, plan store.ID, drop []string, items []store.PlanItem) error {
	if len(drop) > 0 {
		if _, err := tx.Change(ctx, "plan_items_drop", int64(plan), drop); err != nil {
			return err
		}
	}
	if len(items) == 0 {
		return nil
	}
	rows := scan.Map(items, func(i store.PlanItem) itemRow {
		return itemRow{i.Item, i.State, transact.Bound(i.NextAt), cmp.Or(string(i.Data), "{}")}
	})
	_, err := tx.Change(ctx, "plan_items_put", int64(plan), transact.Encode(rows))
	return err
}

// PlanItems implements store.Plans.
func (r *plans) PlanItems(ctx context.Context, plan store.ID, f store.PlanItemFilter) (items []store.PlanItem, err error) {
	if f.Limit <= 0 {
		f.Limit = transact.DefaultLimit
	}
	const operation = "list the items of a plan"
	if f.Due {
		return items, r.transactions.Read(ctx, operation, "plan_items_due", &items, int64(plan), string(f.State), f.Limit, f.Within)
	}
	return items, r.transactions.Read(ctx, operation, "plan_items", &items, int64(plan), string(f.State), column.Text(f.After), f.Limit)
}

// rangeRow is a range of ids in the JSON array that plan_tally reads.
type rangeRow struct {
	Chunk int   `json:"chunk"`
	Plan  int64 `json:"plan"`
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// PlanTally implements store.Plans.
func (r *plans) PlanTally(ctx context.Context, chunks []store.PlanChunk) ([]store.Tally, error) {
	tallies, ranges := make([]store.Tally, len(chunks)), []rangeRow{}
	for i, chunk := range chunks {
		tallies[i].By = scan.Counts(nil)
		for _, ids := range chunk.Tasks {
			tallies[i].Missing += ids.Size()
			ranges = append(ranges, rangeRow{i, int64(chunk.Plan), int64(ids.First), int64(ids.Last)})
		}
	}
	if len(ranges) == 0 {
		return tallies, nil
	}
	var rows []struct {
		Chunk     int
		State     holdfast.State
		Count     int64
		NextRunAt time.Time
	}
	if err := r.transactions.Read(ctx, "count the tasks of a plan", "plan_tally", &rows, transact.Encode(ranges)); err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.Count == 0 {
			continue
		}
		tally := &tallies[row.Chunk]
		tally.By[row.State] = row.Count
		tally.Missing -= row.Count
		if row.State == holdfast.Ready {
			tally.NextRunAt = row.NextRunAt
		}
	}
	return tallies, nil
}
