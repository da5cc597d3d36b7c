package simstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// OpenRun implements store.Leases. Its lanes are stored in an effect of their own.
func (c *Client) OpenRun(ctx context.Context, info store.RunInfo, lease time.Duration) (holdfast.RunID, error) {
	info.Name, info.Host, info.Version = clean(info.Name), clean(info.Host), clean(info.Version)
	info.Lanes, info.Types = append([]string{}, info.Lanes...), slices.Clone(info.Types)
	if len(info.Lanes) > 0 {
		if err := c.addLanes(ctx, "OpenRun lanes", info.Lanes); err != nil {
			return 0, err
		}
	}
	process := info.Process
	info.Process = store.Process{} // which Runs does not return
	var id holdfast.RunID
	err := c.do(ctx, Step{Op: "OpenRun", text: info.Name}, func(now time.Time) error {
		d := &c.store.db
		d.last.run++
		id = holdfast.RunID(d.last.run)
		d.runs = append(d.runs, Run{process: process, Run: store.Run{
			ID: id, RunInfo: info, State: store.RunLive, StartedAt: now, RenewedAt: now, LeaseUntil: later(now, lease),
		}})
		return nil
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// Renew implements store.Leases. News are deleted by the renewal after the one that brought them: deleted any earlier, they
// would be lost with an answer that is lost.
func (c *Client) Renew(ctx context.Context, r store.Renewal) (store.News, error) {
	heard, own := c.heardOf(r.Run), c.ownSession(r)
	var news store.News
	var ids []int64
	err := c.do(ctx, Step{Op: "Renew", run: r.Run}, func(now time.Time) error {
		c.store.opened(own)
		d := &c.store.db
		run := d.run(r.Run)
		if run == nil || run.State != store.RunLive || !run.by(r.By) {
			return fmt.Errorf("run %s: %w", r.Run, store.ErrFenced)
		}
		run.RenewedAt, run.LeaseUntil = now, later(now, r.Lease)
		run.Taken, run.Settled, run.Running = max(run.Taken, r.Taken), max(run.Settled, r.Settled), r.Running
		run.Shown = r.Shown
		if len(d.cancellations) > 0 {
			d.cancellations = slices.DeleteFunc(d.cancellations, func(w Cancellation) bool { return w.Run == r.Run && slices.Contains(heard, w.ID) })
		}
		news.History = strconv.Itoa(c.store.history)
		news.Draining, news.Lanes = run.Draining, d.laneNames()
		for _, word := range d.cancellations {
			if word.Run == r.Run {
				ids, news.Cancelled = append(ids, word.ID), append(news.Cancelled, word.Ticket)
			}
		}
		return nil
	})
	if err != nil {
		c.endOwnSession(r.Run)
	}
	if errors.Is(err, store.ErrFenced) {
		c.hear(r.Run, nil)
	}
	if err != nil {
		return store.News{}, err
	}
	c.hear(r.Run, ids)
	return news, nil
}

func (c *Client) heardOf(run holdfast.RunID) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard[run]
}

func (c *Client) hear(run holdfast.RunID, news []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(news) == 0 {
		delete(c.heard, run)
		return
	}
	if c.heard == nil {
		c.heard = make(map[holdfast.RunID][]int64)
	}
	c.heard[run] = news
}

// CloseRun implements store.Leases.
func (c *Client) CloseRun(ctx context.Context, id holdfast.RunID, clean bool) error {
	err := c.do(ctx, Step{Op: "CloseRun", run: id}, func(now time.Time) error {
		d := &c.store.db
		if run := d.run(id); run != nil && run.State == store.RunLive {
			run.State, run.EndedAt, run.Running, run.Swept = store.RunStopped, now, 0, clean
		}
		d.cancellations = slices.DeleteFunc(d.cancellations, func(w Cancellation) bool { return w.Run == id })
		return nil
	})
	c.endOwnSession(id)
	if err == nil {
		c.hear(id, nil)
	}
	return err
}

// Drain implements store.Leases.
func (c *Client) Drain(ctx context.Context, id holdfast.RunID) error {
	return c.do(ctx, Step{Op: "Drain", run: id}, func(time.Time) error {
		run := c.store.db.run(id)
		switch {
		case run == nil:
			return fmt.Errorf("%w: there is no run %s", holdfast.ErrNotFound, id)
		case run.State != store.RunLive:
			return fmt.Errorf("%w: run %s is %s", holdfast.ErrConflict, id, run.State)
		}
		run.Draining = true
		return nil
	})
}

// Runs implements store.Leases.
func (c *Client) Runs(ctx context.Context, all bool) ([]store.Run, error) {
	var runs []store.Run
	err := c.do(ctx, Step{Op: "Runs"}, func(time.Time) error {
		rows := c.store.db.runs
		for i := len(rows) - 1; i >= 0; i-- {
			if all || rows[i].State == store.RunLive {
				run := rows[i].Run
				run.Lanes = slices.Clone(run.Lanes)
				runs = append(runs, run)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}
