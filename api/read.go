package api

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// brokerTimeout is how long a request waits for the figures of the broker.
const brokerTimeout = time.Second

// query has the parameters of lists of tasks.
type query struct {
	Q      string `query:"q" doc:"Only tasks that match this search, such as: state:dead type:http error:\"connection refused\" since:2h"`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"At most so many items."`
	Before string `query:"before" doc:"The value next of the page before."`
}

func (q *query) filter(ctx context.Context, b *app.Backend) (store.Filter, error) {
	f, err := search.Parse(q.Q, time.Now())
	if err != nil {
		return f, badParameter("q", err).hint("see docs/api.md, Search")
	}
	if f, err = b.KnownFilter(ctx, f); err != nil {
		return f, aboutParameter("q", err)
	}
	f.Limit = q.Limit
	if q.Before != "" {
		if f.Before, err = holdfast.ParseTaskID(q.Before); err != nil {
			return f, badParameter("before", err)
		}
	}
	return f, nil
}

func (a *API) listTasks(ctx context.Context, in *query) (surface.TaskPage, error) {
	f, err := in.filter(ctx, a.b)
	if err != nil {
		return surface.TaskPage{}, err
	}
	return surface.List(ctx, a.b, f)
}

// TaskPath has the parameter of routes about one task. It is exported, because the library sets only exported members.
type TaskPath struct {
	ID string `path:"id" doc:"The id of the task."`
}

func (p *TaskPath) text() string { return p.ID }

// ofTask returns a handler that parses the id of a task, and calls the given handler with it.
func ofTask[P interface{ text() string }, O any](handler func(context.Context, P, holdfast.TaskID) (O, error)) func(context.Context, P) (O, error) {
	return func(ctx context.Context, in P) (out O, err error) {
		id, err := holdfast.ParseTaskID(in.text())
		if err != nil {
			return out, badParameter("id", err)
		}
		return handler(ctx, in, id)
	}
}

func (a *API) getTask(ctx context.Context, _ *TaskPath, id holdfast.TaskID) (*tagged[surface.TaskDetails], error) {
	details, err := surface.Task(ctx, a.b, id)
	return withTag(TaskTag(details.Task), details, err)
}

func (a *API) explainTask(ctx context.Context, _ *TaskPath, id holdfast.TaskID) (explain.Explanation, error) {
	return a.b.Explain(ctx, id)
}

// attempts is a list of attempts.
type attempts struct {
	Attempts []holdfast.Attempt `json:"attempts"`
}

func (a *API) listAttempts(ctx context.Context, _ *TaskPath, id holdfast.TaskID) (attempts, error) {
	found, err := a.b.Store.Attempts(ctx, id)
	return attempts{append([]holdfast.Attempt{}, found...)}, err
}

// deadGroups is a list of groups.
type deadGroups struct {
	Groups []store.DeathGroup `json:"groups"`
}

// groupQuery has the parameters of the list of groups.
type groupQuery struct {
	Q     string `query:"q" doc:"Only dead tasks that match this search, with the fields type, queue, group, since and until."`
	Limit int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"At most so many groups."`
	// Resolved is the flag --resolved of "dead groups".
	Resolved bool `query:"resolved" doc:"Only resolved groups, also those without dead tasks, instead of the others."`
}

func (a *API) listDeadGroups(ctx context.Context, in *groupQuery) (deadGroups, error) {
	f, err := (&query{Q: in.Q}).filter(ctx, a.b)
	if err != nil {
		return deadGroups{}, err
	}
	selected, err := surface.GroupFilter(f)
	if err != nil {
		return deadGroups{}, badParameter("q", err)
	}
	selected.Resolved, selected.Limit = in.Resolved, in.Limit
	groups, err := a.b.Store.DeathGroups(ctx, selected)
	return deadGroups{append([]store.DeathGroup{}, groups...)}, err
}

func (a *API) getCounts(ctx context.Context, _ *struct{}) (surface.Overview, error) {
	return surface.ReadOverview(ctx, a.b.Store)
}

// queues is a list of queues.
type queues struct {
	Queues []surface.Queue `json:"queues"`
	Broker string          `json:"broker_error,omitempty" doc:"Why the figures of the broker are missing."`
}

func (a *API) listQueues(ctx context.Context, _ *struct{}) (queues, error) {
	rows, unknown, err := surface.Queues(ctx, a.b, brokerTimeout)
	found := queues{Queues: append([]surface.Queue{}, rows...)}
	if unknown != nil {
		found.Broker = withoutSentinel(unknown)
	}
	return found, err
}

// workers is a list of workers.
type workers struct {
	Workers []surface.Worker `json:"workers"`
}

func (a *API) listWorkers(ctx context.Context, in *surface.WorkerQuery) (workers, error) {
	found, err := a.b.Store.Workers(ctx, in.All)
	return workers{surface.Each(found, surface.WorkerOf)}, err
}

// types is a list of task types.
type types struct {
	Types []store.TypeSchema `json:"types"`
}

func (a *API) listTypes(ctx context.Context, _ *struct{}) (types, error) {
	found, err := a.b.Store.TypeSchemas(ctx, "")
	return types{append([]store.TypeSchema{}, found...)}, err
}

// keyList is a list of keys with ordered tasks.
type keyList struct {
	Keys []store.OrderedKey `json:"keys"`
}

func (a *API) listKeys(ctx context.Context, in *surface.KeyQuery) (keyList, error) {
	found, err := a.b.Store.OrderedKeys(ctx, in.Dead, in.Limit)
	return keyList{append([]store.OrderedKey{}, found...)}, err
}
