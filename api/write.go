package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// tagged is a response about one task with its entity tag.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"Changes with the state and the attempt of the task. Send it as If-Match."`
	Body T
}

// onTask is like on, for a handler that also returns the task, for its entity tag.
func onTask[I, O any](a *API, handler func(context.Context, *I) (O, holdfast.Task, error)) func(huma.API, huma.Operation) {
	return func(described huma.API, op huma.Operation) {
		huma.Register(described, op, func(ctx context.Context, in *I) (*tagged[O], error) {
			out, task, err := handler(ctx, in)
			if err != nil {
				return nil, a.failed(ctx, op, err)
			}
			return &tagged[O]{tagOf(task), out}, nil
		})
	}
}

// tagOf returns the entity tag of a task. Every change by a person and every attempt changes the state or the number of
// the attempt.
func tagOf(task holdfast.Task) string { return fmt.Sprintf(`"%d-%s"`, task.Attempt, task.State) }

// TaskAction has the parameters of routes that change one task; see TaskPath.
type TaskAction struct {
	TaskPath
	IfMatch string `header:"If-Match" doc:"Change the task only if it still has this entity tag."`
	Reason  string `query:"reason" doc:"Why, for the audit log."`
}

// check returns a problem if the entity tag of the task is none of those in If-Match.
func (in *TaskAction) check(task holdfast.Task) error {
	if in.IfMatch == "" {
		return nil
	}
	for tag := range strings.SplitSeq(in.IfMatch, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || tag == tagOf(task) {
			return nil
		}
	}
	p := newProblem(http.StatusPreconditionFailed, "changed", "task %s has changed: it is now %s at attempt %d, with the entity tag %s",
		task.ID, task.State, task.Attempt, tagOf(task))
	p.Hint = "get the task again, and repeat the request with its new ETag if the change is still wanted"
	return p
}

// act returns the handler of a route that does one action on one task.
func (a *API) act(what store.Action) func(context.Context, *TaskAction) (surface.TaskState, holdfast.Task, error) {
	return func(ctx context.Context, in *TaskAction) (surface.TaskState, holdfast.Task, error) {
		id, err := in.id()
		if err != nil {
			return surface.TaskState{}, holdfast.Task{}, err
		}
		task, err := a.b.ActIf(ctx, actor(ctx, in.Reason), id, what, in.check)
		return surface.TaskState{ID: task.ID, State: task.State}, task, err
	}
}
