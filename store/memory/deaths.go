package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// knownGroup is a group that a person has changed or that was announced, with the data that the store saw last.
type knownGroup struct {
	store.DeathGroup
	announced bool
}

// DeathGroups implements store.Deaths. It computes the fingerprints from the attempts, so no record is ever missing.
func (c *Client) DeathGroups(ctx context.Context, f store.DeathFilter) ([]store.DeathGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	var groups []store.DeathGroup
	err := c.do(ctx, Step{Op: "DeathGroups"}, func(now time.Time) error {
		whole := f.Queue == "" && f.Since.IsZero() && f.Until.IsZero()
		for _, g := range c.store.groups(f, now) {
			resolved := g.State == store.GroupResolved
			if resolved == f.Resolved && (g.Tasks > 0 || resolved && whole && (f.Type == "" || g.Type == f.Type)) {
				groups = append(groups, g)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(groups, func(a, b store.DeathGroup) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), b.LastAt.Compare(a.LastAt), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return groups[:min(limit, len(groups))], nil
}

// CountDeathGroups implements store.Deaths.
func (c *Client) CountDeathGroups(ctx context.Context) (store.GroupCounts, error) {
	var counts store.GroupCounts
	err := c.do(ctx, Step{Op: "CountDeathGroups"}, func(now time.Time) error {
		for _, g := range c.store.groups(store.DeathFilter{}, now) {
			switch {
			case g.Tasks == 0:
			case g.State == store.GroupOpen:
				counts.Open++
			case g.State == store.GroupReturned:
				counts.Returned++
			}
		}
		return nil
	})
	if err != nil {
		return store.GroupCounts{}, err
	}
	return counts, nil
}

// groups returns all known groups with the numbers of the dead tasks that match the filter.
func (s *Store) groups(f store.DeathFilter, now time.Time) map[string]store.DeathGroup {
	groups := make(map[string]store.DeathGroup)
	for fingerprint, known := range s.db.groups {
		if f.Fingerprint == "" || fingerprint == f.Fingerprint {
			groups[fingerprint] = known.DeathGroup
		}
	}
	for i := range s.db.tasks {
		task := &s.db.tasks[i]
		at := task.FinishedAt
		fingerprint := task.fingerprint()
		if fingerprint == "" || f.Fingerprint != "" && fingerprint != f.Fingerprint {
			continue
		}
		g, ok := groups[fingerprint]
		if !ok {
			g = store.DeathGroup{Fingerprint: fingerprint, State: store.GroupOpen, Version: 1, FirstAt: at, LastAt: at}
		}
		if at.Before(g.FirstAt) {
			g.FirstAt = at
		}
		if at.After(g.LastAt) {
			g.LastAt = at
		}
		if !g.ResolvedAt.IsZero() && at.After(g.ResolvedAt) {
			g.State = store.GroupReturned
		}
		if (f.Type == "" || task.Type == f.Type) && (f.Queue == "" || task.Queue == f.Queue) &&
			(f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until)) {
			report := task.lastReport()
			g.Type, g.Class, g.Sample, g.Error = task.Type, report.Class, task.ID, task.LastError
			g.Host, g.Status = report.Target()
			g.Tasks++
			if at.After(now.Add(-time.Hour)) {
				g.LastHour++
			}
		}
		groups[fingerprint] = g
	}
	return groups
}

// DeathGroup implements store.Deaths.
func (c *Client) DeathGroup(ctx context.Context, fingerprint string) (store.DeathGroupDetails, error) {
	var details store.DeathGroupDetails
	err := c.do(ctx, Step{Op: "DeathGroup"}, func(now time.Time) error {
		group, ok := c.store.groups(store.DeathFilter{Fingerprint: fingerprint}, now)[fingerprint]
		if !ok {
			return noGroup(fingerprint)
		}
		details = store.DeathGroupDetails{DeathGroup: group}
		for i := range c.store.db.tasks {
			task := &c.store.db.tasks[i]
			if task.fingerprint() != fingerprint {
				continue
			}
			at := slices.IndexFunc(details.Queues, func(q store.GroupQueue) bool { return q.Queue == task.Queue })
			if at < 0 {
				at = len(details.Queues)
				details.Queues = append(details.Queues, store.GroupQueue{Queue: task.Queue})
			}
			details.Queues[at].Tasks++
			if hour := int(now.Sub(task.FinishedAt) / time.Hour); hour < len(details.Hours) {
				details.Hours[hour]++
			}
		}
		return nil
	})
	if err != nil {
		return store.DeathGroupDetails{}, err
	}
	slices.SortFunc(details.Queues, func(a, b store.GroupQueue) int {
		return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Queue, b.Queue))
	})
	return details, nil
}

func noGroup(fingerprint string) error {
	return fmt.Errorf("%w: there is no group %s", holdfast.ErrNotFound, fingerprint)
}

// ChangeDeathGroup implements store.Deaths.
func (c *Client) ChangeDeathGroup(ctx context.Context, by store.Actor, change store.GroupChange) (store.DeathGroup, error) {
	var group store.DeathGroup
	err := c.do(ctx, Step{Op: "ChangeDeathGroup", text: change.Fingerprint}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		before, ok := c.store.groups(store.DeathFilter{Fingerprint: change.Fingerprint}, now)[change.Fingerprint]
		if !ok {
			return noGroup(change.Fingerprint)
		}
		change.Text = clean(change.Text)
		after, entry, err := change.Of(before)
		if group = after; err != nil || entry == nil {
			return err
		}
		announced := c.store.db.groups[group.Fingerprint].announced
		switch change.Action {
		case store.ActionResolve:
			group.ResolvedAt, announced = now, false
		case store.ActionReopen: // the person knows the group
			group.ResolvedAt, announced = time.Time{}, true
		}
		group.Version++
		c.store.setGroup(group, announced)
		entry.At, entry.Actor = now, by
		c.store.recordAudit(*entry)
		return nil
	})
	if err != nil {
		return store.DeathGroup{}, err
	}
	return group, nil
}

// setGroup stores a group without the numbers of its tasks.
func (s *Store) setGroup(g store.DeathGroup, announced bool) {
	g.Tasks, g.LastHour = 0, 0
	if g.State = store.GroupOpen; !g.ResolvedAt.IsZero() {
		g.State = store.GroupResolved
	}
	groups := maps.Clone(s.db.groups) // copies of the database share the map
	if groups == nil {
		groups = make(map[string]knownGroup)
	}
	groups[g.Fingerprint] = knownGroup{g, announced}
	s.db.groups = groups
}

// groupOf returns the group of a dead task, as if it had no other task.
func groupOf(task *Task) store.DeathGroup {
	report := task.lastReport()
	host, status := report.Target()
	return store.DeathGroup{
		Fingerprint: task.fingerprint(), Type: task.Type, Class: report.Class, Host: host, Status: status, State: store.GroupOpen,
		FirstAt: task.FinishedAt, LastAt: task.FinishedAt, Sample: task.ID, Error: task.LastError, Version: 1,
	}
}

// keepGroup stores the last data of a group when a task leaves it. left is the group of that task.
func (s *Store) keepGroup(left store.DeathGroup) {
	known, ok := s.db.groups[left.Fingerprint]
	switch {
	case !ok:
		known.DeathGroup = left
	case !left.FirstAt.Before(known.FirstAt) && !left.LastAt.After(known.LastAt):
		return
	}
	if left.FirstAt.Before(known.FirstAt) {
		known.FirstAt = left.FirstAt
	}
	if left.LastAt.After(known.LastAt) {
		known.LastAt = left.LastAt
	}
	if left.Sample >= known.Sample {
		known.Sample, known.Error = left.Sample, left.Error
	}
	s.setGroup(known.DeathGroup, known.announced)
}

// RecordDeaths implements store.Deaths. There is nothing to record.
func (c *Client) RecordDeaths(ctx context.Context, _ int) (int, error) {
	return 0, c.do(ctx, Step{Op: "RecordDeaths"}, func(time.Time) error { return nil })
}

// fingerprint returns the fingerprint of a dead task, and "" for any other task.
func (t *Task) fingerprint() string {
	if t.State != holdfast.Dead {
		return ""
	}
	return holdfast.Fingerprint(t.Type, t.lastReport())
}

// lastReport returns the report of the last attempt of a dead task.
func (t *Task) lastReport() holdfast.Report {
	if len(t.Attempts) == 0 {
		return holdfast.Report{Error: t.LastError}
	}
	return t.Attempts[len(t.Attempts)-1].Report()
}

// matchesDeath reports whether the record of a death matches the filter.
func matchesDeath(f *store.Filter, task *Task) bool {
	if f.Fingerprint == "" && f.Class == "" && f.Host == "" && f.Status == 0 {
		return true
	}
	if task.State != holdfast.Dead {
		return false
	}
	report := task.lastReport()
	host, status := report.Target()
	return (f.Fingerprint == "" || task.fingerprint() == f.Fingerprint) &&
		(f.Class == "" || report.Class == f.Class) &&
		(f.Host == "" || host == f.Host) &&
		(f.Status == 0 || status == f.Status)
}
