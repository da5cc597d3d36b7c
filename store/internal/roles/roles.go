// Package roles implements the roles of the contract that are the same for every adapter. Only their SQL statements
// differ.
package roles

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// Statements executes the statements of an adapter by name. The adapter converts lists, times and durations among the
// arguments.
type Statements interface {
	// Read executes a query and reads all rows into rows, a pointer to a slice of structs. operation is the prefix of
	// errors.
	Read(ctx context.Context, operation, name string, rows any, args ...any) error
	// Change executes a statement that returns no rows. operation is the prefix of errors.
	Change(ctx context.Context, operation, name string, args ...any) error
}

// Tickets implements store.Tickets.
type Tickets struct{ statements Statements }

// NewTickets returns the role, which uses the statements park, passed_on and drained.
func NewTickets(s Statements) Tickets { return Tickets{s} }

// Park implements store.Tickets.
func (t *Tickets) Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error {
	if len(tickets) == 0 {
		return nil
	}
	return t.statements.Change(ctx, "park tasks", "park", tickets, wait, column.Text(why))
}

// PassedOn implements store.Tickets.
func (t *Tickets) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	return t.statements.Change(ctx, "record tickets that are passed on", "passed_on", tickets)
}

// Drained implements store.Tickets.
func (t *Tickets) Drained(ctx context.Context, s message.Sentinel) error {
	return t.statements.Change(ctx, "record a drained queue", "drained", s.Queue, s.At)
}

// Patrol implements store.Patrol.
type Patrol struct{ statements Statements }

// NewPatrol returns the role, which uses the statements worker_states, positions and tasks_by_id.
func NewPatrol(s Statements) Patrol { return Patrol{s} }

// WorkerStates implements store.Patrol.
func (p *Patrol) WorkerStates(ctx context.Context, workers []holdfast.WorkerID) (map[holdfast.WorkerID]store.WorkerStatus, error) {
	var rows []scan.WorkerState
	if err := p.statements.Read(ctx, "read workers", "worker_states", &rows, workers); err != nil {
		return nil, err
	}
	return scan.WorkerStates(rows), nil
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
	if err := p.statements.Read(ctx, "read positions", "positions", &rows, ids); err != nil {
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
	if err := p.statements.Read(ctx, "read tasks", "tasks_by_id", &rows, ids); err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}

// Inspector implements store.Inspector.
type Inspector struct {
	statements Statements
	choose     func(operation string, f store.Filter) string
}

// NewInspector returns the role, which uses the statements task, attempts, queues, and list and count with their
// variants _unique, _group and _deaths. choose returns the name of the fastest statement for an operation, "list" or
// "count", with a filter that needs none of these variants.
func NewInspector(s Statements, choose func(operation string, f store.Filter) string) Inspector {
	return Inspector{s, choose}
}

// Task implements store.Inspector.
func (i *Inspector) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	const operation = "read task"
	var rows []scan.Whole
	if err := i.statements.Read(ctx, operation, "task", &rows, []holdfast.TaskID{id}); err != nil {
		return holdfast.Task{}, err
	}
	if len(rows) == 0 {
		return holdfast.Task{}, fmt.Errorf("%s: %w", operation, scan.NotFound(id))
	}
	return rows[0].Value(), nil
}

// defaultLimit is how many tasks List returns, and how many groups DeathGroups returns, if the filter has no limit.
const defaultLimit = 50

// A scan of all tasks reads windows of ids, from the newest task down. The windows grow or shrink so that each takes
// about a tenth of the time limit.
const (
	scanLimit   = time.Second
	firstWindow = 2000
	maxWindow   = 1 << 20
)

// List implements store.Inspector.
func (i *Inspector) List(ctx context.Context, f store.Filter) (store.Page, error) {
	const operation = "list tasks"
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	name := i.statement("list", f)
	read := func(after holdfast.TaskID, limit int) ([]scan.Task, error) {
		var rows []scan.Task
		err := i.statements.Read(ctx, operation, name, &rows, append(filter(f, after), limit)...)
		return rows, err
	}
	if name != "list" { // an index finds the tasks
		rows, err := read(0, f.Limit+1) // one more task shows that there is another page
		if err != nil {
			return store.Page{}, err
		}
		return page(rows, f.Limit), nil
	}
	if f.Before == 0 {
		f.Before = math.MaxInt64
	}
	var found []scan.Task
	began, window := time.Now(), holdfast.TaskID(firstWindow)
	for skip := true; ; {
		if skip { // the ids may have large gaps
			var last []scan.ID
			if err := i.statements.Read(ctx, operation, "last_id", &last, f.Before); err != nil {
				return store.Page{}, err
			}
			f.Before = holdfast.TaskID(last[0].ID) + 1
		}
		if f.Before <= 1 {
			break
		}
		if time.Since(began) > scanLimit {
			return store.Page{Tasks: scan.Tasks(found), Next: f.Before}, nil
		}
		after, windowBegan := max(f.Before-window, 1), time.Now()
		rows, err := read(after, f.Limit+1-len(found))
		if err != nil {
			return store.Page{}, err
		}
		if found = append(found, rows...); len(found) > f.Limit {
			break
		}
		f.Before, skip = after, len(rows) == 0
		switch took := time.Since(windowBegan); {
		case took < scanLimit/20:
			window = min(2*window, maxWindow)
		case took > scanLimit/5:
			window = max(window/2, firstWindow)
		}
	}
	return page(found, f.Limit), nil
}

// page returns a page of at most limit tasks. rows has one more if there is another page.
func page(rows []scan.Task, limit int) store.Page {
	if len(rows) <= limit {
		return store.Page{Tasks: scan.Tasks(rows)}
	}
	return store.Page{Tasks: scan.Tasks(rows[:limit]), Next: rows[limit-1].ID}
}

// statement returns the name of the statement for an operation with a filter.
func (i *Inspector) statement(operation string, f store.Filter) string {
	switch {
	case f.Fingerprint != "":
		return operation + "_group"
	case ofDeaths(f):
		return operation + "_deaths"
	case f.Unique != "":
		return operation + "_unique"
	}
	return i.choose(operation, f)
}

// ofDeaths reports whether a filter has a condition for the records of deaths.
func ofDeaths(f store.Filter) bool {
	return f.Fingerprint != "" || f.Class != "" || f.Host != "" || f.Status != 0
}

// filter returns the arguments that the statements for list and count have in common. They select no id below after.
// Those that read the records of deaths have four more arguments.
func filter(f store.Filter, after holdfast.TaskID) []any {
	args := []any{
		f.States, column.Text(f.Type), column.Text(f.Queue), column.Text(f.Error), f.Before, bound(f.Since), bound(f.Until),
		column.Text(f.Unique), f.MinAttempt, f.MaxAttempt, after,
	}
	if ofDeaths(f) {
		args = append(args, column.Text(f.Fingerprint), column.Text(f.Class), column.Text(f.Host), f.Status)
	}
	return args
}

// bound returns a time in microseconds since the epoch. The zero time, which means no bound, is 0.
func bound(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// Count implements store.Inspector.
func (i *Inspector) Count(ctx context.Context, f store.Filter) (map[holdfast.State]int64, error) {
	var rows []scan.Count
	if err := i.statements.Read(ctx, "count tasks", i.statement("count", f), &rows, filter(f, 0)...); err != nil {
		return nil, err
	}
	return scan.Counts(slices.DeleteFunc(rows, func(row scan.Count) bool {
		return len(f.States) > 0 && !slices.Contains(f.States, row.State)
	})), nil
}

// Attempts implements store.Inspector.
func (i *Inspector) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	const operation = "read attempts"
	var rows []scan.Attempt
	if err := i.statements.Read(ctx, operation, "attempts", &rows, id); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: %w", operation, scan.NotFound(id))
	}
	return scan.Attempts(rows), nil
}

// Queues implements store.Inspector.
func (i *Inspector) Queues(ctx context.Context) ([]store.Queue, error) {
	var rows []scan.Queue
	if err := i.statements.Read(ctx, "describe queues", "queues", &rows); err != nil {
		return nil, err
	}
	return scan.Queues(rows), nil
}
