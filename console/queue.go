package console

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// queuePage is the view of one queue.
type queuePage struct {
	Now        time.Time
	Name       string
	Priorities []surface.Queue // the highest first, as the store lists them
	surface.Totals
	Messages *int
	States   []stateCount
	Takers   int // the live workers that take its tasks, without those that drain
	Pause    *store.Gate
	Limits   []store.LimitUse
	Workers  []workerRow
	Groups   []deadGroup
	Broker   string // why the figures of the broker are missing
	Charts   charts
}

// Late reports whether tasks are due, but no worker takes them.
func (q *queuePage) Late() bool { return q.Due > 0 && q.Takers == 0 && q.Pause == nil }

// queueGroups is the maximum number of groups of dead tasks on the page of a queue.
const queueGroups = 10

func (c *Console) queue(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := &queuePage{Now: now, Name: r.PathValue("name")}
	if err := c.countQueue(ctx, v); err != nil {
		return nil, err
	}
	if err := c.findGates(ctx, v); err != nil {
		return nil, err
	}
	tasks := slices.ContainsFunc(v.States, func(s stateCount) bool { return s.Tasks > 0 })
	if !tasks && len(v.Priorities) == 0 && len(v.Limits) == 0 && v.Pause == nil {
		return nil, fmt.Errorf("%w: there is no queue %.100q", holdfast.ErrNotFound, v.Name)
	}
	found, err := c.b.Store.Workers(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, w := range found {
		if len(w.Queues) > 0 && !slices.Contains(w.Queues, v.Name) {
			continue
		}
		v.Workers = append(v.Workers, rowOf(w, now))
		if !w.Draining {
			v.Takers++
		}
	}
	if v.Charts, err = c.charts(ctx, now, v.Name, r.q("range")); err != nil {
		return nil, err
	}
	groups, err := c.b.Store.DeathGroups(ctx, store.DeathFilter{Queue: v.Name, Limit: queueGroups})
	for _, g := range groups {
		v.Groups = append(v.Groups, deadGroup{DeathGroup: g, Title: surface.GroupTitle(g), Query: surface.GroupQuery(g.Fingerprint)})
	}
	return v, err
}

// countQueue sets the figures of a queue.
func (c *Console) countQueue(ctx context.Context, v *queuePage) error {
	rows, unknown, err := surface.Queues(ctx, c.b, brokerWait)
	if err != nil {
		return err
	}
	if unknown != nil {
		v.Broker = unknown.Error()
	}
	for _, row := range rows {
		if row.QueueCounts == nil || row.Queue != v.Name {
			continue
		}
		v.Priorities = append(v.Priorities, row)
		v.Add(row.QueueCounts)
		if row.Messages != nil {
			if v.Messages == nil {
				v.Messages = new(int)
			}
			*v.Messages += *row.Messages
		}
	}
	groups, err := c.b.Store.CountGroups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if g.Queue == v.Name {
			*v.Tasks.Place(g.State) += g.Tasks
		}
	}
	for _, state := range holdfast.States() {
		v.States = append(v.States, stateCount{State: state, Tasks: v.Tasks.Of(state)})
	}
	return nil
}

// findGates sets the pause and the limits of a queue.
func (c *Console) findGates(ctx context.Context, v *queuePage) error {
	gates, err := c.b.Store.Gates(ctx)
	if err != nil {
		return err
	}
	for i := range gates {
		if gates[i].Subject == (store.Subject{Queue: v.Name}) {
			v.Pause = &gates[i]
		}
	}
	limits, err := c.b.Store.Limits(ctx)
	v.Limits = slices.DeleteFunc(limits, func(l store.LimitUse) bool { return l.Queue != v.Name })
	return err
}
