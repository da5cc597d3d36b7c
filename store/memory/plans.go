package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// CreatePlan implements store.Plans.
func (c *Client) CreatePlan(ctx context.Context, by store.Actor, p store.Plan) (store.Plan, error) {
	var created store.Plan
	err := c.do(ctx, Step{Op: "CreatePlan", text: p.Subject()}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		db := &c.store.db
		if db.planNamed(p.Kind, p.Name) != nil {
			return fmt.Errorf("%w: there is already a %s", holdfast.ErrConflict, store.PlanSubject(p.Kind, p.Name))
		}
		db.last.plan++
		created = p
		created.ID, created.Version, created.Actor, created.CreatedAt, created.EndedAt = store.ID(db.last.plan), 1, by, now, time.Time{}
		if len(created.Progress) == 0 {
			created.Progress = json.RawMessage("{}")
		}
		db.plans = append(db.plans, created)
		c.store.recordAudit(store.AuditEntry{At: now, Actor: by, Action: store.ActionCreate, Subject: created.Subject(), After: created.Document()})
		return nil
	})
	if err != nil {
		return store.Plan{}, err
	}
	return created, nil
}

// planNamed returns the plan with a name that has not ended, or nil.
func (d *database) planNamed(kind store.PlanKind, name string) *store.Plan {
	i := slices.IndexFunc(d.plans, func(p store.Plan) bool { return p.Kind == kind && p.Name == name && !p.State.Ended() })
	if i < 0 {
		return nil
	}
	return &d.plans[i]
}

// PlanByName implements store.Plans.
func (c *Client) PlanByName(ctx context.Context, kind store.PlanKind, name string) (store.Plan, error) {
	var found store.Plan
	err := c.do(ctx, Step{Op: "PlanByName", text: name}, func(time.Time) error {
		p := c.store.db.planNamed(kind, name)
		if p == nil {
			return fmt.Errorf("%w: there is no %s", holdfast.ErrNotFound, store.PlanSubject(kind, name))
		}
		found = *p
		return nil
	})
	if err != nil {
		return store.Plan{}, err
	}
	return found, nil
}

// ListPlans implements store.Plans.
func (c *Client) ListPlans(ctx context.Context, f store.PlanFilter) ([]store.Plan, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	wanted := func(p store.Plan) bool {
		return (len(f.States) == 0 || slices.Contains(f.States, p.State)) && (len(f.IDs) == 0 || slices.Contains(f.IDs, p.ID))
	}
	if f.Ended {
		return c.selectPlans(ctx, Step{Op: "ListPlans"}, f.Limit,
			func(p store.Plan, _ time.Time) bool {
				return wanted(p) && (f.Kind == "" || p.Kind == f.Kind) && (f.Before == 0 || p.ID < f.Before)
			},
			func(a, b store.Plan) int { return cmp.Compare(b.ID, a.ID) })
	}
	return c.selectPlans(ctx, Step{Op: "ListPlans"}, f.Limit,
		func(p store.Plan, _ time.Time) bool {
			return wanted(p) && p.Kind == f.Kind && p.Name > f.After && !p.State.Ended()
		},
		func(a, b store.Plan) int { return strings.Compare(a.Name, b.Name) })
}

// DuePlans implements store.Plans.
func (c *Client) DuePlans(ctx context.Context, kinds []store.PlanKind, within time.Duration, limit int) ([]store.Plan, error) {
	return c.selectPlans(ctx, Step{Op: "DuePlans"}, limit,
		func(p store.Plan, now time.Time) bool {
			return slices.Contains(kinds, p.Kind) && !p.NextAt.IsZero() && !p.NextAt.After(now.Add(within))
		},
		func(a, b store.Plan) int { return a.NextAt.Compare(b.NextAt) })
}

// selectPlans returns at most limit plans that match, in an order.
func (c *Client) selectPlans(ctx context.Context, step Step, limit int, match func(store.Plan, time.Time) bool, order func(a, b store.Plan) int) ([]store.Plan, error) {
	var found []store.Plan
	err := c.do(ctx, step, func(now time.Time) error {
		for _, p := range c.store.db.plans {
			if match(p, now) {
				found = append(found, p)
			}
		}
		slices.SortStableFunc(found, order)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found[:min(limit, len(found))], nil
}

// StepPlan implements store.Plans. A separate effect stores the queues that this client has not stored before.
func (c *Client) StepPlan(ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (store.Plan, error) {
	tasks, err := storable(step.Insert)
	if err == nil {
		err = c.storeQueues(ctx, tasks)
	}
	if err != nil {
		return store.Plan{}, err
	}
	var stepped store.Plan
	err = c.do(ctx, Step{Op: "StepPlan", ids: []int64{int64(step.From.ID)}, count: len(tasks)}, func(now time.Time) error {
		db := &c.store.db
		i, err := db.stepFrom(&step, now)
		if err != nil {
			return err
		}
		if step.Fence != nil {
			if err := db.checkFence(*step.Fence); err != nil {
				return err
			}
		}
		if step.By != nil {
			if err := step.By.Validate(); err != nil {
				return err
			}
		}
		var inserted store.Inserted
		if len(tasks) > 0 {
			plan := store.ID(0)
			if step.Members {
				plan = step.From.ID
			}
			inserted = c.store.insertMembers(plan, tasks, now, 0)
		}
		to, items := finish(inserted)
		p := &db.plans[i]
		db.putItems(p.ID, step.Drop, items)
		before := *p
		p.State, p.NextAt, p.Spec, p.Progress, p.Version = to.State, to.NextAt, to.Spec, to.Progress, before.Version+1
		p.Failures, p.Failure = 0, ""
		if len(p.Progress) == 0 {
			p.Progress = json.RawMessage("{}")
		}
		if p.State.Ended() {
			p.EndedAt = now
		}
		stepped = *p
		if step.By != nil {
			c.store.recordAudit(store.AuditEntry{At: now, Actor: *step.By, Action: step.Action, Subject: p.Subject(),
				Before: before.Document(), After: p.Document()})
		}
		return nil
	})
	if err != nil {
		return store.Plan{}, err
	}
	return stepped, nil
}

// FailPlans implements store.Plans.
func (c *Client) FailPlans(ctx context.Context, failed []store.PlanFailure) error {
	own := slices.Clone(failed)
	step := Step{Op: "FailPlans"}
	for _, f := range own {
		step.ids = append(step.ids, int64(f.Plan.ID))
	}
	return c.do(ctx, step, func(now time.Time) error {
		db := &c.store.db
		for _, f := range own {
			i, err := db.planIn(&f.Plan)
			if err != nil || db.plans[i].Failures != f.Plan.Failures || db.plans[i].NextAt.IsZero() {
				continue
			}
			p := &db.plans[i]
			p.Failures++
			p.Failure, p.NextAt = clean(fmt.Sprintf("%.*s", store.MaxPlanFailure, f.Error)), now.Add(f.Pause)
		}
		return nil
	})
}

// PostponePlans implements store.Plans.
func (c *Client) PostponePlans(ctx context.Context, plans []store.Plan, pause time.Duration) (postponed []store.ID, err error) {
	own := slices.Clone(plans)
	step := Step{Op: "PostponePlans"}
	for _, p := range own {
		step.ids = append(step.ids, int64(p.ID))
	}
	err = c.do(ctx, step, func(now time.Time) error {
		db := &c.store.db
		postponed = nil
		for _, p := range own {
			if i, err := db.planIn(&p); err == nil && !db.plans[i].NextAt.IsZero() && db.plans[i].EndedAt.IsZero() {
				db.plans[i].NextAt = now.Add(pause)
				postponed = append(postponed, p.ID)
			}
		}
		return nil
	})
	return postponed, err
}

// SaveItems implements store.Plans.
func (c *Client) SaveItems(ctx context.Context, plan store.Plan, by store.Fence, items []store.PlanItem) error {
	own := slices.Clone(items)
	return c.do(ctx, Step{Op: "SaveItems", ids: []int64{int64(plan.ID), int64(by.Task)}}, func(time.Time) error {
		db := &c.store.db
		if _, err := db.planIn(&plan); err != nil {
			return err
		}
		if err := db.checkFence(by); err != nil {
			return err
		}
		db.putItems(plan.ID, nil, own)
		return nil
	})
}

// stepFrom returns the position of the plan of a step, if the step accepts it.
func (d *database) stepFrom(step *store.PlanStep, now time.Time) (int, error) {
	if step.Accept == nil {
		return d.planIn(&step.From)
	}
	i, ok := position(d.plans, int64(step.From.ID), func(p *store.Plan) int64 { return int64(p.ID) })
	if !ok {
		return 0, fmt.Errorf("%w: there is no plan %d", holdfast.ErrNotFound, int64(step.From.ID))
	}
	return i, step.Accept(d.plans[i], now)
}

// planIn returns the position of a plan, or ErrConflict if the plan has not the version of p.
func (d *database) planIn(p *store.Plan) (int, error) {
	i, ok := position(d.plans, int64(p.ID), func(p *store.Plan) int64 { return int64(p.ID) })
	if !ok || d.plans[i].Version != p.Version {
		return 0, fmt.Errorf("%w: the %s has changed since it was read", holdfast.ErrConflict, p.Subject())
	}
	return i, nil
}

// checkFence returns ErrFenced unless the attempt runs.
func (d *database) checkFence(by store.Fence) error {
	task := d.task(by.Task)
	if task == nil || task.State != holdfast.Running || task.Attempt != by.Attempt || task.Worker != by.Worker {
		return fmt.Errorf("%w: the attempt %d of task %s does not run any more", store.ErrFenced, by.Attempt, by.Task)
	}
	return nil
}

// batchContinues reports whether a plan is a batch that has not ended.
func (d *database) batchContinues(plan store.ID) bool {
	i, ok := position(d.plans, int64(plan), func(p *store.Plan) int64 { return int64(p.ID) })
	return ok && d.plans[i].Kind == store.BatchKind && !d.plans[i].State.Ended()
}

// PlanTally implements store.Plans.
func (c *Client) PlanTally(ctx context.Context, chunks []store.PlanChunk) ([]store.Tally, error) {
	tallies := make([]store.Tally, len(chunks))
	err := c.do(ctx, Step{Op: "PlanTally", count: len(chunks)}, func(time.Time) error {
		for i, chunk := range chunks {
			tallies[i] = store.Tally{By: make(map[holdfast.State]int64)}
			for _, state := range holdfast.States() {
				tallies[i].By[state] = 0
			}
			for _, ids := range chunk.Tasks {
				tallies[i].Missing += ids.Size()
				for j := range c.store.db.tasks {
					if task := &c.store.db.tasks[j]; task.ID >= ids.First && task.ID <= ids.Last && (chunk.Plan == 0 || task.Batch == holdfast.BatchID(chunk.Plan)) {
						addToTally(&tallies[i], task)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tallies, nil
}

func addToTally(t *store.Tally, task *Task) {
	t.By[task.State]++
	t.Missing--
	if task.State == holdfast.Ready && (t.NextRunAt.IsZero() || task.NextRunAt.Before(t.NextRunAt)) {
		t.NextRunAt = task.NextRunAt
	}
}

// planItem is an item with its plan.
type planItem struct {
	plan store.ID
	store.PlanItem
}

// putItems deletes and stores items of a plan.
func (d *database) putItems(plan store.ID, drop []string, items []store.PlanItem) {
	gone := func(i planItem) bool {
		return i.plan == plan && (slices.Contains(drop, i.Item) || slices.ContainsFunc(items, func(new store.PlanItem) bool { return new.Item == i.Item }))
	}
	d.planItems = slices.DeleteFunc(slices.Clone(d.planItems), gone)
	for _, item := range items {
		if len(item.Data) == 0 {
			item.Data = json.RawMessage("{}")
		}
		d.planItems = append(d.planItems, planItem{plan, item})
	}
}

// PlanItems implements store.Plans.
func (c *Client) PlanItems(ctx context.Context, plan store.ID, f store.PlanItemFilter) ([]store.PlanItem, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	var found []store.PlanItem
	err := c.do(ctx, Step{Op: "PlanItems", ids: []int64{int64(plan)}}, func(now time.Time) error {
		for _, i := range c.store.db.planItems {
			due := !i.NextAt.IsZero() && !i.NextAt.After(now.Add(f.Within))
			if i.plan == plan && (i.State == f.State || f.State == "" && !f.Due) && (due || !f.Due) && (i.Item > f.After || f.Due) {
				found = append(found, i.PlanItem)
			}
		}
		slices.SortFunc(found, func(a, b store.PlanItem) int {
			if f.Due {
				return a.NextAt.Compare(b.NextAt)
			}
			return strings.Compare(a.Item, b.Item)
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found[:min(f.Limit, len(found))], nil
}

// correctPlans makes plans due whose times were computed before the clock was set back.
func (d *database) correctPlans(now time.Time) {
	for i := range d.plans {
		if ahead(now, d.plans[i].NextAt) {
			d.plans[i].NextAt = now
		}
	}
	d.planItems = slices.Clone(d.planItems)
	for i := range d.planItems {
		if ahead(now, d.planItems[i].NextAt) {
			d.planItems[i].NextAt = now
		}
	}
}

func (s *Store) prunePlans(before time.Time, size int) int {
	old := func(p *store.Plan) bool { return p.State.Ended() && p.EndedAt.Before(before) }
	items := 0
	s.db.planItems = slices.DeleteFunc(slices.Clone(s.db.planItems), func(i planItem) bool {
		at, found := position(s.db.plans, int64(i.plan), func(p *store.Plan) int64 { return int64(p.ID) })
		if items == size || !found || !old(&s.db.plans[at]) {
			return false
		}
		items++
		return true
	})
	return items + prune(&s.db.plans, size-items, func(p *store.Plan) bool {
		return old(p) && !slices.ContainsFunc(s.db.planItems, func(i planItem) bool { return i.plan == p.ID })
	})
}
