package simstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// DeathGroups implements store.Deaths. It computes the fingerprints from the attempts, so no record is ever missing.
func (c *Client) DeathGroups(ctx context.Context, f store.DeathFilter) ([]store.DeathGroup, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	var groups []store.DeathGroup
	err := c.do(ctx, Step{Op: "DeathGroups"}, func(now time.Time) error {
		byFingerprint := make(map[string]*store.DeathGroup)
		for i := range c.store.db.tasks {
			task := &c.store.db.tasks[i]
			at := task.FinishedAt
			fingerprint := task.fingerprint()
			if fingerprint == "" ||
				f.Type != "" && task.Type != f.Type || f.Queue != "" && task.Queue != f.Queue || f.Fingerprint != "" && fingerprint != f.Fingerprint ||
				!f.Since.IsZero() && at.Before(f.Since) || !f.Until.IsZero() && !at.Before(f.Until) {
				continue
			}
			g := byFingerprint[fingerprint]
			if g == nil {
				g = &store.DeathGroup{Fingerprint: fingerprint, Type: task.Type, FirstAt: at, LastAt: at}
				byFingerprint[fingerprint] = g
			}
			report := task.lastReport()
			g.Class, g.Sample, g.Error = report.Class, task.ID, task.LastError
			g.Host, g.Status = report.Target()
			g.Tasks++
			if at.After(now.Add(-time.Hour)) {
				g.LastHour++
			}
			if at.Before(g.FirstAt) {
				g.FirstAt = at
			}
			if at.After(g.LastAt) {
				g.LastAt = at
			}
		}
		for _, g := range byFingerprint {
			groups = append(groups, *g)
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
