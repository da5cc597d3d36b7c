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

// overview is the view of the first page: what needs a person, and whether work flows.
type overview struct {
	surface.Overview
	Now    time.Time
	Needs  []need
	States []stateCount
	Queues []queueRow
	Broker string // why the broker cannot be used now
	Charts charts
}

// need is something that a person has to do, with the page on which to do it.
type need struct {
	Kind string // the class of its icon
	Text string
	Link string
	Verb string
}

// stateCount is the number of tasks in a state.
type stateCount struct {
	State holdfast.State
	Tasks int64
	Link  string
}

// queueRow is a queue, or one of its priorities.
type queueRow struct {
	surface.Queue
	Late bool
}

const (
	// lateAfter is how long the oldest due task of a queue may wait before the overview names the queue.
	lateAfter = time.Minute
	// brokerWait is how long a page waits for the numbers of the broker.
	brokerWait = time.Second
	// needLimit is the maximum number of groups, and of operations, that the overview names.
	needLimit = 5
	// minBreakerAge is how long a target fails before the overview names it.
	minBreakerAge = time.Minute
)

func (c *Console) overview(ctx context.Context, r *request) (any, error) {
	numbers, err := surface.ReadOverview(ctx, c.b.Store)
	if err != nil {
		return nil, err
	}
	v := overview{Overview: numbers, Now: numbers.At}
	for _, state := range holdfast.States() {
		v.States = append(v.States, stateCount{state, v.Tasks.Of(state), c.o.Prefix + "/tasks?q=state:" + string(state)})
	}
	if v.Charts, err = c.charts(ctx, v.Now, store.AllQueues, r.q("range")); err != nil {
		return nil, err
	}
	if err := c.b.Ping(ctx, brokerWait); err != nil {
		v.Broker = err.Error()
	}
	for _, row := range v.Backlog.Queues {
		v.Queues = append(v.Queues, queueRow{row, time.Duration(row.Oldest) > lateAfter})
	}
	return v, c.findNeeds(ctx, &v)
}

// findNeeds sets what needs a person, the most urgent first.
func (c *Console) findNeeds(ctx context.Context, v *overview) error {
	for _, q := range v.Queues {
		link := c.path("/queues", q.Queue.Queue)
		switch {
		case q.Paused != nil:
		case q.Due > 0 && q.Workers == 0:
			v.Needs = append(v.Needs, need{"late", fmt.Sprintf("queue %s: %s tasks are due, and no worker takes them", q.Queue.Queue, count(q.Due)), link, "look"})
		case q.Late:
			v.Needs = append(v.Needs, need{"late", fmt.Sprintf("queue %s: the oldest due task has waited for %s", q.Queue.Queue, duration(q.Oldest)), link, "look"})
		}
	}
	if v.Workers.Stuck > 0 {
		v.Needs = append(v.Needs, need{"late", fmt.Sprintf("%d handlers ignore the end of their attempts", v.Workers.Stuck), c.path("/workers"), "look"})
	}
	gates, err := surface.ListGates(ctx, c.b)
	if err != nil {
		return err
	}
	for _, g := range gates {
		if since := v.Now.Sub(g.ClosedAt); g.Kind == store.GateBreaker && since > minBreakerAge {
			text := fmt.Sprintf("%s has failed for %s, and %s tasks wait: %s", g.Subject, duration(since), count(int64(g.Blocked)), g.Reason)
			v.Needs = append(v.Needs, need{"late", text, c.path("/gates"), "look"})
		}
	}
	stopped, err := c.b.Store.ListOperations(ctx, store.OperationFilter{States: []store.OperationState{store.OperationStopped}, Limit: needLimit})
	if err != nil {
		return err
	}
	for _, o := range stopped {
		v.Needs = append(v.Needs, need{"stopped", fmt.Sprintf("operation %s (%s) has stopped: %s", o.ID, o.Action, o.Note), c.path("/operations", o.ID), "decide"})
	}
	groups, err := c.b.Store.DeathGroups(ctx, store.DeathFilter{Limit: needLimit})
	if err != nil {
		return err
	}
	slices.SortStableFunc(groups, func(a, b store.DeathGroup) int { return b.LastAt.Compare(a.LastAt) })
	for _, g := range groups {
		text := fmt.Sprintf("%s dead: %s", count(g.Tasks), surface.GroupTitle(g))
		if g.Host == "" { // the title does not say what has failed
			text += ": " + g.Error
		}
		if g.State == store.GroupReturned {
			text += " (was resolved, and has come back)"
		}
		v.Needs = append(v.Needs, need{"dead", text, c.path("/dead", g.Fingerprint), "open"})
	}
	return nil
}
