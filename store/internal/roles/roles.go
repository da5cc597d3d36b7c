// Package roles implements the roles of the contract that are the same for every adapter. A role with a .sql file has
// the same statements for all adapters; see package statement. The adapters have the other statements.
package roles

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// tickets implements store.Tickets, and QueueNames of store.Dispatch.
type tickets struct {
	statements transact.Statements
	ended      *flow.Ended
}

// Park implements store.Tickets.
func (t *tickets) Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error {
	if len(tickets) == 0 {
		return nil
	}
	return t.statements.Change(ctx, "park tasks", "park", tickets, wait, column.Text(why))
}

// Block implements store.Tickets.
func (t *tickets) Block(ctx context.Context, gate store.ID, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	if err := t.statements.Change(ctx, "block tasks", "block", tickets, int64(gate)); err != nil {
		return err
	}
	t.ended.Add(scan.Map(tickets, taskOf)...)
	return nil
}

func taskOf(ticket message.Ticket) holdfast.TaskID { return ticket.Task }

// unparkStep is the maximum number of tasks that one step of Unpark reads.
const unparkStep = 2000

// Unpark implements store.Tickets.
func (t *tickets) Unpark(ctx context.Context, types, queues []string) (changed int, err error) {
	const operation = "unpark tasks"
	if len(types) == 0 {
		return 0, nil
	}
	if queues == nil {
		queues = []string{}
	}
	for after := (parkedRow{}); ; {
		var rows []parkedRow
		if err := t.statements.Read(ctx, operation, "parked", &rows, store.LongestPark+time.Minute, after.Due, after.ID, unparkStep, types, queues); err != nil {
			return changed, err
		}
		var parked []holdfast.TaskID
		more := false
		for _, row := range rows {
			if row.Found {
				parked = append(parked, row.ID)
			}
			if row.N == unparkStep {
				after, more = row, true
			}
		}
		if len(parked) > 0 {
			if err := t.statements.Change(ctx, operation, "unpark", parked); err != nil {
				return changed, err
			}
			changed += len(parked)
		}
		if !more {
			return changed, nil
		}
	}
}

// parkedRow is a row of the statement parked.
type parkedRow struct {
	ID    holdfast.TaskID
	Due   int64 // due_at in microseconds
	N     int   // its number among the tasks that the step has read
	Found bool
}

// Handlers implements store.Tickets.
func (t *tickets) Handlers(ctx context.Context) ([]store.Handler, error) {
	var handlers []store.Handler
	err := t.statements.Read(ctx, "list the handlers of live workers", "handlers", &handlers)
	return handlers, err
}

// AddQueues implements store.Tickets.
func (t *tickets) AddQueues(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return t.statements.Change(ctx, "store queues", "add_queues", slices.Sorted(slices.Values(names))) // in one order, so that calls cannot deadlock
}

// PassedOn implements store.Tickets.
func (t *tickets) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	return t.statements.Change(ctx, "record tickets that are passed on", "passed_on", tickets)
}

// Drained implements store.Tickets.
func (t *tickets) Drained(ctx context.Context, s message.Sentinel) error {
	return t.statements.Change(ctx, "record a drained queue", "drained", s.Queue, s.At)
}

// QueueNames implements store.Dispatch.
func (t *tickets) QueueNames(ctx context.Context) ([]string, error) {
	var rows []scan.Name
	err := t.statements.Read(ctx, "list queues", "queue_names", &rows)
	return scan.Names(rows), err
}

// duties implements a part of store.Upkeep.
type duties struct{ statements transact.Statements }

// ReportDuty implements store.Upkeep.
func (d *duties) ReportDuty(ctx context.Context, f store.DutyFailure) error {
	const operation = "report a duty"
	if f.Error == "" {
		return d.statements.Change(ctx, operation, "clear_duty", column.Text(f.Janitor), f.Duty)
	}
	return d.statements.Change(ctx, operation, "report_duty",
		column.Text(f.Janitor), f.Duty, column.Text(f.Error), f.For, f.Valid)
}

// patrol implements store.Patrol.
type patrol struct{ statements transact.Statements }

// WorkerStates implements store.Patrol.
func (p *patrol) WorkerStates(ctx context.Context, workers []holdfast.WorkerID) (map[holdfast.WorkerID]store.WorkerStatus, error) {
	var rows []struct {
		ID holdfast.WorkerID
		store.WorkerStatus
	}
	if err := p.statements.Read(ctx, "read workers", "worker_states", &rows, workers); err != nil {
		return nil, err
	}
	states := make(map[holdfast.WorkerID]store.WorkerStatus, len(rows))
	for _, row := range rows {
		states[row.ID] = row.WorkerStatus
	}
	return states, nil
}

// Positions implements store.Patrol.
func (p *patrol) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	var positions []store.Position
	err := p.statements.Read(ctx, "read positions", "positions", &positions, scan.Map(tickets, taskOf))
	return positions, err
}

// TasksByID implements store.Patrol.
func (p *patrol) TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return transact.ListOf(ctx, transact.Alone(p.statements, "read tasks"), "tasks_by_id", scan.Task.Value, ids)
}

// inspector implements store.Inspector.
type inspector struct{ statements transact.Statements }

// Task implements store.Inspector.
func (i *inspector) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	const operation = "read task"
	missing := fmt.Errorf("%s: %w", operation, scan.NotFound(id))
	row, err := transact.FirstOf[scan.Task](ctx, transact.Alone(i.statements, operation), missing, "task", []holdfast.TaskID{id})
	if err != nil {
		return holdfast.Task{}, err
	}
	return row.Value(), nil
}

// FullTasks implements store.Inspector.
func (i *inspector) FullTasks(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	tasks, err := transact.ListOf(ctx, transact.Alone(i.statements, "read tasks"), "task", scan.Task.Value, ids)
	slices.SortFunc(tasks, func(a, b holdfast.Task) int { return cmp.Compare(a.ID, b.ID) })
	return tasks, err
}

// TaskSizes implements store.Inspector.
func (i *inspector) TaskSizes(ctx context.Context, ids []holdfast.TaskID) (sizes []store.TaskSize, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return sizes, i.statements.Read(ctx, "read sizes of tasks", "task_sizes", &sizes, ids)
}

// Count implements store.Inspector.
func (i *inspector) Count(ctx context.Context, f store.Filter) (store.Counts, error) {
	const operation = "count tasks"
	if f.OnlyGroups() {
		groups, err := countGroups(ctx, i.statements, operation)
		return sum(groups, f), err
	}
	q, err := i.prepare(ctx, operation, f)
	if err != nil {
		return store.Counts{}, err
	}
	from := i.source("count", &q)
	var found []scan.Count
	next, err := i.scan(ctx, operation, from, &q, func(ctx context.Context, after holdfast.TaskID) (int, error) {
		var rows []scan.Count
		err := i.statements.Read(ctx, operation, from.statement, &rows, q.arguments(after)...)
		if err == nil {
			found = append(found, rows...)
		}
		return len(rows), err
	}, func() bool { return false })
	if err != nil {
		return store.Counts{}, err
	}
	return store.Counts{By: scan.Counts(found), Next: next}, nil
}

// sum returns the total of the groups that a filter selects.
func sum(groups []store.CountGroup, f store.Filter) store.Counts {
	counts := store.Counts{By: scan.Counts(nil)}
	for _, g := range groups {
		if (f.Type == "" || g.Type == f.Type) && (f.Queue == "" || g.Queue == f.Queue) &&
			(len(f.Priorities) == 0 || slices.Contains(f.Priorities, g.Priority)) && (len(f.States) == 0 || slices.Contains(f.States, g.State)) {
			counts.By[g.State] += g.Tasks
		}
	}
	return counts
}

// Attempts implements store.Inspector.
func (i *inspector) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	const operation = "read attempts"
	var attempts []holdfast.Attempt
	if err := i.statements.Read(ctx, operation, "attempts", &attempts, id); err != nil {
		return nil, err
	}
	if len(attempts) == 0 {
		return nil, fmt.Errorf("%s: %w", operation, scan.NotFound(id))
	}
	// A row with the number 0 only shows that the task exists.
	return slices.DeleteFunc(attempts, func(a holdfast.Attempt) bool { return a.Attempt == 0 }), nil
}

// Queues implements store.Inspector.
func (i *inspector) Queues(ctx context.Context) ([]store.Queue, error) {
	var rows []scan.Queue
	if err := i.statements.Read(ctx, "describe queues", "queues", &rows); err != nil {
		return nil, err
	}
	return scan.Queues(rows), nil
}

// TypeSchemas implements store.Inspector.
func (i *inspector) TypeSchemas(ctx context.Context, taskType string) ([]store.TypeSchema, error) {
	var schemas []store.TypeSchema
	err := i.statements.Read(ctx, "read the schemas of types", "type_schemas", &schemas, taskType)
	return schemas, err
}
