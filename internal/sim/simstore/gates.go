package simstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// closedGates returns the gates that are closed.
func (d *database) closedGates(now time.Time) []store.Gate {
	var closed []store.Gate
	for _, g := range d.gates {
		if g.Until.IsZero() || g.Until.After(now) {
			closed = append(closed, g)
		}
	}
	return closed
}

// pausedQueue reports whether a closed gate concerns all tasks of the queue.
func (d *database) pausedQueue(queue string, now time.Time) bool {
	return slices.ContainsFunc(d.closedGates(now), func(g store.Gate) bool { return g.Subject == store.Subject{Queue: queue} })
}

// gateOf returns the oldest closed gate that concerns the task, or 0.
func (d *database) gateOf(task *Task, now time.Time) store.ID {
	for _, g := range d.closedGates(now) {
		if g.Selects(&task.Task) {
			return g.ID
		}
	}
	return 0
}

// Pause implements store.Gates.
func (c *Client) Pause(ctx context.Context, by store.Actor, s store.Subject, d time.Duration) (gate store.Gate, err error) {
	if err := s.Validate(); err != nil {
		return gate, err
	}
	if d < 0 {
		return gate, fmt.Errorf("%w: the pause of %s is negative", holdfast.ErrInvalid, d)
	}
	err = c.do(ctx, Step{Op: "Pause", text: s.String()}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		db := &c.store.db
		gate = store.Gate{Kind: store.GatePause, Subject: s, Actor: by, ClosedAt: now}
		if d > 0 {
			gate.Until = later(now, d)
		}
		entry := store.AuditEntry{At: now, Actor: by, Action: store.ActionPause, Subject: s.String(), After: gate.Version()}
		// A gate whose time has passed is closed again, with the tasks that it has not released.
		gates, found := slices.Clone(db.gates), slices.IndexFunc(db.gates, func(g store.Gate) bool { return g.Subject == s })
		if found >= 0 {
			if old := gates[found]; old.Until.IsZero() || old.Until.After(now) {
				entry.Before, gate.ClosedAt = old.Version(), old.ClosedAt
			}
			gate.ID = gates[found].ID
			gates[found] = gate
		} else {
			db.last.gate++
			gate.ID = store.ID(db.last.gate)
			gates = append(gates, gate)
		}
		db.gates = gates
		c.store.recordAudit(entry)
		return nil
	})
	return gate, err
}

// Resume implements store.Gates.
func (c *Client) Resume(ctx context.Context, by store.Actor, s store.Subject) (gate store.Gate, err error) {
	if err := s.Validate(); err != nil {
		return gate, err
	}
	err = c.do(ctx, Step{Op: "Resume", text: s.String()}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		closed := c.store.db.closedGates(now)
		found := slices.IndexFunc(closed, func(g store.Gate) bool { return g.Subject == s })
		if found < 0 {
			return fmt.Errorf("%w: %s is not paused", holdfast.ErrNotFound, s)
		}
		gate = closed[found]
		c.store.open(by, gate, now)
		return nil
	})
	return gate, err
}

// open opens a gate.
func (s *Store) open(by store.Actor, gate store.Gate, now time.Time) {
	s.db.gates = slices.DeleteFunc(slices.Clone(s.db.gates), func(g store.Gate) bool { return g.ID == gate.ID })
	s.recordAudit(store.AuditEntry{At: now, Actor: by, Action: store.ActionResume, Subject: gate.String(), Before: gate.Version()})
}

// Gates implements store.Gates.
func (c *Client) Gates(ctx context.Context) (gates []store.Gate, err error) {
	err = c.do(ctx, Step{Op: "Gates"}, func(now time.Time) error {
		gates = c.store.db.closedGates(now)
		for i := range gates {
			for k := range c.store.db.tasks {
				if task := &c.store.db.tasks[k]; task.Blocked() && task.Gate == gates[i].ID {
					gates[i].Blocked = min(gates[i].Blocked+1, store.MaxCountedBlocked)
				}
			}
		}
		return nil
	})
	return gates, err
}

// GatesOf implements store.Gates.
func (c *Client) GatesOf(ctx context.Context, tasks []holdfast.TaskID) (map[holdfast.TaskID]store.Gate, error) {
	of := make(map[holdfast.TaskID]store.Gate)
	err := c.do(ctx, Step{Op: "GatesOf"}, func(now time.Time) error {
		closed := c.store.db.closedGates(now)
		for _, id := range tasks {
			task := c.store.db.task(id)
			if task == nil || task.State != holdfast.Ready {
				continue
			}
			first := c.store.db.gateOf(task, now)
			if i := slices.IndexFunc(closed, func(g store.Gate) bool { return g.ID == first }); i >= 0 {
				of[id] = closed[i]
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return of, nil
}

// ReleaseBlocked implements store.Gates.
func (c *Client) ReleaseBlocked(ctx context.Context, limit int) (released int, err error) {
	err = c.do(ctx, Step{Op: "ReleaseBlocked"}, func(now time.Time) error {
		db := &c.store.db
		closed := db.closedGates(now)
		for _, gate := range db.gates {
			if !slices.ContainsFunc(closed, func(g store.Gate) bool { return g.ID == gate.ID }) {
				by := store.Actor{Name: string(store.Janitor), Surface: store.Janitor, Reason: "the time of the pause has passed"}
				c.store.open(by, gate, now)
			}
		}
		for i := range db.tasks {
			task := &db.tasks[i]
			if released == limit || !task.Blocked() || slices.ContainsFunc(closed, func(g store.Gate) bool { return g.ID == task.Gate }) {
				continue
			}
			c.store.changing(task)
			task.DueAt, task.Gate = now, 0
			c.store.changed("ReleaseBlocked", task, nil)
			released++
		}
		return nil
	})
	return released, err
}
