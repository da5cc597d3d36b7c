package console

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// queues is the view of the queues.
type queues struct {
	Now    time.Time
	Queues []surface.Queue
	Broker string // why the figures of the broker are missing
}

func (c *Console) queues(ctx context.Context, _ *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	rows, unknown, err := surface.Queues(ctx, c.b, brokerWait)
	if err != nil {
		return nil, err
	}
	v := queues{Now: now, Queues: rows}
	if unknown != nil {
		v.Broker = unknown.Error()
	}
	return v, nil
}

// workers is the view of the workers.
type workers struct {
	Now     time.Time
	All     bool // also those that have ended
	Workers []workerRow
}

// workerRow is a worker in the list.
type workerRow struct {
	surface.Worker
	Late bool // its lease has expired, and no janitor has noticed yet
}

func rowOf(w store.Worker, now time.Time) workerRow {
	return workerRow{surface.WorkerOf(w), w.State == store.WorkerLive && w.LeaseUntil.Before(now)}
}

func (c *Console) workers(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := workers{Now: now, All: r.q("all") != ""}
	found, err := c.b.Store.Workers(ctx, v.All)
	for _, w := range found {
		v.Workers = append(v.Workers, rowOf(w, now))
	}
	return v, err
}

// worker is the view of a worker: what it holds.
type worker struct {
	Now time.Time
	workerRow
	Holds []surface.ListedTask // the newest tasks
	More  bool                 // the worker holds more tasks than Holds has
}

func (c *Console) worker(ctx context.Context, r *request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, holdfast.ErrNotFound
	}
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	found, err := c.b.Store.Workers(ctx, true)
	if err != nil {
		return nil, err
	}
	for _, w := range found {
		if w.ID != holdfast.WorkerID(id) {
			continue
		}
		v := worker{Now: now, workerRow: rowOf(w, now)}
		page, err := surface.List(ctx, c.b, store.Filter{Worker: w.ID, Limit: taskLimit})
		v.Holds, v.More = page.Tasks, page.Next != nil
		return v, err
	}
	return nil, holdfast.ErrNotFound
}

// operations is the view of the operations.
type operations struct {
	Now        time.Time
	Operations []surface.Operation
	Next       string
}

func (c *Console) operations(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	before, _ := strconv.ParseInt(r.q("before"), 10, 64)
	page, err := surface.Operations(ctx, c.b, store.OperationFilter{Before: store.ID(before), Limit: taskLimit})
	v := operations{Now: now, Operations: page.Operations}
	if page.Next != nil {
		v.Next = page.Next.String()
	}
	return v, err
}

// operation is the view of an operation.
type operation struct {
	Now time.Time
	surface.Operation
	Steps []int // the ends of the steps in percent
}

func (c *Console) operation(ctx context.Context, r *request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, holdfast.ErrNotFound
	}
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	o, err := surface.GetOperation(ctx, c.b, store.ID(id))
	return operation{now, o, o.Ramp}, err
}

// gates is the view of pauses, breakers and limits.
type gates struct {
	Now    time.Time
	Gates  []surface.ListedGate
	Limits []store.LimitUse
}

func (c *Console) gates(ctx context.Context, _ *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	found, err := surface.ListGates(ctx, c.b)
	if err != nil {
		return nil, err
	}
	limits, err := c.b.Store.Limits(ctx)
	return gates{now, found, limits}, err
}

// keys is the view of the keys with ordered tasks that wait.
type keys struct {
	Now  time.Time
	Dead bool // only the keys whose active task is dead
	Keys []store.OrderedKey
	More bool // there are more keys
}

func (c *Console) keys(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	v := keys{Now: now, Dead: r.q("dead") != ""}
	v.Keys, err = c.b.Store.OrderedKeys(ctx, v.Dead, taskLimit+1)
	if len(v.Keys) > taskLimit {
		v.Keys, v.More = v.Keys[:taskLimit], true
	}
	return v, err
}

// topics is the view of the topics with open tasks.
type topics struct {
	Queue  string // only topics with open tasks in this queue
	Topics []store.TopicUse
	Next   string
}

func (c *Console) topics(ctx context.Context, r *request) (any, error) {
	v := topics{Queue: r.q("queue")}
	page, err := surface.Topics(ctx, c.b, surface.TopicQuery{Queue: v.Queue, Limit: taskLimit, After: r.q("after")})
	v.Topics = page.Topics
	if page.Next != nil {
		v.Next = *page.Next
	}
	return v, err
}

// audit is the view of the audit log.
type audit struct {
	Now     time.Time
	Query   surface.AuditQuery
	Bad     string
	Entries []surface.AuditEntry
	Next    string
}

func (c *Console) audit(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	before, _ := strconv.ParseInt(r.q("before"), 10, 64)
	operation, _ := strconv.ParseInt(r.q("operation"), 10, 64)
	v := audit{Now: now, Query: surface.AuditQuery{
		Task: r.q("task"), Operation: operation, Actor: r.q("actor"), Action: r.q("action"), Since: r.q("since"), Tasks: r.q("tasks") != "", Limit: taskLimit, Before: before,
	}}
	if err := v.Query.Check(); err != nil {
		v.Bad = err.Error()
		return v, nil
	}
	page, err := surface.ListAudit(ctx, c.b, v.Query)
	if v.Entries = page.Entries; page.Next != nil {
		v.Next = page.Next.String()
	}
	return v, err
}

// batches is the view of the batches.
type batches struct {
	Now     time.Time
	Batches []surface.Batch
	Next    string
}

func (c *Console) batches(ctx context.Context, r *request) (any, error) {
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	before, _ := strconv.ParseInt(r.q("before"), 10, 64)
	found, err := c.b.Batches(ctx, nil, holdfast.BatchID(before), taskLimit)
	v := batches{Now: now}
	for _, b := range found {
		v.Batches = append(v.Batches, surface.BatchOf(b))
	}
	if len(found) == taskLimit {
		v.Next = found[len(found)-1].ID.String()
	}
	return v, err
}

// batch is the view of a batch.
type batch struct {
	Now time.Time
	surface.Batch
	Tag string
}

func (c *Console) batch(ctx context.Context, r *request) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, holdfast.ErrNotFound
	}
	now, err := c.b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	b, err := c.b.Batch(ctx, holdfast.BatchID(id))
	if err != nil {
		return nil, err
	}
	return batch{now, surface.BatchOf(b), strconv.Quote(strconv.FormatInt(b.Version(), 10))}, nil
}
