package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// tagged is a response with the entity tag of what it describes.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"The version of what the body describes. Send it as If-Match."`
	Body T
}

// ofTask returns the response about a task.
func ofTask[T any](out T, task holdfast.Task, err error) (*tagged[T], error) {
	return &tagged[T]{tagOf(task), out}, err
}

// tagOf returns the entity tag of a task. Every change by a person and every attempt changes the state, the number of the
// attempt, or the time when the task reached its final state. Only the last differs after an archive and a restore.
func tagOf(task holdfast.Task) string {
	if task.FinishedAt.IsZero() {
		return fmt.Sprintf(`"%d-%s"`, task.Attempt, task.State)
	}
	return fmt.Sprintf(`"%d-%s-%x"`, task.Attempt, task.State, task.FinishedAt.UnixMicro())
}

// TaskAction has the parameters of routes that change one task; see TaskPath.
type TaskAction struct {
	TaskPath
	IfMatch string `header:"If-Match" doc:"Change the task only if it still has this entity tag."`
	Reason  string `query:"reason" doc:"Why, for the audit log."`
}

// check returns a problem if the entity tag of the task is none of those in If-Match.
func (in *TaskAction) check(task holdfast.Task) error {
	if matches(in.IfMatch, tagOf(task)) {
		return nil
	}
	return changed("task %s has changed: it is now %s at attempt %d, with the entity tag %s", task.ID, task.State, task.Attempt, tagOf(task))
}

// matches reports whether the header If-Match allows a change of what has the entity tag. Without the header it does.
func matches(ifMatch, tag string) bool {
	if ifMatch == "" {
		return true
	}
	for allowed := range strings.SplitSeq(ifMatch, ",") {
		if allowed = strings.TrimSpace(allowed); allowed == "*" || allowed == tag {
			return true
		}
	}
	return false
}

// changed returns the problem of a request whose If-Match names another version.
func changed(format string, args ...any) *Problem {
	p := newProblem(http.StatusPreconditionFailed, "changed", format, args...)
	p.Hint = "get it again, and repeat the request with its new ETag if the change is still wanted"
	return p
}

// act returns the handler of a route that does one action on one task.
func (a *API) act(what store.Action) func(context.Context, *TaskAction) (*tagged[surface.TaskState], error) {
	return func(ctx context.Context, in *TaskAction) (*tagged[surface.TaskState], error) {
		id, err := in.id()
		if err != nil {
			return nil, err
		}
		task, err := a.b.ActIf(ctx, actor(ctx, in.Reason), id, what, in.check)
		return ofTask(surface.TaskState{ID: task.ID, State: task.State}, task, err)
	}
}
