package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// RegisterWorker implements store.Leases. A separate effect stores the queues.
func (c *Client) RegisterWorker(ctx context.Context, info store.WorkerInfo, lease time.Duration) (holdfast.WorkerID, error) {
	info.Name, info.Host, info.Version = clean(info.Name), clean(info.Host), clean(info.Version)
	info.Queues, info.Types = append([]string{}, info.Queues...), slices.Clone(info.Types)
	if len(info.Queues) > 0 {
		if err := c.addQueues(ctx, "RegisterWorker queues", info.Queues); err != nil {
			return 0, err
		}
	}
	process := info.Process
	schemas := info.Schemas
	info.Process, info.Schemas = store.Process{}, nil // Workers does not return them
	var id holdfast.WorkerID
	err := c.do(ctx, Step{Op: "RegisterWorker", text: info.Name}, func(now time.Time) error {
		d := &c.store.db
		d.last.worker++
		id = holdfast.WorkerID(d.last.worker)
		d.workers = append(d.workers, Worker{process: process, Worker: store.Worker{
			ID: id, WorkerInfo: info, State: store.WorkerLive, StartedAt: now, RenewedAt: now, LeaseUntil: later(now, lease),
		}})
		d.describeTypes(id, info.Types, schemas, now)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// describeTypes stores the schemas of the types of a worker.
func (d *database) describeTypes(worker holdfast.WorkerID, types []string, schemas map[string]json.RawMessage, now time.Time) {
	for _, taskType := range types {
		i, known := slices.BinarySearchFunc(d.schemas, taskType, func(s store.TypeSchema, name string) int { return strings.Compare(s.Type, name) })
		schema := schemas[taskType]
		if known && bytes.Equal(d.schemas[i].Schema, schema) {
			continue
		}
		replaced := slices.Clone(d.schemas)
		if known {
			replaced = slices.Delete(replaced, i, i+1)
		}
		if len(schema) > 0 {
			replaced = slices.Insert(replaced, i, store.TypeSchema{Type: taskType, Schema: slices.Clone(schema), Worker: worker, UpdatedAt: now})
		}
		d.schemas = replaced
	}
}

// Renew implements store.Leases. If a renewal has returned a cancellation, the next renewal deletes it. So the
// cancellation is not lost if the first answer is lost.
func (c *Client) Renew(ctx context.Context, r store.Renewal) (store.RenewResult, error) {
	received, own := c.receivedBy(r.Worker), c.ownSession(r)
	var result store.RenewResult
	var ids []int64
	err := c.do(ctx, Step{Op: "Renew", worker: r.Worker}, func(now time.Time) error {
		c.store.openSession(own)
		d := &c.store.db
		worker := d.worker(r.Worker)
		if worker == nil || worker.State != store.WorkerLive {
			return fmt.Errorf("worker %s: %w", r.Worker, store.ErrFenced)
		}
		worker.RenewedAt, worker.LeaseUntil = now, later(now, r.Lease)
		worker.Taken, worker.Settled, worker.Running = max(worker.Taken, r.Taken), max(worker.Settled, r.Settled), r.Running
		worker.Present, worker.Report = r.Present, r.Report
		if len(r.Settings) > 0 {
			worker.Settings = nil
			if err := json.Unmarshal(r.Settings, &worker.Settings); err != nil {
				return fmt.Errorf("worker %s: %w", r.Worker, err)
			}
		}
		if len(d.cancellations) > 0 {
			d.cancellations = slices.DeleteFunc(d.cancellations, func(w Cancellation) bool { return w.Worker == r.Worker && slices.Contains(received, w.ID) })
		}
		result.History = strconv.Itoa(c.store.history)
		result.Draining, result.Queues = worker.Draining, d.queueNames()
		for _, gate := range closedGates(d.gates, now) {
			if gate.Queue != "" {
				result.Paused = append(result.Paused, gate.Queue)
			}
		}
		slices.Sort(result.Paused)
		for _, cancellation := range d.cancellations {
			if cancellation.Worker == r.Worker {
				ids, result.Cancelled = append(ids, cancellation.ID), append(result.Cancelled, cancellation.Ticket)
			}
		}
		return nil
	})
	if err != nil {
		c.endOwnSession(r.Worker)
	}
	if errors.Is(err, store.ErrFenced) {
		c.setReceived(r.Worker, nil)
	}
	if err != nil {
		return store.RenewResult{}, err
	}
	c.setReceived(r.Worker, ids)
	return result, nil
}

func (c *Client) receivedBy(worker holdfast.WorkerID) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received[worker]
}

func (c *Client) setReceived(worker holdfast.WorkerID, ids []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(ids) == 0 {
		delete(c.received, worker)
		return
	}
	if c.received == nil {
		c.received = make(map[holdfast.WorkerID][]int64)
	}
	c.received[worker] = ids
}

// DeregisterWorker implements store.Leases.
func (c *Client) DeregisterWorker(ctx context.Context, id holdfast.WorkerID, clean bool) error {
	err := c.do(ctx, Step{Op: "DeregisterWorker", worker: id}, func(now time.Time) error {
		d := &c.store.db
		if worker := d.worker(id); worker != nil && worker.State == store.WorkerLive {
			worker.State, worker.EndedAt, worker.Running, worker.Swept = store.WorkerStopped, now, 0, clean
		}
		d.cancellations = slices.DeleteFunc(d.cancellations, func(w Cancellation) bool { return w.Worker == id })
		return nil
	})
	c.endOwnSession(id)
	if err == nil {
		c.setReceived(id, nil)
	}
	return err
}

// Drain implements store.Leases.
func (c *Client) Drain(ctx context.Context, id holdfast.WorkerID) error {
	return c.do(ctx, Step{Op: "Drain", worker: id}, func(time.Time) error {
		worker := c.store.db.worker(id)
		switch {
		case worker == nil:
			return fmt.Errorf("%w: there is no worker %s", holdfast.ErrNotFound, id)
		case worker.State != store.WorkerLive:
			return fmt.Errorf("%w: worker %s is %s", holdfast.ErrConflict, id, worker.State)
		}
		worker.Draining = true
		return nil
	})
}

// Workers implements store.Leases.
func (c *Client) Workers(ctx context.Context, all bool) ([]store.Worker, error) {
	var workers []store.Worker
	err := c.do(ctx, Step{Op: "Workers"}, func(time.Time) error {
		rows := c.store.db.workers
		for i := len(rows) - 1; i >= 0; i-- {
			if all || rows[i].State == store.WorkerLive {
				worker := rows[i].Worker
				worker.Queues = slices.Clone(worker.Queues)
				workers = append(workers, worker)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return workers, nil
}
