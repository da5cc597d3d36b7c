// Package roles has the roles of the contract that are the same over every adapter. Only their statements differ.
package roles

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// Statements runs the statements of an adapter by their names. The adapter writes lists, times and durations among the
// arguments as its statements take them.
type Statements interface {
	// Read reads all rows into a pointer to a slice of structs.
	Read(ctx context.Context, operation, name string, rows any, args ...any) error
	// Change changes rows.
	Change(ctx context.Context, operation, name string, args ...any) error
}

// Tickets is the role store.Tickets.
type Tickets struct{ over Statements }

// NewTickets returns the role over the statements park, passed_on and drained.
func NewTickets(s Statements) Tickets { return Tickets{s} }

// Park implements store.Tickets.
func (t *Tickets) Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error {
	if len(tickets) == 0 {
		return nil
	}
	return t.over.Change(ctx, "park tasks", "park", tickets, wait, column.Text(why))
}

// PassedOn implements store.Tickets.
func (t *Tickets) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	return t.over.Change(ctx, "note tickets that are passed on", "passed_on", tickets)
}

// Drained implements store.Tickets.
func (t *Tickets) Drained(ctx context.Context, s message.Sentinel) error {
	return t.over.Change(ctx, "record a drained lane", "drained", s.Lane, s.At)
}

// Patrol is the role store.Patrol.
type Patrol struct{ over Statements }

// NewPatrol returns the role over the statements run_states, positions and tasks_by_id.
func NewPatrol(s Statements) Patrol { return Patrol{s} }

// RunStates implements store.Patrol.
func (p *Patrol) RunStates(ctx context.Context, runs []holdfast.RunID) (map[holdfast.RunID]store.RunStatus, error) {
	var rows []scan.RunState
	if err := p.over.Read(ctx, "read runs", "run_states", &rows, runs); err != nil {
		return nil, err
	}
	return scan.RunStates(rows), nil
}

// Positions implements store.Patrol.
func (p *Patrol) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	ids := make([]holdfast.TaskID, len(tickets))
	for i, ticket := range tickets {
		ids[i] = ticket.Task
	}
	var rows []scan.Position
	if err := p.over.Read(ctx, "read positions", "positions", &rows, ids); err != nil {
		return nil, err
	}
	return scan.Positions(rows), nil
}

// TasksByID implements store.Patrol.
func (p *Patrol) TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []scan.Task
	if err := p.over.Read(ctx, "read tasks", "tasks_by_id", &rows, ids); err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}

// Desk is the role store.Desk.
type Desk struct {
	over   Statements
	choose func(operation string, f store.Filter) string
}

// NewDesk returns the role over the statements task, attempts, lanes, list and count. choose returns the name of the
// statement that does list or count soonest for a filter.
func NewDesk(s Statements, choose func(operation string, f store.Filter) string) Desk {
	return Desk{s, choose}
}

// Task implements store.Desk.
func (d *Desk) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	const operation = "read task"
	var rows []scan.Whole
	if err := d.over.Read(ctx, operation, "task", &rows, []holdfast.TaskID{id}); err != nil {
		return holdfast.Task{}, err
	}
	if len(rows) == 0 {
		return holdfast.Task{}, fmt.Errorf("%s: %w", operation, scan.NotFound(id))
	}
	return rows[0].Value(), nil
}

// defaultLimit is how many tasks List returns if the filter says no limit.
const defaultLimit = 50

// List implements store.Desk.
func (d *Desk) List(ctx context.Context, f store.Filter) ([]holdfast.Task, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	var rows []scan.Task
	if err := d.over.Read(ctx, "list tasks", d.choose("list", f), &rows, append(filter(f), limit)...); err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}

// filter returns the first seven arguments of the statements for list and count.
func filter(f store.Filter) []any {
	return []any{f.States, f.Type, f.Lane, column.Text(f.Error), f.Before, bound(f.Since), bound(f.Until)}
}

// bound returns a time in microseconds since the epoch, or 0 for the zero time, which is no bound.
func bound(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// Count implements store.Desk.
func (d *Desk) Count(ctx context.Context, f store.Filter) (map[holdfast.State]int64, error) {
	var rows []scan.Count
	if err := d.over.Read(ctx, "count tasks", d.choose("count", f), &rows, filter(f)...); err != nil {
		return nil, err
	}
	return scan.Counts(slices.DeleteFunc(rows, func(row scan.Count) bool {
		return len(f.States) > 0 && !slices.Contains(f.States, row.State)
	})), nil
}

// Attempts implements store.Desk.
func (d *Desk) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	const operation = "read attempts"
	var rows []scan.Attempt
	if err := d.over.Read(ctx, operation, "attempts", &rows, id); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: %w", operation, scan.NotFound(id))
	}
	return scan.Attempts(rows), nil
}

// Lanes implements store.Desk.
func (d *Desk) Lanes(ctx context.Context) ([]store.Lane, error) {
	var rows []scan.Lane
	if err := d.over.Read(ctx, "describe lanes", "lanes", &rows); err != nil {
		return nil, err
	}
	return scan.Lanes(rows), nil
}
