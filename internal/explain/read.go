package explain

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// Source is the part of a store that Read needs.
type Source interface {
	Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error)
	Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error)
	Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error)
	Workers(ctx context.Context, all bool) ([]store.Worker, error)
	Queues(ctx context.Context) ([]store.Queue, error)
	Gates(ctx context.Context) ([]store.Gate, error)
	LimitsOf(ctx context.Context, task holdfast.TaskID) ([]store.TaskLimit, error)
	OrderOf(ctx context.Context, task holdfast.TaskID) (store.KeyPlace, error)
	TopicOf(ctx context.Context, task holdfast.TaskID) (store.TopicPlace, error)
	ListPlans(ctx context.Context, f store.PlanFilter) ([]store.Plan, error)
	PlanByName(ctx context.Context, kind store.PlanKind, name string) (store.Plan, error)
	TaskData(ctx context.Context, tasks []holdfast.TaskID, names ...string) ([]store.Datum, error)
	AuditLog(ctx context.Context, f store.AuditFilter) ([]store.AuditEntry, error)
	Now(ctx context.Context) (time.Time, error)
}

// maxEdits is the maximum number of audit entries that an explanation reads.
const maxEdits = 100

// Read reads the facts about a task and explains it. settings and ages are those of the caller; see Facts. It returns an
// ErrNotFound if the store has no task with that id.
func Read(ctx context.Context, s Source, id holdfast.TaskID, settings holdfast.Settings, ages store.PruneAges) (Explanation, error) {
	f := Facts{Ages: ages}
	var err error
	if f.Task, err = s.Task(ctx, id); err != nil {
		return Explanation{}, err
	}
	if f.Attempts, err = s.Attempts(ctx, id); err != nil {
		return Explanation{}, err
	}
	positions, err := s.Positions(ctx, []message.Ticket{{Task: id, Attempt: f.Task.Attempt}})
	if err != nil {
		return Explanation{}, err
	}
	f.Position = positions[0]
	if f.Workers, err = s.Workers(ctx, false); err != nil {
		return Explanation{}, err
	}
	if f.Task.State == holdfast.Ready {
		queues, err := s.Queues(ctx)
		if err != nil {
			return Explanation{}, err
		}
		if i := slices.IndexFunc(queues, func(q store.Queue) bool { return q.Subqueue() == f.Task.Subqueue() }); i >= 0 {
			f.Queue = queues[i]
		}
		gates, err := s.Gates(ctx)
		if err != nil {
			return Explanation{}, err
		}
		f.Gates = slices.DeleteFunc(gates, func(g store.Gate) bool { return g.Kind != store.GatePause || !g.Selects(&f.Task) })
		if f.Task.Attempt > 1 {
			if f.Edits, err = s.AuditLog(ctx, store.AuditFilter{Task: id, Limit: maxEdits}); err != nil {
				return Explanation{}, err
			}
		}
		if f.Limited, err = s.LimitsOf(ctx, id); err != nil {
			return Explanation{}, err
		}
		if f.Task.Topic != "" {
			if f.Slot, err = ifFound(s.TopicOf(ctx, id)); err != nil {
				return Explanation{}, err
			}
		}
	}
	if f.Task.State == holdfast.Running {
		if f.Values, err = s.TaskData(ctx, []holdfast.TaskID{id}, store.ProgressData); err != nil {
			return Explanation{}, err
		}
	}
	if f.Task.Ordered && (f.Task.State == holdfast.Ready || f.Task.State == holdfast.Dead) {
		if f.Place, err = ifFound(s.OrderOf(ctx, id)); err != nil {
			return Explanation{}, err
		}
	}
	if err = f.readOrigins(ctx, s); err != nil {
		return Explanation{}, err
	}
	if f.Now, err = s.Now(ctx); err != nil {
		return Explanation{}, err
	}
	f.Settings = *settings.For(f.Task.Type)
	pass, err := readPass(ctx, s, f.Task)
	if err != nil {
		return Explanation{}, err
	}
	batch, err := readBatch(ctx, s, f.Task)
	if err != nil {
		return Explanation{}, err
	}
	e := Of(f)
	e.Pass, e.Batch = pass, batch
	return e, nil
}

// ifFound returns the place of a task, or nil if the store has none.
func ifFound[P any](place P, err error) (*P, error) {
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	return &place, err
}
