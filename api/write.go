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

// The parts of parameters are exported, because the library sets only exported members.
type (
	// IDPath has the parameter of routes about something with a number.
	IDPath struct {
		ID int64 `path:"id" minimum:"1" doc:"The id."`
	}

	// Conditional has the parameters of routes that change something with an entity tag.
	Conditional struct {
		IfMatch string `header:"If-Match" doc:"Make the change only if what it changes still has this entity tag."`
		Reason  string `query:"reason" doc:"Why, for the audit log."`
	}

	// RawJSON has a body that is decoded apart from the parameters; see decoded.
	RawJSON struct {
		RawBody []byte `contentType:"application/json"`
	}
)

// idAction has the parameters of routes that change something with a number and an entity tag.
type idAction struct {
	IDPath
	Conditional
}

// replacement has the parameters of routes whose body has a reason and names what they set.
type replacement struct {
	IfMatch string `header:"If-Match" doc:"Make the change only if what it changes still has this entity tag."`
	RawJSON
}

func (r *RawJSON) raw() []byte { return r.RawBody }

// decoded returns a handler that decodes the body of a request for another one.
func decoded[P interface{ raw() []byte }, R, O any](handler func(context.Context, P, R) (O, error)) func(context.Context, P) (O, error) {
	return func(ctx context.Context, in P) (out O, err error) {
		var request R
		if p := decode(in.raw(), &request); p != nil {
			return out, p
		}
		return handler(ctx, in, request)
	}
}

// tagged is a response with the entity tag of what it describes.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"The version of what the body describes. Send it as If-Match."`
	Body T
}

// withTag returns the response of a handler.
func withTag[T any](tag string, out T, err error) (*tagged[T], error) {
	return &tagged[T]{tag, out}, err
}

// taskTag returns the entity tag of a task. Every change by a person and every attempt changes the state, the number of
// the attempt, or the time when the task reached its final state. Only the last differs after an archive and a restore.
func taskTag(task holdfast.Task) string {
	if task.FinishedAt.IsZero() {
		return fmt.Sprintf(`"%d-%s"`, task.Attempt, task.State)
	}
	return fmt.Sprintf(`"%d-%s-%x"`, task.Attempt, task.State, task.FinishedAt.UnixMicro())
}

// versionTag returns the entity tag of something whose version each change by a person increases.
func versionTag(version int64) string { return fmt.Sprintf(`"%d"`, version) }

// unchanged returns a problem if the header If-Match names other entity tags than that of what a request would change. The
// tag is empty if there is no such thing. text begins the text of the problem.
func unchanged(ifMatch, tag, format string, args ...any) error {
	if ifMatch == "" {
		return nil
	}
	if tag != "" {
		for allowed := range strings.SplitSeq(ifMatch, ",") {
			if allowed = strings.TrimSpace(allowed); allowed == "*" || allowed == tag {
				return nil
			}
		}
		format += " the entity tag %s"
		args = append(args, tag)
	}
	return changed(format, args...)
}

// changed returns the problem of a request whose If-Match names another version.
func changed(format string, args ...any) *Problem {
	return newProblem(http.StatusPreconditionFailed, "changed", format, args...).
		hint("get it again, and repeat the request with its new ETag if the change is still wanted")
}

// TaskAction has the parameters of routes that change one task; see TaskPath.
type TaskAction struct {
	TaskPath
	Conditional
}

// check returns a problem if the entity tag of the task is none of those in If-Match.
func (in *TaskAction) check(task holdfast.Task) error {
	return unchanged(in.IfMatch, taskTag(task), "task %s has changed: it is now %s at attempt %d, with", task.ID, task.State, task.Attempt)
}

// act returns the handler of a route that does one action on one task.
func (a *API) act(what store.Action) func(context.Context, *TaskAction) (*tagged[surface.TaskState], error) {
	return ofTask(func(ctx context.Context, in *TaskAction, id holdfast.TaskID) (*tagged[surface.TaskState], error) {
		task, err := a.b.Act(ctx, actor(ctx, in.Reason), id, what, in.check)
		return withTag(taskTag(task), surface.TaskState{ID: task.ID, State: task.State}, err)
	})
}
